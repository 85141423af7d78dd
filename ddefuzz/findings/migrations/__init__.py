"""How the database became what `schema` says, one file a step in `versions/`."""
