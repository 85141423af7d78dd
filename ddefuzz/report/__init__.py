"""Telling: what was found, as text for people and documents for machines."""
