"""The tables of the findings database. `migrations/` creates them, and a test checks that both agree."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, LargeBinary, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Table(DeclarativeBase):
    """The base class that SQLAlchemy requires."""

    type_annotation_map: ClassVar = {
        str: Text,
        bytes: LargeBinary,
        dict[str, Any]: JSON,
        list[str]: JSON,
        list[int]: JSON,
    }


class OccurrenceRow(Table):
    """`model.Occurrence`. `observed` is the JSON of a `Failure`, compressed (`codec`)."""

    __tablename__ = "occurrences"
    __table_args__ = (
        Index("ix_occurrences_seen", "finding_id", "torch", "first_seen", "last_seen", "count", "verdict"),
    )

    finding_id: Mapped[str] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), primary_key=True)
    torch: Mapped[str] = mapped_column(primary_key=True)
    stage: Mapped[str] = mapped_column(primary_key=True)
    semantics: Mapped[str] = mapped_column(primary_key=True)
    op: Mapped[str] = mapped_column(primary_key=True)
    verdict: Mapped[str]
    count: Mapped[int]
    first_seen: Mapped[str]
    last_seen: Mapped[str]
    observed: Mapped[bytes | None]


class LinkRow(Table):
    """An upstream issue, pull request or discussion."""

    __tablename__ = "links"

    finding_id: Mapped[str] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), primary_key=True)
    url: Mapped[str] = mapped_column(primary_key=True)


class NoteRow(Table):
    """`model.Note`."""

    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[str] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    when: Mapped[str]
    who: Mapped[str]
    text: Mapped[str]


class HistoryRow(Table):
    """`model.HistoryEntry`."""

    __tablename__ = "history"

    id: Mapped[int] = mapped_column(primary_key=True)
    finding_id: Mapped[str] = mapped_column(ForeignKey("findings.id", ondelete="CASCADE"), index=True)
    when: Mapped[str]
    who: Mapped[str]
    field: Mapped[str]
    before: Mapped[str]
    after: Mapped[str]
    why: Mapped[str]


class FindingRow(Table):
    """`model.Finding`. `key` is that of the signature; `failure` and `shown` are the JSON of a `Failure`,
    `answers` that of an `Answers`."""

    __tablename__ = "findings"
    # The columns that lists filter, search and sort by, by dialect (`migrations/versions/0011_search.py`).
    __table_args__ = (
        Index(
            "ix_findings_listed",
            *("state", "kind", "cause", "language", "module", "function", "sequence", "steps"),
            *("control_static", "control_backed", "id"),
        ).ddl_if(dialect="postgresql"),
        Index(
            "ix_findings_searched",
            *("state", "kind", "cause", "language", "module", "function", "sequence", "steps"),
            *("control_static", "control_backed", "id", "anchor", "given_title", "owner", "labels", "priority"),
        ).ddl_if(dialect="sqlite"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(index=True)
    sequence: Mapped[int]
    kind: Mapped[str]
    cause: Mapped[str]
    language: Mapped[str]
    module: Mapped[str | None]
    function: Mapped[str | None]
    anchor: Mapped[str]
    given_title: Mapped[str]
    state: Mapped[str]
    duplicate_of: Mapped[str | None] = mapped_column(
        # Deferred, so that one transaction can add findings in any order.
        ForeignKey("findings.id", deferrable=True, initially="DEFERRED")
    )
    fixed_in: Mapped[list[str]]
    owner: Mapped[str]
    priority: Mapped[str]
    labels: Mapped[list[str]]
    expires: Mapped[str]
    known_in: Mapped[list[str]]
    original: Mapped[str | None]
    minimal: Mapped[str | None]
    steps: Mapped[int | None]
    attempts: Mapped[int | None]
    confirmed_k: Mapped[int | None]
    confirmed_n: Mapped[int | None]
    failure: Mapped[str | None]
    shown: Mapped[str | None]
    control_static: Mapped[str | None]
    control_backed: Mapped[str | None]
    answers: Mapped[str | None]
    former: Mapped[list[str]]

    occurrences: Mapped[list[OccurrenceRow]] = relationship(cascade="all, delete-orphan", lazy="selectin")
    links: Mapped[list[LinkRow]] = relationship(cascade="all, delete-orphan", lazy="selectin")
    notes: Mapped[list[NoteRow]] = relationship(cascade="all, delete-orphan", lazy="selectin")
    history: Mapped[list[HistoryRow]] = relationship(cascade="all, delete-orphan", lazy="selectin")


class CampaignRow(Table):
    """`model.Campaign`."""

    __tablename__ = "campaigns"

    id: Mapped[int] = mapped_column(primary_key=True)
    profile: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    generator: Mapped[str]
    options: Mapped[dict[str, Any]]
    next_index: Mapped[int] = mapped_column(BigInteger)
    ahead: Mapped[list[int]]
    finished: Mapped[bool]
    started: Mapped[str]
    updated: Mapped[str]


class ProgressRow(Table):
    """`model.Progress`."""

    __tablename__ = "progress"

    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"), primary_key=True)
    when: Mapped[str] = mapped_column(primary_key=True)
    cases: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float]
    cpu_seconds: Mapped[float]
    fallback_sites: Mapped[int]
    dde_sites: Mapped[int]
    findings: Mapped[int]


class StepRow(Table):
    """What an unfinished campaign has counted at once, as JSON, compressed (`codec`)."""

    __tablename__ = "steps"

    id: Mapped[int] = mapped_column(primary_key=True)
    campaign_id: Mapped[int] = mapped_column(ForeignKey("campaigns.id", ondelete="CASCADE"), index=True)
    counted: Mapped[bytes]


class SiteRow(Table):
    """`coverage.ledger.SiteRecord`, under one version of torch."""

    __tablename__ = "sites"

    torch: Mapped[str] = mapped_column(primary_key=True)
    language: Mapped[str] = mapped_column(primary_key=True)
    file: Mapped[str] = mapped_column(primary_key=True)
    line: Mapped[int] = mapped_column(primary_key=True)
    function: Mapped[str] = mapped_column(primary_key=True)
    call: Mapped[str]
    fallbacks: Mapped[dict[str, Any]]
    old: Mapped[dict[str, Any]]
    raised: Mapped[int]
    cases: Mapped[int]
    blamed: Mapped[list[str]]
    example: Mapped[str]
    stage: Mapped[str]


class SweptRow(Table):
    """The result of a sweep of one op, as JSON. `key` has everything that decides it."""

    __tablename__ = "swept"

    key: Mapped[str] = mapped_column(primary_key=True)
    op: Mapped[str] = mapped_column(primary_key=True)
    result: Mapped[str]


class ResultRow(Table):
    """`results.Result`."""

    __tablename__ = "results"

    case: Mapped[str] = mapped_column(primary_key=True)
    torch: Mapped[str] = mapped_column(primary_key=True)
    program: Mapped[str]
    status: Mapped[str]
    shows: Mapped[int]
    runs: Mapped[int]
    reason: Mapped[str]
    when: Mapped[str]


class TokenRow(Table):
    """`tokens.Token`."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    made: Mapped[str]
