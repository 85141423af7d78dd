"""The report of a day: what changed, of the database and of what the day's commands wrote; as blocks, and the feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ddefuzz.files import is_file, json_lines, parse_json, read_bytes
from ddefuzz.findings.database import Database
from ddefuzz.findings.listing import campaigns, counts, met, progress, results, site_counts
from ddefuzz.findings.model import Campaign, Finding, Result
from ddefuzz.fleet.model import (
    CHANGE_KINDS,
    CampaignCount,
    ChangeKind,
    Counts,
    Day,
    DayReport,
    FindingChange,
    FirstVersion,
    Places,
)
from ddefuzz.show.blocks import Block, Heading, Inline, Items, Paragraph, Span, counted, prose, table
from ddefuzz.show.feed import Entry, atom
from ddefuzz.versions.diff import KINDS, MOST_CAMPAIGNS, Difference, campaign_torch
from ddefuzz.versions.model import program_key
from ddefuzz.versions.run import CLOSER

MOST_ROWS: Final = 200
"""How many rows a table of the Markdown has. JSON has all."""

MOST_ENTRIES: Final = 100
"""How many days the feed has."""


class _DiffDocument(msgspec.Struct, frozen=True):
    """What the report reads of `ddefuzz diff --format json`."""

    cases: int
    differences: tuple[Difference, ...]


class _SweepTotals(msgspec.Struct, frozen=True):
    ops: int
    explicit: dict[str, int]


class _SweepDocument(msgspec.Struct, frozen=True):
    """What the report reads of `ddefuzz sweep --format json`."""

    totals: _SweepTotals
    interrupted: bool


def changes(database: Database, day: Day) -> tuple[FindingChange, ...]:
    """The findings that are new since the day has begun, or were judged since then and differ between its versions."""
    by_case: dict[str, list[Result]] = {}
    for result in database.read(results):
        by_case.setdefault(result.case, []).append(result)
    rows = []
    for finding in database.findings():
        judged = {one.torch: one for one in by_case.get(finding.id, ()) if one.program == program_key(finding)}
        old, new = (judged.get(day.torches.get(version, "")) for version in (day.base, day.torch))
        if kind := _kind(finding, old, new, day.begun):
            was, now = (one.status if one else "" for one in (old, new))
            first = day.firsts.get(finding.id)
            rows.append(FindingChange(kind, finding.id, finding.title, finding.state, was, now, first))
    return tuple(sorted(rows, key=lambda row: (CHANGE_KINDS.index(row.kind), row.id)))


def _kind(finding: Finding, old: Result | None, new: Result | None, begun: str) -> ChangeKind | None:
    if old is not None and new is not None and max(old.when, new.when) >= begun:
        match old.status, new.status:
            case "passes", "fails" | "sometimes":
                return "regressed"
            case "fails" | "sometimes" | "moved", "passes":
                return "gone"
            case "fails" | "sometimes", "moved":
                return "moved"
    return "new" if (finding.first_seen or "") >= begun else None


def report_of(day: Day, places: Places) -> DayReport:
    """All that there is to say of a day."""
    with Database.open(places.db) as database:
        rows, findings = changes(database, day), database.findings()
        ran = campaigns_of(day, database.read(lambda session: campaigns(session, MOST_CAMPAIGNS)))
        done = database.read(lambda session: progress(session, [one.id for one in ran], 1))
        seen = database.read(lambda session: met(session, [one.id for one in ran]))
        is_open = database.read(counts).open
        sites = database.read(site_counts).get(day.torches.get(day.torch, ""), 0)
    compared, differences = _of_diff(places.of_day(day.day, "diff.json"))
    decided = {
        after: tuple(sorted(one.id for one in findings if _was_decided(one, after, day.begun)))
        for after in ("fixed", "triaged")
    }
    campaign_counts = tuple(
        CampaignCount(
            one.profile, one.seed, max((at.cases for at in done[one.id]), default=0), seen.get(one.id, 0), one.finished
        )
        for one in reversed(ran)
    )
    number = Counter(row.kind for row in rows)
    state = state_of(day)
    return replace(
        state,
        counts=replace(
            state.counts,
            **{kind: number[kind] for kind in CHANGE_KINDS},
            closed=len(decided["fixed"]),
            reopened=len(decided["triaged"]),
            open=is_open,
            findings=len(findings),
            sites=sites,
            cases=sum(one.cases for one in campaign_counts),
            programs=dict(Counter(one.kind for one in differences)),
        ),
        findings=rows,
        programs=differences,
        compared=compared,
        closed=decided["fixed"],
        reopened=decided["triaged"],
        campaigns=campaign_counts,
        sweep=_of_sweep(places.of_day(day.day, "sweep.json")),
    )


def state_of(day: Day) -> DayReport:
    """The report of a day with what its state has. All else is empty, and the counts are 0."""
    return DayReport(
        day=day.day,
        torch=day.torch,
        base=day.base,
        wheels=day.wheels,
        new_wheels=day.new,
        counts=Counts(day=day.day, torch=day.torch, base=day.base, lines=len(day.lines)),
        steps=day.steps,
        removed=day.removed,
        lines=day.lines,
    )


def seed_of(day: str) -> int:
    """The seed of a day's campaigns and of its diff: another one every day."""
    return int(day.replace("-", ""))


