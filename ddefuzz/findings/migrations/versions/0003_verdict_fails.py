"""Rename the verdict `open` to `fails`, because `open` is also a state of a finding."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Rename the stored verdicts, those of sweeps too."""
    _rename("open", "fails")


def downgrade() -> None:
    """Restore the old name."""
    _rename("fails", "open")


def _rename(before: str, after: str) -> None:
    occurrences = sa.table("occurrences", sa.column("verdict", sa.Text))
    op.execute(sa.update(occurrences).where(occurrences.c.verdict == before).values(verdict=after))
    swept = sa.table("swept", sa.column("result", sa.Text))
    quoted = [f'"verdict":"{name}"' for name in (before, after)]
    op.execute(sa.update(swept).values(result=sa.func.replace(swept.c.result, *quoted)))
