"""Findings as text for people: the table, and the page of one finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ddefuzz.cli.output import Page, rendered
from ddefuzz.findings.model import Finding
from ddefuzz.instrument.events import Frame

LAST_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; it is left out on pages narrower than `from_width`."""

    title: str
    cell: Callable[[Finding], str]
    from_width: int = 0
    right: bool = False


COLUMNS: tuple[Column, ...] = (
    Column("id", lambda finding: finding.id),
    Column("cause", lambda finding: finding.cause, from_width=72),
    Column("site", lambda finding: str(finding.site)),
    Column("anchor", lambda finding: finding.anchor, from_width=130),
    Column("ops", lambda finding: _some(finding.ops, 2), from_width=130),
    Column("stages", lambda finding: " ".join(finding.stages), from_width=150),
    Column("steps", lambda finding: "" if finding.steps is None else str(finding.steps), right=True),
    Column("conf", lambda finding: str(finding.confirmed or ""), from_width=72, right=True),
    Column("state", lambda finding: finding.state),
)


def list_page(findings: Sequence[Finding], page: Page) -> str:
    """The table, and what to type next."""
    if not findings:
        return "no findings (`ddefuzz run` looks for some)\n"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    columns = [column for column in COLUMNS if page.width >= column.from_width]
    for column in columns:
        fixed = column.title in {"id", "steps", "conf", "state", "cause"}
        table.add_column(
            column.title, justify="right" if column.right else "left", no_wrap=fixed, overflow="fold", max_width=60
        )
    for finding in findings:
        table.add_row(*(plain(column.cell(finding)) for column in columns))
    first = findings[0].id
    return rendered(
        Group(
            table,
            f"{len(findings)} findings. Next:",
            f"  ddefuzz findings show {first}            all that is known, with its smallest program",
            f"  ddefuzz findings show {first} --repro    the repro that needs torch alone",
            f"  ddefuzz findings set {first} known       decide on it",
        ),
        page,
    )


def show_page(finding: Finding, page: Page) -> str:
    """All of one finding, and the exact commands to go on with it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True, style="bold")
    facts.add_column(overflow="fold")
    for name, value in _facts(finding):
        if value:
            facts.add_row(name, plain(value))
    parts: list[RenderableType] = [plain(f"{finding.id}: {finding.title}", style="bold"), "", facts]
    for title, text in (("smallest program", finding.minimal), ("found with", finding.original)):
        if text is not None:
            parts += [
                "",
                Text(title, style="bold"),
                Syntax(plain(text.rstrip()).plain, "python", background_color="default"),
            ]
    for title, frames in _stacks(finding):
        parts += ["", Text(title, style="bold"), *(plain(_frame(frame)) for frame in frames[-LAST_FRAMES:])]
    for entry in finding.history:
        parts.append(
            plain(f"{entry.when[:16]} {entry.who}: {entry.field} {entry.before or '-'} → {entry.after or '-'}")
        )
    for note in finding.notes:
        parts.append(plain(f"{note.when[:16]} {note.who}: {note.text}"))
    parts += ["", Text("next", style="bold"), *(plain(f"  {line}") for line in _next_commands(finding))]
    return rendered(Group(*parts), page)


def plain(text: str, style: str = "") -> Text:
    """Text as it is: no markup, and control characters are shown, not obeyed."""
    shown = "".join(char if char == "\n" or char.isprintable() else ascii(char)[1:-1] for char in text)
    return Text(shown, style=style)


def _facts(finding: Finding) -> tuple[tuple[str, str], ...]:
    first, last = finding.first_seen, finding.last_seen
    return (
        ("kind", finding.kind),
        ("cause", finding.cause),
        ("site", f"{finding.site} ({finding.site.language})"),
        ("anchor", finding.anchor),
        ("expression", finding.expression),
        ("reached by", ", ".join(finding.ops)),
        ("verdicts", ", ".join(f"{stage} {verdict}" for stage, verdict in finding.verdicts.items())),
        ("torch", ", ".join(finding.torch_versions)),
        ("state", finding.state + (f" of {finding.duplicate_of}" if finding.duplicate_of else "")),
        ("fixed in", ", ".join(finding.fixed_in)),
        ("confirmed", f"{finding.confirmed} cold replays" if finding.confirmed else ""),
        ("seen", f"{finding.count} times, {first[:16]} to {last[:16]}" if first and last else ""),
        ("links", "\n".join(finding.links)),
    )


def _stacks(finding: Finding) -> list[tuple[str, tuple[Frame, ...]]]:
    if finding.failure is None:
        return []
    observation = finding.failure.observation
    if observation.raised is not None:
        raised = observation.raised
        stacks = [("C++ stack", raised.native), ("Python stack", raised.python), ("traced stack", raised.traced)]
    else:
        stacks = [(info.name, info.frames) for info in observation.exceptions]
    return [(title, frames) for title, frames in stacks if frames]


def _frame(frame: Frame) -> str:
    place = f"{frame.file}:{frame.line}" if frame.file else ""
    return f"  {frame.function}  {place}  {frame.code.splitlines()[0] if frame.code else ''}".rstrip()


def _next_commands(finding: Finding) -> tuple[str, ...]:
    name = finding.id
    replay = (
        f"ddefuzz findings show {name} --minimal > {name}.py && ddefuzz check {name}.py",
        f"ddefuzz minimize {name}",
        f"ddefuzz findings show {name} --repro > repro.py && python repro.py",
    )
    triage = (f"ddefuzz findings set {name} known", f"ddefuzz findings link {name} https://…")
    return (*(replay if finding.minimal or finding.original else ()), *triage)


def _some(items: Sequence[str], most: int) -> str:
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" +{rest}" if rest > 0 else "")
