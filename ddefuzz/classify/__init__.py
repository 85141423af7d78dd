"""Classification: finds the call site, the cause and the signature of a failure from its raw frames."""
