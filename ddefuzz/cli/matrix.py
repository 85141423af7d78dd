"""`ddefuzz matrix`: findings and cases under several versions of torch."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz import __version__
from ddefuzz.campaign.replay import KeptCase, kept_cases
from ddefuzz.cli.interpreters import interpreters_of, pythons_option
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import URL, jobs_option, trust_option
from ddefuzz.cli.output import OutputFile, Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.replay import findings_in
from ddefuzz.cli.reports import command_line, rules, writers_of
from ddefuzz.errors import EXIT_FOUND, InputError, NothingRanError
from ddefuzz.escape import shell_word
from ddefuzz.execute.protocol import EXPLICIT
from ddefuzz.files import is_there
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.keys.case import untrusted_function
from ddefuzz.repro.run import Written
from ddefuzz.repro.script import case_script
from ddefuzz.show.record import Outcome, Report, Result
from ddefuzz.show.table import NAMES
from ddefuzz.versions.kept import Kept, files_key
from ddefuzz.versions.model import Cell, Change, Interpreter, Line, Status, changes
from ddefuzz.versions.page import write_page
from ddefuzz.versions.run import case_scripts_under, cases_under, findings_under, lines_of

SCHEMA = "ddefuzz.matrix/1"

OUTCOMES: dict[Change, Outcome] = {
    "fails": "known",
    "new": "known",
    "sometimes": "known",
    "moved": "known",
    "fixed": "passed",
    "never": "passed",
    "regressed": "failed",
}


@click.command("matrix")
@click.argument("paths", metavar="[PATH]...", type=click.Path(path_type=Path), nargs=-1)
@pythons_option
@click.option(
    "--db",
    "url",
    type=URL,
    help="Run the findings of this database, instead of those in findings/. The results are saved in it. What has a "
    "result there is not run again.",
)
@click.option("--fresh", is_flag=True, help="Ignore the results that the database of --db has.")
@click.option(
    "--id", "ids", metavar="ID", multiple=True, help="Only findings whose id begins with ID. Can be repeated."
)
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    metavar="N",
    default=1,
    show_default=True,
    help="How often to run a finding again whose failure does not show, each time in a new process.",
)
@trust_option
@click.option(
    "--page",
    type=OutputFile(),
    help="Also write a Markdown page with tables, and a plot next to it. It needs the extra `report`.",
)
@jobs_option
@output_options("text", *NAMES)
def command(
    paths: tuple[Path, ...],
    pythons: tuple[str, ...],
    url: DatabaseUrl | None,
    fresh: bool,
    ids: tuple[str, ...],
    runs: int,
    trust: bool,
    page: Path | None,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Run findings and cases under several versions of torch, and say in which they fail.

    The stand-alone script of each finding runs under every interpreter, in a child of a process that has imported
    torch. If the failure does not show, the script runs again in a new process. PATH is a folder of findings (default:
    findings), or of cases such as corpora/. Cases run by the ddefuzz of an interpreter. If it has none, they run as
    stand-alone scripts, which compare the kind of the failure and not its site.

    A finding is fixed if it passes after a version in which it fails, and regressed if it fails after one that passes.
    It has moved if another failure shows. In the table, - means not judged: this torch has no such op or stage.

    Results are saved in the database of --db as they come, also before Ctrl-C. Exit code 1: some finding has regressed.
    """
    interpreters = interpreters_of(pythons)
    with nullcontext() if url is None else Database.open(url) as database:
        findings, cases = _selected(paths, database, ids)
        cells: dict[str, dict[str, Cell]] = {one.name: {} for one in interpreters}
        with LiveLine(f"running {counted(len(findings), 'finding')} under {len(interpreters)} interpreters") as live:
            for interpreter in interpreters:
                under = cells[interpreter.name]
                kept = None if database is None else Kept(database, interpreter.torch)
                if findings:
                    under |= _findings(
                        interpreter, findings, kept, live, runs=runs, jobs=jobs, trust=trust, fresh=fresh
                    )
                if cases:
                    under |= _cases(interpreter, cases, kept, live, jobs=jobs, trust=trust, fresh=fresh)
    lines = lines_of(cells, {one.id: one.title for one in findings}, [one.id for one in findings])
    if page is not None:
        write_page(page, lines, interpreters, _without_paths(command_line(), interpreters, url))
    report = matrix_report(lines, interpreters)
    deliver({"text": lambda paper: matrix_page(lines, interpreters, paper), **writers_of(report)}, format_, outputs)
    if any(line.change == "regressed" for line in lines):
        raise SystemExit(EXIT_FOUND)


