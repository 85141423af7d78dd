"""Atom feeds (RFC 4287), for readers, mail and chat."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ddefuzz.escape import xml_text

MEDIA_TYPE: Final = "application/atom+xml"

SPACE: Final = "http://www.w3.org/2005/Atom"

NEVER: Final = "1970-01-01T00:00:00+00:00"


class Entry(NamedTuple):
    """An entry: where it leads if anywhere, its summary, and the terms of its categories."""

    title: str
    id: str
    updated: str
    href: str
    summary: str
    terms: tuple[str, ...] = ()


def atom(title: str, id_: str, entries: Iterable[Entry], links: Mapping[str, str]) -> str:
    """The feed with these entries, the newest first. `links` are by their relation."""
    ET.register_namespace("", SPACE)
    rows, root = tuple(entries), ET.Element(f"{{{SPACE}}}feed")
    _add(root, "title", title)
    _add(root, "id", id_)
    _add(root, "updated", next((row.updated for row in rows), NEVER))
    _add(_add(root, "author"), "name", "ddefuzz")
    for relation, address in links.items():
        _add(root, "link", rel=relation, href=address)
    for row in rows:
        entry = _add(root, "entry")
        _add(entry, "title", row.title)
        _add(entry, "id", row.id)
        _add(entry, "updated", row.updated)
        if row.href:
            _add(entry, "link", rel="alternate", href=row.href)
        for term in row.terms:
            _add(entry, "category", term=term)
        if not row.href:  # an entry without a link needs a content
            _add(entry, "content", row.summary, type="text")
        _add(entry, "summary", row.summary)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(parent: ET.Element, name: str, text: str = "", **attributes: str) -> ET.Element:
    """A new element. ElementTree escapes markup."""
    made = ET.SubElement(parent, f"{{{SPACE}}}{name}", {key: xml_text(value) for key, value in attributes.items()})
    made.text = xml_text(text) or None
    return made
