"""The records of what is remembered: findings, where they were seen, how they were judged and by whom.

Times are UTC in ISO 8601 (`2025-01-31T12:00:00.000000Z`), so that their text sorts as they do. Collections are sets,
kept sorted and without repetitions (`normalized`): merging two databases must not depend on who was first.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec

from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.op import failing_ops
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.control.model import Control, data_dependent
from ddefuzz.execute.protocol import STAGES, Stage
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.paths import portable
from ddefuzz.findings.title import title_of

SCHEMA = "ddefuzz.finding/2"

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a database keeps of numbers: text forms come from people."""


MOST_OBSERVED = 48
"""How many occurrences of a finding keep the failure that they were seen by."""


class Confirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`k` of `n` cold replays showed the same signature."""

    k: Number
    n: Number

    def __str__(self) -> str:
        return f"{self.k}/{self.n}"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One failure as it comes from a campaign, to be recorded before anything else is done with it.

    `ops` are the catalogue functions or aten ops that reach the site; `program` is the text form, None for user code.
    `verdict` is the stage's: fails, regressed …
    """

    signature: Signature
    cause: Cause
    failure: Failure
    verdict: str
    ops: tuple[str, ...]
    torch: str
    program: str | None


class Occurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sightings of a finding under one torch, stage, semantics and op; `verdict` is the latest one's.

    `observed` is the failure of the first of them with its raw frames (`slim`), by which better rules can say of which
    finding it is; None where none was kept (`MOST_OBSERVED` a finding).
    """

    torch: str
    stage: Stage
    semantics: str
    op: str
    verdict: str
    count: Number
    first_seen: str
    last_seen: str
    observed: Failure | None = None

    @property
    def order(self) -> tuple[str, str, str, str, str, int, str, str, bytes]:
        """By place; a total order, so that what merging chooses does not depend on who was first."""
        raw = b"" if self.observed is None else msgspec.json.encode(self.observed)
        return *self.place, self.verdict, self.count, self.first_seen, self.last_seen, raw

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What makes it one occurrence."""
        return self.torch, self.stage, self.semantics, self.op


