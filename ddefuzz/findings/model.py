"""The records in the findings database: findings, where they were seen, their states and decisions, and campaigns.

Times are UTC in ISO 8601 (`2025-01-31T12:00:00.000000Z`), so sorting the text sorts by time. Collections are sets,
stored sorted and without repetitions (`normalized`), so that the result of merging two databases does not depend on
their order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

from ddefuzz.answers.model import Answers, Control, data_dependent
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.op import called, failing_ops
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.execute.protocol import STAGES, Observation, Stage
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.paths import portable
from ddefuzz.findings.title import title_of
from ddefuzz.findings.typed import checked_date, checked_time
from ddefuzz.oracles.program import kept
from ddefuzz.oracles.table import stages as every_stage

SCHEMA = "ddefuzz.finding/3"

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The range of stored numbers. It is checked, because people edit the text form."""


Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A duration that is neither negative nor infinite."""

MOST_OBSERVED = 48
"""The number of occurrences of one finding that keep their failure."""


class Confirmation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`k` of `n` cold replays showed the same signature."""

    k: Number
    n: Number

    def __str__(self) -> str:
        return f"{self.k}/{self.n}"


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One failure from a campaign. It is recorded before anything else is done with it.

    `ops` are the catalogue functions or aten ops that reach the site. `program` is the text form, None for user code.
    `verdict` is that of the stage: fails, regressed and so on.
    """

    signature: Signature
    cause: Cause
    failure: Failure
    verdict: str
    ops: tuple[str, ...]
    torch: str
    program: str | None


class Occurrence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sightings of a finding under one torch, stage, semantics and op. `verdict` is that of the latest one.

    `observed` is the failure of the first sighting with its raw frames (`slim`), so that later rules can classify it
    again. It is None beyond the first `MOST_OBSERVED` occurrences of a finding.
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

    def __post_init__(self) -> None:
        checked_time(self.first_seen)
        checked_time(self.last_seen)

    @property
    def order(self) -> tuple[str, str, str, str, str, int, str, str, bytes]:
        """The key for sorting, by place. It is a total order, so merging does not depend on which record came first."""
        raw = b"" if self.observed is None else msgspec.json.encode(self.observed)
        return *self.place, self.verdict, self.count, self.first_seen, self.last_seen, raw

    @property
    def place(self) -> tuple[str, str, str, str]:
        """The key of an occurrence. Sightings with the same key are one occurrence."""
        return self.torch, self.stage, self.semantics, self.op


class Note(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """A person's note."""

    when: str
    who: str
    text: str

    def __post_init__(self) -> None:
        checked_time(self.when)


