"""`ddefuzz bench check`: what a check costs, compared with plain captures."""

from __future__ import annotations

from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.check import CheckCost, measure
from ddefuzz.cli.options import stages_option
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.execute.protocol import Stage

SCHEMA = "ddefuzz.bench.check/1"


@click.command("check")
@click.argument("targets", metavar="FILE:NAME...", nargs=-1, required=True)
@stages_option
@output_options("text", "json")
def command(
    targets: tuple[str, ...], stages: tuple[Stage, ...], format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Compare the time that `ddefuzz check` takes with that of a plain script that does the same captures.

    The script runs in one process, without ddefuzz. For CPU seconds, all processes of a check count, with what they
    import. The seconds until the result of the first capture is printed are those of the clock. NAME is a
    callable with NAME_args, or a factory that returns (callable, args).
    """
    with LiveLine("measuring") as live:
        costs = []
        for target in targets:
            live.update(f"measuring {target}")
            costs.append(measure(target, stages))
    document = msgspec.json.encode({"schema": SCHEMA, "costs": costs}).decode() + "\n"
    deliver({"text": lambda _page: cost_text(costs), "json": lambda _page: document}, format_, outputs)


def cost_text(costs: list[CheckCost]) -> str:
    """Two lines for each target."""
    return "".join(
        f"{cost.first_ratio:6.2f}  seconds to the first result over those of plain captures (target ≤ 1.5): "
        f"{cost.check.first_seconds:.1f} / {cost.plain.first_seconds:.1f}  {cost.target}\n"
        f"{cost.ratio:6.2f}  CPU seconds of check over plain captures (target ≤ 1.3): {cost.check.cpu_seconds:.1f} / "
        f"{cost.plain.cpu_seconds:.1f}; by the clock {cost.check.seconds:.1f} / {cost.plain.seconds:.1f} s  "
        f"{cost.target}\n"
        for cost in costs
    )
