"""The options of a campaign (its budget, its shard), and the order of its cases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from random import Random

from ddefuzz.campaign.guide import ROUND, WHOLE, CalledCase, Case, Shard
from ddefuzz.campaign.tasks import TOGETHER, CaseTask
from ddefuzz.errors import InputError
from ddefuzz.execute.engine import LOCAL, Engine
from ddefuzz.execute.protocol import AFTER_EXPORT, CHEAP_TO_CALL, COMPILES, DECOMPOSED, Semantics, Stage
from ddefuzz.findings.textform import NONE, Now
from ddefuzz.generate.profiles import CAPTURES, COMPILED, DECOMPOSING, Draw, Single, profile_named
from ddefuzz.ops.catalogue import OPS
from ddefuzz.oracles.oracle import Oracle, OwnStage
from ddefuzz.oracles.program import CAPTURE, Suspect, called_of
from ddefuzz.oracles.table import ORACLES, calls_of, own_stage

UNITS = {"s": 1, "m": 60, "h": 3600}
SECONDS = re.compile(r"(?:[0-9]{1,12}(?:[.][0-9]{1,12})?[smh]){1,3}")
CPU_SECONDS = re.compile(r"([0-9]{1,12}(?:[.][0-9]{1,12})?)cpu")
CASES = re.compile(r"([0-9]{1,12})x")

CLOSING_SHARE = 0.1
CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one is set: `seconds` of wall-clock time, `cases` over all shards, or `cpu_seconds` of the workers."""

    seconds: float | None = None
    cases: int | None = None
    cpu_seconds: float | None = None

    @property
    def drawing_seconds(self) -> float | None:
        """When to stop drawing, so that findings until then can be minimized and confirmed within the budget."""
        if self.seconds is None:
            return None
        return self.seconds - min(CLOSING_SECONDS, CLOSING_SHARE * self.seconds)

    def __str__(self) -> str:
        if self.cpu_seconds is not None:
            return f"{self.cpu_seconds:g}cpu"
        return f"{self.cases}x" if self.cases is not None else f"{self.seconds:g}s"


def parse_budget(text: str) -> Budget:
    """Parse `90s`, `10m`, `1h30m`, `1000x` or `600cpu`. Raises `InputError`."""
    if (match := CPU_SECONDS.fullmatch(text)) and float(match[1]) > 0:
        return Budget(cpu_seconds=float(match[1]))
    if match := CASES.fullmatch(text):
        if int(match[1]) > 0:
            return Budget(cases=int(match[1]))
    elif SECONDS.fullmatch(text):
        seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([smh])", text))
        if seconds > 0:
            return Budget(seconds=seconds)
    raise InputError(
        f"--budget: found {text[:40]!r}, expected a time such as 90s, 10m, 1h30m, "
        "a number of cases such as 1000x or CPU seconds such as 600cpu"
    )


def parse_shard(text: str) -> Shard:
    """Parse `1/2`, the first of two shards. Raises `InputError`."""
    match = re.fullmatch(r"([0-9]{1,12})/([0-9]{1,12})", text)
    if match and 1 <= int(match[1]) <= int(match[2]):
        return Shard(int(match[1]), int(match[2]))
    raise InputError(f"--shard: found {text[:40]!r}, expected i/n with 1 ≤ i ≤ n, such as 1/4")


CASE_SECONDS = 30.0
"""Time limit of one case in all its stages, unless a plan sets its own."""

MINIMIZE_SECONDS = 60.0
CONFIRM_SECONDS = 30.0
"""Time limit of a confirmation, and of the control runs after it."""

SAMPLED = 16
"""With screening, every sixteenth case (of each stage) is captured even if it passes the fake stage."""

CALLED = 3
"""Every third case is for the oracles that call captured programs. It is not run in the fake stage first. Of two rounds
of `RETRACED` such cases, one has drawn programs, the other one has the ops of the catalogue by themselves, in turn.
"""

BATCH = 16
"""So many cases in a row are called in inductor: their kernels are compiled in one run of the C++ compiler."""

CALLED_COMPILED = 117
"""Of the called cases, one in so many is called in another stage that compiles C++, for about 10 CPU seconds."""

RETRACED = 8
"""Of these cases, one in so many is run in one of the cheap stages that go on where export ends, in turn: one case
in 24. They cost about twice as much as export.
"""

RETRACED_TURN = 3  # the first of them

DECOMPOSED_TURNS = (1, 4, 6)
"""Of the same `RETRACED` cases, those that run after inductor's decompositions, in a campaign with a stage of
torch.compile: one case in 8. They are drawn for it. Wrong values of decompositions, and wrong gradients, show there
without C++.
"""

