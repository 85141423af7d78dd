"""The first schema: tables of findings and campaigns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "findings",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, index=True),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("language", sa.Text, nullable=False),
        sa.Column("module", sa.Text),
        sa.Column("function", sa.Text),
        sa.Column("anchor", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("duplicate_of", sa.Text, sa.ForeignKey("findings.id", deferrable=True, initially="DEFERRED")),
        sa.Column("fixed_in", sa.JSON, nullable=False),
        sa.Column("expression", sa.Text, nullable=False),
        sa.Column("original", sa.Text),
        sa.Column("minimal", sa.Text),
        sa.Column("steps", sa.Integer),
        sa.Column("attempts", sa.Integer),
        sa.Column("confirmed_k", sa.Integer),
        sa.Column("confirmed_n", sa.Integer),
        sa.Column("failure", sa.Text),
    )
    op.create_table(
        "occurrences",
        _owner(primary_key=True),
        sa.Column("torch", sa.Text, primary_key=True),
        sa.Column("stage", sa.Text, primary_key=True),
        sa.Column("semantics", sa.Text, primary_key=True),
        sa.Column("op", sa.Text, primary_key=True),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("first_seen", sa.Text, nullable=False),
        sa.Column("last_seen", sa.Text, nullable=False),
    )
    op.create_table("links", _owner(primary_key=True), sa.Column("url", sa.Text, primary_key=True))
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer, primary_key=True),
        _owner(nullable=False, index=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("when", "who", "text")),
    )
    op.create_table(
        "history",
        sa.Column("id", sa.Integer, primary_key=True),
        _owner(nullable=False, index=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("when", "who", "field", "before", "after")),
    )
    op.create_table(
        "campaigns",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("profile", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("generator", sa.Text, nullable=False),
        sa.Column("options", sa.JSON, nullable=False),
        sa.Column("next_index", sa.BigInteger, nullable=False),
        sa.Column("finished", sa.Boolean, nullable=False),
        sa.Column("started", sa.Text, nullable=False),
        sa.Column("updated", sa.Text, nullable=False),
    )


def _owner(*, primary_key: bool = False, nullable: bool | None = None, index: bool = False) -> sa.Column[str]:
    return sa.Column(
        "finding_id",
        sa.Text,
        sa.ForeignKey("findings.id", ondelete="CASCADE"),
        primary_key=primary_key,
        nullable=not primary_key if nullable is None else nullable,
        index=index,
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("campaigns", "history", "notes", "links", "occurrences", "findings"):
        op.drop_table(name)