class HistoryEntry(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One change: `field` went from `before` to `after`. `why` is the reason that a person gave, else empty."""

    when: str
    who: str
    field: str
    before: str
    after: str
    why: str = ""

    def __post_init__(self) -> None:
        checked_time(self.when)


Priority: TypeAlias = Literal["", "high", "medium", "low"]
"""How soon a finding should be fixed. Empty if nobody has decided."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All data on one signature.

    `failure` is the first failure with its raw frames, without its guards and graph, so that later rules can classify
    it again. `minimal`, `steps` and `attempts` are None until the finding is minimized. `shown` is the failure of the
    smallest program, observed in a fresh process when it was confirmed. `control` has the results of its control runs.
    Both are unset until then. `answers` has the results of the experiment on its guard. `former` are the ids that this
    finding, or findings merged into it, had before the rules of classification changed. `given_title` is a person's
    title, else empty.

    `expires` is the date (ISO) until which a decision holds, empty for ever. `known_in` are the versions of torch for
    which it was made, empty for all. A campaign fails on the finding again after that date and in other versions.
    """

    id: str
    kind: Kind
    cause: Cause
    site: Site
    anchor: str
    given_title: str = ""
    state: State = "new"
    duplicate_of: str | None = None
    fixed_in: tuple[str, ...] = ()
    owner: str = ""
    priority: Priority = ""
    labels: tuple[str, ...] = ()
    expires: str = ""
    known_in: tuple[str, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    original: str | None = None
    minimal: str | None = None
    steps: Number | None = None
    attempts: Number | None = None
    confirmed: Confirmation | None = None
    failure: Failure | None = None
    shown: Failure | None = None
    control: Control | None = None
    answers: Answers | None = None
    former: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    def __post_init__(self) -> None:
        if self.expires:
            checked_date(self.expires)

    @property
    def signature(self) -> Signature:
        """The signature that classification made. It is the identity of the finding."""
        return Signature(self.kind, self.site, self.anchor)

    @property
    def title(self) -> str:
        """A person's title if there is one, else a title made from op, site and expression."""
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
        """The expression that the failure could not decide, as torch prints it. Empty if the failure is not a guard."""
        raised = self.evidence.observation.raised if self.evidence is not None else None
        return raised.expression if raised is not None else ""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All that it stores."""
        stored = (self.failure, self.shown, *(seen.observed for seen in self.occurrences))
        return tuple(failure for failure in stored if failure is not None)

    @property
    def evidence(self) -> Failure | None:
        """The failure to display and replay: that of the smallest program, else the first one seen."""
        return self.shown or self.failure

    @property
    def stage(self) -> Stage | None:
        """The stage in which the smallest program was confirmed, else the first one in which the finding was seen."""
        return None if self.evidence is None else self.evidence.observation.stage

    @property
    def data_dependent(self) -> bool | None:
        """Whether the failure depends on data (see `control.model`). None if it was not judged."""
        return None if self.evidence is None else data_dependent(self.evidence, self.control)

    @property
    def shown_ops(self) -> tuple[str, ...]:
        """The function by which the smallest program reaches the site. If it is unknown, all functions that the program
        calls and that were seen to reach it.
        """
        program = self.minimal or self.original or ""
        known = failing_ops(self.evidence.observation, program) if self.evidence else ()
        return known or tuple(op for op in self.ops if not program or op in called(program))

    @property
    def ops(self) -> tuple[str, ...]:
        """The functions seen to reach the site."""
        return tuple(sorted({seen.op for seen in self.occurrences if seen.op}))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages in which it was seen to fail."""
        seen_in = {seen.stage for seen in self.occurrences}
        return tuple(stage for stage in every_stage() if stage in seen_in)

    @property
    def verdicts(self) -> dict[str, str]:
        """The latest verdict of each stage that was compared with size-oblivious semantics. The fake stage is not, and
        neither are the stages of one oracle alone.
        """
        in_time = sorted(self.occurrences, key=lambda seen: (seen.last_seen, seen.order))
        latest = {seen.stage: seen.verdict for seen in in_time if seen.verdict}
        return {stage: latest[stage] for stage in STAGES if stage in latest}

    @property
    def torch_versions(self) -> tuple[str, ...]:
        """The versions of torch in which it was seen."""
        return tuple(sorted({seen.torch for seen in self.occurrences}))

    @property
    def first_seen(self) -> str | None:
        """The time of the first sighting, None if there is none."""
        return min((seen.first_seen for seen in self.occurrences), default=None)

    @property
    def last_seen(self) -> str | None:
        """The time of the last sighting, None if there is none."""
        return max((seen.last_seen for seen in self.occurrences), default=None)

    @property
    def count(self) -> int:
        """The number of sightings."""
        return sum(seen.count for seen in self.occurrences)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign: what its cases depend on, and its progress.

    `next_index` is the first case that is not done. `ahead` are later cases that are done.
    """

    id: int
    profile: str
    seed: int
    generator: str
    options: dict[str, object]
    next_index: Number
    ahead: tuple[Number, ...]
    finished: bool
    started: str
    updated: str

    def __post_init__(self) -> None:
        checked_time(self.started)
        checked_time(self.updated)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a running campaign at one time: cases done, and guard sites and findings seen.

    `seconds` is the wall-clock time and `cpu_seconds` that of the workers, since the campaign was started or resumed.
    """

    when: str
    cases: Number
    seconds: Seconds
    cpu_seconds: Seconds
    fallback_sites: Number
    dde_sites: Number
    findings: Number

    def __post_init__(self) -> None:
        checked_time(self.when)


def stamp(when: datetime) -> str:
    """The text form of a time with a time zone."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def slim(failure: Failure) -> Failure:
    """The failure as it is stored: the fields that classification reads.

    Guards that took their fallback, the graph, measurements, and calls that do not show the failure are left out. Paths
    do not depend on the machine.
    """
    failure = kept(failure)
    second = None if failure.second is None else _slim(failure.second)
    return portable(msgspec.structs.replace(failure, observation=_slim(failure.observation), second=second))


def _slim(observation: Observation) -> Observation:
    return msgspec.structs.replace(
        observation, guards=(), graph=None, compiles=0, cpu_seconds=0.0, peak_rss_mb=0.0, digest=""
    )


def normalized(finding: Finding) -> Finding:
    """The same finding with its collections sorted and without repetitions."""
    return msgspec.structs.replace(
        finding,
        former=tuple(sorted(set(finding.former) - {finding.id})),
        fixed_in=tuple(sorted(set(finding.fixed_in))),
        labels=tuple(sorted(set(finding.labels))),
        known_in=tuple(sorted(set(finding.known_in))),
        occurrences=tuple(sorted(finding.occurrences, key=lambda seen: seen.order)),
        links=tuple(sorted(set(finding.links))),
        notes=tuple(sorted(set(finding.notes))),
        history=tuple(sorted(set(finding.history))),
    )


def as_document(finding: Finding) -> dict[str, object]:
    """The finding as in every machine-readable output, in JSON's types."""
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
        "owner": finding.owner,
        "priority": finding.priority,
        "labels": list(finding.labels),
        "expires": finding.expires,
        "known_in": list(finding.known_in),
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
        "answers": finding.answers,
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
