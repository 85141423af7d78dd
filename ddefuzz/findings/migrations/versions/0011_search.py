"""An index of the columns that the dashboard searches, for SQLite.

SQLite reads a row from its beginning, and the programs and failures in it are long. PostgreSQL keeps long values apart
from their rows. It limits an index row to 2,704 bytes, which the code at a site can exceed.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"

SEARCHED = (
    *("id", "module", "function", "anchor", "given_title", "owner", "labels", "priority", "state", "kind"),
    *("cause", "language", "sequence", "steps", "control_static", "control_backed"),
)


def upgrade() -> None:
    """Add it."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_index("ix_findings_searched", "findings", list(SEARCHED))


def downgrade() -> None:
    """Drop it."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("ix_findings_searched", "findings")
