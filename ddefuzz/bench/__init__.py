"""Measuring ddefuzz: what it costs, what it finds of planted faults, and how it grows beside its peers."""
