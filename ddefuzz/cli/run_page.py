"""A campaign's summary as text for people: what it found, how its runs ended, what to type next."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ddefuzz.campaign.summary import BUG_CAUSES, Seen, Summary
from ddefuzz.cli.output import Page, rendered

WIDE = 110
"""From this width on the table has all its columns."""


def summary_page(summary: Summary, replay: str, page: Page) -> str:
    """The whole page."""
    bugs = [seen for seen in summary.findings if seen.cause in BUG_CAUSES]
    parts: list[RenderableType] = []
    if summary.findings:
        parts.append(_findings(sorted(summary.findings, key=_importance), wide=page.width >= WIDE))
    parts.append(_runs(summary))
    new = [seen for seen in bugs if seen.is_new]
    first = f", the first after {min(seen.first_seconds for seen in bugs):.1f} s" if bugs else ""
    parts += [
        f"{summary.cases} cases in {summary.seconds:.0f} s on torch {summary.torch}: {len(bugs)} findings "
        f"({len(new)} new{first}) of cause framework or inherent",
        "CPU seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary.cpu_seconds.items()),
    ]
    if summary.interrupted:
        parts.append("interrupted: what was found is saved; go on with --resume")
    if summary.unminimized:
        parts.append(f"{summary.unminimized} new findings are not minimized yet: `ddefuzz minimize ID`")
    if summary.lost:
        parts.append(f"{summary.lost} cases ended their worker: see the findings of kind crash and timeout")
    parts += ["Next:", *_next(bugs), f"  {replay}"]
    return rendered(Group(*parts), page)


def _importance(seen: Seen) -> tuple[bool, bool, str, str]:
    return seen.cause not in BUG_CAUSES, not seen.is_new, seen.cause, str(seen.signature)


def _findings(findings: list[Seen], *, wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("finding", no_wrap=True)
    table.add_column("cause", no_wrap=True)
    table.add_column("site", overflow="fold")
    if wide:
        table.add_column("anchor", overflow="fold")
    for title in ("cases", "steps", "conf"):
        table.add_column(title, justify="right", no_wrap=True)
    for seen in findings:
        table.add_row(
            Text(seen.finding, style="bold" if seen.is_new else ""),
            seen.cause,
            Text(str(seen.signature.site)),
            *([Text(seen.signature.anchor)] if wide else []),
            str(seen.cases),
            "" if seen.steps is None else str(seen.steps),
            seen.confirmed,
        )
    return table


def _runs(summary: Summary) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("stage")
    table.add_column("verdicts (explicit against size-oblivious)", overflow="fold")
    table.add_column("runs that ended other than ok", overflow="fold")
    for stage, by_semantics in summary.outcomes.items():
        verdicts = summary.verdicts.get(stage, {})
        ends = [
            f"{semantics} {outcome} {number}"
            for semantics, outcomes in by_semantics.items()
            for outcome, number in outcomes.items()
            if outcome != "ok"
        ]
        table.add_row(stage, ", ".join(f"{name} {number}" for name, number in verdicts.items()), ", ".join(ends))
    return table


def _next(bugs: list[Seen]) -> list[str]:
    if not bugs:
        return []
    name = min(bugs, key=_importance).finding
    return [
        f"  ddefuzz findings show {name}",
        f"  ddefuzz findings show {name} --repro > repro.py && python repro.py",
        "  ddefuzz findings list",
    ]