def campaigns_of(day: Day, campaigns_: Iterable[Campaign]) -> list[Campaign]:
    """Those that the service ran on a day. Others may use the database, too."""
    mine = (day.torches.get(day.torch), seed_of(day.day))
    return [one for one in campaigns_ if (campaign_torch(one), one.seed) == mine and one.started >= day.begun]


def _was_decided(finding: Finding, after: str, begun: str) -> bool:
    return any(
        one.who == CLOSER and one.field == "state" and one.after == after and one.when >= begun
        for one in finding.history
    )


def _of_diff(path: Path) -> tuple[int, tuple[Difference, ...]]:
    if not is_file(path):
        return 0, ()
    document: _DiffDocument = parse_json(read_bytes(path), _DiffDocument, path, "what `ddefuzz diff` wrote")
    return document.cases, document.differences


def _of_sweep(path: Path) -> str:
    if not is_file(path):
        return ""
    document: _SweepDocument = parse_json(read_bytes(path), _SweepDocument, path, "what `ddefuzz sweep` wrote")
    statuses = ", ".join(f"{number} {status}" for status, number in document.totals.explicit.items())
    rest = "; the rest follows on the next day" if document.interrupted else ""
    return f"{counted(document.totals.ops, 'op')} so far under this torch: {statuses}{rest}"


def headline(of: Counts) -> str:
    """One line about a day."""
    if not of.torch:
        return "no version of torch could be used"
    numbers = {kind: getattr(of, kind) for kind in CHANGE_KINDS}
    changed = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number) or "no finding changed"
    against = f" (before: {of.base})" if of.base else ""
    return f"torch {of.torch}{against}: {changed}"


def view(report: DayReport, history: Sequence[Counts]) -> Iterator[Block]:
    """The page of a day. What a reader decides on comes first."""
    yield Heading(f"{report.day}: {headline(report.counts) if report.is_counted else 'nothing could be counted'}", 1)
    before = next((one for one in reversed(history) if one.day < report.day and one.torch == report.torch), None)
    if report.is_counted:
        yield Items(tuple(_summary(report, before)))
    if report.lines:
        yield Heading("Not done")
        yield Items(report.lines)
    if report.findings:
        yield Heading("Findings that changed")
        shown = report.findings[:MOST_ROWS]
        rows = [(row.kind, row.id, row.title, row.old or "-", row.new or "-", _first(row.first)) for row in shown]
        titles = ("change", "id", "title", report.base or "before", report.torch, "since")
        yield table(titles, rows, code=("id",), folding=("title",))
        yield from _more(len(report.findings))
    if report.programs:
        yield Heading("The same programs under both versions")
        yield prose("{} were compared. `ddefuzz diff` says what the changes are.", counted(report.compared, "program"))
        shown_rows = [
            (row.kind, str(row.cases), row.what or row.old, _change(row)) for row in report.programs[:MOST_ROWS]
        ]
        yield table(("change", "cases", "what", "now"), shown_rows, right=("cases",), folding=("what", "now"))
        yield from _more(len(report.programs))
    yield Heading("What was done")
    steps = [(name, one.status, f"{one.cpu_seconds:.0f}", one.note) for name, one in report.steps.items()]
    yield table(("step", "status", "CPU s", "note"), steps, right=("CPU s",), folding=("note",))
    if len(history) > 1:
        yield Heading("The days before")
        yield table(_HISTORY, [_row(one) for one in reversed(history[-15:-1])], right=_HISTORY[2:])