class Note(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A remark of a person."""

    when: str
    who: str
    text: str


class HistoryEntry(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One change: `field` went from `before` to `after`."""

    when: str
    who: str
    field: str
    before: str
    after: str


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything known of one signature.

    `failure` is the first failure with its raw frames, without its guards and graph: better rules can classify it
    again. `minimal` is None until it was minimized, `steps` and `attempts` with it. `shown` is the failure of the
    smallest program, seen in a fresh process when it was confirmed, and `control` how that program ends where no size
    depends on data; both are None until then. `former` are the ids under which it, or what was merged into it, was
    known before the rules of classification changed. `given_title` is a person's, else empty.
    """

    id: str
    kind: Kind
    cause: Cause
    site: Site
    anchor: str
    given_title: str = ""
    state: State = "open"
    duplicate_of: str | None = None
    fixed_in: tuple[str, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    original: str | None = None
    minimal: str | None = None
    steps: Number | None = None
    attempts: Number | None = None
    confirmed: Confirmation | None = None
    failure: Failure | None = None
    shown: Failure | None = None
    control: Control | None = None
    former: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    @property
    def signature(self) -> Signature:
        """The identity, as the classification made it."""
        return Signature(self.kind, self.site, self.anchor)

    @property
    def title(self) -> str:
        """What a person called it, else what fails where and why."""
        if self.given_title:
            return self.given_title
        return title_of(
            self.signature,
            self.cause,
            self.evidence,
            self.shown_ops,
            self.control,
            data_dependent=self.data_dependent,
        )

    @property
    def expression(self) -> str:
        """What the failure could not decide, as torch prints it; empty for a failure that is no guard."""
        raised = self.evidence.observation.raised if self.evidence is not None else None
        return raised.expression if raised is not None else ""

    @property
    def evidence(self) -> Failure | None:
        """What is displayed and replayed: the failure of the smallest program, else the first one seen."""
        return self.shown or self.failure

    @property
    def stage(self) -> Stage | None:
        """The stage in which the smallest program was confirmed, else the first in which the finding was seen."""
        return None if self.evidence is None else self.evidence.observation.stage

    @property
    def data_dependent(self) -> bool | None:
        """Whether the failure is about data (see `control.model`); None where nothing tells."""
        return None if self.evidence is None else data_dependent(self.evidence, self.control)

    @property
    def shown_ops(self) -> tuple[str, ...]:
        """The function by which what is shown reaches the site; where that is not known, all that were seen to."""
        return (failing_ops(self.evidence.observation) if self.evidence is not None else ()) or self.ops

    @property
    def ops(self) -> tuple[str, ...]:
        """The functions that were seen to reach the site."""
        return tuple(sorted({seen.op for seen in self.occurrences if seen.op}))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Where it was seen to fail."""
        seen_in = {seen.stage for seen in self.occurrences}
        return tuple(stage for stage in STAGES if stage in seen_in)

    @property
    def verdicts(self) -> dict[str, str]:
        """The latest verdict of each stage that was compared with the old mechanism: the screen is not."""
        in_time = sorted(self.occurrences, key=lambda seen: (seen.last_seen, seen.order))
        latest = {seen.stage: seen.verdict for seen in in_time if seen.verdict}
        return {stage: latest[stage] for stage in STAGES if stage in latest}

    @property
    def torch_versions(self) -> tuple[str, ...]:
        """The versions it was seen in."""
        return tuple(sorted({seen.torch for seen in self.occurrences}))

    @property
    def first_seen(self) -> str | None:
        """When it was first seen, None if it never was."""
        return min((seen.first_seen for seen in self.occurrences), default=None)

    @property
    def last_seen(self) -> str | None:
        """When it was last seen, None if it never was."""
        return max((seen.last_seen for seen in self.occurrences), default=None)

    @property
    def count(self) -> int:
        """How often it was seen."""
        return sum(seen.count for seen in self.occurrences)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign's journal: what decides its cases, and how far it came (`next_index` is the first case not done).

    `ahead` are cases after that one that are done.
    """

    id: int
    profile: str
    seed: int
    generator: str
    options: dict[str, object]
    next_index: int
    ahead: tuple[int, ...]
    finished: bool
    started: str
    updated: str


def stamp(when: datetime) -> str:
    """The text form of a time that knows its zone."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def slim(failure: Failure) -> Failure:
    """The failure as it is stored: what classification reads, without guards that fell back, graph and measurements.

    Its paths are those of every machine.
    """
    observation = msgspec.structs.replace(
        failure.observation, guards=(), graph=None, compiles=0, cpu_seconds=0.0, peak_rss_mb=0.0
    )
    return portable(msgspec.structs.replace(failure, observation=observation))


def normalized(finding: Finding) -> Finding:
    """The same finding with its collections sorted and without repetitions."""
    return msgspec.structs.replace(
        finding,
        former=tuple(sorted(set(finding.former) - {finding.id})),
        fixed_in=tuple(sorted(set(finding.fixed_in))),
        occurrences=tuple(sorted(finding.occurrences, key=lambda seen: seen.order)),
        links=tuple(sorted(set(finding.links))),
        notes=tuple(sorted(set(finding.notes))),
        history=tuple(sorted(set(finding.history))),
    )


def as_document(finding: Finding) -> dict[str, object]:
    """The finding as every machine-readable output has it, in JSON's own types."""
    document = {
        "schema": SCHEMA,
        "id": finding.id,
        "title": finding.title,
        "kind": finding.kind,
        "cause": finding.cause,
        "site": finding.site,
        "anchor": finding.anchor,
        "ops": list(finding.ops),
        "expression": finding.expression,
        "stages": list(finding.stages),
        "verdicts": finding.verdicts,
        "state": finding.state,
        "duplicate_of": finding.duplicate_of,
        "fixed_in": list(finding.fixed_in),
        "steps": finding.steps,
        "program": finding.minimal,
        "original": finding.original,
        "attempts": finding.attempts,
        "confirmed": finding.confirmed,
        "torch": list(finding.torch_versions),
        "count": finding.count,
        "first_seen": finding.first_seen,
        "last_seen": finding.last_seen,
        "occurrences": [_without_frames(seen) for seen in finding.occurrences],
        "links": list(finding.links),
        "notes": finding.notes,
        "history": finding.history,
        "former": list(finding.former),
        "control": finding.control,
        "data_dependent": finding.data_dependent,
        "stage": finding.stage,
        "shown": finding.shown,
        "failure": finding.failure,
    }
    plain: dict[str, object] = msgspec.json.decode(msgspec.json.encode(document))
    return plain


def _without_frames(seen: Occurrence) -> dict[str, object]:
    fields = msgspec.structs.asdict(seen)
    del fields["observed"]
    return fields
