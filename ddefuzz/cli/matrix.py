"""`ddefuzz matrix`: findings and cases under several versions of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz import __version__
from ddefuzz.cli.interpreters import interpreters_of, pythons_option
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import jobs_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.replay_scripts import findings_in
from ddefuzz.cli.reports import command_line, rules, writers_of
from ddefuzz.errors import EXIT_FOUND, InputError, NothingRanError
from ddefuzz.files import is_there
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING
from ddefuzz.formats.record import Outcome, Report, Result
from ddefuzz.formats.table import NAMES
from ddefuzz.versions.model import Change, Interpreter, Line, Status, changes
from ddefuzz.versions.page import write_page
from ddefuzz.versions.run import cases_under, findings_under, lines_of

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
@click.option("--db", "url", metavar="URL", help="Run the findings of this database, instead of those in findings/.")
@click.option("--id", "ids", metavar="ID", multiple=True, help="Only findings whose id begins so. Can be repeated.")
@click.option("--runs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs of each finding.")
@click.option("--trust", is_flag=True, help="Execute the Python modules that trusted.toml files below PATH list.")
@click.option(
    "--page",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write a page with tables, and a plot beside it (extra report).",
)
@jobs_option
@output_options("text", *NAMES)
def command(
    paths: tuple[Path, ...],
    pythons: tuple[str, ...],
    url: str | None,
    ids: tuple[str, ...],
    runs: int,
    trust: bool,
    page: Path | None,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Run findings and cases under several versions of torch, and say in which they fail.

    The stand-alone script of each finding runs under every interpreter, each time in a new process. PATH is a folder of
    findings (default: findings), or of cases such as corpora/. Cases run under interpreters that have ddefuzz
    installed.

    A finding is fixed if it passes after a version in which it fails, and regressed if it fails after one that passes.
    It is new, and not regressed, if older versions could not make its program. It has moved if another failure shows.

    Exit code 1: some finding has regressed.
    """
    interpreters = interpreters_of(pythons)
    findings, cases = _selected(paths, url, ids)
    cells: dict[str, dict[str, Any]] = {one.name: {} for one in interpreters}
    total = len(findings) * runs * len(interpreters)
    done = 0
    with LiveLine(f"running {counted(len(findings), 'finding')} under {len(interpreters)} interpreters") as live:
        for interpreter in interpreters:

            def listen(name: str, under: str = interpreter.name) -> None:
                nonlocal done
                done += 1
                of = f" of {total}" if not cases else ""
                live.update(f"{done}{of} runs ({under}: {name})")

            if findings:
                cells[interpreter.name] |= findings_under(interpreter, findings, runs, jobs, listen)
            if cases and interpreter.full:
                cells[interpreter.name] |= cases_under(interpreter, cases, jobs, listen, trust=trust)
            elif cases:
                live.say(f"{interpreter.name}: has no ddefuzz, so the cases are not run there")
    lines = lines_of(cells, {one.id: one.title for one in findings}, [one.id for one in findings])
    if page is not None:
        write_page(page, lines, interpreters, _without_paths(command_line(), interpreters))
    report = matrix_report(lines, interpreters)
    deliver({"text": lambda paper: matrix_page(lines, interpreters, paper), **writers_of(report)}, format_, outputs)
    if any(line.change == "regressed" for line in lines):
        raise SystemExit(EXIT_FOUND)


def _without_paths(line: str, interpreters: tuple[Interpreter, ...]) -> str:
    """The command line without the machine's paths of interpreters."""
    for one in interpreters:
        line = line.replace(one.python, "PATH")
    return line


def _selected(paths: tuple[Path, ...], url: str | None, ids: tuple[str, ...]) -> tuple[list[Finding], list[Path]]:
    """The findings to run, and the folders with other cases."""
    folders: list[Path] = []
    cases: list[Path] = []
    for path in paths or ((Path("findings"),) if url is None else ()):
        if not path.exists():
            raise InputError(f"{path}: found no such file or folder, expected findings or cases")
        is_of_findings = is_there(path / FINDING) or any(path.glob(f"*/{FINDING}"))
        (folders if is_of_findings else cases).append(path)
    found = findings_in(folders, url)
    for name in ids:
        if not any(one.id.startswith(name) for one in found):
            raise InputError(f"--id: found {name!r}, expected the beginning of one of {counted(len(found), 'id')}")
    if ids:
        found = [one for one in found if one.id.startswith(ids)]
    if not found and not cases:
        raise NothingRanError("found no finding, expected some in the paths or the database")
    return found, cases


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
    return shown + "\n".join([*totals, f"{counted(len(lines), 'line')}: {counts}"]) + "\n"


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
