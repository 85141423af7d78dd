"""A page and a plot of a matrix: how many findings and cases fail in each version of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, get_args

from ddefuzz.errors import UnsupportedError
from ddefuzz.escape import markdown_code, markdown_table, markdown_text
from ddefuzz.files import write_atomically
from ddefuzz.versions.model import Change, Interpreter, Line, Status, changes


def group_of(line: Line) -> str:
    """The category of a line: the kind of a finding, or the module and stage of a case."""
    if line.finding:
        return f"findings: {line.finding.rpartition('-')[0]}"
    path, _, stage = line.id.rpartition("@")
    return f"{Path(path.partition('.py:')[0]).parent.name}: {stage or 'program'}"


def write_page(path: Path, lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str) -> None:
    """Write the page and, next to it, the plot. Raises `UnsupportedError` without the extra `report`."""
    plot = path.with_suffix(".svg")
    write_atomically(plot, _plot(lines, interpreters))
    write_atomically(path, page(lines, interpreters, command, plot.name))


def page(lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str, plot: str) -> str:
    """The Markdown: failures by version and category, the counts of each status, then every line that differs."""
    names = [one.name for one in interpreters]
    shown = [markdown_text(name) for name in names]
    groups = sorted({group_of(line) for line in lines})
    rows = [[markdown_text(group), *(_failing(lines, name, group) for name in names)] for group in groups]
    differing = [line for line in lines if len({line.cells[name].status for name in names}) > 1]
    parts = [
        "# Findings and reported cases by version of torch",
        f"Made by {markdown_code(command)}. A number is how many fail, of those that the version can judge.",
        f"![Failures by version of torch]({plot})",
        markdown_table(["", *(markdown_text(f"{one.name} (torch {one.torch})") for one in interpreters)], rows),
        *_by_scripts(lines, interpreters),
        "## Results by version",
        "`moved`: another failure shows, at another site or with another condition. `not judged`: this torch has no "
        "such op or stage, or eager raises for the program.",
        markdown_table(["", *shown], [[what, *(_number(lines, what, name) for name in names)] for what in ROWS]),
        "## What differs",
        ", ".join(f"{number} {change}" for change, number in changes(lines).items())
        + ". `fixed` passes after a version in which it fails; `regressed` fails after one that passes; `new` could "
        "not be made in the oldest; `never` fails in none.",
        markdown_table(
            ["case", *shown, "change"],
            [
                [f"{markdown_code(line.id)}{_said(line)}", *(line.cells[name].status for name in names), line.change]
                for line in sorted(differing, key=lambda line: (CHANGES.index(line.change), group_of(line), line.id))
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _by_scripts(lines: Iterable[Line], interpreters: Iterable[Interpreter]) -> list[str]:
    """What to know of cases under interpreters without ddefuzz."""
    names = [one.name for one in interpreters if not one.full]
    if not names or all(line.finding for line in lines):
        return []
    return [
        f"ddefuzz is not installed for {markdown_text(', '.join(names))}. Cases run there as stand-alone scripts, "
        "which compare the kind of the failure and not its site."
    ]


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


def _said(line: Line) -> str:
    return f" {markdown_text(line.title)}" if line.title else ""


def _failing(lines: Iterable[Line], name: str, group: str) -> str:
    counts = Counter(line.cells[name].status for line in lines if group_of(line) == group)
    judged = sum(counts.values()) - counts["not judged"]
    failing = judged - counts["passes"]
    return f"{failing} of {judged}" if judged else "-"


PARTS: Final = {"findings": True, "cases": False}


def _count(lines: Iterable[Line], name: str, status: str) -> int:
    return sum(line.cells[name].status == status for line in lines)


def _plot(lines: Sequence[Line], interpreters: Sequence[Interpreter]) -> str:
    try:
        altair, convert = import_module("altair"), import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"--page: found no {error.name}, expected it: install ddefuzz[report]") from error
    parts = {what: [line for line in lines if bool(line.finding) == is_finding] for what, is_finding in PARTS.items()}
    values = [
        {"what": what, "torch": one.name, "status": status, "cases": _count(part, one.name, status)}
        for what, part in parts.items()
        for one in interpreters
        for status in get_args(Status)
    ]
    chart = (
        altair.Chart(altair.Data(values=[value for value in values if value["cases"]]))
        .mark_bar()
        .encode(
            y=altair.Y("torch:N", title="torch", sort=[one.name for one in interpreters]),
            x=altair.X("cases:Q", title=None),
            color=altair.Color("status:N", title=None, sort=list(get_args(Status))),
            row=altair.Row("what:N", title=None),
        )
        .resolve_scale(x="independent")
        .properties(width=600)
    )
    svg: str = convert.vegalite_to_svg(chart.to_json())
    return svg
