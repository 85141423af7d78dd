"""`ddefuzz bench compile`: what unbacked sizes cost under torch.compile, compared with backed and static ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec
import rich_click as click

from ddefuzz.artifacts.model import VersionTask, version
from ddefuzz.bench.compile_model import (
    BACKENDS,
    SLOWER,
    VERSIONS,
    Backend,
    CompileBench,
    CompileTask,
    Row,
    SizeKind,
    run_compile,
    worse_of,
)
from ddefuzz.bench.compile_programs import PROGRAMS
from ddefuzz.cli.layout import counted
from ddefuzz.cli.options import URL
from ddefuzz.cli.output import deliver, output_options
from ddefuzz.cli.progress import LiveLine, stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, NothingRanError
from ddefuzz.escape import markdown_code, markdown_table, markdown_text
from ddefuzz.execute.pool import Lost, Pool, Stopped, first_answer, waited
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles import capture, lowering
from ddefuzz.oracles.program import Trial, judge_run

START_SECONDS = 180.0
PROGRAM_SECONDS = 1200.0

JUDGED_IN: tuple[Stage, ...] = (lowering.STAGE.name, "inductor")
"""The stages in which the oracles judge a program that is listed."""

MEMORY_BYTES = 8_000_000_000
"""The C++ compiler runs in the worker's limits, too."""


@click.command("compile")
@click.option(
    "--program",
    "programs",
    type=click.Choice(tuple(PROGRAMS)),
    metavar="NAME",
    multiple=True,
    help=f"Only this program: {', '.join(PROGRAMS)}. Can be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(0, 1000),
    metavar="N",
    default=21,
    show_default=True,
    help="Rounds of run times. With 0 nothing is timed and no C++ is compiled: only graphs and kernels are counted.",
)
@click.option("--db", type=URL, help="Record what is worse as findings in this database, with the guard that "
              "decided. `ddefuzz minimize --all` then minimizes and confirms them.")  # fmt: skip
