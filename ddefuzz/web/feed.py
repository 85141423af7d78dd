"""The findings that a query selects as a feed (Atom, RFC 4287), for readers, mail and chat."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from typing import Final

from ddefuzz.escape import xml_text
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import said_of
from ddefuzz.findings.model import FindingSummary
from ddefuzz.web.findings import FindingsQuery

MEDIA_TYPE: Final = "application/atom+xml"

MOST_ENTRIES: Final = 100

SPACE: Final = "http://www.w3.org/2005/Atom"

NEVER: Final = "1970-01-01T00:00:00+00:00"


def feed(database: Database, asked: FindingsQuery, address: str) -> str:
    """The latest findings of the query, the newest first. `address` is that of the server, with a slash at its end."""
    newest = partial(listing.page, query=asked.selected(), sort="first", descending=True, most=MOST_ENTRIES)
    rows = database.read(newest).findings
    ET.register_namespace("", SPACE)
    root = ET.Element(f"{{{SPACE}}}feed")
    _add(root, "title", "ddefuzz findings")
    _add(root, "id", f"{address}feed.atom")
    _add(root, "updated", next((row.first_seen for row in rows if row.first_seen), NEVER))
    _add(_add(root, "author"), "name", "ddefuzz")
    _add(root, "link", rel="self", href=f"{address}feed.atom?{asked.linked()}")
    _add(root, "link", rel="alternate", href=f"{address}findings?{asked.linked()}")
    for row in rows:
        _entry(root, row, address)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _entry(root: ET.Element, row: FindingSummary, address: str) -> None:
    entry = _add(root, "entry")
    _add(entry, "title", row.title)
    _add(entry, "id", f"urn:ddefuzz:finding:{row.id}")
    _add(entry, "updated", row.first_seen or NEVER)
    _add(entry, "link", rel="alternate", href=f"{address}findings/{row.id}")
    _add(entry, "category", term=row.state)
    state = said_of(row.state, row.fixed_in)
    _add(entry, "summary", f"{row.cause} at {row.signature.site}, in torch {', '.join(row.torch)}; state {state}")


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    """A new element. ElementTree escapes markup."""
    made = ET.SubElement(parent, f"{{{SPACE}}}{name}", {key: xml_text(value) for key, value in attributes.items()})
    made.text = xml_text(text) or None
    return made
