"""Advice as text: what happened, the user's line, and the changes that were tried."""

from __future__ import annotations

from collections.abc import Iterator

from ddefuzz.cli.layout import counted
from ddefuzz.report.advice import Advice, Suggestion


def advice_facts(advice: Advice) -> Iterator[tuple[str, str]]:
    """The lines of advice, each with its name."""
    yield "why", advice.summary
    if advice.line is not None:
        yield "line", f"{advice.line.file}:{advice.line.line}: {advice.line.code.strip()}"
    for suggestion in advice.suggestions:
        yield "try", _suggestion(suggestion)
    if advice.tried and not advice.suggestions:
        yield "try", f"no suggestion: {counted(advice.tried, 'change')} of your code tried, none of which helped"


def _suggestion(suggestion: Suggestion) -> str:
    fails = f", still fails {', '.join(suggestion.fails)}" if suggestion.fails else ""
    code = "\n".join(f"    {line}" for line in suggestion.code)
    return (
        f"{suggestion.does} at line {suggestion.line}:\n{code}\n"
        f"tried: passes {', '.join(suggestion.passes)}{fails}; assumes {suggestion.assumes}"
    )
