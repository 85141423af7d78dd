"""Choose the cases of a guided campaign from the results of earlier ones: programs that reached something new are
mutated.

Cases are chosen in rounds. The cases of a round depend on the results of all rounds up to the one before the last,
taken in order of index. So workers rarely wait for a slow case, and the cases depend only on the seed and the index,
not on the speed of the workers.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Stage
from ddefuzz.findings.ledger import Ledger
from ddefuzz.generate.profiles import HOW, SHORT, Again, Draw, How, Mutate, Origin, Respell, Sample, Single, name_of
from ddefuzz.generate.variants import UNBACKED_FORMS
from ddefuzz.instrument.events import Place
from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.opinfo import TAKES_OUT
from ddefuzz.ops.spec import Indices, Leaf, Tensor

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th (from 1) of `total` parts of a campaign."""

    index: int = 1
    total: int = 1

    def part(self, whole: Sequence[Item], turn: int = 0) -> Sequence[Item]:
        """Its part of a sequence. The parts change hands with each turn."""
        return whole[(self.index - 1 + turn) % self.total :: self.total]

    def round(self, number: int) -> int:
        """Its `number`-th round among those of all shards. Their order changes, because each kind of case has its turn:
        no shard gets all of a kind.
        """
        return number * self.total + (self.index - 1 + number) % self.total

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"


WHOLE: Final = Shard()
"""All of it."""


class Gain(NamedTuple):
    """What a case cost and gained, for the yield of a strategy, a form or an op."""

    of: Literal["strategy", "form", "op"]
    name: str
    cost: float
    gained: float


class Lesson(msgspec.Struct, frozen=True):
    """What one round has taught a guide, for the guides of other shards.

    `firsts` are the results of cases that were the first, as far as the guide knew, to reach a site, to get a verdict
    at a site or to show a signature. `samples` are the ops and forms of samples that were run.
    """

    firsts: tuple[CaseResult, ...] = ()
    gains: tuple[Gain, ...] = ()
    samples: tuple[tuple[str, str], ...] = ()


def alone(lesson: Lesson) -> tuple[Lesson, ...]:
    """The exchange of a guide that has no others to learn from."""
    del lesson
    return ()


DECAY: Final = 0.98
"""The factor by which older gains and costs are multiplied after each round."""

PRIOR_COST: Final = 20.0
"""The cost at which a strategy's own record counts as much as the average of all, which it has without a record."""


@dataclass(slots=True)
class Yield:
    """The recent gain and cost of one strategy, form or op."""

    cost: float = 0.0
    gained: float = 0.0

    def add(self, cost: float, gained: float) -> None:
        """Add the cost and gain of a case."""
        self.cost += cost
        self.gained += gained

    def decay(self) -> None:
        """Reduce the weight of the record after a round."""
        self.cost *= DECAY
        self.gained *= DECAY

    def rate(self, prior: float, prior_cost: float = PRIOR_COST) -> float:
        """The estimated gain per cost. `prior` is the rate without a record, and has the weight of `prior_cost`."""
        return (self.gained + prior_cost * prior) / (self.cost + prior_cost)


def pick(strategies: Mapping[str, Yield], random: Random) -> str:
    """Choose a strategy at random, with the squares of their rates as weights."""
    records = strategies.values()
    prior = (sum(one.gained for one in records) + 1) / (sum(one.cost for one in records) + 1)
    return random.choices(tuple(strategies), [one.rate(prior) ** 2 for one in records])[0]


OPENING_FORM = "all"
"""The form in which every op is run first: every dim unbacked."""

PRIOR_RATE = 1 / 8
"""The rate of an op without a record. It is high, so that each op is tried in some form before others are repeated."""

TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    str(spec): spec.callables
    for spec in OPS
    if any(isinstance(slot, Tensor | Indices | Leaf) for _, slot in spec.slots)
}
"""The ops of the catalogue that take a tensor, by their templates, with the functions that they call."""


def takes_out(op: str) -> bool:
    """Whether an op takes `out=`: an op of the catalogue, or one of torch by its name and variant (`norm.nuc`)."""
    name = op.split(".")
    called = TEMPLATES.get(op) or tuple(f"torch.{'.'.join(name[:length])}" for length in range(1, len(name) + 1))
    return not TAKES_OUT.isdisjoint(called)


