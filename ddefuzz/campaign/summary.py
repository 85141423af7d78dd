"""What a campaign counts while it runs, and the summary document that it ends with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import msgspec

from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.classify.cause import FRAMEWORK_CAUSES
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.execute.protocol import EXPLICIT, STAGES, Observation, Stage
from ddefuzz.findings.ledger import Ledger, SiteCount
from ddefuzz.generate.profiles import name_of
from ddefuzz.oracles.table import row_of
from ddefuzz.program.sizes import SIZE_KINDS, kind_of_size

SCHEMA = "ddefuzz.campaign/2"


CONFIRMED = "1/1"
"""The value of `confirmed` for a finding that the campaign's one cold replay showed again."""


class CampaignFinding(msgspec.Struct, frozen=True):
    """A finding that this campaign has seen: in how many cases, and after how many seconds first.

    `data_dependent` is the result of the control runs (`Finding.data_dependent`). `expired` says that it is new again
    because a decision on it has expired. It is `theirs` if another driver of the campaign minimizes and confirms it.
    """

    finding: str
    signature: Signature
    cause: Cause
    is_new: bool
    first_seconds: float
    cases: int = 0
    steps: int | None = None
    confirmed: str = ""
    data_dependent: bool | None = None
    expired: bool = False
    theirs: bool = False

    @property
    def status(self) -> str:
        """`new`, `known`, or `expired` if the decision on a known one has expired."""
        return "expired" if self.expired else "new" if self.is_new else "known"

    @property
    def counts(self) -> bool:
        """Whether it counts as found: its cause is in PyTorch, and it depends on data."""
        return self.cause in FRAMEWORK_CAUSES and self.data_dependent is not False

    @property
    def lacks_minimizing(self) -> bool:
        """Whether it is a new finding that could be minimized but was not."""
        can_be = self.cause != "user" and not row_of(self.signature.kind).deadly
        return self.is_new and self.steps is None and can_be


class MinimizeCounts(msgspec.Struct, frozen=True):
    """The findings that this campaign minimized: sizes of their smallest programs, and how many were confirmed.

    `cpu_seconds_each` is for minimizing and confirming together.
    """

    findings: int
    median_steps: float
    max_steps: int
    confirmed: int
    cpu_seconds_each: float


def minimized(findings: Iterable[CampaignFinding], cpu_seconds: Mapping[str, float]) -> MinimizeCounts | None:
    """The counts of minimized findings, None if there are none. `cpu_seconds` are those of a summary."""
    smaller = [(seen.steps, seen.confirmed == CONFIRMED) for seen in findings if seen.steps is not None]
    if not smaller:
        return None
    steps, confirmed = zip(*smaller, strict=True)
    seconds = cpu_seconds.get("minimize", 0.0) + cpu_seconds.get("confirm", 0.0)
    return MinimizeCounts(len(steps), median(steps), max(steps), sum(confirmed), round(seconds / len(steps), 3))


class StrategyCount(msgspec.Struct, frozen=True):
    """The cases of one strategy (`generate.origin.name_of`), and how many guard sites they reached first.

    With several jobs, which of two cases is first may depend on the machine.
    """

    cases: int = 0
    new_sites: int = 0


class CallCounts(msgspec.Struct, frozen=True):
    """The captured programs of a stage that were called beside eager: how many, how many at all of `SIZE_KINDS`, and
    how many at each. Some programs have no inputs of some size.
    """

    programs: int
    at_all_sizes: int
    sizes: dict[str, int]


class AcceptedCount(msgspec.Struct, frozen=True):
    """An accepted difference from eager: how many captured programs show it, and the first case that does."""

    programs: int
    case: int
    example: str


class Point(msgspec.Struct, frozen=True):
    """The number of guard sites reached after this many CPU seconds of the workers and this many cases."""

    cpu_seconds: float
    cases: int
    sites: SiteCount


