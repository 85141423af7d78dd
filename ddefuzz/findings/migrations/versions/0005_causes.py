"""Use the causes of `classify.cause.CAUSES`: the three old names of stored findings become `unclassified`.

`ddefuzz findings reclassify` computes the new cause from the stored raw failures.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

UPGRADED = {"framework": "unclassified", "inherent": "unclassified", "unsupported-op": "unclassified"}
DOWNGRADED = {
    "avoidable": "framework",
    "unclassified": "framework",
    "int-required": "inherent",
    "result-depends-on-data": "inherent",
    "python-value": "inherent",
    "no-kernel": "unsupported-op",
    "refused": "unsupported-op",
}


def upgrade() -> None:
    """Replace the old causes of stored findings and sweeps."""
    _rename(UPGRADED)


def downgrade() -> None:
    """Replace each new cause by the nearest old one."""
    _rename(DOWNGRADED)


def _rename(causes: dict[str, str]) -> None:
    findings = sa.table("findings", sa.column("cause", sa.Text))
    swept = sa.table("swept", sa.column("result", sa.Text))
    for before, after in causes.items():
        op.execute(sa.update(findings).where(findings.c.cause == before).values(cause=after))
        quoted = [f'"cause":"{name}"' for name in (before, after)]
        op.execute(sa.update(swept).values(result=sa.func.replace(swept.c.result, *quoted)))
