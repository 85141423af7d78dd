"""Migrations of the database to the schema in `schema`. Each step is a file in `versions/`."""
