"""The format `markdown`: a summary for a pull request or a CI step."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddefuzz.formats.record import Report, Result

MOST = 200
"""Rows of one table. GitHub cuts a step's summary at 1 MB."""


def markdown(report: Report) -> str:
    """The counts, a table of failed results with their programs, and tables of the others to unfold."""
    counts = ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items()) or "no results"
    parts = [f"## {escaped(report.title)}", f"**{counts}** on torch {escaped(report.torch)}"]
    parts += [escaped(fact) for fact in report.facts]
    failed = report.of("failed")
    if failed:
        parts.append(_table(failed))
        parts += [_details(f"`{_code(one.id)}`: program", _fence(one.program)) for one in failed[:10] if one.program]
    for outcome in ("known", "passed", "skipped"):
        others = report.of(outcome)
        if others:
            parts.append(_details(f"{len(others)} {outcome}", _table(others)))
    parts.append(f"Made by `{_code(report.command)}`, ddefuzz {escaped(report.version)}.")
    return "\n\n".join(parts) + "\n"


def _table(results: Iterable[Result]) -> str:
    results = list(results)
    lines = ["| id | rule | cause | site | title |", "|---|---|---|---|---|"]
    for one in results[:MOST]:
        site = f"`{_code(one.site)}`" if one.site else ""
        cells = (f"`{_code(one.id)}`", escaped(one.rule), escaped(one.cause), site, escaped(one.title))
        lines.append(f"| {' | '.join(cells)} |")
    if len(results) > MOST:
        lines.append(f"| | | | | and {len(results) - MOST} more |")
    return "\n".join(lines)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _fence(text: str) -> str:
    """A block of code, with a fence that is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{text.rstrip()}\n{fence}"


def escaped(text: str) -> str:
    """Text in which nothing is markup."""
    inert = re.sub(r"([\\`*_{}\[\]<>#|~@])", r"\\\1", " ".join(text.split()))
    return inert.replace("\\@", "@\u200b")  # mentions nobody


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
