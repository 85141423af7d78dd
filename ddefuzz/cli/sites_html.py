"""Guard sites as HTML pages: an index, torch's source with its sites colored, and sites without source.

Each page is self-contained: no script, no network. Blocks of lines without sites are folded, not left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer
from rich.progress import track

from ddefuzz.cli.output import progress_console
from ddefuzz.cli.sites_page import SitesPage, call_text, closing_lines, fell_back, old, part_cells, place
from ddefuzz.coverage.guard_sites import GuardSite
from ddefuzz.errors import InputError
from ddefuzz.files import write_atomically

TEMPLATES = Path(__file__).parent / "templates"

NO_SOURCE = "elsewhere.html"
"""The page of sites that have no file in the package: C++ and programs."""

STATES = {"fell": "● fell back", "raised": "✕ raised an error", "never": "○ not reached"}
"""The CSS class of a line, and its meaning. A line with several sites has the last of these that applies."""

LIGHT, DARK = "default", "github-dark"
"""Pygments styles."""

_BLOCK = re.compile(r"@|def |class |async def ")
"""The beginning of a block: such a line without indent, after an empty line."""


class Note(NamedTuple):
    """The text below the line of a site. `example` is the id of its program on the page, or empty."""

    site: GuardSite
    state: str
    facts: tuple[str, ...]
    example: str


class Line(NamedTuple):
    """A line of source: number, markup, class (empty without a site), tooltip, notes on the sites that end in it."""

    number: int
    code: Markup
    state: str = ""
    tip: str = ""
    notes: tuple[Note, ...] = ()


class Block(NamedTuple):
    """Adjacent lines. A block without sites has only `text` and the line numbers, and is folded."""

    first: int
    last: int
    lines: tuple[Line, ...] = ()
    text: str = ""


class FileEntry(NamedTuple):
    """A row of the index."""

    file: str
    page: str
    part: str
    listed: int
    reached: int
    unlisted: int
    raised: int


def write_pages(page: SitesPage, folder: Path | None, target: Path) -> Path:
    """Write pages of the chosen sites into `target`, and return the index. `folder` has the torch package.

    Without `folder` all sites are on the page of sites without source. Raises InputError if a page cannot be written.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        states=STATES,
        styles=_styles(),
        torch=page.totals.torch,
        place=place,
        call_text=call_text,
        fell_back=fell_back,
        old=old,
    )
    by_file = {
        file: list(sites)
        for file, sites in groupby(sorted(page.sites, key=lambda site: (site.file, site.line)), lambda site: site.file)
    }
    sources = {file: folder / file for file in by_file if folder is not None and _has_source(folder, by_file[file])}
    entries = []
    source_page = environment.get_template("source.html")
    console = progress_console()
    for file, path in track(
        sources.items(), "writing pages", console=console, transient=True, disable=not console.is_terminal
    ):
        entries.append(_entry(file, _page_name(file), by_file[file]))
        text = source_page.render(
            file=file,
            numbers=sorted({site.line for site in by_file[file]}),
            blocks=_blocks(path, by_file[file]),
            examples=list(_examples(by_file[file])),
        )
        write_atomically(target / entries[-1].page, text)
    elsewhere = [site for file, sites in by_file.items() if file not in sources for site in sites]
    text = environment.get_template("elsewhere.html").render(
        notes=[_note(site) for site in elsewhere], examples=list(_examples(elsewhere))
    )
    write_atomically(target / NO_SOURCE, text)
    index = target / "index.html"
    parts = [(count, part_cells(count)) for count in page.totals.parts]
    text = environment.get_template("index.html").render(
        parts=parts, closing=closing_lines(page), entries=entries, elsewhere=len(elsewhere), elsewhere_page=NO_SOURCE
    )
    write_atomically(index, text)
    return index


def _has_source(folder: Path, sites: Sequence[GuardSite]) -> bool:
    return sites[0].part not in ("c++", "user") and (folder / sites[0].file).is_file()