class Summary(msgspec.Struct, frozen=True):
    """The result of a whole campaign.

    `digests` are those of all cases done, in order of index. `sites` counts the guard sites that the cases reached with
    explicit unbacked semantics; `growth` has a point for each case that reached a new one. `strategies` counts cases by
    how they were made. `outcomes` counts runs by stage, semantics and outcome; `verdicts` counts them by stage.
    `calls` counts, by stage, the programs that explicit semantics captured and that were called, `accepted` those that
    show an accepted difference from eager, by its class (`oracles.acceptance`). `cpu_seconds` are
    those of the workers and of the compilers that they start, by stage, for drawing, minimizing and confirming; `other`
    is the rest. They do not include the start of the processes, which took `start_seconds` of `seconds` of wall-clock
    time. `peak_rss_mb` is the maximum resident memory of a worker after a case, in 10^6 bytes.
    """

    seed: int
    profile: str
    generator: str
    torch: str
    budget: str
    shard: str
    jobs: int
    cases: int
    digests: tuple[str, ...]
    sites: SiteCount
    growth: tuple[Point, ...]
    strategies: dict[str, StrategyCount]
    outcomes: dict[str, dict[str, dict[str, int]]]
    verdicts: dict[str, dict[str, int]]
    calls: dict[Stage, CallCounts]
    accepted: dict[str, AcceptedCount]
    findings: tuple[CampaignFinding, ...]
    cpu_seconds: dict[str, float]
    seconds: float
    start_seconds: float
    peak_rss_mb: float
    interrupted: bool
    minimized: MinimizeCounts | None
    unminimized: int
    lost: int
    campaign: int
    schema: str = SCHEMA


class Step(msgspec.Struct, frozen=True):
    """What was counted at once: results of cases, and what is now known of findings. `lost` and `cpu_seconds`, which
    are those of follow-ups, are totals of the campaign.
    """

    cases: tuple[CaseResult, ...]
    findings: tuple[CampaignFinding, ...]
    lost: int
    cpu_seconds: dict[str, float]


FOLLOW_UPS = ("minimize", "confirm", "control")
"""The names of the follow-ups of findings in `cpu_seconds`."""


def countable(result: CaseResult) -> CaseResult:
    """The result with the signatures of its sightings only: the database has the failures, with their findings."""
    sightings = []
    for sighting in result.sightings:
        run = sighting.failure.observation
        failure = Failure(sighting.failure.kind, Observation(run.stage, run.semantics, run.outcome), "")
        classified = msgspec.structs.replace(sighting.classified, failure=failure, frame=None)
        sightings.append(msgspec.structs.replace(sighting, classified=classified, program=None))
    return msgspec.structs.replace(result, sightings=tuple(sightings))


