"""For SQLite: one index of all the columns that the dashboard filters, searches and sorts by.

SQLite reads a row from its beginning, and the programs and failures in it are long: a list or a search that reads rows
takes ten times as long as one that reads the index only. PostgreSQL keeps long values apart from their rows. It limits
an index row to 2,704 bytes, which the code at a site can exceed.
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"

LISTED = (
    *("state", "kind", "cause", "language", "module", "function", "sequence", "steps"),
    *("control_static", "control_backed", "id"),
)
SEARCHED = (*LISTED, "anchor", "given_title", "owner", "labels", "priority")


def upgrade() -> None:
    """Replace the index of lists."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_index("ix_findings_searched", "findings", list(SEARCHED))
        op.drop_index("ix_findings_listed", "findings")


def downgrade() -> None:
    """Put it back."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_index("ix_findings_listed", "findings", list(LISTED))
        op.drop_index("ix_findings_searched", "findings")
