"""Guard sites for people: a row for each site, counts for each part of torch, estimates, and torch's source with them.

On pages of source, blocks of lines without sites are folded, not left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path

import msgspec

from ddefuzz.files import read_text
from ddefuzz.findings.guard_sites import FileCount, GuardSite, Totals, counts_of_files
from ddefuzz.findings.inventory import source_path
from ddefuzz.show.blocks import (
    Block,
    Code,
    Details,
    Heading,
    Inline,
    Items,
    Mark,
    Paragraph,
    Span,
    Style,
    Table,
    counted,
    table,
)

STATES: dict[Style, str] = {"good": "● fell back", "warn": "✕ raised an error", "bad": "○ not reached"}
"""The style of a site, and its meaning."""

TITLES = ("part", "site", "function", "call", "fell back", "size-oblivious", "raised", "cases")
UNCOVERED_TITLES = ("part", "site", "function", "call", "why")
PART_TITLES = ("part", "listed", "reached", "unlisted", "fell back")
NUMBERS = ("raised", "cases", "listed", "reached", "unlisted")

MEANING = (
    "Numbers count cases. fell back: by the answer that the guard took. size-oblivious: whether size-oblivious "
    "semantics give the same answer, another one, or cannot decide. raised: cases that ended here with a "
    "data-dependent error."
)

INDEX = "index.html"

NO_SOURCE = "elsewhere.html"
"""The page of sites that have no file in the package: C++ and programs."""

_BLOCK = re.compile(r"@|def |class |async def ")
"""The beginning of a block: such a line without indent, after an empty line."""


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
        names = ("site", "function", "call")
        rows = (_cells(site, uncovered=page.uncovered) for site in page.sites)
        yield table(titles, rows, right=NUMBERS, folding=(*names, "size-oblivious", "why"), code=names)
        yield Paragraph(counted(len(page.sites), "site") + ("" if page.uncovered else f". {MEANING}"))
    elif not page.summary:
        yield Paragraph("every such site was reached" if page.uncovered else "no such sites")
    yield _parts(page.totals)
    yield Items(tuple(_closing_lines(page)))


def _cells(site: GuardSite, *, uncovered: bool) -> tuple[str, ...]:
    """The cells of a row, under `UNCOVERED_TITLES` or `TITLES`."""
    head = (site.part, f"{site.file}:{site.line}", site.function, site.text or site.call)
    if uncovered:
        return (*head, site.reason)
    return (*head, fell_back(site), _numbers(site.old.items()), str(site.raised or ""), str(site.cases or ""))


def fell_back(site: GuardSite) -> str:
    """`False 12, True 3`; `not reached` if no run came here."""
    return _numbers(site.fallbacks.items()) if site.reached else "not reached"


def _numbers(items: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in items)


def _parts(totals: Totals) -> Table:
    rows = []
    for count in totals.parts:
        reached = f"{count.reached} ({100 * count.reached // count.listed}%)" if count.listed else ""
        listed, unlisted, fell = (str(number or "") for number in (count.listed, count.unlisted, count.fell_back))
        rows.append((count.part, listed, reached, unlisted, fell))
    return table(PART_TITLES, rows, right=PART_TITLES[1:])


def _closing_lines(page: SitesPage) -> Iterator[str]:
    """The paragraphs below the tables."""
    totals = page.totals
    yield (
        f"torch {totals.torch}. listed: calls of guard_or_false and guard_or_true in its Python source. reached: "
        "listed calls at which a run had a guard that could not be decided. unlisted: other sites that a run reached: "
        "C++, plain comparisons, guards called under another name. fell back: source lines where a guard took its "
        "fallback answer."
    )
    if totals.shared:
        yield (
            f"{counted(totals.shared, 'reached call')} on a line with another call of the same name: a stack frame "
            "has only the line, so every call of that name there counts as reached."
        )
    estimates = {name: estimate for name, estimate in totals.estimates.items() if estimate.seen}
    for name, of in estimates.items():
        chance = "" if of.next_new is None else f"; the next one reached is new with a chance of {of.next_new:.2%}"
        yield (
            f"{name}: {of.seen} seen, {of.once} of them in one case, {of.twice} in two{chance} (Good-Turing); "
            f"in all at least {of.total:.0f}, 95% interval {of.low:.0f} to {of.high:.0f} (Chao1)"
        )
    if estimates:
        yield "Both estimates assume that cases are independent. Those of a guided campaign are not."
    yield from page.notes


def pages(page: SitesPage, folder: Path | None) -> Iterator[tuple[str, str, Iterable[Block]]]:
    """The pages of HTML: their names, titles and content. `folder` has the torch package; the index is the last one.

    Without `folder` all sites are on the page of sites without source. Raises InputError if a source cannot be read.
    """
    title = f"Guard sites of torch {page.totals.torch}"
    crumb = Paragraph(Span(title, href=INDEX))
    listed, elsewhere = [], []
    for file, group in groupby(sorted(page.sites, key=lambda site: (site.file, site.line)), lambda site: site.file):
        sites = list(group)
        path = None if folder is None or sites[0].part == "c++" else source_path(folder, file)
        if path is None:
            elsewhere += sites
            continue
        listed += sites
        head = (crumb, Heading(file, 1))
        yield _page_name(file), f"{file}: guard sites", chain(head, source_blocks(path, sites))
    yield NO_SOURCE, "Guard sites without source", chain([crumb], _elsewhere(elsewhere))
    yield INDEX, title, _index(title, page, list(counts_of_files(listed)), len(elsewhere))


def _page_name(file: str) -> str:
    return f"{file.removesuffix('.py').replace('/', '.')}.html"


def _index(title: str, page: SitesPage, files: Sequence[FileCount], elsewhere: int) -> Iterator[Block]:
    yield Heading(title, 1)
    yield Paragraph(
        "The places where torch evaluates a guard on a data-dependent size, and which of them ddefuzz has reached."
    )
    yield _parts(page.totals)
    yield from map(Paragraph, _closing_lines(page))
    yield Heading("Files")
    if files:
        columns = ("file", "part", "reached", "listed", "unlisted", "raised")
        yield table(columns, map(_file_cells, files), right=columns[2:])
    else:
        yield Paragraph("No such sites in torch's Python source.")
    link = Span(f"{elsewhere} sites without source here", href=NO_SOURCE)
    yield Paragraph((link, ": C++, and programs themselves."))


def _file_cells(of: FileCount) -> tuple[Inline, ...]:
    reached = f"{of.reached} of {of.listed}" if of.listed else ""
    numbers = (of.listed, of.unlisted, of.raised)
    return Span(of.file, href=_page_name(of.file)), of.part, reached, *(str(one or "") for one in numbers)


def _elsewhere(sites: Sequence[GuardSite]) -> Iterator[Block]:
    yield Heading("Sites without source here", 1)
    yield Paragraph("The installed torch has no source for these sites: C++ code, and code outside torch.")
    if not sites:
        yield Paragraph("None.")
    for site in sites:
        name = Span(f"{site.file}:{site.line}", code=True, style=_state(site))
        yield Paragraph((name, f" {site.function} ", Span(site.call, style="dim")))
        yield from _note(site)


def source_blocks(path: Path, sites: Sequence[GuardSite]) -> Iterator[Block]:
    """The meaning of the colors, links to the sites, and the lines of the file with them.

    Only blocks with sites are highlighted, because highlighting takes most of the time.
    """
    # splitlines would also break at form feeds, which Python does not count as line ends.
    lines = read_text(path).removesuffix("\n").split("\n")
    yield Items(tuple(Span(meaning, style=style) for style, meaning in STATES.items()))
    numbers = sorted({site.line for site in sites})
    links = [part for number in numbers for part in (" ", Span(str(number), href=f"#L{number}"))]
    yield Paragraph(("Sites on this page:", *links))
    starts = [at for at, line in enumerate(lines) if at and _BLOCK.match(line) and not lines[at - 1].strip()]
    edges = pairwise([0, *starts, len(lines)])
    spans = [(first, end, any(first < site.line <= end for site in sites)) for first, end in edges]
    for has_sites, group in groupby(spans, lambda span: span[2]):
        together = list(group)
        first, end = together[0][0], together[-1][1]
        if has_sites:
            marks = tuple(_marks(site for site in sites if first < site.line <= end))
            yield Code("\n".join(lines[first:end]), first=first + 1, anchor="L", marks=marks)
        else:
            numbered = "\n".join(f"{at:>6}  {line}" for at, line in enumerate(lines[first:end], first + 1))
            yield Details(f"lines {first + 1} to {end}, without sites", (Code(numbered, "text"),))


def _marks(sites: Iterable[GuardSite]) -> Iterator[Mark]:
    """The sites of a block. Those that end in one line with the same facts have one note."""
    noted = set()
    for site in sites:
        tip = f"{site.text or site.call}: {'; '.join(_facts(site))}"
        note = (site.last_line, _facts(site))
        yield Mark(site.line, site.last_line, _state(site), tip, () if note in noted else tuple(_note(site)))
        noted.add(note)


def _state(site: GuardSite) -> Style:
    return "warn" if site.raised else "good" if site.reached else "bad"


def _facts(site: GuardSite) -> tuple[str, ...]:
    facts = [
        STATES[_state(site)],
        fell_back(site) if site.fallbacks else "",
        f"size-oblivious: {_numbers(site.old.items())}" if site.old else "",
        f"raised in {site.raised} of {site.cases} cases" if site.raised else "",
        f"blamed: {', '.join(site.blamed)}" if site.blamed else "",
        f"{site.on_line} calls on this line share these numbers" if site.on_line > 1 else "",
        site.reason,
    ]
    return tuple(fact for fact in facts if fact)


def _note(site: GuardSite) -> Iterator[Block]:
    """What runs did at a site, and the first program that reached it."""
    state, *others = _facts(site)
    yield Paragraph((Span(state, style=_state(site)), *(f" · {fact}" for fact in others)))
    if site.example:
        yield Details(f"a program that reaches it, in {site.stage}", (Code(site.example),))
