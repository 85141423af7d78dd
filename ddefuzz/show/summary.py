"""The format `markdown`: a summary for a pull request or a CI step."""

from __future__ import annotations

from collections.abc import Sequence

from ddefuzz.escape import html_text, markdown_block, markdown_code, markdown_table, markdown_text
from ddefuzz.show.record import Report, Result

MOST = 200
"""Rows of one table. GitHub cuts a step's summary at 1 MB."""


def markdown(report: Report) -> str:
    """The counts, a table of failed results with their programs, and tables of the others to unfold."""
    counts = ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items()) or "no results"
    parts = [f"## {markdown_text(report.title)}", f"**{counts}** on torch {markdown_text(report.torch)}"]
    parts += map(markdown_text, report.facts)
    failed = report.of("failed")
    if failed:
        parts.append(_table(failed))
        parts += [
            _details(f"<code>{html_text(one.id)}</code>: program", markdown_block(one.program, "python"))
            for one in failed[:10]
            if one.program
        ]
    for outcome in ("known", "passed", "skipped"):
        others = report.of(outcome)
        if others:
            parts.append(_details(f"{len(others)} {outcome}", _table(others)))
    parts.append(f"Made by {markdown_code(report.command)}, ddefuzz {markdown_text(report.version)}.")
    return "\n\n".join(parts) + "\n"


def _table(results: Sequence[Result]) -> str:
    rows = [
        (
            markdown_code(one.id),
            markdown_text(one.rule),
            markdown_text(one.cause),
            markdown_code(one.site),
            markdown_text(one.title),
        )
        for one in results[:MOST]
    ]
    if len(results) > MOST:
        rows.append(("", "", "", "", f"and {len(results) - MOST} more"))
    return markdown_table(("id", "rule", "cause", "site", "title"), rows)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"
