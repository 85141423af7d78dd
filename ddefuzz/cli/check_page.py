"""What `check` found, as text for people: a table, and below it each failure with what to do next."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ddefuzz.cli.output import Page, rendered
from ddefuzz.report.advice import Advice, Suggestion
from ddefuzz.report.check import Row

STYLES = {"ok": "green", "fail": "red", "crash": "bold red", "timeout": "bold red", "not-judged": "yellow"}


def check_page(rows: list[Row], page: Page) -> str:
    """The whole page."""
    parts: list[RenderableType] = [_table(rows)]
    for group in _by_failure(rows):
        parts += [_failure(group), ""]
    parts.append(_totals(rows))
    return rendered(Group(*parts), page)


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("case", "stage", "semantics", "outcome", "verdict", "cause"):
        table.add_column(title, no_wrap=True)
    table.add_column("kind and site", overflow="fold")
    previous = ""
    for row in rows:
        where = f"{row.kind} at {row.site}" if row.kind is not None else row.reason
        table.add_row(
            Text(row.case if row.case != previous else ""),
            row.stage,
            row.semantics,
            Text(row.outcome, style=STYLES[row.outcome]),
            row.verdict or "",
            row.cause or "",
            Text(where),
        )
        previous = row.case
    return table


def _by_failure(rows: list[Row]) -> Iterable[list[Row]]:
    """The rows of each failure under explicit semantics: one case, one signature."""
    groups: dict[tuple[str, str | None], list[Row]] = {}
    for row in rows:
        if row.outcome not in ("ok", "not-judged") and row.semantics != "size-oblivious":
            groups.setdefault((row.case, row.key or row.stage), []).append(row)
    return groups.values()


def _failure(group: list[Row]) -> RenderableType:
    row = group[0]
    stages = ", ".join(dict.fromkeys(one.stage for one in group))
    lines: list[RenderableType] = [Text(f"{row.case}  {stages}", style="bold")]
    facts = [("what", row.exception or row.reason)]
    if row.expression is not None:
        facts.append(("asked", row.expression))
    if row.site is not None:
        facts += [("where", f"{row.site}  [{row.anchor}]"), ("cause", f"{row.cause} ({row.rule})")]
    if row.key is not None:
        facts.append(("key", row.key))
    if row.advice is not None:
        facts += _advice(row.advice)
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), Text(value))
    lines.append(Padding(grid, (0, 0, 0, 2)))
    return Group(*lines)


def _advice(advice: Advice) -> Iterable[tuple[str, str]]:
    yield "why", advice.summary
    if advice.line is not None:
        yield "line", f"{advice.line.file}:{advice.line.line}: {advice.line.code.strip()}"
    for origin in advice.origins:
        yield "size", origin
    for suggestion in advice.suggestions:
        yield "try", _suggestion(suggestion)
    if advice.tried and not advice.suggestions:
        yield "try", f"{advice.tried} changes of your code were tried and none helped"


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
    return Text(f"{cases} case{'s' if cases != 1 else ''}, {len(rows)} runs: {said}")
