"""Checking a user's own model: whose problem it is, changes of the code that remove it, and the report."""
