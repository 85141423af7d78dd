"""REMEMBERING: findings, their life cycle, their database and their reviewable text form."""
