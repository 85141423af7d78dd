"""The tasks of a sweep's workers and their results, as records. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.execute.protocol import Stage
from ddefuzz.execute.worker import Task
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Sighting
from ddefuzz.oracles.program import CAPTURE

Source: TypeAlias = Literal["opinfo", "catalogue"]

Status: TypeAlias = Literal["ok", "dde", "unsupported", "other", "none"]
"""
ok           every sample traces
dde          some sample ends in a data-dependent error
unsupported  none does, but some is refused: no kernel, an output whose shape or value is data
other        none of these, but some fails otherwise
none         no sample could be made
"""


STATIC: Final = "fails at static sizes, too"
"""Why a sample whose inputs are DTensors does not count."""


class Caps(msgspec.Struct, frozen=True):
    """How much of an op is tried. Samples are taken in an order that puts unlike ones first.

    The first `full` samples are run in all forms, those before `some` in the forms that make all dims unbacked,
    those before `samples` in the plainest form. `others` is the number of samples of each further dtype,
    `drawn` the number of programs of a catalogue's op. `effort` bounds the runs of the main dtype; a run counts
    by its unbacked dims, on which its time depends. `confirmed` is the number of signatures per op that are run
    in capture stages. If `placed` is not 0, so many samples are run in other forms instead: their inputs are DTensors.
    """

    full: int = 2
    some: int = 6
    samples: int = 16
    others: int = 1
    drawn: int = 2
    effort: int = 200
    confirmed: int = 4
    placed: int = 0


class SweepTask(msgspec.Struct, frozen=True):
    """One op to sweep. `index` is what the journal calls it, `skip` the digests that ended a worker before. `oracles`
    judge what is captured of its samples.
    """

    op: str
    source: Source
    index: int
    caps: Caps = Caps()
    skip: tuple[str, ...] = ()
    oracles: tuple[str, ...] = CAPTURE


class StageResult(msgspec.Struct, frozen=True):
    """How a capture stage ended on a program. `signature` is empty if it did not fail."""

    stage: Stage
    outcome: str
    signature: str = ""


class OpFailure(msgspec.Struct, frozen=True):
    """A signature with which samples of an op fail under explicit semantics.

    `forms` are the forms that showed it, `dtypes` the dtypes, `runs` the number of runs. `confirmed` is the result of
    capture stages on `program`, the shortest one. `finding` is its id in the findings database; None if no capture
    stage was tried or none shows it.
    """

    signature: Signature
    cause: Cause
    verdict: str
    evidence: str
    forms: tuple[str, ...]
    dtypes: tuple[str, ...]
    runs: int
    program: str
    confirmed: tuple[StageResult, ...] = ()
    finding: str | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The capture stages that fail with the same signature."""
        return tuple(shown.stage for shown in self.confirmed if shown.signature == str(self.signature))

    @property
    def counts(self) -> bool:
        """Whether it counts for the op. If every capture succeeds, only FakeTensorMode fails, and it does
        not count.
        """
        if not self.confirmed:
            return self.signature.kind != "internal-error"
        return any(shown.outcome != "ok" for shown in self.confirmed)

    @property
    def is_recorded(self) -> bool:
        """Whether it is a finding: it was run in some capture stage, and that failed too."""
        return bool(self.confirmed) and self.counts


class OpResult(msgspec.Struct, frozen=True):
    """What a sweep found of one op.

    `samples` and `runs` count programs before and after they were put into forms. `explicit` and
    `size_oblivious` are the statuses under each semantics. `rescued` are the places that only size-oblivious
    semantics could not decide; `sites` are all places where a guard took its fallback. `dropped` counts samples
    that cannot be programs, by reason. `lost` lists the programs that ended a worker. `called` counts the captured
    programs that were called, `wrong` is what the oracles said of them. `cause` and `site` are those of the failure
    that most samples show.
    """

    op: str
    source: Source
    calls: tuple[str, ...] = ()
    samples: int = 0
    runs: int = 0
    explicit: Status = "none"
    size_oblivious: Status = "none"
    failures: tuple[OpFailure, ...] = ()
    rescued: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    dropped: dict[str, int] = {}
    lost: tuple[str, ...] = ()
    called: int = 0
    wrong: tuple[OpFailure, ...] = ()
    cpu_seconds: float = 0.0
    cause: str = ""
    site: str = ""