@dataclass(slots=True)
class Sampler:
    """Which samples were run, and the yields of forms and ops. `first` are the ops with samples in torch, `others`
    those without. Each shard begins with its part of the first.

    A form is chosen by its yield. Then an op is chosen by its yield and by how rarely it was run in that form.
    """

    first: tuple[str, ...]
    others: tuple[str, ...]
    seed: int
    shard: Shard = WHOLE
    forms: dict[str, Yield] = field(init=False)
    of_ops: dict[str, Yield] = field(init=False)
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    without_out: frozenset[str] = field(init=False)
    _unopened: list[str] = field(init=False)
    _weights: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shuffled = Random(f"samples:{self.seed}").sample(self.first, len(self.first))
        self._unopened = list(self.shard.part(shuffled))
        self.without_out = frozenset(op for op in (*self.first, *self.others) if not takes_out(op))
        self.forms = {form: Yield() for form in UNBACKED_FORMS}
        self.of_ops = {op: Yield() for op in (*self.first, *self.others)}

    @property
    def opening(self) -> bool:
        """Whether some op was not run yet."""
        return bool(self._unopened)

    def next(self, random: Random) -> Sample:
        """The next sample. There must be at least one op."""
        op, form = (self._unopened.pop(), OPENING_FORM) if self._unopened else self._choose(random)
        number = self.tried[op, form]
        self.tried[op, form] += 1
        if form in self._weights:
            self._weights[form][op] = self._weight(op, form)
        return Sample(op, form, number, random.getrandbits(16))

    def _choose(self, random: Random) -> tuple[str, str]:
        form = pick(self.forms, random)
        if form not in self._weights:
            ops = [op for op in self.of_ops if form != "out" or op not in self.without_out] or self.of_ops
            self._weights[form] = {op: self._weight(op, form) for op in ops}
        weights = self._weights[form]
        return random.choices(tuple(weights), tuple(weights.values()))[0], form

    def _weight(self, op: str, form: str) -> float:
        return self.of_ops[op].rate(PRIOR_RATE, prior_cost=2) / (1 + self.tried[op, form])

    def gains(self, chosen: Sample, made: Origin, gained: int, *, opening: bool) -> Iterator[Gain]:
        """What a case gained, for the form that it really has, and for its op.

        Results of the opening do not count for forms, because the first runs gain most in any form.
        """
        if isinstance(made, Sample) and not opening:
            yield Gain("form", made.form, 1, gained)
        yield Gain("op", chosen.op, 1, gained if isinstance(made, Sample) else 0)

    def decay(self) -> None:
        """Reduce the weight of the forms' records after a round. What was learned in it has changed all weights."""
        self._weights.clear()
        for record in self.forms.values():
            record.decay()


FRESH: Final = 3
"""One in this many called cases is a new draw."""

RETRIED: Final = 5
"""One in this many called cases may be for a guard that only programs which failed evaluated. Most fail again."""

PROGRAMS_OF_A_GUARD: Final = 8
"""The number of programs that are kept for each guard, each with another form of its expression."""

ALONE: Final[tuple[How, ...]] = tuple(how for how in HOW if how != "splice")
"""The mutations that need no second program."""


