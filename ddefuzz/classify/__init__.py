"""Which bug it is: from the raw frames of a failure to its call site, cause and signature."""