@dataclass(slots=True)
class Tally:
    """The counts so far. Results may arrive in any order.

    `unsaved` are the results of cases, and `changed` the findings, since the last step.
    """

    digests: dict[int, str] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    growth: list[Point] = field(default_factory=list)
    strategies: dict[str, StrategyCount] = field(default_factory=dict)
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    called: Counter[tuple[Stage, frozenset[str]]] = field(default_factory=Counter)
    accepted: dict[str, AcceptedCount] = field(default_factory=dict)
    cpu_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    findings: dict[str, CampaignFinding] = field(default_factory=dict)
    peak_rss_mb: float = 0.0
    lost: int = 0
    unsaved: list[CaseResult] = field(default_factory=list)
    changed: dict[str, CampaignFinding] = field(default_factory=dict)

    def see(self, seen: CampaignFinding) -> None:
        """Save what is now known of a finding."""
        self.findings[seen.finding] = self.changed[seen.finding] = seen

    def drain(self) -> Step | None:
        """What was counted since the last call, None if there is nothing."""
        if not self.unsaved and not self.changed:
            return None
        seconds = {name: self.cpu_seconds[name] for name in FOLLOW_UPS if name in self.cpu_seconds}
        step = Step(tuple(map(countable, self.unsaved)), tuple(self.changed.values()), self.lost, seconds)
        self.unsaved.clear()
        self.changed.clear()
        return step

    def restore(self, step: Step) -> tuple[CaseResult, ...]:
        """Count again what a step has counted. Returns its cases."""
        for result in step.cases:
            self.add(result)
        for seen in step.findings:
            self.see(seen)
        self.lost = step.lost
        self.cpu_seconds.update(step.cpu_seconds)
        self.ledger.drain()
        self.drain()
        return step.cases

    def add(self, result: CaseResult) -> None:
        """Count one case."""
        self.unsaved.append(result)
        stages = [(one.stage, one.reached) for one in result.reached]
        novel = self.ledger.add(stages, result.program)
        strategy = self.strategies.get(name := name_of(result.origin), StrategyCount())
        new = len(novel.fallback_sites) + len(novel.dde_sites)
        self.strategies[name] = StrategyCount(strategy.cases + 1, strategy.new_sites + new)
        self.digests[result.index] = result.digest
        self.peak_rss_mb = max(self.peak_rss_mb, result.rss_mb)
        for run in result.outcomes:
            self.outcomes[run.stage, run.semantics, run.outcome] += 1
            if run.verdict:
                self.verdicts[run.stage, run.verdict] += 1
            self.cpu_seconds[run.stage] += run.cpu_seconds
            if run.called and run.semantics == str(EXPLICIT) and run.stage in STAGES:
                self.called[run.stage, frozenset(map(kind_of_size, run.called))] += 1
                self._accept(run.accepted, result)
        self.cpu_seconds["draw"] += result.draw_seconds
        self.cpu_seconds["other"] += (
            result.cpu_seconds - result.draw_seconds - sum(run.cpu_seconds for run in result.outcomes)
        )
        if novel.fallback_sites or novel.dde_sites:
            self.growth.append(Point(round(self.total_cpu_seconds(), 3), len(self.digests), self.ledger.count()))

    def _accept(self, names: Iterable[str], result: CaseResult) -> None:
        for name in names:
            first = AcceptedCount(1, result.index, result.program)
            before = self.accepted.get(name, msgspec.structs.replace(first, programs=0))
            earlier = before if before.case <= result.index else first
            self.accepted[name] = msgspec.structs.replace(earlier, programs=before.programs + 1)

    def total_cpu_seconds(self) -> float:
        """CPU seconds of the workers so far, for all work."""
        return sum(self.cpu_seconds.values())

    def nested_outcomes(self) -> dict[str, dict[str, dict[str, int]]]:
        """The outcomes as stage → semantics → outcome → number."""
        nested: dict[str, dict[str, dict[str, int]]] = {}
        for (stage, semantics, outcome), number in sorted(self.outcomes.items()):
            nested.setdefault(stage, {}).setdefault(semantics, {})[outcome] = number
        return nested

    def calls(self) -> dict[Stage, CallCounts]:
        """The programs that were called, by stage."""
        return {stage: self._called_in(stage) for stage in STAGES if any(stage == one for one, _ in self.called)}

    def _called_in(self, stage: Stage) -> CallCounts:
        counts: Counter[frozenset[str]] = Counter()
        for (of_stage, kinds), number in self.called.items():
            counts[kinds] += number if of_stage == stage else 0
        at = {kind: sum(number for kinds, number in counts.items() if kind in kinds) for kind in SIZE_KINDS}
        return CallCounts(sum(counts.values()), counts[frozenset(SIZE_KINDS)], at)

    def nested_verdicts(self) -> dict[str, dict[str, int]]:
        """The verdicts as stage → verdict → number."""
        nested: dict[str, dict[str, int]] = {}
        for (stage, judged), number in sorted(self.verdicts.items()):
            nested.setdefault(stage, {})[judged] = number
        return nested
