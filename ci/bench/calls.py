"""What calling and judging captured programs costs, compared with capturing them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import metadata
from types import MappingProxyType
from typing import Any

import msgspec

from ci.bench.command import Result, Session
from ddefuzz.errors import NothingRanError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, Runner, Stage
from ddefuzz.execute.worker import late
from ddefuzz.generate.profiles import profile_named
from ddefuzz.oracles import agreement
from ddefuzz.oracles.program import CAPTURE, judge_program
from ddefuzz.oracles.table import NAMES, calls_of, comparing
from ddefuzz.show.blocks import Block, counted, prose, table

CASE_SECONDS = 120.0

ALONE, AGREEMENT, ALL = "capture", agreement.ORACLE.name, "all"

SIDES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {ALONE: CAPTURE, AGREEMENT: (*CAPTURE, AGREEMENT), ALL: NAMES}
)
"""The oracles of each measurement: none but the capture oracle, agreement too, all."""


class CallingTask(msgspec.Struct, frozen=True):
    """Draw a case, capture it in a stage, and judge it by oracles as a campaign does."""

    profile: str
    seed: int
    index: int
    stage: Stage
    oracles: tuple[str, ...]


class CallingResult(msgspec.Struct, frozen=True):
    """CPU seconds of a worker for capture, calls and judging.

    `reported` says that an oracle reported a failure. Then its time is mostly that of finding the site.
    """

    captured: bool
    reported: bool
    cpu_seconds: float


class CallingCost(msgspec.Struct, frozen=True):
    """The cost of calling: CPU seconds of the same captures in each of `SIDES`, by stage.

    `programs` counts the captures, of `draws` drawn programs. Programs that are not captured are left out. `reported`
    counts those for which an oracle reported a failure; `healthy` are the seconds of the others, by side.
    """

    torch: str
    profile: str
    seed: int
    draws: int
    programs: int
    reported: int
    seconds: dict[str, dict[Stage, float]]
    healthy: dict[str, float]
    schema: str = "ddefuzz.bench.calls/2"

    def ratio(self, side: str) -> float:
        """CPU seconds of a side over those of captures alone."""
        return sum(self.seconds[side].values()) / sum(self.seconds[ALONE].values())

    def healthy_ratio(self, side: str) -> float | None:
        """The same over the captures for which nothing was reported; None if there is none."""
        return self.healthy[side] / self.healthy[ALONE] if self.healthy[ALONE] else None


def run_calling(task: CallingTask) -> CallingResult:
    """The worker's side."""
    drawn: Any = late("ddefuzz.generate.draw").drawn_case(task.profile, task.seed, task.index)
    text: str = late("ddefuzz.program.text").print_program(drawn.program)
    runner: Runner = late("ddefuzz.execute.observe").observe
    before = time.process_time()
    (judged,) = judge_program(
        text,
        (task.stage,),
        (EXPLICIT,),
        runner,
        oracles=task.oracles,
        compare=bool(comparing(task.oracles)),
        called=CHEAP_TO_CALL if calls_of(task.oracles) else (),
        sampled=True,
    )
    spent = time.process_time() - before
    return CallingResult(judged.observation.outcome == "ok", bool(judged.failures), spent)


def run(session: Session, draws: int, seed: int, profile: str) -> Result:
    """Measure `draws` cases of a profile, each in one of the stages whose captured programs campaigns call, in turn.

    Each side has its own worker, because a second capture of a program costs less than its first. The first draw in
    each stage is done once before, because the first capture of a process costs more. Raises NothingRanError if no
    program is captured.
    """
    profile_named(profile)
    captures: list[tuple[Stage, dict[str, CallingResult]]] = []
    with ExitStack() as stack:
        pools = {side: stack.enter_context(Pool(1)) for side in SIDES}
        for turn in range(-len(CHEAP_TO_CALL), draws):
            index = turn if turn >= 0 else turn + len(CHEAP_TO_CALL)
            stage = CHEAP_TO_CALL[index % len(CHEAP_TO_CALL)]
            results = {}
            for side, pool in pools.items():
                task = CallingTask(profile, seed, index, stage, SIDES[side])
                result = pool.submit(run_calling, task, CASE_SECONDS).result()
                if isinstance(result, CallingResult):  # else it ended its worker
                    results[side] = result
            if turn >= 0:
                session.live.update(f"{turn + 1} of {draws} programs")
                if len(results) == len(SIDES) and all(one.captured for one in results.values()):
                    captures.append((stage, results))
    if not captures:
        raise NothingRanError(f"profile {profile}: found no captured program in {draws} draws, expected some (--draws)")
    healthy = [results for _, results in captures if not any(one.reported for one in results.values())]
    cost = CallingCost(
        metadata.version("torch"),
        profile,
        seed,
        draws,
        len(captures),
        len(captures) - len(healthy),
        {
            side: {
                stage: sum(results[side].cpu_seconds for of, results in captures if of == stage)
                for stage in CHEAP_TO_CALL
            }
            for side in SIDES
        },
        {side: sum(results[side].cpu_seconds for results in healthy) for side in SIDES},
    )
    record = {
        **msgspec.to_builtins(cost),
        "ratios": {side: cost.ratio(side) for side in SIDES},
        "healthy_ratios": {side: cost.healthy_ratio(side) for side in SIDES},
    }
    return Result(record, list(view(cost)))


def view(cost: CallingCost) -> Iterator[Block]:
    """The ratios, and those of each stage."""
    head = "{} captures of {} programs of profile {}, seed {}, torch {}"
    yield prose(head, cost.programs, cost.draws, cost.profile, cost.seed, cost.torch)
    rows = [
        (cost.ratio(AGREEMENT), "CPU seconds with calls and agreement over capture alone (target ≤ 1.5)"),
        (cost.ratio(ALL), "CPU seconds with calls and all oracles over capture alone"),
    ]
    healthy = cost.healthy_ratio(ALL)
    if healthy is not None and cost.reported:
        without = f"without the {counted(cost.reported, 'capture')} for which a failure was reported"
        rows.append((healthy, f"the same {without} and its site was looked for"))
    called = cost.seconds[ALL]
    rows += [
        (called[stage] / spent, f"{stage}, all oracles: {called[stage]:.1f} / {spent:.1f}")
        for stage, spent in cost.seconds[ALONE].items()
        if spent
    ]
    yield table(("ratio", "what"), [(f"{ratio:.2f}", what) for ratio, what in rows], right=("ratio",))
