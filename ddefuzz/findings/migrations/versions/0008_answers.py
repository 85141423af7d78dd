"""Store the experiment on the guard of a finding."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column. It is empty until `ddefuzz answers --write`."""
    op.add_column("findings", sa.Column("answers", sa.Text))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("findings", "answers")
