"""A page and a plot of a matrix: how many findings and cases fail in each version of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import get_args

from ddefuzz.errors import UnsupportedError
from ddefuzz.files import write_atomically
from ddefuzz.versions.model import Interpreter, Line, Status, changes


def group_of(line: Line) -> str:
    """The category of a line: the kind of a finding, or the module and stage of a case."""
    if line.finding:
        return f"findings: {line.finding.rpartition('-')[0]}"
    path, _, stage = line.id.rpartition("@")
    return f"{Path(path.partition('.py:')[0]).parent.name}: {stage or 'program'}"


def write_page(path: Path, lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str) -> None:
    """Write the page and, beside it, the plot. Raises `UnsupportedError` without the extra `report`."""
    plot = path.with_suffix(".svg")
    write_atomically(plot, _plot(lines, interpreters))
    write_atomically(path, page(lines, interpreters, command, plot.name))


def page(lines: Sequence[Line], interpreters: Sequence[Interpreter], command: str, plot: str) -> str:
    """The Markdown: failures by version and category, then every line that differs between versions."""
    names = [one.name for one in interpreters]
    groups = sorted({group_of(line) for line in lines})
    rows = [[group, *(_failing(lines, name, group) for name in names)] for group in groups]
    differing = [line for line in lines if len({line.cells[name].status for name in names}) > 1]
    parts = [
        "# Findings and reported cases by version of torch",
        f"Made by `{command}`. A number is how many fail, of those that the version can judge.",
        f"![Failures by version of torch]({plot})",
        _table(["", *(f"{one.name} (torch {one.torch})" for one in interpreters)], rows),
        "## What differs",
        ", ".join(f"{number} {change}" for change, number in changes(lines).items())
        + ". `fixed` passes after a version in which it fails; `never` passes in all.",
        _table(
            ["case", *names, "change"],
            [[f"`{line.id}`", *(line.cells[name].status for name in names), line.change] for line in differing],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _failing(lines: Iterable[Line], name: str, group: str) -> str:
    counts = Counter(line.cells[name].status for line in lines if group_of(line) == group)
    judged = sum(counts.values()) - counts["not judged"]
    failing = judged - counts["passes"]
    return f"{failing} of {judged}" if judged else "-"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _plot(lines: Sequence[Line], interpreters: Sequence[Interpreter]) -> str:
    try:
        altair, convert = import_module("altair"), import_module("vl_convert")
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"--page: found no {error.name}, expected it: install ddefuzz[report]") from error
    values = [
        {"torch": one.name, "status": status, "cases": sum(line.cells[one.name].status == status for line in lines)}
        for one in interpreters
        for status in get_args(Status)
    ]
    chart = (
        altair.Chart(altair.Data(values=[value for value in values if value["cases"]]))
        .mark_bar()
        .encode(
            y=altair.Y("torch:N", title="torch", sort=[one.name for one in interpreters]),
            x=altair.X("cases:Q", title="findings and cases"),
            color=altair.Color("status:N", title=None, sort=list(get_args(Status))),
        )
        .properties(width=600)
    )
    svg: str = convert.vegalite_to_svg(chart.to_json())
    return svg
