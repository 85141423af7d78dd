"""The census of a sweep as text: ops that upstream does not list, ops that fail, totals."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.sweep.census import Census, Row, Upstream

STATUS_STYLES = {"dde": "bold red", "unsupported": "yellow", "other": "yellow", "ok": "green", "none": "dim"}


def census_page(census: Census, page: Page) -> str:
    """The whole page."""
    parts: list[RenderableType] = []
    if census.upstream is not None:
        parts += _upstream(census.upstream, page)
    failing = [row for row in census.rows if row.explicit not in ("ok", "none")]
    if failing:
        titles = ("op", "explicit", "size-oblivious", "cause", "runs")
        parts.append(table(titles, [_row(row) for row in failing], page.width, right=("runs",)))
    wrong = [row for row in census.rows if row.wrong]
    if wrong:
        parts += ["", Text(f"{counted(len(wrong), 'op')} whose captured programs are wrong", style="bold")]
        parts.append(table(("op", "called", "wrong"), [_wrong(row) for row in wrong], page.width, right=("called",)))
    parts += ["", *(Text(folded(line, page.width)) for line in summary_lines(census))]
    commands = "".join(f"  {line}\n" for line in _next(census, page.invocation))
    return rendered(Group(*parts), page) + (f"\nNext:\n{commands}" if commands else "")


def _next(census: Census, call: Invocation) -> list[str]:
    found = next((one.finding for row in census.rows for one in row.failures if one.finding), None)
    if found is None:
        return []
    return [
        call.command("findings", "show", found),
        f"{call.command('findings', 'show', found, '--repro')} > repro.py && {call.python} repro.py",
        call.command("findings", "list"),
        call.command("sites"),
    ]


def _row(row: Row) -> Detailed:
    failures = [f"{failure.finding or failure.kind}  {failure.site}  [{failure.anchor}]" for failure in row.failures]
    cells = [
        Text(row.op),
        Text(row.explicit, style=STATUS_STYLES[row.explicit]),
        Text(row.size_oblivious),
        Text(row.cause),
        Text(str(row.runs)),
    ]
    return Detailed(cells, plain("\n".join([*failures, *row.lost]), style="dim"))


def _wrong(row: Row) -> Detailed:
    lines = [f"{one.finding}  {one.site}  {one.evidence}" for one in row.wrong]
    kinds = ", ".join(dict.fromkeys(one.kind for one in row.wrong))
    return Detailed([Text(row.op), Text(str(row.called)), Text(kinds)], plain("\n".join(lines), style="dim"))


def _upstream(upstream: Upstream, page: Page) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for title, differences in (
        ("with a data-dependent error here, not on upstream's list", upstream.only_here),
        ("on upstream's list, with no data-dependent error here", upstream.only_upstream),
    ):
        if differences:
            rows = [Detailed([Text(one.op), Text(one.reason)], Text(one.evidence, style="dim")) for one in differences]
            parts += [
                Text(f"{counted(len(rows), 'op')} {title}", style="bold"),
                table(("op", "reason"), rows, page.width),
                "",
            ]
    if upstream.unaccounted:
        parts += [
            Text(folded(f"on upstream's list, and no run explains why: {', '.join(upstream.unaccounted)}", page.width)),
            "",
        ]
    return parts


def summary_lines(census: Census) -> list[str]:
    """The totals, line by line."""
    totals = census.totals
    lines = [
        f"torch {census.torch}: {counted(totals.ops, 'op')} ({totals.opinfo} of OpInfo, {totals.catalogue} of the "
        f"catalogue), {totals.samples} samples in {totals.runs} runs, {totals.cpu_seconds:.0f} CPU seconds, "
        f"{census.seconds:.0f} s this time",
        f"explicit: {_statuses(totals.explicit)}",
        f"size-oblivious: {_statuses(totals.size_oblivious)}",
        f"guard sites reached: {totals.fallback_sites} took a fallback answer ({totals.fallback_sites_cxx} in C++), "
        f"{totals.dde_sites} raised a data-dependent error ({totals.dde_sites_cxx} in C++)",
    ]
    if totals.called:
        wrong = ", ".join(f"{number} {kind}" for kind, number in totals.wrong.items()) or "none wrong"
        lines.append(f"called: {counted(totals.called, 'captured program')}; ops by what is wrong: {wrong}")
    if census.upstream is not None:
        of = census.upstream
        lines.append(
            f"upstream's list: {of.accounted} of {of.entries} entries accounted for by runs, {of.reproduced} of them "
            f"reproduced; {counted(len(of.only_here), 'op')} failing only here"
        )
    if census.interrupted:
        lines.append("interrupted: what was done is saved; the same command continues")
    return lines


def _statuses(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in counts.items()) or "nothing"
