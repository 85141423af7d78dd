"""Guard sites as text for people: a row a site, what each room has, and how many are left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ddefuzz.cli.layout import NARROW, Detailed, counted, details, folded
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.coverage.estimate import Estimate
from ddefuzz.coverage.guard_sites import GuardSite, RoomCount, Totals

TITLES = ("room", "site", "function", "asks", "fell back", "old", "raised", "cases")
UNCOVERED_TITLES = ("room", "site", "function", "asks", "why")
ROOM_TITLES = ("room", "listed", "reached", "beside", "fell back")
RIGHT = ("raised", "cases", "listed", "reached", "beside")

MEANING = (
    "fell back: cases by the answer taken; old: what the size-oblivious mechanism would have said; "
    "raised: cases that a data-dependent error ended there"
)


class SitesPage(msgspec.Struct, frozen=True):
    """What to show: the chosen sites, and what all of them come to."""

    sites: tuple[GuardSite, ...]
    totals: Totals
    uncovered: bool = False
    summary: bool = False
    notes: tuple[str, ...] = ()


def place(site: GuardSite) -> str:
    """Where it is: `torch/_refs/__init__.py:448`."""
    return f"{site.file}:{site.line}"


def asks(site: GuardSite) -> str:
    """The call, or where only the place is known its name."""
    return site.text or site.call


def fell_back(site: GuardSite) -> str:
    """`False 12, True 3`; that no run came here is said too."""
    return _numbers(site.fallbacks.items()) if site.reached else "never"


def old(site: GuardSite) -> str:
    """`same 12, other 3`."""
    return _numbers(site.old.items())


def _numbers(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in items)


def text_page(page: SitesPage, on: Page) -> str:
    """For a terminal."""
    parts = [] if page.summary else [_sites_text(page, on)]
    parts.append(rendered(_rooms(page.totals, on), on))
    parts.append("".join(f"{folded(line, on.width)}\n" for line in closing_lines(page)))
    return "\n".join(part for part in parts if part)


def _sites_text(page: SitesPage, on: Page) -> str:
    if not page.sites:
        return "no such site is left unreached\n" if page.uncovered else "no such sites\n"
    table = _narrow(page, on) if on.width < NARROW else _wide(page, on)
    said = counted(len(page.sites), "site") + ("" if page.uncovered else f". {MEANING}")
    return f"{rendered(table, on)}\n{folded(said, on.width)}\n"


def _narrow(page: SitesPage, on: Page) -> RenderableType:
    if page.uncovered:
        rows = [
            Detailed([Text(site.room), plain(site.function)], plain(_detail(site, asks(site), site.reason)))
            for site in page.sites
        ]
        return details(("room", "function"), rows, on.width)
    rows = [
        Detailed(
            [Text(site.room), Text(fell_back(site)), _count(site.raised), _count(site.cases)],
            plain(_detail(site, site.function, asks(site), old(site))),
        )
        for site in page.sites
    ]
    return details(("room", "fell back", "raised", "cases"), rows, on.width, ("raised", "cases"))


def _detail(site: GuardSite, *parts: str) -> str:
    return " · ".join(part for part in (place(site), *parts) if part)


def _wide(page: SitesPage, on: Page) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    titles = UNCOVERED_TITLES if page.uncovered else TITLES
    for title in titles:
        table.add_column(title, justify="right" if title in RIGHT else "left", no_wrap=True)
    cells = [row_cells(site, uncovered=page.uncovered) for site in page.sites]
    widths = _widths(titles, cells, on.width)
    for row in cells:
        table.add_row(*(plain(folded(cell, width)) for cell, width in zip(row, widths, strict=True)))
    return table


LEAST = {"site": 30, "function": 18, "asks": 18, "old": 10, "fell back": 9, "why": 20}
"""The columns that are folded where the page is narrow, and down to what."""

GAP = 3
"""Between two columns."""


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Each column as wide as it is; where that is too much, the foldable ones share what is left by their size."""
    natural = [max(len(title), *(len(row[at]) for row in rows)) for at, title in enumerate(titles)]
    least = [min(wide, LEAST.get(title, wide)) for title, wide in zip(titles, natural, strict=True)]
    spare = width - sum(least) - GAP * len(titles)
    wanted = sum(natural) - sum(least)
    share = 1.0 if wanted <= spare else max(spare, 0) / wanted
    return [low + int((high - low) * share) for low, high in zip(least, natural, strict=True)]


def row_cells(site: GuardSite, *, uncovered: bool) -> tuple[str, ...]:
    """The cells of a row, under `UNCOVERED_TITLES` or `TITLES`."""
    head = (site.room, place(site), site.function, asks(site))
    if uncovered:
        return (*head, site.reason)
    return (*head, fell_back(site), old(site), str(site.raised or ""), str(site.cases or ""))


def _count(number: int) -> Text:
    return Text(str(number) if number else "")


def room_cells(count: RoomCount) -> tuple[str, ...]:
    """The cells of a row under `ROOM_TITLES`."""
    reached = f"{count.reached} ({100 * count.reached // count.listed}%)" if count.listed else ""
    return count.room, str(count.listed or ""), reached, str(count.beside or ""), str(count.fell_back or "")


def _rooms(totals: Totals, on: Page) -> RenderableType:
    rows = [Detailed([Text(cell) for cell in room_cells(count)]) for count in totals.rooms]
    return details(ROOM_TITLES, rows, on.width, ROOM_TITLES[1:])


def closing_lines(page: SitesPage) -> list[str]:
    """What is said below the tables, a paragraph a line."""
    totals = page.totals
    lines = [
        f"torch {totals.torch}. Listed: calls in its Python source, and those of them reached; beside: seen, but not "
        "listed, as are C++, plain comparisons and guards under another name; fell back: lines",
    ]
    if totals.shared:
        lines.append(
            f"{totals.shared} of the calls reached are on a line with another of their name, and count as reached "
            "because that line was"
        )
    estimates = [f"{name}: {estimate_text(one)}" for name, one in totals.estimates.items() if one.seen]
    if estimates:
        lines += [*estimates, "both estimates take cases as independent of each other, which guided ones are not"]
    return [*lines, *page.notes]


def estimate_text(one: Estimate) -> str:
    """What is known of how many there are."""
    chance = "" if one.next_new is None else f"; the next one reached is new with a chance of {one.next_new:.2%}"
    return (
        f"{one.seen} seen, {one.once} of them in one case, {one.twice} in two{chance} (Good-Turing); "
        f"in all at least {one.total:.0f}, 95% interval {one.low:.0f} to {one.high:.0f} (Chao1)"
    )


def markdown_page(page: SitesPage) -> str:
    """For a file in a repository or a comment."""
    parts = []
    if not page.summary:
        titles = UNCOVERED_TITLES if page.uncovered else TITLES
        rows = [row_cells(site, uncovered=page.uncovered) for site in page.sites]
        parts.append(_markdown_table(titles, rows, code=("site", "function", "asks")) if rows else "no such sites\n")
    parts.append(_markdown_table(ROOM_TITLES, [room_cells(count) for count in page.totals.rooms]))
    parts.append("".join(f"- {line}\n" for line in closing_lines(page)))
    return "\n".join(parts)


def _markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]], code: Sequence[str] = ()) -> str:
    lines = [_markdown_row(titles), _markdown_row(["---:" if title in RIGHT else "---" for title in titles])]
    for row in rows:
        cells = [f"`{cell}`" if title in code and cell else cell for title, cell in zip(titles, row, strict=True)]
        lines.append(_markdown_row([cell.replace("|", "\\|") for cell in cells]))
    return "".join(f"{line}\n" for line in lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
