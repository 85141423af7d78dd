"""Store the cases that are done although an earlier case is not. A resumed campaign does not repeat them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column. For older campaigns it is empty, so they repeat such cases."""
    op.add_column("campaigns", sa.Column("ahead", sa.JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("campaigns", "ahead")
