"""Advice as text: what happened, the user's line, and the changes that were tried."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ddefuzz.advice.model import MEANING, Advice, Change
from ddefuzz.cli.layout import counted


def advice_facts(advice: Advice) -> Iterator[tuple[str, str]]:
    """The lines of advice, each with its name."""
    yield "why", advice.summary
    if advice.line is not None:
        yield "line", f"{advice.line.file}:{advice.line.line}: {advice.line.code.strip()}"
    for change in advice.changes:
        yield "change", _change(change)
    if advice.tried:
        yield "tried", "\n".join(f"{one.does}: {one.ended}" for one in advice.tried)
    if advice.remaining:
        yield "next", advice.remaining


def is_alarming(name: str, value: str) -> bool:
    """Whether a line is to be printed in red: a change that fixes a size to that of the example."""
    return name == "change" and f"({MEANING['example-value']})" in value


def _change(change: Change) -> str:
    """A change in words, then its diff and the code to paste, which are not folded."""
    said = [
        f"{change.does} ({MEANING[change.kind]})",
        f"passes {', '.join(change.passes)}; agrees with eager on {counted(change.agrees, 'set')} of inputs",
        *change.refuses,
    ]
    outside = f"\nto paste, in place of what lies outside of your project:\n{change.paste}" if change.paste else ""
    return "\n".join([*said, textwrap.indent(f"{change.diff}{outside}", "    ", lambda line: True)])
