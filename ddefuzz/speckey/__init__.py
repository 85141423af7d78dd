"""Specialization keys: the parts of a tensor by which a cache of compiled kernels distinguishes arguments."""
