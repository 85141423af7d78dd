"""`ddefuzz bench calls`: measure what calling captured programs costs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.calls import CallingCost, calling_cost
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.generate.origin import CAPTURES
from ddefuzz.generate.profiles import profile_named


@click.command("calls")
@click.option("--draws", type=click.IntRange(1), metavar="N", default=40, show_default=True, help="Number of programs.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=0, show_default=True, help="Seed of the generator."
)
@click.option(
    "--profile",
    metavar="NAME",
    default=CAPTURES,
    show_default=True,
    help="Kind of programs to generate, as for `ddefuzz run`.",
)
@output_options("text", "json")
def command(draws: int, seed: int, profile: str, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Compare the CPU seconds of a capture with and without calling what was captured, at all sizes of the oracles.

    Each program is captured both ways, in all stages but inductor: in one process alone, in another one with calls.
    """
    profile_named(profile)
    with LiveLine(f"capturing and calling {draws} programs"):
        record = calling_cost(profile, seed, draws)
    document = (
        msgspec.json.encode(
            {**msgspec.to_builtins(record), "ratio": record.ratio, "healthy_ratio": record.healthy_ratio}
        ).decode()
        + "\n"
    )
    deliver({"text": lambda _page: calls_text(record), "json": lambda _page: document}, format_, outputs)


def calls_text(record: CallingCost) -> str:
    """The ratio, and that of each stage."""
    stages = "\n".join(
        f"{record.called[stage] / spent:8.2f}  {stage}: {record.called[stage]:.1f} / {spent:.1f}"
        for stage, spent in record.alone.items()
        if spent
    )
    healthy = (
        f"{record.healthy_ratio:8.2f}  the same without the {record.reported} captures for which a failure was "
        "reported and its site was looked for\n"
        if record.healthy_ratio is not None
        else ""
    )
    return (
        f"{record.programs} captures of {record.draws} programs of profile {record.profile}, seed {record.seed}, torch "
        f"{record.torch}\n"
        f"{record.ratio:8.2f}  CPU seconds with calls and all oracles over capture alone (target ≤ 1.5)\n"
        f"{healthy}{stages}\n"
    )
