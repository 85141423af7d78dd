"""A page and a chart of a matrix: how many findings and cases fail in each version of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from ddefuzz.files import write_atomically
from ddefuzz.show.blocks import Block, Heading, Picture, Span, prose, table
from ddefuzz.show.html import svg
from ddefuzz.show.markdown import markdown
from ddefuzz.versions.model import Change, Interpreter, Line, Status, changes


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
        ", ".join(f"{number} {change}" for change, number in changes(lines).items()),
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
    if what == "fixed":
        return str(sum(name in line.fixed_in for line in lines))
    if what == "regressed":
        return str(sum(name in line.regressed_in for line in lines))
    return str(_count(lines, name, what))


def _failing(lines: Iterable[Line], name: str, group: str) -> str:
    counts = Counter(line.cells[name].status for line in lines if group_of(line) == group)
    judged = sum(counts.values()) - counts["not judged"]
    failing = judged - counts["passes"]
    return f"{failing} of {judged}" if judged else "-"


PARTS: Final = {"findings": True, "cases": False}


def _count(lines: Iterable[Line], name: str, status: str) -> int:
    return sum(line.cells[name].status == status for line in lines)


def _chart(lines: Sequence[Line], interpreters: Sequence[Interpreter]) -> dict[str, Any]:
    parts = {what: [line for line in lines if bool(line.finding) == is_finding] for what, is_finding in PARTS.items()}
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
