"""The benchmarks of ddefuzz by name, and what they share: a session, ratios, and the output."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec
import rich_click as click

from ddefuzz.cli.command import Output, click_command, formats
from ddefuzz.cli.corpus import FINDINGS_OF
from ddefuzz.cli.options import DB, IN_STAGES, JOBS
from ddefuzz.cli.output import LiveLine, deliver, page_writers, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED
from ddefuzz.execute.pool import Future, LostTask, Stopped, waited
from ddefuzz.execute.protocol import Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.generate.profiles import CAPTURES
from ddefuzz.show.blocks import Block, Table, table
from ddefuzz.show.html import require_chart, svg

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
R = TypeVar("R")


class Session(NamedTuple):
    """What a benchmark has while it runs: the live line on stderr, a folder that is deleted in the end, and whether the
    user wants it to stop. Then the benchmark returns what it has, or raises KeyboardInterrupt.
    """

    live: LiveLine
    folder: Path
    stopped: Stopped = lambda: False

    def answer(self, future: Future[R]) -> R | LostTask:
        """What a worker returned. Raises KeyboardInterrupt if stopped before."""
        return waited(future, self.stopped)


class Result(NamedTuple):
    """What a benchmark measured: a record for JSON, blocks for people, and the Vega-Lite specification of a chart."""

    record: object
    blocks: Iterable[Block]
    chart: dict[str, Any] | None = None
    exit_code: int = 0


def ratios(rows: Iterable[tuple[Any, ...]], *more: str) -> Table:
    """A table of ratios and what each is. `more` are the titles of further columns."""
    cells = ((f"{ratio:.2f}", *rest) for ratio, *rest in rows)
    return table(("ratio", "what", *more), cells, right=("ratio",), code=more, folding=("what",) if more else ())


class Benchmark(NamedTuple):
    """The help of a benchmark, its function `module:name` in `ci.bench`, its options, and whether it has a chart.

    The function takes the session and the options by name, and returns the `Result`.
    """

    help: str
    run: str
    options: tuple[Option, ...] = ()
    has_chart: bool = False


def option(
    name: str, default: Any, help_text: str, parameter: str = "", *, least: int = 1, most: int | None = None
) -> Option:
    """An option: of a number, a flag, names (a tuple: it can be repeated), else of a word."""
    many = isinstance(default, tuple)
    return click.option(
        name,
        *([parameter] if parameter else []),
        default=default,
        show_default=bool(default) or default == 0,
        is_flag=isinstance(default, bool),
        type=click.IntRange(least, most) if isinstance(default, int) and not isinstance(default, bool) else None,
        metavar="N" if isinstance(default, int) and not isinstance(default, bool) else "NAME" if many else None,
        multiple=many,
        help=f"{help_text} Can be repeated." if many else help_text,
    )


JOBS_OPTION: Option = JOBS("jobs", int)
DB_OPTION: Option = DB("db", DatabaseUrl)
STAGES_OPTION: Option = IN_STAGES("stages", tuple[Stage, ...])
SEED = option("--seed", 0, "Seed of the generator.", least=0)
PROFILE = "Kind of programs to generate, as for `ddefuzz run`."

BENCHMARKS = {
    "backtest": Benchmark(
        """Measure how many failures that were reported to PyTorch are among the findings, by category.

        FILE is a module with a list CASES, as corpora/reported/cases.py has it; it is executed. What its cases do is
        observed with the installed torch. A case is found if a finding has the kind and the site of one of its
        failures. To measure a campaign, run it into a database of its own first.
        """,
        "backtest:run",
        (
            click.argument("files", metavar="FILE...", nargs=-1, required=True),
            FINDINGS_OF("url", DatabaseUrl | None),
            STAGES_OPTION,
            JOBS_OPTION,
        ),
    ),
    "calls": Benchmark(
        """Compare the CPU seconds of campaigns that only capture with those of campaigns that also call and judge.

        Each program is captured in one of the stages but inductor, in turn. The campaigns have the same programs. One
        captures only, one calls what was captured for the oracle `agreement`, one for all oracles.
        """,
        "throughput:run_calls",
        (option("--cases", 60, "Number of programs."), SEED, option("--profile", CAPTURES, PROFILE)),
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
    "cluster": Benchmark(
        """Run campaigns on Ray nodes that are simulated on this machine, beside those of the local engine.

        Cases and findings have to be the same with any number of nodes, also if nodes, their actors and the driver are
        killed at random. Exit code 1: they are not.
        """,
        "cluster:run",
        (
            option("--cases", 60, "Number of cases of each campaign."),
            SEED,
            click.option(
                "--nodes",
                "numbers",
                type=click.IntRange(1),
                multiple=True,
                default=(1, 2, 4),
                show_default=True,
                metavar="N",
                help="Number of nodes. Can be repeated.",
            ),
            option("--kills", 0, "What to kill, in as many campaigns as that takes.", least=0),
        ),
    ),
    "driver": Benchmark(
        """Measure what the driver of a campaign costs, and how many workers it keeps busy.

        A campaign of this machine is recorded. Its loop then runs with simulated workers that give the recorded results
        in turn, each after the seconds that a worker had the task. The driver's CPU seconds count as they are measured.
        Several drivers write to their database in turn.
        """,
        "driver:run",
        (
            option("--record", 200, "Number of cases to record.", "recorded", least=50),
            option("--cases", 10_000, "Number of cases to simulate."),
            SEED,
            click.option(
                "--workers",
                type=click.IntRange(1),
                multiple=True,
                default=(2, 16, 128, 1000),
                show_default=True,
                metavar="N",
                help="Number of simulated workers. Can be repeated.",
            ),
            option("--drivers", 1, "Number of drivers, which share the workers and what they learn."),
            option("--ahead", 2, "Number of cases in a round for each worker of a driver."),
            option("--case-ms", 0, "Milliseconds of a case in the mean. 0: as recorded.", least=0),
        ),
    ),
    "ops": Benchmark(
        """Compare what `ddefuzz check-op` and `torch.library.opcheck` find wrong with the same custom ops.

        FILE is a module with a dict EXAMPLES, as `check-op` takes it. corpora/custom_ops/wrong.py has ops with one
        planted defect each, which its dict DEFECTS names; all ops of corpora/custom_ops/right.py are right.
        """,
        "custom_ops:run",
        (
            click.argument("file", metavar="FILE"),
            JOBS_OPTION,
            option("--seconds", 20, "CPU seconds of an op for check-op at most."),
        ),
    ),
    "load": Benchmark(
        """Measure a database with many sightings: record, list, show, decide, merge, answer pages of `serve`.

        The findings of findings/ are given again under other names, with as many records as are asked for. They are
        written to the databases of shards, which are merged. Each step is then measured in the merged database and, in
        turn with it, in one with a single finding. For the pages 200 campaigns, a sweep and the results of a version
        matrix are added. Exit code 1: a sighting is lost.
        """,
        "load:run",
        (
            option("--sightings", 100_000, "Number of sightings."),
            option("--signatures", 1_000, "Number of findings that they belong to."),
            option("--each", 1, "Number of sightings in a record (an op under a version of torch)."),
            option("--shards", 20, "Number of databases.", most=200),
            option("--requests", 7, "How often each step and page is measured."),
            option("--db", (), "URL of an empty database to merge into, and of one for the single finding.", "urls"),
        ),
    ),
    "mutants": Benchmark(
        """Measure how many mutants of torch's Python source a campaign finds, and names at the mutated function.

        The mutants of ci/bench/mutants.tsv are applied one at a time, in the workers only. One campaign without mutants
        records the statements that its cases run. The cases that run a mutant's statement are then run with it, in turn
        by their stages. A failure counts if the case does not have it without the mutant.
        """,
        "mutants:run",
        (
            option("--seed", 0, "Seed of the campaign, and of the sample with --draw.", least=0),
            option("--budget", "1200cpu", "CPU seconds of the campaign."),
            option("--cpu", 60, "CPU seconds of the cases of each mutant, at most."),
            click.option(
                "--sample",
                type=click.Path(dir_okay=False, path_type=Path),
                default=Path(__file__).parent / "mutants.tsv",
                metavar="FILE",
                help="The mutants. Default: ci/bench/mutants.tsv.",
            ),
            option(
                "--draw",
                0,
                "Draw N mutants in statements that the campaign runs, and write them to the sample's file.",
                "number",
                least=0,
            ),
            click.option(
                "--keep",
                type=click.Path(file_okay=False, path_type=Path),
                metavar="FOLDER",
                help="Keep the cases of the campaign and the result of each mutant in FOLDER, so that the command can "
                "be interrupted. What FOLDER has is not run again. It is made if there is none.",
            ),
            STAGES_OPTION,
            JOBS_OPTION,
        ),
    ),
    "peers": Benchmark(
        """Compare how fast tools reach guard sites: guided and uniform campaigns, PyTorch's OpInfo samples, others.

        All tools get the same CPU seconds; the start of their processes does not count. Intervals are 95% bootstrap
        intervals of the mean over the seeds. Another tool is a command that imports ddefuzz.site_hook.
        """,
        "peers:run",
        (
            option("--budget", "120cpu", "CPU seconds for each run of each tool."),
            option("--seeds", 3, "Number of runs of each tool, with one seed each."),
            option("--command", (), "Another tool, NAME=CMD. {seed} is replaced by the seed.", "commands"),
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

        Faults of an oracle: capture (the guard raises instead of taking its fallback), agreement (the fallback answer
        is inverted), specialization (an unbacked symbol becomes a number or another symbol), assertions (a run-time
        assertion is added or dropped), mechanism (the fallback answer is inverted in explicit semantics only).
        """,
        "recall:run",
        (
            option("--oracle", ("capture",), "Which faults.", "oracles"),
            option("--sites", 50, "Number of faults to plant."),
            option("--seed", 0, "Seed of the choice of sites.", least=0),
            option("--budget", "120cpu", "Budget of the campaign, as for `ddefuzz run`."),
            option("--campaign-seed", 1000, "Seed of the campaign, which no campaign of the database had.", least=0),
            option("--tries", 16, "Run at most N of the campaign's cases with each fault."),
            click.option(
                "--keep",
                type=click.Path(dir_okay=False, path_type=Path),
                metavar="FILE",
                help="Keep the cases of the campaign and each judged fault in FILE, so that the command can be "
                "interrupted. What FILE has is not run again: with a campaign in it, also an interrupted one, "
                "--budget, --campaign-seed and --guided have no effect.",
            ),
            click.option("--guided/--uniform", default=True, show_default=True, help="As for `ddefuzz run`."),
            option("--torch", "", "Choose among the sites of this version, if the database has several.", "version"),
            STAGES_OPTION,
            JOBS_OPTION,
            DB_OPTION,
        ),
    ),
    "scale": Benchmark(
        """Say what more CPU would bring: from the one campaign of a database, and from what drivers and writing cost.

        Sites that no case has reached are estimated from the numbers of cases that reached each site. The times are
        those that `ci/bench driver` measures.
        """,
        "scale:run",
        (
            DB_OPTION,
            option("--cores", 1000, "How many cores."),
            option("--hours", 8, "For how many hours."),
            option("--case-ms", 400.0, "Milliseconds of a worker for a case."),
            option("--driver-ms", 1.9, "Milliseconds of a driver for a case."),
            option("--store-ms", 0.42, "Milliseconds in which the database takes a case."),
            option("--follow-up", 1.5, "CPU seconds that minimizing and confirming a finding takes."),
        ),
        has_chart=True,
    ),
    "share": Benchmark(
        """Measure what drivers find that share what they learn, beside drivers that do not, and beside one driver.

        All have the same number of cases together. `different` are the cases that differ, `again` counts findings that
        were minimized more than once.
        """,
        "share:run",
        (
            option("--cases", 600, "Number of cases of all drivers together."),
            option("--drivers", 2, "Number of drivers.", least=2),
            option("--seeds", 1, "Number of seeds."),
            option("--round", 8, "Number of cases in a round.", "round_size"),
            option("--minimize", False, "Minimize and confirm findings, which costs as much again."),
        ),
    ),
    "throughput": Benchmark(
        "Compare the CPU seconds of a campaign with those of torch.export alone; measure speed-up, rates and memory.",
        "throughput:run",
        (option("--cases", 300, "Number of programs.", least=20), SEED, option("--profile", "default", PROFILE)),
    ),
}


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
            stop_on_interrupt() as stopped,
        ):
            result = run(Session(live, Path(folder), stopped), **options)
            code = EXIT_INTERRUPTED if stopped() else result.exit_code
        document = msgspec.json.format(msgspec.json.encode(result.record), indent=2).decode() + "\n"
        pages = page_writers(f"ci/bench {name}", result.blocks)
        deliver({**pages, "json": document, "svg": lambda _page: svg(result.chart or {})}, output)
        if code:
            raise SystemExit(code)

    for option in benchmark.options:
        option(command)
    command.params.sort(key=lambda one: one.name in ("format_", "outputs"))  # these are the last


for _name, _benchmark in BENCHMARKS.items():
    _add(_name, _benchmark)
