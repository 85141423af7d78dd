"""Findings and guard sites as text, and records in the formats of other tools."""
