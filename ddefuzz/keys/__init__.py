"""Cache keys of compiled kernels: the key of a tensor, and the properties that any key function must have."""