def _findings(
    interpreter: Interpreter,
    findings: list[Finding],
    kept: Kept | None,
    live: LiveLine,
    *,
    runs: int,
    jobs: int,
    trust: bool,
    fresh: bool,
) -> dict[str, Cell]:
    """The cells of the findings under one interpreter, kept ones first."""
    cells = {} if kept is None or fresh else kept.cells(findings)
    left = [one for one in findings if one.id not in cells]
    if cells:
        live.say(f"{interpreter.name}: {counted(len(cells), 'result')} kept, {counted(len(left), 'finding')} to run")

    def listen(finding: Finding, cell: Cell) -> None:
        cells[finding.id] = cell
        if kept is not None and (trust or not untrusted_function(finding.minimal or finding.original or "")):
            kept.save(finding, cell, datetime.now(UTC))
        done = len(cells)
        live.update(f"{interpreter.name}: {done} of {counted(len(findings), 'finding')}", is_last=done == len(findings))

    if left:
        findings_under(interpreter, left, runs, jobs, listen, trust=trust)
    return cells


def _cases(
    interpreter: Interpreter,
    paths: list[Path],
    kept: Kept | None,
    live: LiveLine,
    *,
    jobs: int,
    trust: bool,
    fresh: bool,
) -> dict[str, Cell]:
    """The cells of the cases under one interpreter: those that are kept, if the files are the same."""
    key = files_key(paths, trust=trust)
    cells = {} if kept is None or fresh else kept.cells_of_cases(key)
    if cells:
        live.say(f"{interpreter.name}: results of {counted(len(cells), 'case')} kept")
        return cells
    if interpreter.full:
        live.say(f"{interpreter.name}: running the cases")
        cells = cases_under(interpreter, paths, jobs, trust=trust)
    else:
        cells = _case_scripts(interpreter, paths, live, jobs=jobs, trust=trust)
    if kept is not None:
        kept.save_cases(cells, key, datetime.now(UTC))
    return cells


def _script(case: KeptCase) -> str:
    return case_script(case.subject, case.expect.stage, case.expect.kind or "", case.id)


def _case_scripts(
    interpreter: Interpreter, paths: list[Path], live: LiveLine, *, jobs: int, trust: bool
) -> dict[str, Cell]:
    """The cells of the cases under an interpreter without ddefuzz."""
    live.say(f"{interpreter.name}: has no ddefuzz, so the cases run as stand-alone scripts there")
    scripts = [
        Written(one.id, one.expect.kind or "", partial(_script, one))
        for one in kept_cases(paths, trust=trust)
        if not one.finding and one.expect.semantics == EXPLICIT
    ]
    cells: dict[str, Cell] = {}

    def listen(name: str, cell: Cell) -> None:
        cells[name] = cell
        done = len(cells)
        live.update(f"{interpreter.name}: {done} of {counted(len(scripts), 'case')}", is_last=done == len(scripts))

    case_scripts_under(interpreter, scripts, jobs, listen)
    return cells


def _without_paths(line: str, interpreters: tuple[Interpreter, ...], url: DatabaseUrl | None) -> str:
    """The command line without the machine's paths of interpreters and of the database."""
    for one in interpreters:
        line = line.replace(one.python, "PATH")
    return line if url is None else line.replace(shell_word(str(url)), "URL")


def _selected(
    paths: tuple[Path, ...], database: Database | None, ids: tuple[str, ...]
) -> tuple[list[Finding], list[Path]]:
    """The findings to run, and the folders with other cases."""
    folders: list[Path] = []
    cases: list[Path] = []
    for path in paths or ((Path("findings"),) if database is None else ()):
        if not is_there(path):
            raise InputError(f"{path}: found no such file or folder, expected findings or cases")
        is_of_findings = is_there(path / FINDING) or any(path.glob(f"*/{FINDING}"))
        (folders if is_of_findings else cases).append(path)
    found = {one.id: one for one in findings_in(folders, None)}
    if database is not None:
        found |= {one.id: one for one in database.findings()}
    for name in ids:
        if not any(one.startswith(name) for one in found):
            raise InputError(f"--id: found {name!r}, expected the beginning of one of {counted(len(found), 'id')}")
    chosen = [found[name] for name in sorted(found) if not ids or name.startswith(ids)]
    if not chosen and not cases:
        raise NothingRanError("found no finding, expected some in the paths or the database")
    return chosen, cases


