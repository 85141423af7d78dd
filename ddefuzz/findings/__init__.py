"""Findings: their records, their states, their database and their reviewable text form."""
