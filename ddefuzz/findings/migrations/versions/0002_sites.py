"""Add the tables of guard sites reached, and of results of sweeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sites",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("torch", "language", "file")),
        sa.Column("line", sa.Integer, primary_key=True),
        sa.Column("function", sa.Text, primary_key=True),
        sa.Column("call", sa.Text, nullable=False),
        *(sa.Column(name, sa.JSON, nullable=False) for name in ("fallbacks", "old")),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("raised", "cases")),
        sa.Column("blamed", sa.JSON, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("example", "stage")),
    )
    op.create_table(
        "swept",
        *(sa.Column(name, sa.Text, primary_key=True) for name in ("key", "op")),
        sa.Column("result", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("swept", "sites"):
        op.drop_table(name)
