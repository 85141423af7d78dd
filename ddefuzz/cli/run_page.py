"""A campaign's summary as text for people: what it found, how its runs ended, what to type next."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ddefuzz.campaign.summary import BUG_CAUSES, Minimized, Seen, Summary
from ddefuzz.cli.layout import Detailed, counted, details, folded
from ddefuzz.cli.meanings import VERDICTS, verdicts_line
from ddefuzz.cli.output import Page, rendered
from ddefuzz.coverage.ledger import SiteCount

NUMBERS = ("cases", "steps", "conf")
"""Cases that showed it, operations of its smallest program, cold replays that showed it again."""

GAP = 3
"""Columns between two of the table's."""

ROOM = 56
"""Columns that site and anchor need together; where they have less, they are on a line of their own."""


def summary_page(summary: Summary, replay: str, page: Page) -> str:
    """The whole page."""
    bugs = [seen for seen in summary.findings if seen.cause in BUG_CAUSES]
    parts: list[RenderableType] = []
    if summary.findings:
        parts.append(_findings(sorted(summary.findings, key=_importance), page))
    parts += ["", _runs(summary, page)]
    new = [seen for seen in bugs if seen.is_new]
    first = f", the first after {min(seen.first_seconds for seen in bugs):.1f} s" if bugs else ""
    lines = [
        verdicts_line(name for verdicts in summary.verdicts.values() for name in verdicts),
        f"{counted(summary.cases, 'case')} in {summary.seconds:.0f} s on torch {summary.torch}: "
        f"{counted(len(bugs), 'finding')} of cause framework or inherent, {len(new)} new{first}",
        _minimized(summary.minimized) if summary.minimized else "",
        _sites(summary.sites),
        "cases by way (new sites): "
        + ", ".join(f"{name} {way.cases} ({way.new_sites})" for name, way in summary.ways.items()),
        "CPU seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary.cpu_seconds.items()),
    ]
    if summary.interrupted:
        lines.append("interrupted: what was found is saved; go on with `ddefuzz run --resume`")
    if summary.unminimized:
        lines.append(f"not minimized yet: {counted(summary.unminimized, 'new finding')}; `ddefuzz minimize ID`")
    if summary.lost:
        lines.append(f"{counted(summary.lost, 'case')} ended the worker: see the findings of kind crash and timeout")
    parts += ["", *(Text(folded(line, page.width)) for line in lines if line)]
    # Commands are never folded: they are there to be copied.
    return rendered(Group(*parts), page) + "".join(f"{line}\n" for line in ("", "Next:", *_next(bugs), f"  {replay}"))


def _minimized(of: Minimized) -> str:
    return (
        f"{counted(of.findings, 'finding')} minimized: steps median {of.median_steps:g}, max {of.max_steps}; "
        f"{of.confirmed} of {of.findings} confirmed cold; {of.cpu_seconds_each:.1f} CPU seconds a finding"
    )


def _sites(of: SiteCount) -> str:
    return (
        f"guard sites reached undecided: {of.fallback} fell back ({of.fallback_cxx} in C++), "
        f"{counted(of.dde, 'call site')} raised ({of.dde_cxx} in C++); `ddefuzz sites` lists them"
    )


def _importance(seen: Seen) -> tuple[bool, bool, str, str]:
    return seen.cause not in BUG_CAUSES, not seen.is_new, seen.cause, str(seen.signature)


def _findings(findings: list[Seen], page: Page) -> RenderableType:
    names = max(len(seen.finding) for seen in findings) + max(len(seen.cause) for seen in findings)
    room = page.width - names - len("".join(("new", *NUMBERS))) - GAP * (5 + len(NUMBERS))
    if room < ROOM:
        narrow = [
            Detailed(
                [
                    _name(seen),
                    Text(seen.cause),
                    Text("new" if seen.is_new else ""),
                    *(Text(cell) for cell in _numbers(seen)),
                ],
                Text(f"{seen.signature.site} [{seen.signature.anchor}]"),
            )
            for seen in findings
        ]
        return details(["finding", "cause", "", *NUMBERS], narrow, page.width, NUMBERS)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for title in ("finding", "cause", "", "site", "anchor"):
        table.add_column(title, no_wrap=True)
    for title in NUMBERS:
        table.add_column(title, justify="right", no_wrap=True)
    anchors = min(max(len(seen.signature.anchor) for seen in findings), room * 2 // 5)
    for seen in findings:
        site, anchor = folded(str(seen.signature.site), room - anchors), folded(seen.signature.anchor, anchors)
        new = "new" if seen.is_new else ""
        table.add_row(_name(seen), seen.cause, new, Text(site), Text(anchor), *_numbers(seen))
    return table


def _name(seen: Seen) -> Text:
    return Text(seen.finding, style="bold" if seen.is_new else "")


def _numbers(seen: Seen) -> tuple[str, str, str]:
    return str(seen.cases), "" if seen.steps is None else str(seen.steps), seen.confirmed


def _runs(summary: Summary, page: Page) -> RenderableType:
    """How the runs of each stage ended: the verdicts, and where another outcome than ok came up, by semantics."""
    rows = []
    for stage, by_semantics in summary.outcomes.items():
        verdicts = summary.verdicts.get(stage, {})
        ends = [
            f"{semantics}: {', '.join(f'{number} {outcome}' for outcome, number in sorted(outcomes.items()))}"
            for semantics, outcomes in by_semantics.items()
        ]
        judged = [f"{verdicts[name]} {name}" for name in VERDICTS if name in verdicts]
        rows.append(Detailed([Text(stage), Text(", ".join(judged))], Text("; ".join(ends), style="dim")))
    return details(("stage", "verdicts"), rows, page.width)


def _next(bugs: list[Seen]) -> list[str]:
    if not bugs:
        return []
    name = min(bugs, key=_importance).finding
    return [
        f"  ddefuzz findings show {name}",
        f"  ddefuzz findings show {name} --repro > repro.py && python repro.py",
        "  ddefuzz findings list",
    ]