@output_options("text", "json", "markdown")
def command(
    programs: tuple[str, ...], rounds: int, db: DatabaseUrl | None, format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Compile programs with unbacked, backed and static sizes, and compare first calls, run times, graphs and kernels.

    The backends are eager (dynamo alone), aot_eager (dynamo and AOTAutograd) and inductor, which compiles C++. Each
    round measures every version under every backend; a ratio is the median of the ratios of the rounds. All seconds
    are CPU seconds. They include those of the C++ compiler.

    The output lists each program whose unbacked version calls a fallback that the backed one does not, calls more
    kernels, has no vector instructions, does not compile, or takes 1.5 times as long in three quarters of the rounds.
    It names the guards of inductor that could not be decided.
    """
    rows: list[Row] = []
    interrupted = False
    names = programs or tuple(PROGRAMS)
    with (
        stop_on_interrupt() as stopped,
        LiveLine("starting a worker (importing torch takes some seconds)") as live,
        Pool(1, memory_bytes=MEMORY_BYTES, samples=False) as pool,
    ):
        torch = first_answer(pool.submit(version, VersionTask(), START_SECONDS), stopped)
        futures = [(name, pool.submit(run_compile, CompileTask(name, PROGRAMS[name], rounds), PROGRAM_SECONDS))
                   for name in names]  # fmt: skip
        try:
            for name, future in futures:
                found = waited(future, stopped)
                row = Row(name, lost=f"{found.outcome}: {found.reason}") if isinstance(found, Lost) else found
                rows.append(row)
                live.say(f"{len(rows)} of {len(names)}: {name}{_said(row)}")
            if db is not None:
                listed = [row.program for row in rows if any(worse_of(row))]
                live.say(_recorded(db, _sightings(pool, listed, torch, stopped)))
        except KeyboardInterrupt:
            interrupted = True
    if not rows:
        raise NothingRanError("interrupted before the first program ended")
    worse = tuple(one for row in rows for one in worse_of(row))
    words = ["ddefuzz bench compile", *(f"--program {name}" for name in programs), f"--rounds {rounds}"]
    found_all = CompileBench(
        torch, datetime.now(UTC).date().isoformat(), " ".join(words), rounds, tuple(rows), worse, interrupted
    )
    deliver(
        {
            "text": lambda _page: compile_text(found_all),
            "json": lambda _page: document(found_all),
            "markdown": lambda _page: compile_markdown(found_all),
        },
        format_,
        outputs,
    )
    if interrupted:
        raise SystemExit(EXIT_INTERRUPTED)


def _sightings(pool: Pool, names: list[str], torch: str, stopped: Stopped) -> Iterator[Sighting]:
    """What the oracles say about these programs: lowering about inductor's code, capture if there is none."""
    for name in names:
        for stage in JUDGED_IN:
            trial = Trial(Run(ProgramSubject(PROGRAMS[name]), stage), (lowering.ORACLE.name, capture.ORACLE.name), ())
            tried = waited(pool.submit(judge_run, trial, PROGRAM_SECONDS), stopped)
            for found in tried.failures if not isinstance(tried, Lost) else ():
                yield sighting(found, PROGRAMS[name], "", torch)


def _recorded(url: DatabaseUrl, sightings: Iterable[Sighting]) -> str:
    """Record the sightings, and say which findings they are."""
    found, now = list(sightings), datetime.now(UTC)
    with Database.open(url) as database, database.transaction():
        ids = sorted({database.record(one, now).finding_id for one in found})
    return f"{counted(len(ids), 'finding')} in {url}{': ' if ids else ''}{', '.join(ids)}"


def document(found: CompileBench) -> str:
    """The record as JSON, with the ratios of each program."""
    whole: dict[str, Any] = msgspec.to_builtins(found)
    for row, built in zip(found.rows, whole["rows"], strict=True):
        built["ratios"] = {
            backend: {over: _median(row.ratios(over, backend)) for over in VERSIONS[1:]} for backend in BACKENDS
        }
        built["run_us"] = {backend: {one: _run(row, one, backend) for one in VERSIONS} for backend in BACKENDS}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _said(row: Row) -> str:
    return f", {row.lost}" if row.lost else f", unbacked over backed {_ratio(row, 'backed')}" if row.timed else ""


def _median(values: tuple[float, ...]) -> float | None:
    return round(median(values), 3) if values else None


def _run(row: Row, of: SizeKind, backend: Backend) -> float | None:
    timed = row.of(of, backend)
    return round(median(timed.rounds), 1) if timed is not None else None


def _ratio(row: Row, over: SizeKind, backend: Backend = "inductor") -> str:
    found = row.ratios(over, backend)
    if not found:
        return "-"
    low, _, high = quantiles(found, n=4) if len(found) > 1 else (found[0],) * 3
    return f"{median(found):.2f} ({low:.2f} to {high:.2f})"


def _first(row: Row, of: SizeKind, backend: Backend) -> str:
    timed = row.of(of, backend)
    return f"{timed.first_seconds:.2f}" if timed is not None else "-"


def _us(row: Row, of: SizeKind, backend: Backend) -> str:
    found = _run(row, of, backend)
    return "-" if found is None else f"{found:.0f}"


RUN_TITLES = ("program", "eager", "unbacked", "backed", "static", "unbacked / backed", "unbacked / static")
FIRST_TITLES = ("program", *(f"{backend} {one}" for backend in BACKENDS for one in VERSIONS))
SIZE_TITLES = ("program", "version", "dynamo nodes", "lowered nodes", "assertions", "generated", "library", "fallback",
               "vector lines", "undecided guards")  # fmt: skip


def run_rows(found: CompileBench) -> Iterator[tuple[str, ...]]:
    """Microseconds of a later call with inductor, and the ratios with their quartiles."""
    for row in found.rows:
        if row.timed:
            times = (_us(row, one, "inductor") for one in VERSIONS)
            eager = f"{median(row.eager_rounds):.0f}" if row.eager_rounds else "-"
            yield row.program, eager, *times, _ratio(row, "backed"), _ratio(row, "static")


def first_rows(found: CompileBench) -> Iterator[tuple[str, ...]]:
    """CPU seconds of the first call."""
    for row in found.rows:
        if row.timed:
            yield row.program, *(_first(row, one, backend) for backend in BACKENDS for one in VERSIONS)


def size_rows(found: CompileBench) -> Iterator[tuple[str, ...]]:
    """Sizes of graphs and kinds of kernels."""
    for row in found.rows:
        for one, lowered in row.lowered.items():
            counts = (lowered.dynamo_nodes, lowered.nodes, lowered.assertions)
            kernels = (sum(kind.values()) for kind in (lowered.generated, lowered.extern, lowered.fallback))
            cells = (*map(str, counts), *map(str, kernels), str(lowered.vectorized), str(len(lowered.guards)))
            yield row.program, one, *(cells if not lowered.error else ("-",) * len(cells))


def _problems(found: CompileBench) -> list[str]:
    lines = [f"{row.program}: {row.lost}" for row in found.rows if row.lost]
    lines += [f"{row.program}, {one.version}, {one.backend}: {one.error}"
              for row in found.rows for one in row.timed if one.error]  # fmt: skip
    return lines + [f"{row.program}, {one.version}, {one.backend}: another result than eager's"
                    for row in found.rows for one in row.timed if not one.agrees]  # fmt: skip


def compile_text(found: CompileBench) -> str:
    """The tables as aligned text, then what is listed."""
    lines = [f"torch {found.torch}, {found.date}, {found.rounds} rounds"]
    for title, titles, rows in _tables(found):
        lines += ["", title, *_aligned([titles, *rows])]
    lines += ["", _listed_title(found)]
    for one in found.worse:
        lines += [f"  {one.program} {one.kind}: {one.evidence}", *(f"    {guard}" for guard in one.guards)]
    lines += [f"not measured: {line}" for line in _problems(found)]
    return "\n".join(lines) + "\n"


def _tables(found: CompileBench) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    if any(row.timed for row in found.rows):
        title = "Run time with inductor, CPU microseconds a call (medians; ratios with quartiles)"
        yield title, RUN_TITLES, list(run_rows(found))
        yield "First call, CPU seconds", FIRST_TITLES, list(first_rows(found))
    yield "Graphs and kernels", SIZE_TITLES, list(size_rows(found))


def _listed_title(found: CompileBench) -> str:
    return f"Worse with unbacked than with backed sizes: {len(found.worse)}"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip() for row in rows]


