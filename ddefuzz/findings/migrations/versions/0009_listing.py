"""Indexes for lists of many findings, and the progress of campaigns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

LISTED = (
    *("state", "kind", "cause", "language", "module", "function", "sequence", "steps"),
    *("control_static", "control_backed", "id"),
)


def upgrade() -> None:
    """Add what the dashboard reads. Older campaigns have no progress."""
    op.create_index("ix_findings_listed", "findings", list(LISTED))
    op.create_index(
        "ix_occurrences_seen", "occurrences", ["finding_id", "torch", "first_seen", "last_seen", "count", "verdict"]
    )
    op.create_table(
        "progress",
        sa.Column("campaign_id", sa.Integer, sa.ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("when", sa.Text, primary_key=True),
        sa.Column("cases", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("cpu_seconds", sa.Double, nullable=False),
        sa.Column("fallback_sites", sa.Integer, nullable=False),
        sa.Column("dde_sites", sa.Integer, nullable=False),
        sa.Column("findings", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("progress")
    op.drop_index("ix_occurrences_seen", "occurrences")
    op.drop_index("ix_findings_listed", "findings")
