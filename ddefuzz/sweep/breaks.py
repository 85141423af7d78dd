"""Counts the graph breaks of every op with unbacked sizes: the loop, and the document."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from ddefuzz.artifacts.model import Cause
from ddefuzz.classify.rules import shared_rules
from ddefuzz.escape import shell_words
from ddefuzz.execute.engine import Engine, Setup, Workers
from ddefuzz.execute.pool import LostTask, Stopped, first_answer
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.execute.worker import Task
from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import Block, Heading, Items, TableRow, codes, counted, prose, table
from ddefuzz.sweep.sweep import KEY_DIGITS, OP_SECONDS, OPS_PER_WORKER, START_SECONDS, Op, answers, selected
from ddefuzz.sweep.tasks import DescribeTask, Source, Versions, describe

SCHEMA = "ddefuzz.breaks/1"

PROGRAMS: Final = 2
"""The programs of an op that are compiled, if nothing else is asked for: samples with all dims unbacked, or programs
that the catalogue draws. Samples that are unlike come first.
"""

BREAKS_VERSION: Final = 1
"""Raised when the code changes what is compiled of an op."""


class BreakSite(msgspec.Struct, frozen=True):
    """A site at which programs of an op break the graph: in how many of them, and the shortest one."""

    cause: Cause
    programs: int
    program: str


class OpBreaks(msgspec.Struct, frozen=True):
    """The breaks of one op over `programs` programs. `broken` of them have a break, and `graphs` counts the graphs.

    `errors` are the messages of the programs that ended in an error although dynamo may break the graph, with their
    number.
    """

    op: str
    source: Source
    programs: int = 0
    broken: int = 0
    graphs: int = 0
    sites: tuple[BreakSite, ...] = ()
    errors: dict[str, int] = {}
    lost: str = ""

    @property
    def breaks(self) -> int:
        """The breaks, counted once for each program and site."""
        return sum(site.programs for site in self.sites)


class BreakGroup(msgspec.Struct, frozen=True):
    """A site at which several ops break."""

    kind: str
    site: str
    anchor: str
    cause: str
    ops: tuple[str, ...]


class BreakCensus(msgspec.Struct, frozen=True):
    """The whole document. `causes` counts ops by the cause of their breaks. `programs` is the limit for each op."""

    torch: str
    selection: tuple[str, ...]
    programs: int
    rows: tuple[OpBreaks, ...]
    groups: tuple[BreakGroup, ...]
    causes: dict[str, int]
    interrupted: bool = False
    schema: str = SCHEMA


class OpBreaksTask(msgspec.Struct, frozen=True):
    """One op to compile with fullgraph=False."""

    op: str
    source: Source
    programs: int = PROGRAMS


run_breaks = Task("ddefuzz.sweep.worker:run_breaks", OpBreaksTask, OpBreaks)


Tell = Callable[[int, int, OpBreaks], None]


def sweep_breaks(
    globs: tuple[str, ...],
    jobs: int,
    database: Database,
    tell: Tell,
    stopped: Stopped,
    engine: Engine,
    *,
    programs: int = PROGRAMS,
    fresh: bool = False,
) -> BreakCensus:
    """Count the breaks of the ops that the globs match. Each result is saved at once, and is not counted again."""
    with (
        TemporaryDirectory(prefix="journal-", dir=scratch_folder()) as folder,
        engine.start(jobs, Path(folder), Setup(OPS_PER_WORKER, shared_rules())) as workers,
    ):
        versions = first_answer(workers.submit(describe, DescribeTask(), START_SECONDS), stopped)
        tasks = tuple((op, OpBreaksTask(op.name, op.source, programs)) for op in selected(versions, globs))
        done, interrupted = count_breaks(tasks, key_of(versions, programs), workers, database, tell, stopped, fresh)
    return census_of(versions.torch, globs, programs, done, interrupted=interrupted)


def count_breaks(
    tasks: tuple[tuple[Op, OpBreaksTask], ...],
    key: str,
    workers: Workers,
    database: Database,
    tell: Tell,
    stopped: Stopped,
    fresh: bool = False,
) -> tuple[list[OpBreaks], bool]:
    """The results of the ops, those with this key in the database among them, and whether it was stopped."""
    kept = {} if fresh else database.swept(key, OpBreaks)
    done = [kept[op.key] for op, _ in tasks if op.key in kept]
    waiting = {op.key: task for op, task in tasks if op.key not in kept}
    futures = {name: workers.submit(run_breaks, task, OP_SECONDS) for name, task in waiting.items()}
    for name, answer in answers(futures, stopped):
        if isinstance(answer, LostTask):  # the next sweep tries it again
            task = waiting[name]
            done.append(OpBreaks(task.op, task.source, lost=f"{answer.outcome}: {answer.reason}"))
        else:
            done.append(answer)
            database.save_swept(key, name, msgspec.json.encode(answer).decode())
        tell(len(done), len(tasks), done[-1])
    return done, len(done) < len(tasks)


def key_of(versions: Versions, programs: int) -> str:
    """What decides the stored results."""
    decisive = f"breaks={BREAKS_VERSION} {versions.generator} torch={versions.torch} programs={programs}"
    return hashlib.sha256(decisive.encode()).hexdigest()[:KEY_DIGITS]


def census_of(
    torch: str, globs: tuple[str, ...], programs: int, done: Iterable[OpBreaks], *, interrupted: bool
) -> BreakCensus:
    """The document: ops with most breaks first, and the sites by the number of ops."""
    rows = tuple(sorted(done, key=lambda one: (-one.broken, -one.breaks, one.source, one.op)))
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    causes: Counter[str] = Counter()
    for row in rows:
        for site in row.sites:
            cause = site.cause
            groups.setdefault((cause.kind, cause.site, cause.anchor, cause.cause), []).append(row.op)
        causes.update({site.cause.cause for site in row.sites})
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return BreakCensus(
        torch,
        globs,
        programs,
        rows,
        tuple(BreakGroup(*name, tuple(dict.fromkeys(ops))) for name, ops in ordered),
        dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
        interrupted,
    )


def breaks_view(census: BreakCensus) -> Iterator[Block]:
    """The page: sites by the number of ops, each op that breaks, each that fails, and the totals."""
    words = ["ddefuzz", "sweep", "--breaks", *(word for glob in census.selection for word in ("--ops", glob))]
    words += ["--programs", str(census.programs)] if census.programs != PROGRAMS else []
    yield Heading(f"Graph breaks by op: torch {census.torch}", 1)
    yield prose("This page is written by `{}`; do not edit.", shell_words([*words, "--output", "markdown=FILE"]))
    yield prose(
        "Each op of torch's OpInfo database and of ddefuzz's catalogue is compiled by torch.compile with "
        '`backend="eager", fullgraph=False`: up to {}, with all dims unbacked. A break is classified by the exception '
        "that ends the graph: [causes.md](../causes.md) explains the causes.",
        counted(census.programs, "sample"),
    )
    yield Heading("Where graphs break")
    sites = ((one.site, one.anchor, one.kind, one.cause, str(len(one.ops)), codes(one.ops)) for one in census.groups)
    titles = ("site", "anchor", "kind", "cause", "ops", "which")
    yield table(titles, sites, right=("ops",), code=("site", "anchor"), folding=("anchor", "which"))
    yield Heading("Ops that break")
    broken = [
        TableRow(
            (
                row.op,
                row.source,
                f"{row.broken} of {row.programs}",
                str(row.breaks),
                ", ".join(dict.fromkeys(site.cause.cause for site in row.sites)),
                codes(site.cause.site for site in row.sites),
            ),
            "\n".join(f"{site.cause.kind} in {site.cause.site}: {site.cause.evidence}" for site in row.sites),
        )
        for row in census.rows
        if row.sites
    ]
    titles = ("op", "source", "programs that break", "breaks", "causes", "sites")
    yield table(titles, broken, right=("breaks",), code=("op",), folding=("causes", "sites"))
    yield Heading("Ops that end in an error although the graph may break")
    yield prose("The message is the first line of the exception.")
    failing = [
        (row.op, row.source, error)
        for row in census.rows
        for error in (
            *(f"{error} ({counted(number, 'program')})" for error, number in row.errors.items()),
            *([f"not counted: {row.lost}"] if row.lost else []),
        )
    ]
    yield table(("op", "source", "error"), failing, code=("op",), folding=("error",))
    yield Heading("Totals")
    yield Items(tuple(_totals(census)))


def _totals(census: BreakCensus) -> list[str]:
    breaking = sum(bool(row.broken) for row in census.rows)
    failing = sum(bool(row.errors) for row in census.rows)
    programs, broken = sum(row.programs for row in census.rows), sum(row.broken for row in census.rows)
    causes = ", ".join(f"{number} {cause}" for cause, number in census.causes.items())
    return [
        f"{counted(len(census.rows), 'op')}, {counted(programs, 'program')}",
        f"with a graph break: {counted(breaking, 'op')}, {counted(broken, 'program')}",
        f"ops by the cause of their breaks: {causes or 'none'}",
        f"ending in an error although the graph may break: {counted(failing, 'op')}",
        *(["interrupted: what was counted is saved; the same command continues"] if census.interrupted else []),
    ]
