"""Advice as text: what happened, the user's line, and the changes that were tried."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ddefuzz.checking.changes import MEANING, Advice, Change, Fixed
from ddefuzz.checking.check import Problem
from ddefuzz.cli.layout import counted
from ddefuzz.oracles.capture import KINDS


def advice_facts(advice: Advice, problems: Sequence[Problem] = ()) -> Iterator[tuple[str, str]]:
    """The lines of advice, each with its name. `problems` are those of the case, as they are numbered."""
    if not advice.changes:
        yield "why", advice.summary
        if advice.line is not None and not problems:
            yield "line", f"{advice.line.file}:{advice.line.line}: {advice.line.code.strip()}"
    for number, change in enumerate(advice.changes, 1):
        yield f"change {number}", _change(change, problems)
    if advice.tried:
        yield "tried", "\n".join(f"{one.does}: {one.ended}" for one in advice.tried)
    if advice.remaining:
        yield "left", advice.remaining
    apart = [str(number) for number, problem in enumerate(problems, 1) if problem.about_data is False]
    if advice.changes:
        yield "next", _next(advice.changes[0])
    elif apart:
        yield "next", f"fix problem {apart[0]} first, which is not about data, and run this command again"
    elif advice.stopped:
        yield "next", "give the search more time: --budget SECONDS ended it before all changes were tried"


def is_alarming(name: str, value: str) -> bool:
    """Whether a line is to be printed in red: a change that fixes a size to that of the example."""
    return name.startswith("change ") and f"({MEANING['example-value']})" in value


def _next(best: Change) -> str:
    """What to type to have the best change."""
    if not best.files:
        return "paste the code of change 1 and run this command again"
    return "run this command with --apply to write change 1 to your code, or with --patch FILE to have it as a diff"


def _change(change: Change, problems: Sequence[Problem]) -> str:
    """A change in words, then its diff and the code to paste, which are not folded."""
    fixes = {one.does: _fixes(one, problems) for one in change.fixes}
    if len(fixes) > 1:
        parts = [f"{does}: {said}" if said else does for does, said in fixes.items()]
        head = [f"{len(fixes)} parts ({MEANING[change.kind]})", *parts]
    else:
        head = [f"{change.does} ({MEANING[change.kind]})", *filter(None, fixes.values())]
    said = [
        *head,
        f"passes {', '.join(change.passes)}; agrees with eager on {counted(change.agrees, 'set')} of inputs",
        *change.refuses,
    ]
    outside = f"\nto paste, in place of what lies outside of your project:\n{change.paste}" if change.paste else ""
    return "\n".join([*said, textwrap.indent(f"{change.diff}{outside}", "    ", lambda line: True)])


def _fixes(part: Fixed, problems: Sequence[Problem]) -> str:
    """Which problems are gone with a part of a change, by their numbers. Empty if that is known of none."""
    numbers = [
        str(number)
        for number, problem in enumerate(problems, 1)
        if problem.kind in KINDS
        and (set(problem.keys) & set(part.keys) or (part.continued and not problem.stages and not problem.consequence))
    ]
    if not numbers:
        return ""
    return f"fixes problem {numbers[0]}" if len(numbers) == 1 else f"fixes problems {', '.join(numbers)}"
