"""`ddefuzz findings reclassify`: apply the current rules of classification to stored findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import rich_click as click

from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.errors import RowError
from ddefuzz.escape import json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.reclassify import Became, Reclassified, only_observed, reclassified
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.capture import classify
from ddefuzz.refusals import refused

SCHEMA = "ddefuzz.reclassify/1"


class Change(msgspec.Struct, frozen=True):
    """A change of one finding. `sightings` is the number that move from `finding` to `becomes`."""

    change: str
    finding: str
    becomes: str
    before: str
    after: str
    sightings: int = 0


class Counts(msgspec.Struct, frozen=True):
    """The numbers of findings and sightings (each an observed failure), and of changes by kind."""

    findings: int
    findings_after: int
    moved: int
    merged: int
    split_off: int
    other_cause: int
    sightings: int
    sightings_after: int
    sightings_moved: int
    occurrences_unobserved: int
    causes: dict[Cause, int]
    causes_after: dict[Cause, int]


@click.command("reclassify")
@click.option("--write", is_flag=True, help="Save the changes.")
@click.option(
    "--drop-unobserved",
    is_flag=True,
    help="Remove occurrences without a stored failure, except those of the smallest program.",
)
@db_option
@output_options("text", "json", "jsonl")
def command(
    write: bool, drop_unobserved: bool, db: DatabaseUrl, format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Apply the current rules of classification to the stored failures, and print what changes.

    A finding can get another site and so another id, merge with another finding, split, or get another cause.
    Decisions, notes and links are kept. `findings show OLD_ID` still finds what an old id became. Without --write
    nothing is saved.
    """
    with Database.open(db, create=False) as database, database.transaction():
        before = database.findings()
        if write and refused():  # a finding that moves might replace one of them
            raise RowError(f"{refused()[0]}, expected a row that can be read, because all findings are written")
        kept = tuple(map(only_observed, before)) if drop_unobserved else before
        result = reclassified(kept, classify, datetime.now(UTC))
        if write:
            database.replace(result.findings, result.gone)
    changes, counts = list(_changes(result.became)), _counts(before, result)
    document = {"schema": SCHEMA, "written": write, **msgspec.to_builtins(counts)}
    rows = [msgspec.to_builtins(change) for change in changes]
    deliver(
        {
            "text": lambda page: _page(changes, counts, page, written=write),
            "json": lambda _page: json_text({**document, "changes": rows}, indent=True) + "\n",
            "jsonl": lambda _page: "".join(json_text(row) + "\n" for row in rows),
        },
        format_,
        outputs,
    )


def _changes(became: Iterable[Became]) -> Iterator[Change]:
    for one in became:
        if one.becomes != one.id:
            before, after = _apart(one.signature, one.new_signature)
            yield Change("merged" if one.merged else "moved", one.id, one.becomes, before, after)
        if one.cause != one.new_cause:
            yield Change("cause", one.id, one.becomes, one.cause, one.new_cause)
        for target, sightings in sorted(one.parts.items()):
            before, after = _apart(one.signature, one.part_signatures[target])
            yield Change("split", one.id, target, before, after, sightings)


def _apart(before: Signature, after: Signature) -> tuple[str, str]:
    """Two signatures with only the parts in which they differ: site, language, anchor, kind."""
    forms: tuple[Callable[[Signature], str], ...] = (
        lambda one: str(one.site),
        lambda one: f"{one.site} ({one.site.language})",
        lambda one: f"{one.site} [{one.anchor}]",
    )
    pairs = ((form(before), form(after)) for form in forms)
    return next((pair for pair in pairs if pair[0] != pair[1]), (str(before), str(after)))


def _counts(before: tuple[Finding, ...], result: Reclassified) -> Counts:
    became = result.became
    return Counts(
        findings=len(before),
        findings_after=len(result.findings),
        moved=sum(one.becomes != one.id and not one.merged for one in became),
        merged=sum(one.becomes != one.id and one.merged for one in became),
        split_off=len(result.split_off),
        other_cause=sum(one.cause != one.new_cause for one in became),
        sightings=sum(one.count for one in before),
        sightings_after=sum(one.count for one in result.findings),
        sightings_moved=sum(sum(one.parts.values()) for one in became),
        occurrences_unobserved=result.unobserved,
        causes=dict(sorted(Counter(one.cause for one in before).items())),
        causes_after=dict(sorted(Counter(one.cause for one in result.findings).items())),
    )


def _page(changes: list[Change], counts: Counts, page: Page, *, written: bool) -> str:
    rows = [
        Detailed(
            [plain(one.change), plain(one.finding), plain(one.becomes if one.becomes != one.finding else "")],
            plain(_detail(one)),
        )
        for one in changes
    ]
    shown = rendered(table(["change", "finding", "becomes"], rows, page.width), page) + "\n" if rows else ""
    causes = sorted({*counts.causes, *counts.causes_after})
    of_causes = [f"{name} {counts.causes.get(name, 0)} → {counts.causes_after.get(name, 0)}" for name in causes]
    lines = [
        f"{counted(counts.findings, 'finding')} become {counts.findings_after}: {counts.moved} moved, "
        f"{counts.merged} merged into others, {counts.split_off} split off, {counts.other_cause} with another cause.",
        f"{counted(counts.sightings, 'sighting')}, {counts.sightings_after} after it, "
        f"{counts.sightings_moved} of them in another finding than before.",
        f"Causes: {', '.join(of_causes)}." if of_causes else "",
        f"{counted(counts.occurrences_unobserved, 'occurrence')} kept no failure of their own and stay with their "
        "finding."
        if counts.occurrences_unobserved
        else "",
        _end(changes, counts, written=written),
    ]
    return shown + "".join(f"{line}\n" for line in lines if line)


def _end(changes: list[Change], counts: Counts, *, written: bool) -> str:
    if not changes and counts.sightings == counts.sightings_after:
        return "Nothing changes."
    return "Saved." if written else "Nothing is saved: --write saves it."


def _detail(change: Change) -> str:
    if change.change == "split":
        return f"{counted(change.sightings, 'sighting')}: {change.before} → {change.after}"
    return f"{change.before} → {change.after}"
