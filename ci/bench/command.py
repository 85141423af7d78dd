"""The benchmarks of ddefuzz by name, and the one way in which their results are printed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec
import rich_click as click

from ddefuzz.cli.command import DB, IN_STAGES, JOBS, URL, Output, click_command, formats, output_file
from ddefuzz.cli.output import LiveLine, deliver, page_writers
from ddefuzz.execute.protocol import Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.generate.profiles import CAPTURES
from ddefuzz.show.blocks import Block
from ddefuzz.show.html import require_chart, svg

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


class Session(NamedTuple):
    """What a benchmark has while it runs: the live line on stderr, and a folder that is deleted in the end."""

    live: LiveLine
    folder: Path


class Result(NamedTuple):
    """What a benchmark measured: a record for JSON, blocks for people, and the Vega-Lite specification of a chart."""

    record: object
    blocks: Sequence[Block]
    chart: dict[str, Any] | None = None
    exit_code: int = 0


class Benchmark(NamedTuple):
    """The help of a benchmark, its function `module:name` in `ci.bench`, its options, and whether it has a chart.

    The function takes the session and the options by name, and returns the `Result`.
    """

    help: str
    run: str
    options: tuple[Option, ...] = ()
    has_chart: bool = False


def number(name: str, default: int | None, said: str, least: int = 1, most: int | None = None) -> Option:
    """An option with a number."""
    return click.option(
        name, type=click.IntRange(least, most), metavar="N", default=default, show_default=True, help=said
    )


SEED = number("--seed", 0, "Seed of the generator.", 0)


def profile(default: str) -> Option:
    """The option for a profile of the generator."""
    return click.option(
        "--profile",
        metavar="NAME",
        default=default,
        show_default=True,
        help="Kind of programs to generate, as for `ddefuzz run`.",
    )


def budget(default: str, said: str) -> Option:
    """The option for a budget."""
    return click.option("--budget", metavar="TIME|Nx|Ncpu", default=default, show_default=True, help=said)


def names(name: str, parameter: str, said: str, default: tuple[str, ...] = ()) -> Option:
    """An option that can be repeated."""
    return click.option(
        name,
        parameter,
        metavar="NAME",
        multiple=True,
        default=default,
        show_default=bool(default),
        help=f"{said} Can be repeated.",
    )


JOBS_OPTION: Option = JOBS("jobs", int)
DB_OPTION: Option = DB("db", DatabaseUrl)
STAGES_OPTION: Option = IN_STAGES("stages", tuple[Stage, ...])


BENCHMARKS = {
    "calls": Benchmark(
        """Compare the CPU seconds of a capture alone with those of a capture that is called and judged.

        Each program is captured in one of the stages but inductor, in turn, by three processes: one captures only, one
        calls what was captured for the oracle `agreement`, one for all oracles.
        """,
        "calls:run",
        (number("--draws", 40, "Number of programs."), SEED, profile(CAPTURES)),
    ),
    "check": Benchmark(
        """Compare the time that `ddefuzz check` takes with that of a plain script that does the same captures.

        The script runs in one process, without ddefuzz. For CPU seconds, all processes of a check count, with what they
        import. The seconds until the result of the first capture is printed are those of the clock. NAME is a callable
        with NAME_args, or a factory that returns (callable, args).
        """,
        "check:run",
        (click.argument("targets", metavar="FILE:NAME...", nargs=-1, required=True), STAGES_OPTION),
    ),
    "compile": Benchmark(
        """Compile programs with unbacked, backed and static sizes: first calls, run times, graphs and kernels.

        The backends are eager (dynamo alone), aot_eager (dynamo and AOTAutograd) and inductor, which compiles C++. Each
        round measures every version under every backend; a ratio is the median of the ratios of the rounds. All seconds
        are CPU seconds. They include those of the C++ compiler.

        The output lists each program whose unbacked version calls a fallback that the backed one does not, calls more
        kernels, has no vector instructions, does not compile, or takes 1.5 times as long in three quarters of the
        rounds. It names the guards of inductor that could not be decided.
        """,
        "compile:run",
        (
            names("--program", "programs", "Only this program of ci/bench/compile_programs.py."),
            number(
                "--rounds",
                21,
                "Rounds of run times. With 0 nothing is timed and no C++ is compiled: graphs and kernels are counted.",
                0,
                1000,
            ),
            click.option(
                "--db",
                type=URL,
                help="Record what is worse as findings in this database, with the guard that decided. `ddefuzz "
                "minimize --all` then minimizes and confirms them.",
            ),
        ),
    ),
    "dashboard": Benchmark(
        """Compare how long pages of `ddefuzz serve` take with many findings and with none, side by side.

        The findings of the database are copied into a temporary one until there are N. 10,000 need about 700 MB. 200
        campaigns, a sweep and the results of a version matrix are added to it.
        """,
        "dashboard:run",
        (
            number("--findings", 10_000, "Number of findings: copies of those in the database.", 1, 1_000_000),
            number("--requests", 7, "Requests of each page."),
            DB_OPTION,
        ),
    ),
    "export-time": Benchmark(
        """Export programs with n unbacked symbols. n is doubled from 5 until the budget ends.

        Each export runs twice in its own process: once to measure time, once to count. The counts are calls of
        evaluate_expr and of the functions that it calls, sympy objects, and evaluations that are repeated with the same
        answer. A power of n is fitted to each count, and the output has its exponent. A count is reported as steep if
        the lower end of the exponent's interval is above 1.5. The result of the exported program is compared with
        eager's.

        With --knobs each n is exported with every combination of aggressive_guard_free_semantics (0, 1, 2) and
        do_not_emit_stack_traces, and without the cache of FakeTensorMode. They run in turn, so that ratios compare
        measurements of the same run.
        """,
        "export_time:run",
        (
            names("--workload", "workloads", "Only this workload of ci/bench/export_time_model.py."),
            budget("60cpu", "CPU seconds of exports for each workload and combination of settings."),
            number("--most", 640, "The largest n.", 5),
            click.option(
                "--knobs", is_flag=True, help="Measure every combination of torch's settings, not only the default."
            ),
            click.option(
                "--speedscope",
                "profile",
                type=output_file(),
                help="Also sample the largest export of each workload, for https://www.speedscope.app.",
            ),
            click.option(
                "--from",
                "earlier",
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                multiple=True,
                help="Measure nothing: show the JSON of earlier runs, also of other torch versions. Can be repeated.",
            ),
        ),
        has_chart=True,
    ),
    "generation": Benchmark(
        "Measure how many generated programs are valid, varied, and carry unbacked sizes; and how many are captured.",
        "generation:run",
        (
            number("--draws", 5_000, "Number of programs to generate."),
            SEED,
            profile("default"),
            number("--captures", 20, "Number of programs of each profile to capture in aot and export. 0: none.", 0),
            JOBS_OPTION,
        ),
    ),
    "keys": Benchmark(
        "Measure specialization keys: fast and safe path, and a dispatch by them, compared with a plain dict lookup.",
        "counts:run_keys",
    ),
    "load": Benchmark(
        """Measure a database with many sightings: record, list, show, decide, and merge the databases of shards.

        Sightings of 1,000 signatures are written to the databases of N shards, which are merged. Each step is then
        measured in the merged database and, in turn with it, in one with a single finding. Exit code 1: a sighting is
        lost.
        """,
        "load:run",
        (
            number("--sightings", 100_000, "Number of sightings. Each is a record of its own.", 1, 10_000_000),
            number("--shards", 20, "Number of databases.", 1, 200),
        ),
    ),
    "peers": Benchmark(
        """Compare how fast tools reach guard sites: guided and uniform campaigns, PyTorch's OpInfo samples, others.

        All tools get the same CPU seconds; the start of their processes does not count. Intervals are 95% bootstrap
        intervals of the mean over the seeds.
        """,
        "peers:run",
        (
            budget("120cpu", "CPU seconds for each run of each tool."),
            number("--seeds", 3, "Number of runs of each tool, with one seed each."),
            click.option(
                "--command",
                "commands",
                metavar="NAME=CMD",
                multiple=True,
                help="Another tool: a command that imports ddefuzz.site_hook. {seed} is replaced by the seed. "
                "Can be repeated.",
            ),
            JOBS_OPTION,
        ),
        has_chart=True,
    ),
    "recall": Benchmark(
        """Plant faults at known guard sites, and measure how many a campaign finds and attributes correctly.

        The faults are planted at K sites of the database, one at a time. One campaign is run without faults. Its cases
        that reach a fault's site are then run again with the fault, in order. A fault that changes nothing in any of
        these cases is counted separately. A failure counts only if neither the program without the fault shows it nor
        the database has it as a finding. The campaign's findings are not saved.
        """,
        "recall:run",
        (
            names(
                "--oracle",
                "oracles",
                "Which faults: capture (the guard raises instead of taking its fallback), agreement (the fallback "
                "answer is inverted), specialization (an unbacked symbol becomes a number or another symbol), "
                "assertions (a run-time assertion is added or dropped), mechanism (the fallback answer is inverted in "
                "explicit semantics only).",
                ("capture",),
            ),
            number("--sites", 50, "Number of faults to plant."),
            number("--seed", 0, "Seed of the choice of sites.", 0),
            budget("120cpu", "Budget of the campaign, as for `ddefuzz run`."),
            number("--campaign-seed", None, "Seed of the campaign, which no campaign of the database had. Default: "
                   "1000 and --seed.", 0),
            number("--tries", 16, "Run at most N of the campaign's cases with each fault. Not for capture, where only "
                   "the first case counts."),
            click.option(
                "--keep",
                type=click.Path(file_okay=False, path_type=Path),
                metavar="FOLDER",
                help="Keep the cases of the campaign and each judged fault in FOLDER, so that the command can be "
                "interrupted. What FOLDER has is not run again: with a campaign in it, also an interrupted one, "
                "--budget, --campaign-seed and --guided have no effect.",
            ),
            click.option("--guided/--uniform", default=True, show_default=True, help="As for `ddefuzz run`."),
            click.option(
                "--torch",
                "version",
                metavar="VERSION",
                help="Choose among the sites of this version of torch, if the database has several.",
            ),
            STAGES_OPTION,
            JOBS_OPTION,
            DB_OPTION,
        ),
    ),
    "recompiles": Benchmark(
        "Measure what out= costs over many sizes: compilations and CPU seconds of five functions, with it and without.",
        "counts:run_recompiles",
        (number("--sizes", 100, "Number of sizes.", 2, 1000),),
    ),
    "throughput": Benchmark(
        "Compare the CPU seconds of a campaign with those of torch.export alone; measure speed-up, rates and memory.",
        "throughput:run",
        (number("--cases", 300, "Number of programs.", 20), SEED, profile("default")),
    ),
}  # fmt: skip


@click.group("ci/bench")
def group() -> None:
    """Measure ddefuzz itself."""


def _add(name: str, benchmark: Benchmark) -> None:
    names = ("text", "json", "markdown", "html", *(["svg"] if benchmark.has_chart else []))

    @click_command(name, group, help=benchmark.help)
    def command(output: Output = formats(*names), **options: Any) -> None:  # noqa: B008 as in `ddefuzz.cli`
        if "svg" in output.formats:
            require_chart()
        module, _, function = benchmark.run.partition(":")
        run: Callable[..., Result] = getattr(import_module(f"ci.bench.{module}"), function)
        with (
            LiveLine("measuring") as live,
            tempfile.TemporaryDirectory(prefix="bench-", dir=scratch_folder()) as folder,
        ):
            result = run(Session(live, Path(folder)), **options)
        document = msgspec.json.format(msgspec.json.encode(result.record), indent=2).decode() + "\n"
        pages = page_writers(f"ci/bench {name}", result.blocks)
        deliver({**pages, "json": document, "svg": lambda _page: svg(result.chart or {})}, output)
        if result.exit_code:
            raise SystemExit(result.exit_code)

    for option in benchmark.options:
        option(command)
    command.params.sort(key=lambda one: one.name in ("format_", "outputs"))  # these are the last


for _name, _benchmark in BENCHMARKS.items():
    _add(_name, _benchmark)
