"""`ddefuzz findings reclassify`: apply the current rules of classification to stored findings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import rich_click as click

from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import Output, deliver, output_options, page_writers
from ddefuzz.errors import RowError
from ddefuzz.escape import json_text
from ddefuzz.findings.database import Database
from ddefuzz.findings.merge import Change, Reclassification, only_observed, reclassified
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.capture import classify
from ddefuzz.refusals import refused
from ddefuzz.show.blocks import Block, Items, Row, counted, table

SCHEMA = "ddefuzz.reclassify/1"


@click.command("reclassify")
@click.option("--write", is_flag=True, help="Save the changes.")
@click.option(
    "--drop-unobserved",
    is_flag=True,
    help="Remove occurrences without a stored failure, except those of the smallest program.",
)
@db_option
@output_options("text", "markdown", "html", "json", "jsonl")
def command(write: bool, drop_unobserved: bool, db: DatabaseUrl, output: Output) -> None:
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
            database.put(result.findings, result.gone)
    document = {"schema": SCHEMA, "written": write, **msgspec.to_builtins(result.counts)}
    rows = [msgspec.to_builtins(change) for change in result.changes]
    writers = {
        **page_writers("Changes by the rules of classification", _view(result, written=write)),
        "json": json_text({**document, "changes": rows}, indent=True) + "\n",
        "jsonl": lambda _page: "".join(json_text(row) + "\n" for row in rows),
    }
    deliver(writers, output)


def _view(result: Reclassification, *, written: bool) -> Iterator[Block]:
    counts = result.counts
    if result.changes:
        rows = (
            Row((one.change, one.finding, one.becomes if one.becomes != one.finding else ""), _detail(one))
            for one in result.changes
        )
        yield table(("change", "finding", "becomes"), rows)
    causes = sorted({*counts.causes, *counts.causes_after})
    of_causes = [f"{name} {counts.causes.get(name, 0)} → {counts.causes_after.get(name, 0)}" for name in causes]
    lines = (
        f"{counted(counts.findings, 'finding')} become {counts.findings_after}: {counts.moved} moved, "
        f"{counts.merged} merged into others, {counts.split_off} split off, {counts.other_cause} with another cause.",
        f"{counted(counts.sightings, 'sighting')}, {counts.sightings_after} after it, "
        f"{counts.sightings_moved} of them in another finding than before.",
        f"Causes: {', '.join(of_causes)}." if of_causes else "",
        f"{counted(counts.occurrences_unobserved, 'occurrence')} kept no failure of their own and stay with their "
        "finding."
        if counts.occurrences_unobserved
        else "",
        _end(result, written=written),
    )
    yield Items(tuple(filter(None, lines)))


def _end(result: Reclassification, *, written: bool) -> str:
    if not result.changes and result.counts.sightings == result.counts.sightings_after:
        return "Nothing changes."
    return "Saved." if written else "Nothing is saved: --write saves it."


def _detail(change: Change) -> str:
    if change.change == "split":
        return f"{counted(change.sightings, 'sighting')}: {change.before} → {change.after}"
    return f"{change.before} → {change.after}"
