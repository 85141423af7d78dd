"""ddefuzz: find framework data-dependent errors in PyTorch before its users do."""

__version__ = "0.1.0"
