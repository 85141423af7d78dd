"""The failure of the smallest program, its control runs, what each occurrence was seen by, and former ids.

Titles are those that people gave; what can be read off a failure (the other titles, expressions) is no column any more.
Columns are altered in place: Alembic's batch mode makes the table anew, and dropping the old one deletes, by cascade,
all that belongs to its findings.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns, and drop what is derived."""
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
