"""The results of `check` as text: a table, and below it each failure with what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddefuzz.classify.cause import MEANINGS
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.meanings import verdicts_line
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.report.advice import Advice, Suggestion
from ddefuzz.report.check import Row

NARROW = 120
"""The width below which the semantics of a stage share a row."""

STYLES = {
    "ok": "green",
    "fail": "red",
    "crash": "bold red",
    "timeout": "bold red",
    "not-judged": "yellow",
    "wrong": "red",
}


def check_page(rows: list[Row], page: Page) -> str:
    """The whole page."""
    parts: list[RenderableType] = [_narrow(rows, page) if page.width < NARROW else _wide(rows, page), ""]
    for group in _by_failure(rows):
        parts += [_failure(group, page), ""]
    verdicts = verdicts_line(row.verdict for row in rows)
    if verdicts:
        parts.append(Text(folded(f"verdicts: {verdicts}", page.width), style="dim"))
    parts.append(_totals(rows))
    return rendered(Group(*parts), page)


def _wide(rows: list[Row], page: Page) -> RenderableType:
    """One row for each run."""
    shown: list[Detailed] = []
    previous = ""
    for row in rows:
        case = row.case if row.case != previous else ""
        cells = [plain(cell) for cell in (row.verdict or "", row.cause or "", _where(row))]
        shown.append(Detailed([plain(case), Text(row.stage), Text(row.semantics), _outcome(row), *cells]))
        previous = row.case
    titles = ("case", "stage", "semantics", "outcome", "verdict", "cause", "kind and site")
    return table(titles, shown, page.width, folding=("kind and site",))


def _narrow(rows: list[Row], page: Page) -> RenderableType:
    """One row for each stage of a case, one column for each semantics, and the failures below."""
    semantics = tuple(dict.fromkeys(row.semantics for row in rows))
    shown: list[Detailed] = []
    for case, of_case in groupby(rows, lambda row: row.case):
        stages = [list(group) for _, group in groupby(of_case, lambda row: row.stage)]
        for at, group in enumerate(stages):
            by_semantics = {row.semantics: row for row in group}
            cells = [plain(case if at == 0 else ""), Text(group[0].stage)]
            cells += [_outcome(by_semantics[name]) if name in by_semantics else Text() for name in semantics]
            verdict = next((row.verdict for row in group if row.verdict), "")
            judged = [by_semantics["explicit"]] if "explicit" in by_semantics else group
            cause = next((row.cause for row in judged if row.cause), "")
            is_last = at + 1 == len(stages) or _all_where(stages[at + 1]) != _all_where(group)
            detail = plain(_all_where(group) if is_last else "")
            shown.append(Detailed([*cells, Text(verdict), Text(cause)], detail))
    return table(["case", "stage", *semantics, "verdict", "cause"], shown, page.width)


def _all_where(group: list[Row]) -> str:
    """The failures of one stage and where they are. The semantics are named unless all have the same failure."""
    places = {row.semantics: _where(row) for row in group}
    if len(set(places.values())) == 1:
        return _where(group[0])
    failing = {semantics: where for semantics, where in places.items() if where}
    only = " only" if "explicit" in places and [*failing] == ["size-oblivious"] else ""
    return "; ".join(f"{semantics}{only}: {where}" for semantics, where in failing.items())


def _where(row: Row) -> str:
    return f"{row.kind} in {row.site}" if row.kind is not None else row.reason


def _outcome(row: Row) -> Text:
    return Text(row.outcome, style=STYLES[row.outcome])


def _by_failure(rows: list[Row]) -> Iterable[list[Row]]:
    """The rows of each failure under explicit semantics, by case and signature."""
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        if row.outcome not in ("ok", "not-judged") and row.semantics != "size-oblivious":
            groups.setdefault((row.case, row.key or row.stage), []).append(row)
    return groups.values()


def _failure(group: list[Row], page: Page) -> RenderableType:
    row = group[0]
    stages = ", ".join(dict.fromkeys(one.stage for one in group))
    lines: list[RenderableType] = [plain(f"{row.case}  {stages}", style="bold")]
    facts = [("error", row.exception or row.reason)] if row.outcome != "wrong" else [("wrong", row.reason)]
    if row.expression is not None:
        facts.append(("guard", row.expression))
    if row.site is not None and row.cause is not None:
        facts += [
            ("site", f"{row.site}  [{row.anchor}]"),
            ("cause", f"{row.cause}: {MEANINGS[row.cause].meaning} (rule {row.rule})"),
        ]
    if row.key is not None:
        facts.append(("key", row.key))
    if row.advice is not None:
        facts += _advice(row.advice)
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), plain(_fitting(value, page.width - 9)))
    lines.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*lines)


def _fitting(value: str, width: int) -> str:
    """Folded text. Indented code, which people copy, is not folded."""
    return "\n".join(line if line.startswith("    ") else folded(line, width) for line in value.split("\n"))


def _advice(advice: Advice) -> Iterable[tuple[str, str]]:
    yield "why", advice.summary
    if advice.line is not None:
        yield "line", f"{advice.line.file}:{advice.line.line}: {advice.line.code.strip()}"
    for origin in advice.origins:
        yield "size", origin
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


def _totals(rows: list[Row]) -> Text:
    cases = len({row.case for row in rows})
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return Text(f"{counted(cases, 'case')}, {counted(len(rows), 'run')}: {said}")