def matrix_page(lines: list[Line], interpreters: tuple[Interpreter, ...], page: Page) -> str:
    """The table and the counts."""
    names = [one.name for one in interpreters]
    rows = [
        Detailed(
            [plain(line.id), *(plain(_cell(line, name)) for name in names), plain(line.change)],
            plain(line.title, style="dim"),
        )
        for line in lines
    ]
    counts = ", ".join(f"{number} {change}" for change, number in changes(lines).items())
    totals = [
        f"{one.name} (torch {one.torch}): " + ", ".join(f"{number} {status}" for status, number in _totals(lines, one))
        for one in interpreters
    ]
    shown = rendered(Group(table(("id", *names, "change"), rows, page.width), ""), page)
    return (
        shown
        + "\n".join([*totals, f"{counted(len(lines), 'line')}: {counts}", *_next(lines, interpreters, page)])
        + "\n"
    )


MOST_COMMANDS = 5


def _next(lines: list[Line], interpreters: tuple[Interpreter, ...], page: Page) -> list[str]:
    """Commands that record what is fixed."""
    releases = {one.name: one.torch.partition("+")[0] for one in interpreters}
    fixed = [line for line in lines if line.finding and line.change == "fixed"]
    commands = [
        page.invocation.command(
            *("findings", "set", line.id, "fixed", "--why", "matrix"),
            *(word for name in line.fixed_in for word in ("--in", releases[name])),
        )
        for line in fixed[:MOST_COMMANDS]
    ]
    more = len(fixed) - len(commands)
    said = [f"  and so on for the {counted(more, 'other finding')} whose change is fixed"] if more else []
    return ["Next:", *(f"  {one}" for one in commands), *said] if commands else []


def _totals(lines: list[Line], interpreter: Interpreter) -> list[tuple[Status, int]]:
    statuses = [line.cells[interpreter.name].status for line in lines]
    return [(status, statuses.count(status)) for status in get_args(Status) if statuses.count(status)]


def _cell(line: Line, name: str) -> str:
    cell = line.cells[name]
    if cell.status == "sometimes":
        return f"{cell.shows} of {cell.runs}"
    return "-" if cell.status == "not judged" else cell.status


def matrix_report(lines: list[Line], interpreters: tuple[Interpreter, ...]) -> Report:
    """The matrix as a report. What has regressed failed."""
    documents = tuple(_document(line) for line in lines)
    return Report(
        command=command_line(),
        title=f"ddefuzz matrix: {counted(len(lines), 'line')}",
        version=__version__,
        torch=", ".join(one.torch for one in interpreters),
        rules=rules(),
        results=tuple(
            Result(
                id=line.id,
                rule=line.id.rpartition("-")[0] if line.finding else "replay",
                outcome=OUTCOMES[line.change],
                title=line.title or line.id,
                message=f"{line.change}: " + ", ".join(f"{name} {_cell(line, name)}" for name in line.cells),
            )
            for line in lines
        ),
        facts=(", ".join(f"{number} {change}" for change, number in changes(lines).items()),),
        document={
            "schema": SCHEMA,
            "interpreters": [{"name": one.name, "torch": one.torch, "full": one.full} for one in interpreters],
            "lines": documents,
            "changes": changes(lines),
        },
        records=documents,
    )


def _document(line: Line) -> dict[str, Any]:
    return {
        "id": line.id,
        "finding": line.finding or None,
        "title": line.title,
        "change": line.change,
        "cells": msgspec.to_builtins(line.cells),
        "fails_in": line.where("fails", "sometimes"),
        "fixed_in": line.fixed_in,
        "regressed_in": line.regressed_in,
        "moved_in": line.where("moved"),
        "could_not_be_made_in": line.could_not_be_made_in,
    }
