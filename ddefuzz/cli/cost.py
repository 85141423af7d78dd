"""`ddefuzz cost`: measure what unbacked sizes cost a program, or the user's own code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.artifacts.model import version
from ddefuzz.checking.check import START_SECONDS, Target, targets_of
from ddefuzz.cli.command import SECONDS, Output, PathType, argument, click_command, formats, option
from ddefuzz.cli.options import seed_option, timeout_option
from ddefuzz.cli.output import LiveLine, deliver, page_writers, stop_on_interrupt
from ddefuzz.cost.measure import CostMeasurement, Effort, draw
from ddefuzz.cost.model import Cost, DrawTask, shown_ratio
from ddefuzz.cost.report import costs_view
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.pool import LostTask, Pool, Stopped, first_answer, waited
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.files import check_writable, write_atomically

NUMBER = click.IntRange(0, 1000)

MEMORY_BYTES = 8_000_000_000
"""The C++ compiler runs in the worker's limits, too."""


@click_command("cost")
def command(
    targets: tuple[str, ...] = argument("[FILE|FILE:NAME]..."),
    case: str | None = option("The case of a file with a list CASES.", metavar="ID"),
    unbacked: str = option("Dims of your example arguments, as for `ddefuzz check`.", default="", metavar="SPEC"),
    rounds: int = option("Rounds of run times; 0: compile only.", default=11, type_=NUMBER, metavar="N"),
    questions: int = option("Answer at most N questions, one at a time.", default=20, type_=NUMBER, metavar="N"),
    export: bool = option(
        "Measure torch.export, and what it spends on shapes, in place of torch.compile.", default=False
    ),
    budget: float = option("CPU seconds of the exports with --export.", default=30.0, type_=SECONDS),
    speedscope: Path | None = option(
        "Write the samples of the largest export with --export to FILE, for https://www.speedscope.app.",
        type_=PathType(dir_okay=False),
        metavar="FILE",
    ),
    scale: int = option(
        "Make the dynamic dims N times as large as in the example.",
        default=1,
        type_=click.IntRange(1, 100_000),
        metavar="N",
    ),
    ops: int = option("Measure N ops of the catalogue, drawn by --seed.", default=0, type_=NUMBER, metavar="N"),
    draws: int = option("Measure N programs of the generator, drawn by --seed.", default=0, type_=NUMBER, metavar="N"),
    seed: int = seed_option("ops and programs"),
    timeout: float = timeout_option(600.0, "one step"),
    output: Output = formats("text", "json", "markdown", "html"),
) -> None:
    """Measure what unbacked sizes cost: code, run time and compile time beside backed and static sizes.

    Each program is compiled with static, backed and unbacked sizes, with hints, with shared symbols and with bounds.
    What inductor generates is counted. Calls of all versions and of eager are timed in turn, at half, once and twice
    the size of the example. A ratio is the median of rounds side by side.

    Then each question about the sizes that inductor could not decide is answered as it is for sizes that it knows, one
    at a time. Those whose answer changes the code are listed with the line of torch that asks, and with the part of the
    lost run time that the answer brings back.

    With --export, exports are measured: which expressions are evaluated where, how often again with the same answer,
    and how the CPU time grows when the program is repeated as 2, 4, 8 and more blocks. The functions of torch whose own
    time grows most are listed with their callers.

    Exit code 1: it compiles with static sizes and not with unbacked ones, or it is not exported.

    \b
    Examples:
      ddefuzz cost model.py:make_model
      ddefuzz cost model.py:forward --unbacked x:0 --rounds 31
      ddefuzz cost --ops 40 --seed 1 --scale 64
      ddefuzz cost --draws 100 --export --budget 10
      ddefuzz cost model.py:make_model --export --speedscope export.json
    """
    if not targets and not ops and not draws:
        raise InputError("found no program, expected FILE, FILE:NAME, --ops N or --draws N")
    if speedscope is not None:
        if not export:
            raise InputError(f"--speedscope {speedscope}: found no --export, expected both")
        check_writable(speedscope)
    if export and budget > timeout:
        raise InputError(f"--budget: found {budget:g} CPU seconds, expected at most --timeout {timeout:g}")
    costs: list[Cost] = []
    with (
        stop_on_interrupt() as stopped,
        LiveLine("starting a worker (importing torch takes some seconds)") as live,
        Pool(1, memory_bytes=MEMORY_BYTES, samples=False) as pool,
    ):
        chosen = [found for name in targets for found in targets_of(pool, name, case, unbacked)]
        chosen += _drawn(pool, DrawTask(ops, draws, seed, with_dims=not export), stopped) if ops or draws else []
        torch = first_answer(pool.submit(version, "torch", START_SECONDS), stopped)
        for target in chosen:
            if stopped():
                break
            measuring = CostMeasurement(pool, target, torch, timeout, stopped, live.update)
            try:
                if export:
                    costs.append(measuring.run_export(budget, speedscope=speedscope is not None))
                else:
                    costs.append(measuring.run(Effort(rounds, questions, scale)))
            except InputError as error:
                if len(chosen) == 1:
                    raise
                costs.append(Cost(target.case, torch, notes=(str(error),)))
            live.say(f"{target.case}: {_line(costs[-1])}")
    if not any(cost.looks or cost.export for cost in costs):
        raise NothingRanError("interrupted before the first version was compiled or exported")
    if speedscope is not None:
        live.say(_write_speedscope(speedscope, costs))
    pages = page_writers("ddefuzz cost", costs_view(costs), costs, indent=True)
    failing = any(map(_fails, costs))
    deliver(pages, output, {EXIT_INTERRUPTED: any(cost.interrupted for cost in costs), EXIT_FOUND: failing})


def _drawn(pool: Pool, task: DrawTask, stopped: Stopped) -> list[Target]:
    """The programs that are drawn, by the call of the op or the number of the draw."""
    texts = waited(pool.submit(draw, task, START_SECONDS), stopped)
    if isinstance(texts, LostTask):
        raise NothingRanError(f"no program was drawn: {texts.reason}")
    return [Target(name, ProgramSubject(text)) for name, text in texts]


def _fails(cost: Cost) -> bool:
    """Whether it does not compile with unbacked sizes, but with static ones, or is not exported."""
    static, unbacked = cost.look("static"), cost.look("unbacked")
    if static is None or unbacked is None:
        return cost.export is not None and not cost.export.calls
    return static.code is not None and unbacked.code is None


def _write_speedscope(path: Path, costs: list[Cost]) -> str:
    """Write the samples of the first target that has some. Says what was done."""
    samples = next((cost.export.speedscope for cost in costs if cost.export and cost.export.speedscope), None)
    if samples is None:
        return f"--speedscope {path}: nothing was exported, so there are no samples"
    write_atomically(path, msgspec.json.encode(samples))
    return f"samples: {path}"


def _line(cost: Cost) -> str:
    """The result in one line."""
    if cost.export is not None:
        fit = cost.export.fit
        return cost.export.error or ("no fit of so few blocks" if fit is None else f"CPU time of n blocks: n^{fit}")
    unbacked = cost.look("unbacked")
    if unbacked is None:
        return cost.notes[0] if cost.notes else "interrupted"
    ratios = cost.ratios(cost.measured, "backed", "example")
    times = f"{cost.measured} / backed {shown_ratio(ratios)}" if ratios else "no run times"
    if unbacked.code is None:
        static = cost.look("static")
        which = "no version compiles" if static is not None and static.code is None else "unbacked does not compile"
        return f"{which}: {unbacked.reason}" + (f"; {times}" if ratios else "")
    return times
