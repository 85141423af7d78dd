"""The format `github`: workflow commands that GitHub shows as annotations of lines."""

from __future__ import annotations

from ddefuzz.formats.record import Report, Result

MOST = 10
"""GitHub shows at most ten annotations of a kind for each step."""


def github(report: Report) -> str:
    """An `::error` line for each failed result, at most `MOST` lines, then a notice with the counts."""
    failed = report.of("failed")
    shown = failed if len(failed) <= MOST else failed[: MOST - 1]
    lines = [_error(result) for result in shown]
    if len(failed) > len(shown):
        left = len(failed) - len(shown)
        lines.append(f"::error title=ddefuzz::{left} more failed: the summary and the SARIF file list them")
    counts = ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items()) or "no results"
    return "\n".join([*lines, f"::notice title=ddefuzz::{_data(f'{report.title}: {counts}')}"]) + "\n"


def _error(result: Result) -> str:
    fields = {"file": result.path, "line": str(result.line or ""), "title": f"{result.rule} {result.id}"}
    properties = ",".join(f"{name}={_property(value)}" for name, value in fields.items() if value)
    return f"::error {properties}::{_data(result.title if not result.message else f'{result.title}: {result.message}')}"


def _data(text: str) -> str:
    """Text of a workflow command, escaped as GitHub's toolkit does."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