def _page_name(file: str) -> str:
    return f"{file.removesuffix('.py').replace('/', '.')}.html"


def _entry(file: str, page: str, sites: Sequence[GuardSite]) -> FileEntry:
    listed = [site for site in sites if site.listed]
    return FileEntry(
        file=file,
        page=page,
        part=sites[0].part,
        listed=len(listed),
        reached=sum(site.reached for site in listed),
        unlisted=len(sites) - len(listed),
        raised=sum(site.raised > 0 for site in sites),
    )


def state_of(site: GuardSite) -> str:
    """The CSS class of the line of a site."""
    if site.raised:
        return "raised"
    return "fell" if site.reached else "never"


def _note(site: GuardSite) -> Note:
    facts = [
        STATES[state_of(site)],
        fell_back(site) if site.fallbacks else "",
        f"size-oblivious: {old(site)}" if site.old else "",
        f"raised in {site.raised} of {site.cases} cases" if site.raised else "",
        f"blamed: {', '.join(site.blamed)}" if site.blamed else "",
        f"{site.on_line} calls on this line share these numbers" if site.on_line > 1 else "",
        site.reason,
    ]
    return Note(site, state_of(site), tuple(fact for fact in facts if fact), _example_id(site) if site.example else "")


def _example_id(site: GuardSite) -> str:
    return re.sub(r"[^\w.-]+", "-", f"example-{site.file}-{site.line}-{site.function}-{site.call}")


def _examples(sites: Sequence[GuardSite]) -> Iterator[tuple[str, GuardSite, Markup]]:
    seen = set()
    for site in sites:
        if site.example and (name := _example_id(site)) not in seen:
            seen.add(name)
            yield name, site, Markup("\n").join(_highlighted(site.example.rstrip("\n").split("\n")))


def _blocks(path: Path, sites: Sequence[GuardSite]) -> Iterator[Block]:
    """The file in blocks. Only blocks with sites are highlighted, because highlighting takes most of the time."""
    try:
        # splitlines would also break at form feeds, which Python does not count as line ends.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}, expected Python source of torch") from error
    starts = [at for at, line in enumerate(lines) if at and _BLOCK.match(line) and not lines[at - 1].strip()]
    spans = [
        (first, end, any(first < site.line <= end for site in sites))
        for first, end in pairwise([0, *starts, len(lines)])
    ]
    for has_sites, group in groupby(spans, lambda span: span[2]):
        together = list(group)
        first, end = together[0][0], together[-1][1]
        if has_sites:
            codes = zip(range(first + 1, end + 1), _highlighted(lines[first:end]), strict=True)
            yield Block(first + 1, end, lines=tuple(_line(at, code, sites) for at, code in codes))
        else:
            yield Block(first + 1, end, text="\n".join(f"{at:>6}  {lines[at - 1]}" for at in range(first + 1, end + 1)))


def _line(number: int, code: Markup, sites: Sequence[GuardSite]) -> Line:
    notes = [_note(site) for site in sites if site.line <= number <= site.last_line]
    states = [note.state for note in notes]
    state = next((name for name in reversed(STATES) if name in states), "")
    tip = "\n".join(f"{call_text(note.site)}: {'; '.join(note.facts)}" for note in notes)
    ending = {note.facts: note for note in notes if note.site.last_line == number}
    return Line(number, code, state, tip, tuple(ending.values()))


def _highlighted(lines: Sequence[str]) -> list[Markup]:
    """The markup of each line. Every line needs its newline: pygments drops an empty last line without one."""
    lexer = PythonLexer(stripnl=False, ensurenl=False)
    text = "".join(f"{line}\n" for line in lines)
    marked = highlight(text, lexer, HtmlFormatter(nowrap=True)).removesuffix("\n").split("\n")
    return [Markup(line) for line in marked]


def _styles() -> Markup:
    light = HtmlFormatter(style=LIGHT).get_style_defs("code")
    dark = HtmlFormatter(style=DARK).get_style_defs("code")
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}")
