"""Findings as text for people: the table, and the page of one finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ddefuzz.classify.cause import MEANINGS
from ddefuzz.cli.frames_page import MARK, way_to_site
from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.meanings import verdicts_line
from ddefuzz.cli.output import Page, plain, printable, rendered
from ddefuzz.findings.lifecycle import MEANING
from ddefuzz.findings.model import Finding


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. One with a `least` width is folded, down to it, where the page is narrow."""

    title: str
    cell: Callable[[Finding], str]
    right: bool = False
    least: int | None = None


COLUMNS: tuple[Column, ...] = (
    Column("id", lambda finding: finding.id),
    Column("cause", lambda finding: finding.cause),
    Column("site", lambda finding: str(finding.site), least=34),
    Column("anchor", lambda finding: finding.anchor, least=22),
    Column("ops", lambda finding: _some(finding.ops, 2), least=24),
    Column("stages", lambda finding: " ".join(finding.stages), least=20),
    Column("steps", lambda finding: "" if finding.steps is None else str(finding.steps), right=True),
    Column("conf", lambda finding: str(finding.confirmed or ""), right=True),
    Column("state", lambda finding: finding.state),
)

DROPPED = ("stages", "ops", "anchor", "site")
"""Columns that a narrower page does without, the first first; without a site column it has a line of its own."""

GAP = 3
"""Between two columns."""

WIDE = 60
UNTIL_WIDE = frozenset({"cause", "conf"})
"""What is left out on pages narrower than `WIDE`."""


def list_page(findings: Sequence[Finding], page: Page) -> str:
    """The table, and what to type next."""
    if not findings:
        return "no findings (`ddefuzz run` looks for some)\n"
    widths = _widths(findings, page.width)
    rows = _wide(findings, widths) if "site" in widths else _narrow(findings, page)
    first, call = findings[0], page.invocation
    commands = (
        f"{call.command('findings', 'show', first.id)}  # all that is known of it",
        f"{call.command('findings', 'show', first.id, '--repro')}  # a script that needs torch alone",
        *_triage(first, call)[:1],
    )
    lines = "".join(f"  {line}\n" for line in commands)
    return f"{rendered(rows, page)}\n{counted(len(findings), 'finding')}. Next:\n{lines}"


def _widths(findings: Sequence[Finding], width: int) -> dict[str, int]:
    """The columns that fit and their widths: folded ones get their least, and what is left from left to right."""
    natural = {one.title: max(len(one.title), *(len(one.cell(f)) for f in findings)) for one in COLUMNS}
    least = {one.title: min(natural[one.title], one.least or natural[one.title]) for one in COLUMNS}
    for title in DROPPED:
        if sum(least.values()) + GAP * len(least) <= width:
            break
        del least[title]
    spare = width - sum(least.values()) - GAP * len(least)
    widths = {}
    for title, least_width in least.items():
        widths[title] = min(natural[title], least_width + max(spare, 0))
        spare -= widths[title] - least_width
    return widths


def _narrow(findings: Sequence[Finding], page: Page) -> RenderableType:
    columns = [one for one in COLUMNS if one.least is None and (one.title not in UNTIL_WIDE or page.width >= WIDE)]
    rows = [
        Detailed([plain(column.cell(finding)) for column in columns], plain(f"{finding.site} [{finding.anchor}]"))
        for finding in findings
    ]
    right = [column.title for column in columns if column.right]
    return table([column.title for column in columns], rows, page.width, right=right)


def _wide(findings: Sequence[Finding], widths: Mapping[str, int]) -> RenderableType:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    columns = [column for column in COLUMNS if column.title in widths]
    for column in columns:
        shown.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for finding in findings:
        shown.add_row(*(plain(folded(column.cell(finding), widths[column.title])) for column in columns))
    return shown