TRAINED: frozenset[Stage] = frozenset({"aot", DECOMPOSED, TOGETHER})
"""The stages that capture gradients, in which ops by themselves are called with them."""

SLOWER = 6
"""How much longer a task may take in which inductor compiles C++."""

SLOW_TO_START: frozenset[Stage] = frozenset(COMPILES)
"""Stages that are skipped for cases that fail in the fake stage, and for findings of other stages.

The first use costs 2.5 CPU seconds in every process.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a campaign.

    With `in_turn` each case is run in one of the stages, by its index, else in all of them. With `screen` a case is
    captured only if it fails in the fake stage; every `SAMPLED`-th case is captured in any case. With `guided` the
    cases come from a `Guide`, in rounds of `round_size`. `oracles` judge what is captured; if one of them calls it,
    every `CALLED`-th case is captured and called without the fake stage.

    `known` has the findings that a list of known findings has: they are not new, and not minimized. Those whose
    decision has expired are new again. The workers are those of an `engine`: `jobs` of them, or on each node of a
    cluster (0: one for each of its CPUs). With `share` the other shards are campaigns of the same database, and their
    guides tell each other what they learn (`campaign.exchange`).
    """

    profile: str
    seed: int
    budget: Budget
    jobs: int
    stages: tuple[Stage, ...]
    semantics: tuple[Semantics, ...]
    shard: Shard = WHOLE
    minimize: bool = True
    case_seconds: float = CASE_SECONDS
    in_turn: bool = False
    screen: bool = False
    guided: bool = False
    oracles: tuple[str, ...] = CAPTURE
    known: Now = NONE
    round_size: int = ROUND
    engine: Engine = LOCAL
    share: bool = False

    def cases(self) -> Iterator[int]:
        """The indices of the shard's cases, in order: whole rounds if it shares, else each `total`-th case."""
        shard, size, most = self.shard, self.round_size, self.budget.cases
        indices: Iterator[int] = count(shard.index - 1, shard.total)
        if self.share:
            rounds = (shard.round(number) * size for number in count())
            indices = (index for first in rounds for index in range(first, first + size))
        return takewhile(lambda index: most is None or index < most, indices)

    def is_sampled(self, index: int) -> bool:
        """Whether a case is captured independently of the fake stage. Each stage is sampled equally."""
        return index // len(self.stages) % SAMPLED == 0

    def is_called(self, index: int) -> bool:
        """Whether a case is for the oracles that call what was captured, or that have stages of their own."""
        wanted = calls_of(self.oracles) or any(oracle.stages for oracle in self._others())
        chosen = index % CALLED == 0 and bool(wanted and called_of(self.stages))
        return chosen or self._is_for_inductor(index)

    def _is_for_inductor(self, index: int) -> bool:
        """Whether a case is one of a block that is called in inductor, as often as the profile says. Campaigns with the
        stage `compile` call inductor, because it is the default backend of torch.compile.
        """
        every = profile_named(self.profile).inductor
        wanted = {"compile", TOGETHER} & {*self.stages} and not set(self.stages) <= set(COMPILES)
        is_turn = every and index // BATCH % every == every - 1
        return bool(wanted and is_turn and calls_of(self.oracles))

    def called_case(self, index: int) -> CalledCase | None:
        """A case for the oracles that call what was captured; None for all other cases. Half of those for inductor are
        drawn for it. Of the others, one half are drawn, and one half are ops of the catalogue in turn.
        """
        if not self.is_called(index):
            return None
        stage = self.stages_of(index)[-1]
        is_compiled = self._is_for_inductor(index)
        if is_compiled and index % 2 == 0:
            return CalledCase(Draw(index, profile=COMPILED), stage, drawn=True)
        turn, place = divmod(index if is_compiled else index // CALLED, RETRACED)
        if turn % 2:
            return CalledCase(self._single(turn // 2 * RETRACED + place, stage), stage, drawn=True)
        if self.retraced_stages(index) == (DECOMPOSED,) == (stage,):
            return CalledCase(Draw(index, profile=DECOMPOSING), stage, drawn=True)
        return CalledCase(Draw(index, profile=CAPTURES), stage)

    def _single(self, number: int, stage: Stage) -> Single:
        """The op whose turn it is. Its inputs require gradients in the stages that capture them."""
        rounds, place = divmod(number, len(OPS))
        order = Random(f"{self.seed}:{rounds}").sample(range(len(OPS)), len(OPS))
        word = Random(f"{self.seed} {number}").getrandbits(32)
        return Single(order[place], word, gradients=stage in TRAINED)

    def task_of(self, index: int, case: Case | None) -> CaseTask:
        """The task of a case, which the guide has chosen, if there is one."""
        called = self.called_case(index)
        return CaseTask(
            profile=self.profile,
            seed=self.seed,
            index=index,
            stages=self.stages_of(index),
            semantics=self.semantics,
            origin=case.origin if case is not None else (None if called is None else called.fresh),
            screen=self.screen and called is None,
            capture=self.is_sampled(index),
            known=case.known if case is not None else frozenset(),
            alarms=case.alarms if case is not None else frozenset(),
            oracles=self.oracles,
            called=(*CHEAP_TO_CALL, *self.compiled_stages(index)),
        )

    def compiled_stages(self, index: int) -> tuple[Stage, ...]:
        """The stage that compiles C++ in which a case is called. If there are no other stages, all cases for these
        oracles are called.
        """
        number, chosen = index // CALLED, {*self.stages}
        if self._is_for_inductor(index):
            return (TOGETHER,)
        slow = tuple(stage for stage in COMPILES if stage in chosen)
        if not slow or not self.is_called(index):
            return ()
        if chosen <= set(slow):
            return (slow[number % len(slow)],)
        slow = tuple(stage for stage in slow if stage != TOGETHER)
        is_turn = slow and number % CALLED_COMPILED == CALLED_COMPILED - 1
        return (slow[number // CALLED_COMPILED % len(slow)],) if is_turn else ()

    def retraced_stages(self, index: int) -> tuple[Stage, ...]:
        """The stage after export, or after AOTAutograd, in which a case is called, in a campaign with such a stage."""
        number = index // CALLED
        if not self.is_called(index) or self._is_for_inductor(index) or not calls_of(self.oracles):
            return ()
        if number % RETRACED in DECOMPOSED_TURNS and not {"compile", "aot", TOGETHER}.isdisjoint(self.stages):
            return (DECOMPOSED,)
        is_turn = number % RETRACED == RETRACED_TURN and "export" in self.stages
        return (AFTER_EXPORT[number // RETRACED % len(AFTER_EXPORT)],) if is_turn else ()

    def own_stage_of(self, index: int) -> OwnStage | None:
        """An oracle's own stage in which a case runs: every called case, if no other oracle is chosen; else None."""
        if not self.is_called(index) or self._is_for_inductor(index):
            return None
        others, number = self._others(), index // CALLED
        for stages in filter(None, (oracle.stages for oracle in others)):
            turn = number // (stages[0].every or 1) if len(others) > 1 else number
            stage = stages[turn % len(stages)]
            is_chosen = stage.every > 0 and not set(stage.beside).isdisjoint(self.stages)
            if is_chosen and (len(others) == 1 or number % stage.every == stage.turn):
                return stage
        return None

    def _others(self) -> tuple[Oracle, ...]:
        return tuple(one for one in ORACLES if one.name in self.oracles and one.name not in CAPTURE)

    def seconds_of(self, task: CaseTask) -> float:
        """The CPU seconds that a case may take."""
        return self.case_seconds * max(
            1 if set(COMPILES).isdisjoint(task.called) else SLOWER, *map(_slower, task.stages)
        )

    def stages_of(self, index: int) -> tuple[Stage, ...]:
        """The stages of a case.

        A case that is captured because it fails in the fake stage skips the slow stages: other stages show the same
        failure.
        """
        stages = self.stages
        slow = self.compiled_stages(index)
        if slow:
            return (*(stage for stage in stages if stage == "compile" and slow == (TOGETHER,)), *slow)
        own = self.own_stage_of(index)
        if own is not None:
            return (own.name,)
        if retraced := self.retraced_stages(index):
            return retraced
        number = index
        if self.is_called(index):
            stages, number = tuple(stage for stage in stages if stage in CHEAP_TO_CALL), index // CALLED
        if not self.in_turn:
            return stages
        if self.screen and not self.is_sampled(index):
            stages = tuple(stage for stage in stages if stage not in SLOW_TO_START) or stages
        return (stages[number % len(stages)],)


def confirm_seconds(suspect: Suspect) -> float:
    """The CPU seconds that a confirmation may take."""
    return CONFIRM_SECONDS * (SLOWER if suspect.stage in COMPILES and suspect.calls else _slower(suspect.stage))


def _slower(stage: Stage) -> int:
    own = own_stage(stage)
    return 1 if own is None else own.slower


class CaseQueue:
    """The cases to come. `index` is the next one, None if there is none."""

    def __init__(self, indices: Iterator[int]) -> None:
        self._indices = indices
        self.index = next(indices, None)

    def take(self) -> int:
        """Return the next case, which must exist, and advance."""
        assert self.index is not None
        taken, self.index = self.index, next(self._indices, None)
        return taken
