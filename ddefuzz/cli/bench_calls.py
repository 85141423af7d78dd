"""`ddefuzz bench calls`: measure what calling captured programs costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.calls import ALL, ALONE, SIDES, CallingCost, calling_cost
from ddefuzz.cli.layout import counted
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.generate.origin import CAPTURES
from ddefuzz.generate.profiles import profile_named
from ddefuzz.oracles import agreement

AGREEMENT = agreement.ORACLE.name


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
    """Compare the CPU seconds of a capture alone with those of a capture that is called and judged.

    Each program is captured in one of the stages but inductor, in turn, by three processes: one captures only, one
    calls what was captured for the oracle `agreement`, one for all oracles.
    """
    profile_named(profile)
    with LiveLine(f"capturing and calling {draws} programs") as live:
        record = calling_cost(profile, seed, draws, lambda done: live.update(f"{done} of {draws} programs"))
    document = (
        msgspec.json.encode(
            {
                **msgspec.to_builtins(record),
                "ratios": {side: record.ratio(side) for side in SIDES},
                "healthy_ratios": {side: record.healthy_ratio(side) for side in SIDES},
            }
        ).decode()
        + "\n"
    )
    deliver({"text": lambda _page: calls_text(record), "json": lambda _page: document}, format_, outputs)


def calls_text(record: CallingCost) -> str:
    """The ratios, and those of each stage."""
    return "\n".join(
        (
            f"{record.programs} captures of {record.draws} programs of profile {record.profile}, seed {record.seed}, "
            f"torch {record.torch}",
            f"{record.ratio(AGREEMENT):8.2f}  CPU seconds with calls and agreement over capture alone (target ≤ 1.5)",
            f"{record.ratio(ALL):8.2f}  CPU seconds with calls and all oracles over capture alone",
            *_healthy(record),
            *_by_stage(record),
            "",
        )
    )


def _healthy(record: CallingCost) -> Iterator[str]:
    ratio = record.healthy_ratio(ALL)
    if ratio is not None and record.reported:
        yield (
            f"{ratio:8.2f}  the same without the {counted(record.reported, 'capture')} for which a failure was "
            "reported and its site was looked for"
        )


def _by_stage(record: CallingCost) -> Iterator[str]:
    alone, called = record.seconds[ALONE], record.seconds[ALL]
    for stage, spent in alone.items():
        if spent:
            yield f"{called[stage] / spent:8.2f}  {stage}, all oracles: {called[stage]:.1f} / {spent:.1f}"
