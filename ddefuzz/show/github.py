"""The format `github`: workflow commands that GitHub shows as annotations of lines."""

from __future__ import annotations

from ddefuzz.escape import github_data, github_property
from ddefuzz.show.record import Report, Result

MOST = 10
"""GitHub shows at most ten annotations of a kind for each step."""


def github(report: Report) -> str:
    """An `::error` line for each failed result, at most `MOST` lines, then a notice with the counts."""
    failed = report.of("error", "failed")
    shown = failed if len(failed) <= MOST else failed[: MOST - 1]
    lines = [_error(result) for result in shown]
    if len(failed) > len(shown):
        left = len(failed) - len(shown)
        lines.append(f"::error title=ddefuzz::{left} more failed: the summary and the SARIF file list them")
    counts = ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items()) or "no results"
    return "\n".join([*lines, f"::notice title=ddefuzz::{github_data(f'{report.title}: {counts}')}"]) + "\n"


def _error(result: Result) -> str:
    fields = {"file": result.path, "line": str(result.line or ""), "title": f"{result.rule} {result.id}"}
    properties = ",".join(f"{name}={github_property(value)}" for name, value in fields.items() if value)
    message = f"{result.title}: {result.message}" if result.message else result.title
    return f"::error {properties}::{github_data(message)}"