def compile_markdown(found: CompileBench) -> str:
    """A page with the same tables."""
    lines = [
        "# What unbacked sizes cost under torch.compile",
        "",
        f"The tables are those of a run of {markdown_code(found.command)} on {markdown_text(found.date)}, with torch "
        f"{markdown_text(found.torch)}.",
        "Other work ran on the machine: compare ratios, not seconds.",
        "",
        _EXPLAINED,
    ]
    for title, titles, rows in _tables(found):
        lines += [
            "",
            f"## {title}",
            "",
            markdown_table(titles, ([markdown_text(row[0]), *row[1:]] for row in rows)),
        ]
    lines += ["", f"## {_listed_title(found)}", ""]
    for one in found.worse:
        lines.append(f"- **{markdown_text(one.program)}** {markdown_text(f'{one.kind}: {one.evidence}')}")
        lines += [f"  - {markdown_code(guard)}" for guard in one.guards]
    lines += (
        [
            "",
            "## Not measured, or not the result of eager",
            "",
            *(f"- {markdown_text(line)}" for line in _problems(found)),
        ]
        if _problems(found)
        else []
    )
    return "\n".join(lines) + "\n"


_EXPLAINED = f"""Each program of `ddefuzz/bench/compile_programs.py` is compiled three times: with its sizes unbacked,
dynamic and backed (`maybe_mark_dynamic`), and static. The first call compiles, with nothing in inductor's caches.
Its CPU seconds include those of the C++ compiler, but not of compiling torch's headers, which is done once
before.
Later calls are measured in interleaved rounds: each round measures all versions under all backends, so that a ratio
compares what ran side by side. Generated kernels are those that inductor writes, library kernels are calls such as
`extern_kernels.mm`, and fallbacks are eager ops that the code calls. Undecided guards are those of inductor's own code
that took their fallback.

A program is listed if its unbacked version calls a fallback that the backed one does not, calls more kernels, has no
vector instructions, does not compile, or has {SLOWER:g} times the run time or more in three quarters of the rounds.
The guards below it are those of inductor that were undecided in the unbacked version. With `--db` what is listed for
its code is recorded as findings of the oracle `lowering` ([oracles.md](oracles.md)), with the guard that decided."""
