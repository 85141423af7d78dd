"""Guard sites for people: one row for each site, counts for each part of torch, and estimates."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ddefuzz.coverage.estimate import Estimate
from ddefuzz.coverage.guard_sites import GuardSite, PartCount, Totals
from ddefuzz.show.blocks import Block, Items, Paragraph, counted, table
from ddefuzz.show.guarded import call_text, fell_back, old, place

TITLES = ("part", "site", "function", "call", "fell back", "size-oblivious", "raised", "cases")
UNCOVERED_TITLES = ("part", "site", "function", "call", "why")
PART_TITLES = ("part", "listed", "reached", "unlisted", "fell back")
RIGHT = ("raised", "cases", "listed", "reached", "unlisted")

FOLDING = ("site", "function", "call", "size-oblivious", "why")

MEANING = (
    "Numbers count cases. fell back: by the answer that the guard took. size-oblivious: whether size-oblivious "
    "semantics give the same answer, another one, or cannot decide. raised: cases that ended here with a "
    "data-dependent error."
)


class SitesPage(msgspec.Struct, frozen=True):
    """The content of the page: the chosen sites, and the totals over all sites."""

    sites: tuple[GuardSite, ...]
    totals: Totals
    uncovered: bool = False
    summary: bool = False
    notes: tuple[str, ...] = ()


def sites_view(page: SitesPage) -> Iterator[Block]:
    """The chosen sites, the counts for each part of torch, and the paragraphs below them."""
    if not page.summary and page.sites:
        titles = UNCOVERED_TITLES if page.uncovered else TITLES
        rows = (row_cells(site, uncovered=page.uncovered) for site in page.sites)
        yield table(titles, rows, right=RIGHT, folding=FOLDING, code=("site", "function", "call"))
        yield Paragraph(counted(len(page.sites), "site") + ("" if page.uncovered else f". {MEANING}"))
    elif not page.summary:
        yield Paragraph("every such site was reached" if page.uncovered else "no such sites")
    yield table(PART_TITLES, map(part_cells, page.totals.parts), right=PART_TITLES[1:])
    yield Items(tuple(closing_lines(page)))


def row_cells(site: GuardSite, *, uncovered: bool) -> tuple[str, ...]:
    """The cells of a row, under `UNCOVERED_TITLES` or `TITLES`."""
    head = (site.part, place(site), site.function, call_text(site))
    if uncovered:
        return (*head, site.reason)
    return (*head, fell_back(site), old(site), str(site.raised or ""), str(site.cases or ""))


def part_cells(count: PartCount) -> tuple[str, ...]:
    """The cells of a row under `PART_TITLES`."""
    reached = f"{count.reached} ({100 * count.reached // count.listed}%)" if count.listed else ""
    return count.part, str(count.listed or ""), reached, str(count.unlisted or ""), str(count.fell_back or "")


def closing_lines(page: SitesPage) -> list[str]:
    """The paragraphs below the tables."""
    totals = page.totals
    lines = [
        f"torch {totals.torch}. listed: calls of guard_or_false and guard_or_true in its Python source. reached: "
        "listed calls at which a run had a guard that could not be decided. unlisted: other sites that a run reached: "
        "C++, plain comparisons, guards called under another name. fell back: source lines where a guard took its "
        "fallback answer.",
    ]
    if totals.shared:
        lines.append(
            f"{counted(totals.shared, 'reached call')} on a line with another call of the same name: a stack frame "
            "has only the line, so every call of that name there counts as reached."
        )
    estimates = [f"{name}: {estimate_text(one)}" for name, one in totals.estimates.items() if one.seen]
    if estimates:
        lines += [*estimates, "Both estimates assume that cases are independent. Those of a guided campaign are not."]
    return [*lines, *page.notes]


def estimate_text(one: Estimate) -> str:
    """How many sites were seen, and the estimate of how many there are."""
    chance = "" if one.next_new is None else f"; the next one reached is new with a chance of {one.next_new:.2%}"
    return (
        f"{one.seen} seen, {one.once} of them in one case, {one.twice} in two{chance} (Good-Turing); "
        f"in all at least {one.total:.0f}, 95% interval {one.low:.0f} to {one.high:.0f} (Chao1)"
    )
