"""Findings as text: the table, and the page of one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ddefuzz.classify.wording import question
from ddefuzz.cli.answers_page import evidence_parts
from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.escape import one_line, shell_word, visible
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, FindingSummary, Result
from ddefuzz.oracles.table import oracle_of
from ddefuzz.show.facts import facts_of
from ddefuzz.show.stack import MARK, stack_to_site
from ddefuzz.versions.kept import statuses


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    title: str
    cell: Callable[[FindingSummary], str]
    right: bool = False
    folding: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("id", lambda finding: finding.id),
    Column("cause", lambda finding: finding.cause),
    Column("title", lambda finding: one_line(finding.title), folding=True),
    Column("stage", lambda finding: finding.stage or ""),
    Column("steps", lambda finding: "" if finding.steps is None else str(finding.steps), right=True),
    Column("confirmed", lambda finding: str(finding.confirmed or ""), right=True),
    Column("state", lambda finding: finding.state),
)

WIDE = 100
UNTIL_WIDE = frozenset({"stage", "steps", "confirmed"})
"""The columns that are left out on pages narrower than `WIDE`."""

WIDE_FOR_TITLE = 140
"""On pages narrower than this, titles are below the rows. A column would break the names in them."""


def list_page(
    findings: Sequence[FindingSummary], page: Page, left_out: int = 0, filters: str = "", total: int = 0
) -> str:
    """The table, and what to type next.

    `left_out` is the number of findings that do not depend on data. `filters` are the options that select findings, and
    `total` is the number of all findings in the database.
    """
    more = (
        f"{counted(left_out, 'finding')} more {'does' if left_out == 1 else 'do'} not depend on data: "
        f"--all lists {'it' if left_out == 1 else 'them'}."
    )
    if left_out and not findings:
        return f"no findings that depend on data{f' match {filters}' if filters else ''}\n{more}\n"
    if not findings and total:
        return f"no findings match {filters} ({total} in the database)\n"
    if not findings:
        return f"no findings (`{page.invocation.command('run')}` looks for some)\n"
    columns = [one for one in COLUMNS if page.width >= WIDE or one.title not in UNTIL_WIDE]
    if page.width < WIDE_FOR_TITLE:
        columns = [one for one in columns if not one.folding]
        rows = [
            Detailed([plain(one.cell(found)) for one in columns], plain(one_line(found.title))) for found in findings
        ]
    else:
        rows = [Detailed([plain(one.cell(found)) for one in columns]) for found in findings]
    shown = table(
        [column.title for column in columns],
        rows,
        page.width,
        right=[column.title for column in columns if column.right],
        folding=[column.title for column in columns if column.folding],
    )
    first, call = findings[0], page.invocation
    commands = (
        f"{call.command('findings', 'show', first.id)}  # all that is known of it",
        f"{call.command('findings', 'show', first.id, '--repro')}  # a script that needs torch alone",
        *_triage(first, call)[:1],
    )
    lines = "".join(f"  {line}\n" for line in commands)
    number = f"{counted(len(findings), 'finding')}. {f'{more} ' if left_out else ''}Next:"
    return f"{rendered(shown, page)}\n{folded(number, page.width)}\n{lines}"


def show_page(finding: Finding, page: Page, by_version: Iterable[Result] = ()) -> str:
    """Everything about one finding, with commands for what to do next. `by_version` are results of a matrix."""
    parts: list[RenderableType] = [
        plain(folded(one_line(f"{finding.id}: {finding.title}"), page.width), style="bold"),
        "",
    ]
    parts.append(facts_grid([*facts_of(finding), ("matrix", statuses(finding, by_version))], page.width))
    if finding.minimal is not None:
        parts += [_heading("smallest program"), _program(finding.minimal)]
    if finding.evidence is not None:
        stack = stack_to_site(finding.evidence)
        if stack.lines:
            legend = f" ({MARK} is the site)" if stack.marked else ""
            which = "smallest program" if finding.shown is not None else "program it was found with"
            parts.append(_heading(f"from the {which} to the site, in {finding.stage}{legend}"))
            parts += [plain(_hanging(line, page.width)) for line in stack.lines]
            if stack.left_out:
                frames = counted(stack.left_out, "internal frame")
                parts.append(f"  {frames} not shown: `--format json` has them all")
    if finding.answers is not None:
        parts += [_heading("what would fix it"), *evidence_parts(finding.answers, page)]
    parts += _found_with(finding)
    if finding.notes:
        parts.append(_heading("notes"))
        parts += [plain(_hanging(f"  {one.when[:16]} {one.who}: {one.text}", page.width)) for one in finding.notes]
    if finding.history:
        parts.append(_heading("history"))
    for entry in finding.history:
        change = f"{entry.field.removeprefix('given_')} {entry.before or '-'} → {entry.after or '-'}"
        change += f" ({entry.why})" if entry.why else ""
        parts.append(plain(_hanging(f"  {entry.when[:16]} {entry.who}: {change}", page.width)))
    commands = "".join(f"  {line}\n" for line in _next_commands(finding, page.invocation))
    return rendered(Group(*parts), page) + "\nNext:\n" + commands


_THEME = "ansi_dark"
"""Colors of the terminal itself."""


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _program(text: str) -> Syntax:
    return Syntax(visible(text.rstrip()), "python", word_wrap=True, theme=_THEME)


def _found_with(finding: Finding) -> Iterator[RenderableType]:
    """The original program, and its failure if that differs from the displayed one."""
    if finding.original is None or finding.original == finding.minimal:
        return
    yield _heading("program that it was found with")
    yield _program(finding.original)
    if finding.failure is not None and finding.shown is not None:
        observation = finding.failure.observation
        expression = observation.raised.expression if observation.raised is not None else ""
        if (observation.stage, expression) != (finding.stage, finding.expression):
            yield plain(
                f"  it failed in {observation.stage}{f', evaluating {question(expression)}' if expression else ''}"
            )


def _hanging(line: str, width: int) -> str:
    """A folded line. Continuation lines are indented further."""
    text = line.lstrip(f"{MARK} ")
    start = line[: len(line) - len(text)]
    indent = " " * (len(start) + 2)
    return start + f"\n{indent}".join(folded(text, max(width - len(indent), 1)).split("\n"))


def facts_grid(facts: Iterable[tuple[str, str]], width: int) -> Table:
    """Names and values in two columns. Empty values are left out."""
    said = [(name, value) for name, value in facts if value]
    widest = max(len(name) for name, _ in said)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column()
    for name, value in said:
        grid.add_row(name, plain(folded(value, max(width - widest - 2, 1))))
    return grid


def _next_commands(finding: Finding, call: Invocation) -> tuple[str, ...]:
    name = finding.id
    show = ("findings", "show", name)
    program, file = "--minimal" if finding.minimal else "--original", f"{name}.py"
    replay = (
        f"{call.command(*show, '--repro')} > repro.py && {call.python} repro.py",
        f"{call.command(*show, '--snippet')}  # what to paste into an issue",
        *(
            (f"{call.command(*show, program)} > {shell_word(file)} && {call.command('check', file, with_db=False)}",)
            if oracle_of(finding.kind).of_programs
            else ()
        ),
        call.command("minimize", name),
    )
    return (*(replay if finding.minimal or finding.original else ()), *_triage(finding, call))


def _triage(finding: Finding | FindingSummary, call: Invocation) -> tuple[str, ...]:
    """The commands to decide on a finding, by its state."""
    name = finding.id
    if finding.state == "duplicate":
        of = finding.duplicate_of
        original = () if of is None else (call.command("findings", "show", of),)
        return *original, call.command("findings", "undup", name)
    after = {"new": "triaged", "triaged": "reported"}.get(finding.state) or ROWS[finding.state].to[0]
    link = f"{call.command('findings', 'link', name)} https://…"
    return call.command("findings", "set", name, after), link