def show_page(finding: Finding, page: Page) -> str:
    """All of one finding, and the exact commands to go on with it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column()
    for name, value in _facts(finding):
        if value:
            facts.add_row(name, plain(folded(value, page.width - 12)))
    parts: list[RenderableType] = [plain(folded(f"{finding.id}: {finding.title}", page.width), style="bold"), "", facts]
    for title, text in (("smallest program", finding.minimal), ("found with", finding.original)):
        if text is not None and (title == "smallest program" or text != finding.minimal):
            parts += [_heading(title), Syntax(printable(text.rstrip()), "python", word_wrap=True, theme=_THEME)]
    if finding.evidence is not None:
        way = way_to_site(finding.evidence)
        if way.lines:
            legend = f" ({MARK} is the site)" if way.marked else ""
            which = "smallest program" if finding.shown is not None else "program it was found with"
            parts.append(_heading(f"from the {which} to the site, in {finding.stage}{legend}"))
            parts += [plain(_cut(line, page.width)) for line in way.lines]
            if way.left_out:
                frames = counted(way.left_out, "internal frame")
                parts.append(f"  {frames} not shown: `--format json` has them all")
    if finding.notes:
        parts += [_heading("notes"), *(plain(f"  {one.when[:16]} {one.who}: {one.text}") for one in finding.notes)]
    if finding.history:
        parts.append(_heading("history"))
    for entry in finding.history:
        change = f"{entry.field} {entry.before or '-'} → {entry.after or '-'}"
        parts.append(plain(f"  {entry.when[:16]} {entry.who}: {change}"))
    commands = "".join(f"  {line}\n" for line in _next_commands(finding, page.invocation))
    return rendered(Group(*parts), page) + "\nNext:\n" + commands


_THEME = "ansi_dark"
"""Of the terminal's own colors, on its own background."""


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _facts(finding: Finding) -> tuple[tuple[str, str], ...]:
    first, last = finding.first_seen, finding.last_seen
    return (
        ("kind", finding.kind),
        ("cause", f"{finding.cause}: {MEANINGS[finding.cause].meaning}"),
        ("to change", MEANINGS[finding.cause].mends),
        ("site", f"{finding.site} ({finding.site.language})"),
        ("anchor", finding.anchor),
        ("expression", finding.expression),
        ("reached by", ", ".join(finding.shown_ops)),
        ("also by", ", ".join(op for op in finding.ops if op not in finding.shown_ops)),
        ("verdicts", ", ".join(f"{stage} {verdict}" for stage, verdict in finding.verdicts.items())),
        ("", verdicts_line(finding.verdicts.values())),
        ("torch", ", ".join(finding.torch_versions)),
        (
            "state",
            f"{finding.state}{f' of {finding.duplicate_of}' if finding.duplicate_of else ''}: {MEANING[finding.state]}",
        ),
        ("fixed in", ", ".join(finding.fixed_in)),
        ("confirmed", f"{finding.confirmed} cold replays show it" if finding.confirmed else "not yet"),
        ("seen", f"{finding.count} times, {first[:16]} to {last[:16]}" if first and last else ""),
        ("links", "\n".join(finding.links)),
    )


def _next_commands(finding: Finding, call: Invocation) -> tuple[str, ...]:
    name = finding.id
    show = ("findings", "show", name)
    program = "--minimal" if finding.minimal else "--original"
    replay = (
        f"{call.command(*show, '--repro')} > repro.py && {call.python} repro.py",
        f"{call.command(*show, program)} > {name}.py && {call.command('check', f'{name}.py', with_db=False)}",
        call.command("minimize", name),
    )
    return (*(replay if finding.minimal or finding.original else ()), *_triage(finding, call))


def _triage(finding: Finding, call: Invocation) -> tuple[str, ...]:
    """What a person may decide next, by the finding's state."""
    name = finding.id
    if finding.duplicate_of is not None:
        return call.command("findings", "show", finding.duplicate_of), call.command("findings", "undup", name)
    after = {"open": "known", "known": "fixed"}.get(finding.state, "open")
    link = f"{call.command('findings', 'link', name)} https://…"
    return call.command("findings", "set", name, after), link


def _some(items: Sequence[str], most: int) -> str:
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" +{rest}" if rest > 0 else "")
