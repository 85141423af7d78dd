"""`ddefuzz bench`: measure generated programs, and the cost of a campaign compared with torch itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.bench.throughput import MEMORY_LIMIT_MB, Throughput, measure
from ddefuzz.cli import (
    bench_calls,
    bench_check,
    bench_compile,
    bench_compile_counts,
    bench_dashboard,
    bench_export_time,
    bench_generation,
    bench_load,
    bench_peers,
    bench_recall,
)
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.generate.profiles import PROFILES

profile_option = click.option(
    "--profile",
    type=click.Choice(sorted(PROFILES)),
    metavar="NAME",
    default="default",
    show_default=True,
    help="Kind of programs to generate, as for `ddefuzz run`.",
)


@click.group("bench")
def command() -> None:
    """Measure ddefuzz itself."""


command.add_command(bench_calls.command, "calls")
command.add_command(bench_check.command, "check")
command.add_command(bench_compile.command, "compile")
command.add_command(bench_compile_counts.keys, "keys")
command.add_command(bench_compile_counts.recompiles, "recompiles")
command.add_command(bench_dashboard.command, "dashboard")
command.add_command(bench_export_time.command, "export-time")
command.add_command(bench_generation.command, "generation")
command.add_command(bench_load.command, "load")
command.add_command(bench_peers.command, "peers")
command.add_command(bench_recall.command, "recall")


@command.command("throughput")
@click.option(
    "--cases", type=click.IntRange(min=20), metavar="N", default=300, show_default=True, help="Number of programs."
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of the generator."
)
@profile_option
@output_options("text", "json")
def throughput(cases: int, seed: int, profile: str, format_: str, outputs: tuple[tuple[str, Path], ...]) -> None:
    """Compare the CPU seconds of a campaign with those of torch.export alone; measure speed-up, rates and memory."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch_folder()) as folder, LiveLine("measuring") as live:
        record = measure(profile, seed, cases, Path(folder), live.say)
    document = msgspec.json.encode(record).decode() + "\n"
    deliver({"text": lambda _page: throughput_text(record), "json": lambda _page: document}, format_, outputs)


def throughput_text(record: Throughput) -> str:
    """Each number with its meaning."""
    rates = "\n".join(f"{rate:8.1f}  {name}" for name, rate in record.programs_per_cpu_second.items())
    return (
        f"{record.cases} cases of profile {record.profile}, seed {record.seed}, torch {record.torch}; "
        "the start of processes does not count anywhere\n"
        f"{record.torch_share:8.0%}  of the campaign's CPU seconds are torch's own export\n"
        f"{record.ratio:8.2f}  CPU seconds of the campaign (export stage, verdicts included) over bare "
        f"torch.export.export: {record.campaign_cpu:.1f} / {record.bare_cpu:.1f} (target ≤ 1.5)\n"
        f"{record.speed_up:8.2f}  speed-up of two jobs over one: {record.seconds_one_job:.1f} s / "
        f"{record.seconds_two_jobs:.1f} s (target ≥ 1.8)\n"
        f"{record.memory_slope_kb:8.1f}  10^3 bytes that a worker grows for each case, all stages\n"
        f"{record.memory_peak_mb:8.1f}  10^6 bytes, the most that a worker held; recycled after "
        f"{record.recycled_after} cases (limit {MEMORY_LIMIT_MB:g})\n"
        f"programs for each CPU second:\n{rates}\n"
    )
