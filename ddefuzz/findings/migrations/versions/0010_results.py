"""What the program of a finding, or a case, did under each version of torch (`ddefuzz matrix`)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "results",
        sa.Column("case", sa.Text, primary_key=True),
        sa.Column("torch", sa.Text, primary_key=True),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("shows", sa.Integer, nullable=False),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("when", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("results")