_HISTORY: Final = ("day", "torch", *CHANGE_KINDS, "closed", "reopened", "open", "guard sites", "cases")


def _row(of: Counts) -> tuple[Inline, ...]:
    kinds = (getattr(of, kind) for kind in CHANGE_KINDS)
    numbers = (*kinds, of.closed, of.reopened, of.open, of.sites, of.cases)
    return of.day, of.torch or "-", *map(str, numbers)


def _summary(report: DayReport, before: Counts | None) -> Iterator[Inline]:
    of = report.counts
    yield f"{counted(of.findings, 'finding')}, {of.open} of them open"
    more = "" if before is None else f", {of.sites - before.sites} more than on {before.day}"
    yield f"{counted(of.sites, 'guard site')} of torch {of.torch} reached{more}"
    yield f"new wheels: {', '.join(report.new_wheels) or 'none'}"
    if report.sweep:
        yield f"sweep: {report.sweep}"
    for ran in report.campaigns:
        rest = "" if ran.finished else ", not finished"
        yield (
            f"campaign {ran.profile}, seed {ran.seed}: {counted(ran.cases, 'case')}, "
            f"{counted(ran.findings, 'finding')} seen{rest}"
        )
    if report.programs:
        numbers = Counter(one.kind for one in report.programs)
        yield "same programs: " + ", ".join(f"{numbers[kind]} {kind}" for kind in KINDS if numbers[kind])
    for what, names in (("closed", report.closed), ("reopened", report.reopened), ("removed", report.removed)):
        if names:
            yield (f"{what}: ", *_codes(names))


def _codes(names: Sequence[str]) -> Iterator[str | Span]:
    for number, name in enumerate(names):
        yield from ([", "] if number else [])
        yield Span(name, code=True)


def _first(first: FirstVersion | None) -> str:
    return "" if first is None else first.after


def _change(row: Difference) -> str:
    return f"{row.new} (before: {row.old})" if row.what and row.old else row.new


def _more(number: int) -> Iterator[Block]:
    if number > MOST_ROWS:
        yield Paragraph(f"{number - MOST_ROWS} more are in report.json.")


def read_history(path: Path) -> tuple[Counts, ...]:
    """The counts of all days, in order. Raises `InputError`."""
    if not is_file(path):
        return ()
    return tuple(sorted((one for _, one in json_lines(path, Counts, "counts of a day")), key=lambda one: one.day))


def feed(history: Sequence[Counts], places: Places, address: str) -> str:
    """The days as an Atom feed, the newest first. An entry links to the day's page if that is served and there."""
    base = f"{address.rstrip('/')}/" if address else ""
    entries = []
    for of in reversed(history[-MOST_ENTRIES:]):
        is_there = is_file(places.of_day(of.day, "report.md"))
        entries.append(
            Entry(
                title=f"{of.day}: {headline(of)}",
                id=f"urn:ddefuzz:fleet:{of.day}",
                updated=f"{of.day}T00:00:00Z",
                href=f"{base}days/{of.day}/report.md" if base and is_there else "",
                summary=_sentence(of),
                terms=tuple(kind for kind in CHANGE_KINDS if getattr(of, kind)),
            )
        )
    links: dict[str, Any] = {"self": f"{base}feed.atom"} if base else {}
    return atom("ddefuzz fleet", "urn:ddefuzz:fleet", entries, links)


def _sentence(of: Counts) -> str:
    programs = "".join(f", {number} {kind}" for kind, number in of.programs.items())
    return (
        f"{of.open} open findings, {of.closed} closed, {of.reopened} reopened, {of.cases} cases, {of.sites} guard sites"
        f"{programs}, {of.lines} steps not done"
    )