UNSUPPORTED = frozenset({"data-dependent-output", "unsupported", "pending-unbacked"})


def with_status(swept: OpResult) -> OpResult:
    """The same record with the statuses that its failures imply."""
    explicit, size_oblivious = status_of(swept)
    return row_of(msgspec.structs.replace(swept, explicit=explicit, size_oblivious=size_oblivious))


def row_of(swept: OpResult) -> OpResult:
    """The same record as the census shows it: data-dependent errors and what most samples show first, with findings."""
    ordered = sorted(swept.failures, key=lambda failed: (failed.signature.kind != "dde", -failed.runs))
    site = str(ordered[0].signature.site) if ordered else next(iter(swept.rescued), "")
    return msgspec.structs.replace(
        swept,
        failures=tuple(_named(failed, recorded=failed.is_recorded) for failed in ordered),
        wrong=tuple(_named(failed, recorded=True) for failed in swept.wrong),
        cause=ordered[0].cause if ordered else "",
        site=site,
    )


def _named(failed: OpFailure, *, recorded: bool) -> OpFailure:
    return msgspec.structs.replace(failed, finding=failed.signature.key if recorded else None)


def status_of(swept: OpResult) -> tuple[Status, Status]:
    """The statuses under explicit and under size-oblivious semantics. The worst status of any sample counts."""
    if not swept.runs:
        return ("other", "other") if swept.lost else ("none", "none")
    explicit = _worst(swept.failures, bool(swept.lost))
    if swept.rescued:
        return explicit, "dde"
    return explicit, _worst((failed for failed in swept.failures if failed.verdict != "regressed"), bool(swept.lost))


def _worst(failures: Iterable[OpFailure], lost: bool) -> Status:
    kinds = {failed.signature.kind for failed in failures if failed.counts}
    if "dde" in kinds:
        return "dde"
    if kinds & UNSUPPORTED:
        return "unsupported"
    return "other" if kinds or lost else "ok"


class SweepResult(msgspec.Struct, frozen=True):
    """The same with what goes into the findings database: one sighting per signature and stage, and the guard
    sites.
    """

    swept: OpResult
    sightings: tuple[Sighting, ...] = ()
    sites: tuple[SiteRecord, ...] = ()


class DescribeTask(msgspec.Struct, frozen=True):
    """Return the versions in a worker, and upstream's lists if `upstream`. It runs before the first op."""

    upstream: bool = False


class Versions(msgspec.Struct, frozen=True):
    """The versions that decide what a sweep does, the entries of OpInfo, and upstream's lists if requested."""

    torch: str
    generator: str
    entries: tuple[str, ...]
    listed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class UpstreamTask(msgspec.Struct, frozen=True):
    """An entry to run in upstream's own test, with at most this many of its samples."""

    op: str
    samples: int = 100


class UpstreamResult(msgspec.Struct, frozen=True):
    """How upstream's own test ends on an entry: `ok`, the exception of the first sample that fails, or a reason.

    `kind` and `signature` are ours of that failure, empty where nothing failed.
    """

    op: str
    outcome: Literal["ok", "fail", "no-sample", "lost"]
    kind: str = ""
    signature: str = ""
    message: str = ""
    samples: int = 0
    cpu_seconds: float = 0.0


describe = Task("ddefuzz.sweep.worker:describe", DescribeTask, Versions)
run_sweep = Task("ddefuzz.sweep.worker:run_sweep", SweepTask, SweepResult)
run_upstream = Task("ddefuzz.sweep.worker:run_upstream", UpstreamTask, UpstreamResult)
