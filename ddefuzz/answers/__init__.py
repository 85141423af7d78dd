"""Experiments on data-dependent errors: which value of the undecided guard would give a correct capture."""
