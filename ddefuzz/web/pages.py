"""The table of pages: each is a path, the query that it takes, and the function that makes its record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ddefuzz.web.finding import FindingPage, FindingQuery, finding_page
from ddefuzz.web.finding_list import CHOICES, FindingsPage, FindingsQuery, findings_page
from ddefuzz.web.rows import Asked


class Page(NamedTuple):
    """One page. `make` gets the database, the value in the path if there is one, and the query.

    Pages with `menu` are in the menu, with `key` as their access key. `more` are further names for the template.
    """

    path: str
    template: str
    summary: str
    record: type[msgspec.Struct]
    query: type[Asked]
    make: Callable[..., msgspec.Struct]
    menu: str = ""
    key: str = ""
    more: dict[str, Any] = {}  # noqa: RUF012 never changed


PAGES: tuple[Page, ...] = (
    Page(
        "/findings",
        "findings.html",
        "The findings that a query selects",
        FindingsPage,
        FindingsQuery,
        findings_page,
        menu="Findings",
        key="2",
        more={"choices": CHOICES},
    ),
    Page(
        "/findings/{finding_id}",
        "finding.html",
        "Everything about one finding",
        FindingPage,
        FindingQuery,
        lambda database, finding_id, _asked: finding_page(database, finding_id),
        more={"causes": CHOICES["cause"]},
    ),
)
