"""The census of a sweep as the record that `ddefuzz.show` writes."""

from __future__ import annotations

from collections.abc import Iterator

from ddefuzz import __version__
from ddefuzz.cli.reports import command_line, rules
from ddefuzz.cli.sweep_page import summary_lines
from ddefuzz.show.record import Outcome, Report, Result, Rule
from ddefuzz.sweep.census import Census, Failure, Row
from ddefuzz.sweep.tasks import Status

TRACES = Rule("traces", "all samples of the op trace with unbacked sizes")
"""The rule of the ops that do not fail."""

_WITHOUT_FAILURE: dict[Status, tuple[Outcome, str]] = {
    "ok": ("passed", "all samples trace"),
    "none": ("skipped", "no sample could be made"),
}


def sweep_report(census: Census) -> Report:
    """A result for each failure of each op, and for each op without one."""
    lines = summary_lines(census)
    return Report(
        command=command_line(),
        title=f"ddefuzz sweep: {lines[0]}",
        version=__version__,
        torch=census.torch,
        rules=(*rules(), TRACES),
        results=tuple(result for row in census.rows for result in _results(row)),
        facts=tuple(lines[1:]),
        document=census,
        records=census.rows,
    )


def _results(row: Row) -> Iterator[Result]:
    failures = (*row.failures, *row.wrong)
    for number, failure in enumerate(failures):
        yield _failure(row, failure, number)
    if not failures:
        outcome, said = _WITHOUT_FAILURE.get(row.explicit, ("failed", "; ".join(row.lost) or row.explicit))
        yield Result(id=row.op, rule=TRACES.id, outcome=outcome, title=f"{row.op}: {said}")


def _failure(row: Row, failure: Failure, number: int) -> Result:
    return Result(
        id=failure.finding or f"{row.op}/{failure.kind}/{number}",
        rule=failure.kind,
        outcome="failed",
        title=f"{row.op}: {failure.evidence}",
        site=failure.site,
        cause=failure.cause,
        program=failure.program,
        facts=tuple(
            (name, value)
            for name, value in (
                ("op", row.op),
                ("forms", ", ".join(failure.forms)),
                ("confirmed in", ", ".join(failure.confirmed)),
                ("verdict", failure.verdict),
            )
            if value
        ),
    )
