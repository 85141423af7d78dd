"""Add the failure of the smallest program, its control runs, the failure of each occurrence, and former ids.

Stored titles are only those that people gave. Other titles, and expressions, are computed from the failure, so their
columns are dropped. Columns are altered in place: Alembic's batch mode would copy the table and drop the old one, and
the drop would delete, by cascade, all rows that belong to its findings.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns, and drop those with computed values."""
    for name in ("shown", "control_static", "control_backed"):
        op.add_column("findings", sa.Column(name, sa.Text))
    op.add_column("findings", sa.Column("former", sa.JSON, nullable=False, server_default="[]"))
    op.add_column("occurrences", sa.Column("observed", sa.LargeBinary))
    op.drop_column("findings", "expression")
    op.execute("ALTER TABLE findings RENAME COLUMN title TO given_title")
    op.execute(
        "UPDATE findings SET given_title = '' WHERE id NOT IN (SELECT finding_id FROM history WHERE field = 'title')"
    )


def downgrade() -> None:
    """Drop the columns."""
    op.execute("ALTER TABLE findings RENAME COLUMN given_title TO title")
    op.add_column("findings", sa.Column("expression", sa.Text, nullable=False, server_default=""))
    op.drop_column("occurrences", "observed")
    for name in ("former", "control_backed", "control_static", "shown"):
        op.drop_column("findings", name)
