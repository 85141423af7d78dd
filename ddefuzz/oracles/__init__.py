"""Oracles: each judges observations of a program, and returns failures or a verdict."""
