"""The findings that a query selects as a feed, for readers, mail and chat."""

from __future__ import annotations

from functools import partial
from typing import Final

from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import said_of
from ddefuzz.findings.model import FindingSummary
from ddefuzz.show.feed import NEVER, Entry, atom
from ddefuzz.web.findings import FindingsQuery

MOST_ENTRIES: Final = 100


def feed(database: Database, asked: FindingsQuery, address: str) -> str:
    """The latest findings of the query, the newest first. `address` is that of the server, with a slash at its end."""
    newest = partial(listing.page, query=asked.selected(), sort="first", descending=True, most=MOST_ENTRIES)
    rows = database.read(newest).findings
    links = {
        "self": f"{address}feed.atom?{asked.linked()}",
        "alternate": f"{address}findings?{asked.linked()}",
    }
    return atom("ddefuzz findings", f"{address}feed.atom", (_entry(row, address) for row in rows), links)


def _entry(row: FindingSummary, address: str) -> Entry:
    state = said_of(row.state, row.fixed_in)
    return Entry(
        title=row.title,
        id=f"urn:ddefuzz:finding:{row.id}",
        updated=row.first_seen or NEVER,
        href=f"{address}findings/{row.id}",
        summary=f"{row.cause} at {row.signature.site}, in torch {', '.join(row.torch)}; state {state}",
        terms=(row.state,),
    )
