"""The cases of a campaign that are done although one before them is not: resumed, it does none of them again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column; what campaigns from before had done ahead is done again."""
    op.add_column("campaigns", sa.Column("ahead", sa.JSON, nullable=False, server_default="[]"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("campaigns", "ahead")
