"""Measuring ddefuzz: its cost, its recall of planted faults, and its growth compared with other tools."""
