"""The results of an unfinished campaign's cases: a resumed campaign counts them, and chooses its cases by them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the table. Campaigns that an older ddefuzz began have no rows, so they cannot be resumed."""
    op.create_table(
        "steps",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "campaign_id", sa.Integer, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("counted", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("steps")