@dataclass(slots=True)
class CallHistory:
    """The guards whose fallback was taken, the programs that evaluated them, and how often these were called.

    `programs` passed in the stage where they evaluated the guard, `failed` did not. `runs` counts the called programs
    of a guard in a stage: those that evaluated it, and those that were chosen for it and did not. `total` is over all
    stages. `tried` are the programs that were captured, failed to capture, or were chosen in a stage.
    """

    programs: dict[Place, dict[str, str]] = field(default_factory=dict)
    failed: dict[Place, dict[str, str]] = field(default_factory=dict)
    runs: Counter[tuple[Place, Stage]] = field(default_factory=Counter)
    total: Counter[Place] = field(default_factory=Counter)
    tried: set[tuple[str, Stage]] = field(default_factory=set)
    _aimed: dict[int, tuple[Place, Stage]] = field(default_factory=dict)
    _chosen: int = 0

    def choose(self, index: int, stage: Stage, fresh: Draw | Single, random: Random) -> Origin:
        """The case of an index, to be called in a stage; `fresh` is what a campaign without a guide takes.

        The guard with the fewest runs in the stage is chosen, then in all stages. A program that evaluated it and was
        not run in this stage yet is run as it is. If there is none, one of its programs is mutated. Programs that
        failed are not mutated, and they are used only for a guard that has no others.
        """
        self._chosen += 1
        doubtful = {place for place in self.failed.keys() - self.programs if self._untried(self.failed[place], stage)}
        retries = self._chosen % RETRIED == 0 or not self.programs
        places = [*self.programs, *(sorted(doubtful) if retries else ())]
        if self._chosen % FRESH == 0 or not places:
            return fresh
        place = min(places, key=lambda one: (self.runs[one, stage], self.total[one], random.random()))
        self._aimed[index] = (place, stage)
        self._count({(place, stage)})
        known = self.programs.get(place, self.failed.get(place, {}))
        untried = self._untried(known, stage)
        if not untried:
            return Mutate(random.choice(ALONE), random.choice(list(known.values())), random.getrandbits(48))
        program = random.choice(untried)
        self.tried.add((program, stage))
        return Again(program)

    def _untried(self, known: Mapping[str, str], stage: Stage) -> list[str]:
        return [program for program in known.values() if (program, stage) not in self.tried]

    def learn(self, result: CaseResult) -> None:
        """Add the result of any case. Results have to come in the order of the cases."""
        passed = {one.stage for one in result.outcomes if one.outcome == "ok" and one.semantics == str(EXPLICIT)}
        came: set[tuple[Place, Stage]] = set()
        for stage, place, form in _fallbacks(result):
            if not result.program:
                continue
            known = (self.programs if stage in passed else self.failed).setdefault(place, {})
            if len(known) < PROGRAMS_OF_A_GUARD:
                known.setdefault(form, result.program)
            if stage != SCREEN:
                self.tried.add((result.program, stage))
            if stage != SCREEN and stage in passed:
                came.add((place, stage))
        self._count(came - {self._aimed.pop(result.index, None)})

    def _count(self, runs: Set[tuple[Place, Stage]]) -> None:
        self.runs.update(runs)
        self.total.update(place for place, _ in runs)


def _fallbacks(result: CaseResult) -> Iterator[tuple[Stage, Place, str]]:
    """The guards whose fallback a case took: the stage, the place and the form of the expression."""
    for stage in result.reached:
        for way in stage.reached:
            if way.answer != "raised":
                yield stage.stage, way.place, way.shape


ROUND: Final = 32
"""The number of cases in a round, unless another is chosen."""

KEPT: Final = 400
"""The number of programs that are kept for mutation. The oldest are dropped."""

SITE_SCORE: Final = 8
VERDICT_SCORE: Final = 4
MOST_SHAPES: Final = 4
"""The score of a program: for each new site, a new verdict at its site, and 1 for each of the last new expressions."""

STRATEGIES: Final[tuple[str, ...]] = ("single", "sample", "draw", "aim", "respell", *HOW)
"""All strategies that can be chosen (`origin.name_of`). A program that none of them could make is `short`."""

OPENING: Final = ("single", "sample", "draw", *("single", "sample") * 4)
"""The strategies in turn until each op of the catalogue and each op with samples in torch was run once."""


def cost_of(program: str) -> int:
    """The estimated cost of a program, by its number of lines. Measured seconds would differ between machines."""
    return max(program.count("\n") - 2, 1)


class Case(NamedTuple):
    """The origin of a case, and the keys of the signatures that need no further capture.

    `alarms` are those of the keys that only the fake stage showed. `strategy` was chosen, in turn in the `opening`.
    """

    origin: Origin
    known: frozenset[str]
    alarms: frozenset[str]
    strategy: str
    opening: bool


class CalledCase(NamedTuple):
    """A case to be called in a stage. `fresh` is taken if no earlier program fits, and in any case if it is `drawn`."""

    fresh: Draw | Single
    stage: Stage
    drawn: bool = False


@dataclass(slots=True)
class Parent:
    """A program that reached something new. `children` counts its mutations."""

    program: str
    origin: Origin
    score: float
    cost: int
    children: int = 0

    @property
    def energy(self) -> float:
        """The weight with which it is chosen for mutation."""
        return self.score / (1 + self.children) / self.cost


