"""Guard sites as text for people: one row for each site, counts for each part of torch, and estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.coverage.estimate import Estimate
from ddefuzz.coverage.guard_sites import GuardSite, PartCount, Totals
from ddefuzz.escape import markdown_code, markdown_table, markdown_text
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


def text_page(page: SitesPage, on: Page) -> str:
    """The page for a terminal."""
    parts = [] if page.summary else [_sites_text(page, on)]
    parts.append(rendered(_parts_table(page.totals, on), on))
    parts.append("".join(f"{folded(line, on.width)}\n" for line in closing_lines(page)))
    return "\n".join(part for part in parts if part)


def _sites_text(page: SitesPage, on: Page) -> str:
    if not page.sites:
        return "every such site was reached\n" if page.uncovered else "no such sites\n"
    titles = UNCOVERED_TITLES if page.uncovered else TITLES
    rows = [Detailed([plain(cell) for cell in row_cells(site, uncovered=page.uncovered)]) for site in page.sites]
    shown = rendered(table(titles, rows, on.width, right=RIGHT, folding=FOLDING), on)
    said = counted(len(page.sites), "site") + ("" if page.uncovered else f". {MEANING}")
    return f"{shown}\n{folded(said, on.width)}\n"


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


def _parts_table(totals: Totals, on: Page) -> RenderableType:
    rows = [Detailed([Text(cell) for cell in part_cells(count)]) for count in totals.parts]
    return table(PART_TITLES, rows, on.width, right=PART_TITLES[1:])


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


def markdown_page(page: SitesPage) -> str:
    """The page as Markdown, for a file in a repository or a comment."""
    parts = []
    if not page.summary:
        titles = UNCOVERED_TITLES if page.uncovered else TITLES
        rows = [row_cells(site, uncovered=page.uncovered) for site in page.sites]
        parts.append(_markdown_table(titles, rows, code=("site", "function", "call")) if rows else "no such sites\n")
    parts.append(_markdown_table(PART_TITLES, [part_cells(count) for count in page.totals.parts]))
    parts.append("".join(f"- {markdown_text(line)}\n" for line in closing_lines(page)))
    return "\n".join(parts)


def _markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], code: Sequence[str] = ()) -> str:
    cells = (
        [markdown_code(cell) if title in code else markdown_text(cell) for title, cell in zip(titles, row, strict=True)]
        for row in rows
    )
    return markdown_table(titles, cells, RIGHT) + "\n"
