"""Which case comes next, learnt from those before: what reached something new is changed and tried again.

Decided in rounds. The cases of a round depend on what all rounds up to the one before the last showed, taken in in
order of index: so the workers hardly wait for a slow case, and the cases depend on seed and number alone, not on which
worker was faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from ddefuzz.campaign.promise import Payoff, pick
from ddefuzz.campaign.sampler import TEMPLATES, Sampler
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.coverage.ledger import Ledger
from ddefuzz.generate.origin import HOW, SHORT, Draw, Mutate, Origin, Respell, Sample, Single, name_of
from ddefuzz.ops.catalogue import GROUPS, OPS

ROUND: Final = 32
"""Cases a round."""

KEPT: Final = 400
"""How many programs are kept to be changed, the newest."""

SITE_SCORE: Final = 8
VERDICT_SCORE: Final = 4
MOST_SHAPES: Final = 4
"""What a program is worth: for each new site, for a verdict that was new at a site, for new expressions (one each)."""

STRATEGIES: Final[tuple[str, ...]] = ("single", "sample", "draw", "aim", "respell", *HOW)
"""All strategies that are chosen (`origin.name_of`); what comes of none of them is `short`."""

OPENING: Final = ("single", "sample", "draw", *("single", "sample") * 4)
"""By turns, until each op of the catalogue and each that torch has samples of has come once."""


def cost_of(program: str) -> int:
    """What a program costs beside others, by its lines: seconds would differ from machine to machine."""
    return max(program.count("\n") - 2, 1)


class Case(NamedTuple):
    """Where a case comes from, and the keys of what needs no further capture: of that, `alarms` no capture showed."""

    origin: Origin | None
    known: frozenset[str]
    alarms: frozenset[str]


class Asked(NamedTuple):
    """A case that was handed out: its strategy, and whether it is of the opening, which takes strategies in turn."""

    strategy: str
    origin: Origin
    opening: bool


@dataclass(slots=True)
class Kept:
    """A program that reached something new, and how often it has been changed since."""

    program: str
    origin: Origin
    score: float
    cost: int
    children: int = 0

    @property
    def energy(self) -> float:
        """How likely it is to be changed next, beside the others."""
        return self.score / (1 + self.children) / self.cost


@dataclass(slots=True)
class Guide:
    """The state of one campaign's search, by the strategies that it may use.

    `samples` are the ops of torch's own samples, `sites_in` gives the lines of the guard sites in a file of torch's.
    With `start` the cases before that one, and those `ahead`, are done: it goes on after them, past the opening only
    roughly, because what they showed is not known, and learns anew.
    """

    seed: int
    allowed: tuple[str, ...] = STRATEGIES
    samples: tuple[str, ...] = ()
    sites_in: Callable[[str], frozenset[int]] = lambda file: frozenset()
    start: int = 0
    ahead: frozenset[int] = frozenset()
    ledger: Ledger = field(default_factory=Ledger)
    kept: list[Kept] = field(default_factory=list)
    strategies: dict[str, Payoff] = field(init=False)
    sampler: Sampler = field(init=False)
    verdicts: set[tuple[str, str]] = field(default_factory=set)
    touched: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    signatures: set[str] = field(default_factory=set)
    alarms: set[str] = field(default_factory=set)
    _sites: dict[str, frozenset[int]] = field(default_factory=dict)
    _planned: dict[int, Case] = field(default_factory=dict)
    _arrived: dict[int, CaseResult] = field(default_factory=dict)
    _asked: dict[int, Asked] = field(default_factory=dict)
    _parents: dict[int, Kept] = field(default_factory=dict)
    _next_result: int = 0
    _next_round: int = 0
    _drawn: int = 0
    _singles: list[int] = field(default_factory=list)
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.samples, tuple(TEMPLATES), self.seed)
        self._learn_anew()
        self._plan()
        self._plan()
        for index in (*range(self.start), *sorted(self.ahead)):
            self.take(index)
            self.learn(CaseResult(index, ""))
        if self.start:
            self._learn_anew()

    def _learn_anew(self) -> None:
        self.strategies = {name: Payoff() for name in self.allowed}
        self.sampler.learn_anew()

    def ready(self, index: int) -> bool:
        """Whether it is decided what the case is."""
        return index in self._planned

    def take(self, index: int) -> Case:
        """What was decided of a case; only once it is ready."""
        return self._planned.pop(index)

    def learn(self, result: CaseResult) -> None:
        """Take in a case, in whatever order they come."""
        self._arrived[result.index] = result
        while self._next_result in self._arrived:
            self._take(self._arrived.pop(self._next_result))
            self._next_result += 1
            if self._next_result % ROUND == 0:
                self._plan()

    def _take(self, result: CaseResult) -> None:
        novel = self.ledger.add(((one.stage, one.reached) for one in result.reached), result.program)
        sites = len(novel.fallback_sites) + len(novel.dde_sites)
        told = {(run.verdict, str(one.signature.site)) for run in result.outcomes for one in result.sightings}
        told = {one for one in told if one[0]} - self.verdicts
        self.verdicts |= told
        cost = cost_of(result.program)
        shown = {one.signature.key for one in result.sightings}
        self.signatures.update(shown)
        self.alarms = (self.alarms | set(result.screened)) - self.signatures
        asked = self._asked.pop(result.index)
        if not asked.opening:  # whatever comes first brings most, which says nothing of the strategies
            self.strategies[asked.strategy].add(cost, sites if asked.strategy == name_of(result.origin) else 0)
        if isinstance(asked.origin, Sample):
            self.sampler.learn(asked.origin, result.origin, sites, opening=asked.opening)
        score = SITE_SCORE * sites + VERDICT_SCORE * bool(told) + min(novel.shapes, MOST_SHAPES)
        files = {one.place.file for stage in result.reached for one in stage.reached}
        for function in result.functions:
            self.touched[function].update(files)
        parent = self._parents.pop(result.index, None)
        if parent is not None and sites:
            parent.score += SITE_SCORE
        if score and result.program:
            self.kept.append(Kept(result.program, result.origin, score, cost))
            del self.kept[:-KEPT]

    def _plan(self) -> None:
        """Decide a round."""
        first = self._next_round * ROUND
        random = Random(f"guide:{self.seed}:{self._next_round}")
        aims, alarms = self._aims(), frozenset(self.alarms)
        known = alarms.union(self.signatures)
        for one in self.strategies.values():
            one.forget()
        self.sampler.forget()
        for index in range(first, first + ROUND):
            opening = self._is_opening()
            strategy = OPENING[index % len(OPENING)] if opening else pick(self.strategies, random)
            origin = self._decide(strategy, index, random, aims)
            self._asked[index] = Asked(strategy, origin, opening)
            self._planned[index] = Case(origin, known, alarms)
        self._next_round += 1

    def _decide(self, name: str, index: int, random: Random, aims: Callable[[Random], int | None]) -> Origin:
        """A case made by a strategy, or drawn where there is nothing yet to make it from."""
        if name == "sample":
            return self.sampler.next(random)
        if name == "single":
            return self._single(random)
        if name == "aim" and (focus := aims(random)) is not None:
            return Draw(index, focus, SHORT)
        if name == "respell" and (kept := self._pick(index, random, spelt=True)) is not None:
            change = (random.randrange(2**16), random.getrandbits(32))
            base, changes = (
                (kept.origin.base, kept.origin.changes) if isinstance(kept.origin, Respell) else (kept.origin, ())
            )
            assert isinstance(base, Draw)
            return Respell(base, (*changes, change))
        for how in HOW:
            if how == name and (kept := self._pick(index, random)) is not None:
                other = random.choice(self.kept).program if how == "splice" else ""
                return Mutate(how, kept.program, random.getrandbits(48), other)
        return self._draw()

    def _draw(self) -> Draw:
        """The next of the campaign's own stream, which opens with what usually stops capture."""
        self._drawn += 1
        return Draw(self._drawn - 1)

    def _single(self, random: Random) -> Single:
        """The next op of the catalogue by itself: first what usually stops capture, last what asks little.

        The first time round its first program, which the sweep has as well, then any.
        """
        if not self._singles:
            self._singles = sorted(random.sample(range(len(OPS)), len(OPS)), key=_asks_much)
            self._rounds += 1
        return Single(self._singles.pop(), random.getrandbits(32) if self._rounds > 1 else 0)

    def _is_opening(self) -> bool:
        return {"single", "sample"} <= self.strategies.keys() and (self._rounds <= 1 or self.sampler.opening)

    def _pick(self, index: int, random: Random, *, spelt: bool = False) -> Kept | None:
        """A kept program, by energy; with `spelt` one that bytes spell."""
        fitting = [one for one in self.kept if not spelt or isinstance(one.origin, Draw | Respell)]
        if not fitting:
            return None
        kept = random.choices(fitting, [one.energy for one in fitting])[0]
        kept.children += 1
        self._parents[index] = kept
        return kept

    def _aims(self) -> Callable[[Random], int | None]:
        """Picks ops known to touch files with sites that nothing has reached, the more of them the likelier."""
        reached = {(file, line) for _, file, line in self.ledger.fallback_sites}
        files = {file for touched in self.touched.values() for file in touched if file.endswith(".py")}
        self._sites.update({file: self.sites_in(file) for file in files - self._sites.keys()})
        lacking = {
            file: sum((file, line) not in reached for line in lines) for file, lines in self._sites.items() if lines
        }
        weights = [
            sum(lacking.get(file, 0) for function in spec.callables for file in self.touched.get(function, ()))
            for spec in OPS
        ]
        total = sum(weights)
        return lambda random: random.choices(range(len(OPS)), weights)[0] if total else None


def _asks_much(op: int) -> tuple[bool, bool]:
    """Sorts the catalogue: what asks little first, what usually stops capture last."""
    return OPS[op].stops, OPS[op] not in GROUPS["pointwise"]
