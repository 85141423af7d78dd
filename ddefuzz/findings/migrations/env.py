"""What Alembic runs for each migration: always on the connection that `findings.connection` hands over."""

from __future__ import annotations

from alembic import context

from ddefuzz.findings.schema import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,  # SQLite alters a table by making a new one
)
context.run_migrations()
