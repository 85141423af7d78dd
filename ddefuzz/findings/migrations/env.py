"""The script that Alembic runs for each migration. It uses the connection that `findings.connection` passes in."""

from __future__ import annotations

from alembic import context

from ddefuzz.findings.schema import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
)
context.run_migrations()