@dataclass(slots=True)
class Guide:
    """The state of one campaign's search with the strategies `allowed`.

    `samples` are the ops that torch has samples of. `sites_in` returns the lines of the guard sites in a file of torch.
    `called_case` returns a case that is captured and called
    without the fake stage, and `calling` chooses its program. A round has `round_size` cases. The rounds of a shard are
    its own. After each, `exchange` gets what it taught, and returns what the rounds of other shards have taught since.
    """

    seed: int
    allowed: tuple[str, ...] = STRATEGIES
    samples: tuple[str, ...] = ()
    sites_in: Callable[[str], frozenset[int]] = lambda file: frozenset()
    called_case: Callable[[int], CalledCase | None] = lambda index: None
    round_size: int = ROUND
    shard: Shard = WHOLE
    exchange: Callable[[Lesson], Iterable[Lesson]] = alone
    ledger: Ledger = field(default_factory=Ledger)
    kept: list[Parent] = field(default_factory=list)
    calling: CallHistory = field(default_factory=CallHistory)
    strategies: dict[str, Yield] = field(init=False)
    sampler: Sampler = field(init=False)
    verdicts: set[tuple[str, str]] = field(default_factory=set)
    touched: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    signatures: set[str] = field(default_factory=set)
    alarms: set[str] = field(default_factory=set)
    _sites: dict[str, frozenset[int]] = field(default_factory=dict)
    _planned: dict[int, Case] = field(default_factory=dict)
    _arrived: dict[int, CaseResult] = field(default_factory=dict)
    _chosen: dict[int, Case] = field(default_factory=dict)
    _parents: dict[int, Parent] = field(default_factory=dict)
    _order: deque[int] = field(default_factory=deque)
    _next_round: int = 0
    _drawn: int = 0
    _firsts: list[CaseResult] = field(default_factory=list)
    _gains: list[Gain] = field(default_factory=list)
    _samples: list[tuple[str, str]] = field(default_factory=list)
    _yields: dict[str, dict[str, Yield]] = field(init=False)
    _singles: list[int] = field(default_factory=list)
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.sampler = Sampler(self.samples, tuple(TEMPLATES), self.seed, self.shard)
        self.strategies = {name: Yield() for name in self.allowed}
        self._yields = {"strategy": self.strategies, "form": self.sampler.forms, "op": self.sampler.of_ops}
        self._plan()
        self._plan()

    def ready(self, index: int) -> bool:
        """Whether the case is chosen."""
        return index in self._planned

    def take(self, index: int) -> Case:
        """The case of an index, which must be ready. It can be taken once."""
        return self._planned.pop(index)

    def learn(self, result: CaseResult) -> None:
        """Add the result of a case. Results may arrive in any order."""
        self._arrived[result.index] = result
        while self._order and self._order[0] in self._arrived:
            index = self._order.popleft()
            self._take(self._arrived.pop(index))
            if (index + 1) % self.round_size == 0:
                self._end_round()

    def _end_round(self) -> None:
        lesson = Lesson(tuple(self._firsts), tuple(self._gains), tuple(self._samples))
        for heard in self.exchange(lesson):
            for result in heard.firsts:
                self._keep(result)
            for gain in heard.gains:
                self._add(gain)
            self.sampler.tried.update(heard.samples)
        for taught in (self._firsts, self._gains, self._samples):
            taught.clear()
        self._plan()

    def _take(self, result: CaseResult) -> None:
        """Add the result of a case of this guide."""
        chosen, cost = self._chosen.pop(result.index), cost_of(result.program)
        sites, is_first = self._keep(result)
        gains = []
        if not chosen.opening:  # the first runs gain most, by any strategy
            gained = sites if chosen.strategy == name_of(result.origin) else 0
            gains.append(Gain("strategy", chosen.strategy, cost, gained))
        if isinstance(chosen.origin, Sample):
            gains += self.sampler.gains(chosen.origin, result.origin, sites, opening=chosen.opening)
            self._samples.append((chosen.origin.op, chosen.origin.form))
        for gain in gains:
            self._add(gain)
        self._gains += gains
        parent = self._parents.pop(result.index, None)
        if parent is not None and sites:
            parent.score += SITE_SCORE
        if is_first:
            self._firsts.append(result)

    def _add(self, gain: Gain) -> None:
        if (of := self._yields[gain.of].get(gain.name)) is not None:
            of.add(gain.cost, gain.gained)

    def _keep(self, result: CaseResult) -> tuple[int, bool]:
        """Add what a case reached and showed, of this guide or of another, and keep its program if that is new.
        Returns how many sites are new, and whether a site, a verdict or a signature is.
        """
        self.calling.learn(result)
        novel = self.ledger.novel((one.stage, one.reached) for one in result.reached)
        sites = len(novel.fallback_sites) + len(novel.dde_sites)
        verdicts = {(run.verdict, str(one.signature.site)) for run in result.outcomes for one in result.sightings}
        verdicts = {one for one in verdicts if one[0]} - self.verdicts
        self.verdicts |= verdicts
        shown, screened = {one.signature.key for one in result.sightings}, {*result.screened}
        is_first = bool(sites or verdicts or shown - self.signatures or screened - self.signatures - self.alarms)
        self.signatures |= shown
        self.alarms = (self.alarms | screened) - self.signatures
        score = SITE_SCORE * sites + VERDICT_SCORE * bool(verdicts) + min(novel.shapes, MOST_SHAPES)
        files = {one.place.file for stage in result.reached for one in stage.reached}
        for function in result.functions:
            self.touched[function].update(files)
        if score and result.program:
            self.kept.append(Parent(result.program, result.origin, score, cost_of(result.program)))
            del self.kept[:-KEPT]
        return sites, is_first

    def _plan(self) -> None:
        """Choose the cases of a round."""
        number = self.shard.round(self._next_round)
        first = number * self.round_size
        random = Random(f"guide:{self.seed}:{number}")
        aims, alarms = self._aims(), frozenset(self.alarms)
        known = alarms.union(self.signatures)
        for tried_strategy in self.strategies.values():
            tried_strategy.decay()
        self.sampler.decay()
        for index in range(first, first + self.round_size):
            opening = self._is_opening()
            called = self.called_case(index)
            if called is not None:
                # A uniform campaign draws by the index, so that its shards are parts of the whole.
                uniform = self.allowed == ("draw",)
                self._drawn += uniform
                origin = (
                    called.fresh
                    if uniform or called.drawn
                    else self.calling.choose(index, called.stage, called.fresh, random)
                )
                case = Case(origin, known, alarms, name_of(origin), opening=True)
            else:
                strategy = OPENING[index % len(OPENING)] if opening else pick(self.strategies, random)
                case = Case(self._decide(strategy, index, random, aims), known, alarms, strategy, opening)
            self._planned[index] = self._chosen[index] = case
            self._order.append(index)
        self._next_round += 1

    def _decide(self, name: str, index: int, random: Random, aims: Callable[[Random], int | None]) -> Origin:
        """A case made by a strategy, or a drawn one if the strategy has nothing to start from."""
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
        """The shard's next case of the uniform stream. Its first cases have ops that usually stop capture."""
        self._drawn += 1
        return Draw((self._drawn - 1) * self.shard.total + self.shard.index - 1)

    def _single(self, random: Random) -> Single:
        """The next op of the catalogue by itself. Ops that usually stop capture come first, pointwise ops last.

        In the first pass over the catalogue each op gets its first program, which a sweep also runs; later any of its
        programs.
        """
        if not self._singles:
            part = self.shard.part(range(len(OPS)), self._rounds)
            ops = random.sample(part, len(part))
            self._singles = sorted(
                ops, key=lambda op: (OPS[op].stops, OPS[op] not in GROUPS["pointwise"])
            )  # last first
            self._rounds += 1
        return Single(self._singles.pop(), random.getrandbits(32) if self._rounds > 1 else 0)

    def _is_opening(self) -> bool:
        return {"single", "sample"} <= self.strategies.keys() and (self._rounds <= 1 or self.sampler.opening)

    def _pick(self, index: int, random: Random, *, spelt: bool = False) -> Parent | None:
        """A kept program, chosen by energy. With `spelt` only programs that `respell` can change."""
        fitting = [one for one in self.kept if not spelt or isinstance(one.origin, Draw | Respell)]
        if not fitting:
            return None
        kept = random.choices(fitting, [one.energy for one in fitting])[0]
        kept.children += 1
        self._parents[index] = kept
        return kept

    def _aims(self) -> Callable[[Random], int | None]:
        """A function that chooses an op whose programs reached files with unreached guard sites.

        The weight of an op is the number of such sites.
        """
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
