"""A matrix as text, as a report, and as a page with a chart: what fails in which version of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from ddefuzz.files import write_atomically
from ddefuzz.show.blocks import (
    Block,
    Commands,
    Heading,
    Items,
    Paragraph,
    Picture,
    Span,
    TableRow,
    counted,
    prose,
    table,
)
from ddefuzz.show.html import svg
from ddefuzz.show.markdown import markdown
from ddefuzz.show.record import Outcome, Report, Result
from ddefuzz.versions.model import Change, Interpreter, Line, Status, changes

MOST_COMMANDS: Final = 5

MOST_ROWS: Final = 20
"""Rows of a table that has all of them unasked."""

ORDER: Final[tuple[Change, ...]] = ("regressed", "new", "moved", "sometimes", "fixed", "fails", "never")
"""The rows of a table, first what somebody has to look at."""

SAME: Final[frozenset[Change]] = frozenset({"fails", "never"})

OUTCOMES: Final[dict[Change, Outcome]] = {
    "fails": "known",
    "new": "known",
    "sometimes": "known",
    "moved": "known",
    "fixed": "passed",
    "never": "passed",
    "regressed": "failed",
}


def matrix_view(
    lines: Sequence[Line], interpreters: Sequence[Interpreter], command: Callable[..., str], *, every: bool = False
) -> Iterator[Block]:
    """The table, the counts, and the commands that record what is fixed. `command` makes a command line of words.

    What changed comes first. Unless `every` row is asked for, a long table has only these.
    """
    names = [one.name for one in interpreters]
    shown = sorted(lines, key=lambda line: ORDER.index(line.change))
    if not every and len(shown) > MOST_ROWS:
        shown = [line for line in shown if line.change not in SAME]
    cells = (
        TableRow((line.id, *(_cell(line, name) for name in names), line.change), Span(line.title, style="dim"))
        for line in shown
    )
    yield table(("id", *names, "change"), cells)
    if left := len(lines) - len(shown):
        yield Paragraph(f"{counted(left, 'row')} the same in all versions: --all shows them", style="dim")
    yield Items((*(_totals(lines, one) for one in interpreters), f"{counted(len(lines), 'line')}: {_changes(lines)}"))
    releases = {one.name: one.torch.partition("+")[0] for one in interpreters}
    fixed = [line for line in lines if line.finding and line.change == "fixed"]
    commands = [
        command(
            *("findings", "set", line.id, "fixed", "--why", "matrix"),
            *(word for name in line.fixed_in for word in ("--in", releases[name])),
        )
        for line in fixed[:MOST_COMMANDS]
    ]
    if more := len(fixed) - len(commands):
        commands.append(f"# and so on for the {counted(more, 'other finding')} whose change is fixed")
    if commands:
        yield Commands(tuple(commands))


def _totals(lines: Sequence[Line], of: Interpreter) -> str:
    counts = {status: _count(lines, of.name, status) for status in get_args(Status)}
    parts = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    return f"{of.name} (torch {of.torch}): {parts}"


def _changes(lines: Sequence[Line]) -> str:
    return ", ".join(f"{number} {change}" for change, number in changes(lines).items())


def _cell(line: Line, name: str) -> str:
    cell = line.cells[name]
    if cell.status == "sometimes":
        return f"{cell.shows} of {cell.runs}"
    return "-" if cell.status == "not judged" else cell.status


def matrix_report(lines: Sequence[Line], interpreters: Sequence[Interpreter]) -> Report:
    """The matrix as a report. What has regressed failed."""
    documents = tuple(
        {
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
        for line in lines
    )
    return Report(
        title=f"ddefuzz matrix: {counted(len(lines), 'line')}",
        torch=", ".join(one.torch for one in interpreters),
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
        facts=(_changes(lines),),
        document={
            "schema": "ddefuzz.matrix/1",
            "interpreters": [{"name": one.name, "torch": one.torch, "full": one.full} for one in interpreters],
            "lines": documents,
            "changes": changes(lines),
        },
        records=documents,
    )


def group_of(line: Line) -> str:
    """The category of a line: the kind of a finding, or the module and stage of a case."""
    if line.finding:
        return f"findings: {line.finding.rpartition('-')[0]}"
    path, _, stage = line.id.rpartition("@")
    return f"{Path(path.partition('.py:')[0]).parent.name}: {stage or 'program'}"


def write_page(path: Path, lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str) -> None:
    """Write the page and, next to it, the chart. Raises `UnsupportedError` without the extra `report`."""
    picture = path.with_suffix(".svg")
    write_atomically(picture, svg(_chart(lines, interpreters)))
    write_atomically(path, markdown(view(lines, interpreters, command, picture.name)))


def view(lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str, picture: str) -> Iterator[Block]:
    """The page: failures by version and category, the counts of each status, then every line that differs."""
    names = [one.name for one in interpreters]
    yield Heading("Findings and reported cases by version of torch", 1)
    yield prose("Made by `{}`. A number is how many fail, of those that the version can judge.", command)
    yield Picture("Failures by version of torch", picture)
    groups = sorted({group_of(line) for line in lines})
    titles = ("", *(f"{one.name} (torch {one.torch})" for one in interpreters))
    yield table(titles, [(group, *(_failing(lines, name, group) for name in names)) for group in groups])
    scripts = [one.name for one in interpreters if not one.full]
    if scripts and not all(line.finding for line in lines):
        yield prose(
            "ddefuzz is not installed for {}. Cases run there as stand-alone scripts, which compare the kind of the "
            "failure and not its site.",
            ", ".join(scripts),
        )
    yield Heading("Results by version")
    yield prose(
        "`moved`: another failure shows, at another site or with another condition. `not judged`: this torch has no "
        "such op or stage, or eager raises for the program."
    )
    yield table(("", *names), [(what, *(_number(lines, what, name) for name in names)) for what in ROWS])
    yield Heading("What differs")
    yield prose(
        "{}. `fixed` passes after a version in which it fails; `regressed` fails after one that passes; `new` could "
        "not be made in the oldest; `never` fails in none.",
        _changes(lines),
    )
    differing = [line for line in lines if len({line.cells[name].status for name in names}) > 1]
    differing.sort(key=lambda line: (CHANGES.index(line.change), group_of(line), line.id))
    rows = (
        (
            (Span(line.id, code=True), f" {line.title}" if line.title else ""),
            *(line.cells[name].status for name in names),
            line.change,
        )
        for line in differing
    )
    yield table(("case", *names, "change"), rows)


ROWS: Final = (*get_args(Status), "fixed", "regressed")
"""The rows of the second table: statuses, and what changed before a version."""

CHANGES: Final[tuple[Change, ...]] = ("fixed", "regressed", "moved", "sometimes", "new", "fails", "never")
"""The order of the last table."""


def _number(lines: Iterable[Line], what: str, name: str) -> str:
    if what in get_args(Status):
        return str(_count(lines, name, what))
    return str(sum(name in (line.fixed_in if what == "fixed" else line.regressed_in) for line in lines))


def _failing(lines: Iterable[Line], name: str, group: str) -> str:
    counts = Counter(line.cells[name].status for line in lines if group_of(line) == group)
    judged = sum(counts.values()) - counts["not judged"]
    failing = judged - counts["passes"]
    return f"{failing} of {judged}" if judged else "-"


def _count(lines: Iterable[Line], name: str, status: str) -> int:
    return sum(line.cells[name].status == status for line in lines)


def _chart(lines: Sequence[Line], interpreters: Sequence[Interpreter]) -> dict[str, Any]:
    parts = {
        "findings": [line for line in lines if line.finding],
        "cases": [line for line in lines if not line.finding],
    }
    values = [
        {"what": what, "torch": one.name, "status": status, "cases": count}
        for what, part in parts.items()
        for one in interpreters
        for status in get_args(Status)
        if (count := _count(part, one.name, status))
    ]
    names = [one.name for one in interpreters]
    return {
        "data": {"values": values},
        "mark": "bar",
        "width": 600,
        "resolve": {"scale": {"x": "independent"}},
        "encoding": {
            "y": {"field": "torch", "type": "nominal", "title": "torch", "sort": names},
            "x": {"field": "cases", "type": "quantitative", "title": None},
            "color": {"field": "status", "type": "nominal", "title": None, "sort": get_args(Status)},
            "row": {"field": "what", "type": "nominal", "title": None},
        },
    }
