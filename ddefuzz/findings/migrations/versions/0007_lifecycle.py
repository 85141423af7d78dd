"""Use the states of `findings.lifecycle.TABLE`. Add owner, priority, labels, expiry and the reasons of decisions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

UPGRADED = {"open": "new", "known": "triaged", "ignored": "wont-fix", "dup": "duplicate"}
DOWNGRADED = {
    **{"new": "open", "wont-fix": "ignored", "duplicate": "dup", "by-design": "ignored", "invalid": "ignored"},
    **dict.fromkeys(("triaged", "reported", "fix-pending", "flaky"), "known"),
}


def upgrade() -> None:
    """Add the columns and rename the states, also in the history."""
    for name in ("owner", "priority", "expires"):
        op.add_column("findings", sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in ("labels", "known_in"):
        op.add_column("findings", sa.Column(name, sa.JSON, nullable=False, server_default="[]"))
    op.add_column("history", sa.Column("why", sa.Text, nullable=False, server_default=""))
    op.execute("UPDATE history SET field = 'given_title' WHERE field = 'title'")
    _rename(UPGRADED)


def downgrade() -> None:
    """Drop the columns, and replace each state by the nearest old one."""
    _rename(DOWNGRADED)
    op.execute("UPDATE history SET field = 'title' WHERE field = 'given_title'")
    op.drop_column("history", "why")
    for name in ("known_in", "labels", "expires", "priority", "owner"):
        op.drop_column("findings", name)


def _rename(states: dict[str, str]) -> None:
    findings = sa.table("findings", sa.column("state", sa.Text))
    history = sa.table("history", *(sa.column(name, sa.Text) for name in ("field", "before", "after")))
    for before, after in states.items():
        op.execute(sa.update(findings).where(findings.c.state == before).values(state=after))
        for column in (history.c.before, history.c.after):
            changed = sa.update(history).where(history.c.field == "state", column == before)
            op.execute(changed.values({column.name: after}))
