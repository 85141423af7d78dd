"""Findings as text: the table, and the page of one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ddefuzz.classify.wording import question
from ddefuzz.cli.invocation import Invocation
from ddefuzz.escape import shell_word
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, FindingSummary, HistoryEntry, Result
from ddefuzz.oracles.table import oracle_of
from ddefuzz.show.blocks import (
    Block,
    Code,
    Column,
    Commands,
    Facts,
    Heading,
    Items,
    Paragraph,
    Row,
    Table,
    counted,
    prose,
)
from ddefuzz.show.evidence import MARK, stack_to_site
from ddefuzz.show.facts import evidence_blocks, facts_of
from ddefuzz.versions.model import statuses

WIDE, WIDE_FOR_TITLE = 100, 140
"""The widths of pages from which on columns of less importance, and one for titles, are in the table."""

COLUMNS: tuple[tuple[Column, Callable[[FindingSummary], str]], ...] = (
    (Column("id"), lambda finding: finding.id),
    (Column("cause"), lambda finding: finding.cause),
    # A narrow column would break the names in titles.
    (Column("title", folding=True, least_width=WIDE_FOR_TITLE), lambda finding: finding.title),
    (Column("stage", least_width=WIDE), lambda finding: finding.stage or ""),
    (
        Column("steps", right=True, least_width=WIDE),
        lambda finding: "" if finding.steps is None else str(finding.steps),
    ),
    (Column("confirmed", right=True, least_width=WIDE), lambda finding: str(finding.confirmed or "")),
    (Column("state"), lambda finding: finding.state),
)


def list_view(
    findings: Sequence[FindingSummary], call: Invocation, left_out: int = 0, filters: str = "", total: int = 0
) -> Iterator[Block]:
    """The table, and what to type next.

    `left_out` is the number of findings that do not depend on data. `filters` are the options that select findings, and
    `total` is the number of all findings in the database.
    """
    more = (
        f"{counted(left_out, 'finding')} more {'does' if left_out == 1 else 'do'} not depend on data: "
        f"--all lists {'it' if left_out == 1 else 'them'}."
    )
    if left_out and not findings:
        yield Items((f"no findings that depend on data{f' match {filters}' if filters else ''}", more))
    elif not findings and total:
        yield Paragraph(f"no findings match {filters} ({total} in the database)")
    elif not findings:
        yield prose("no findings (`{}` looks for some)", call.command("run"))
    else:
        cells = (Row(tuple(cell(finding) for _, cell in COLUMNS)) for finding in findings)
        yield Table(tuple(column for column, _ in COLUMNS), tuple(cells))
        first = findings[0]
        commands = (
            f"{call.command('findings', 'show', first.id)}  # all that is known of it",
            f"{call.command('findings', 'show', first.id, '--repro')}  # a script that needs torch alone",
            *_triage(first, call)[:1],
        )
        yield Commands(commands, f"{counted(len(findings), 'finding')}. {f'{more} ' if left_out else ''}Next:")


def show_view(finding: Finding, call: Invocation, by_version: Iterable[Result] = ()) -> Iterator[Block]:
    """Everything about one finding, with commands for what to do next. `by_version` are results of a matrix."""
    yield Heading(f"{finding.id}: {finding.title}", 1)
    yield Facts((*facts_of(finding), ("matrix", statuses(finding, by_version))))
    if finding.minimal is not None:
        yield Heading("smallest program")
        yield Code(finding.minimal)
    stack = stack_to_site(finding.evidence, finding.site) if finding.evidence is not None else None
    if stack is not None and stack.lines:
        legend = f" ({MARK} is the site)" if stack.marked else ""
        which = "smallest program" if finding.shown is not None else "program it was found with"
        yield Heading(f"from the {which} to the site, in {finding.stage}{legend}")
        frames = counted(stack.left_out, "internal frame")
        left_out = [f"  {frames} not shown: `--format json` has them all"] if stack.left_out else []
        yield Paragraph("\n".join([*stack.lines, *left_out]))
    if finding.answers is not None:
        yield Heading("what would fix it")
        yield from evidence_blocks(finding.answers)
    if finding.original is not None and finding.original != finding.minimal:
        yield Heading("program that it was found with")
        yield Code(finding.original)
        yield from _failed_otherwise(finding)
    if finding.notes:
        yield Heading("notes")
        yield Paragraph("\n".join(_indented(f"{note.when[:16]} {note.who}: {note.text}") for note in finding.notes))
    if finding.history:
        yield Heading("history")
        yield Paragraph("\n".join(_indented(_change(entry)) for entry in finding.history))
    yield Commands(_next_commands(finding, call))


def _failed_otherwise(finding: Finding) -> Iterator[Block]:
    """The failure of the original program, if it differs from the displayed one."""
    if finding.failure is not None and finding.shown is not None:
        observation = finding.failure.observation
        expression = observation.raised.expression if observation.raised is not None else ""
        if (observation.stage, expression) != (finding.stage, finding.expression):
            evaluating = f", evaluating {question(expression)}" if expression else ""
            yield Paragraph(f"  it failed in {observation.stage}{evaluating}")


def _change(entry: HistoryEntry) -> str:
    why = f" ({entry.why})" if entry.why else ""
    change = f"{entry.field.removeprefix('given_')} {entry.before or '-'} → {entry.after or '-'}{why}"
    return f"{entry.when[:16]} {entry.who}: {change}"


def _indented(text: str) -> str:
    """An item of a list of texts that may have several lines."""
    return "  " + text.replace("\n", "\n    ")


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
