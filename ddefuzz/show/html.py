"""Blocks as HTML: the templates, the style sheet, and pages that need no other file; and charts as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from ddefuzz import __version__
from ddefuzz.errors import UnsupportedError
from ddefuzz.escape import block, html_value
from ddefuzz.files import to_install
from ddefuzz.show.blocks import Block, Code, Mark, Style, counted, spans

GRAVITY: Final[tuple[Style, ...]] = ("", "bold", "dim", "good", "warn", "bad")
"""Styles of lines, the gravest last."""

LIGHT, DARK = "default", "github-dark"
"""Styles of Pygments."""


@cache
def environment(package: str = "ddefuzz.show") -> Environment:
    """The templates of a package, which may extend `page.html` and import `blocks.html`. Everything is escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("ddefuzz.show")]),
        autoescape=True,
        finalize=html_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(highlighted=highlighted, numbered=numbered)
    made.globals.update(spans=spans, kind=lambda part: type(part).__name__, counted=counted, version=__version__)
    return made


def html(title: str, blocks: Iterable[Block], template: str = "page.html", **more: object) -> str:
    """A page without outside files and scripts. `more` is for a template of its own."""
    page = environment().get_template(template)
    return page.render(title=title, blocks=list(blocks), styles=Markup(style_sheet()), **more) + "\n"


@cache
def style_sheet() -> str:
    """The style sheet of all pages, with the colors of code for light and dark."""
    source, _, _ = PackageLoader("ddefuzz.show").get_source(environment(), "style.css")
    light, dark = (HtmlFormatter(style=name).get_style_defs(".code") for name in (LIGHT, DARK))
    return f"{source}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


class NumberedLine(NamedTuple):
    """A line of a code: its number and markup, the style and the tips of its marks, and those that end in it."""

    number: int
    markup: Markup
    style: Style
    tip: str
    ending: tuple[Mark, ...]


def numbered(code: Code) -> Iterator[NumberedLine]:
    """The lines. A line with several marks has the style of the gravest."""
    for number, markup in enumerate(highlighted(code.text.split("\n"), code.language), code.first):
        marks = [mark for mark in code.marks if mark.first <= number <= mark.last]
        style: Style = max((mark.style for mark in marks), key=GRAVITY.index, default="")
        tip = "\n".join(mark.tip for mark in marks if mark.tip)
        yield NumberedLine(number, markup, style, tip, tuple(mark for mark in marks if mark.last == number))


def highlighted(text: str | Sequence[str], language: str = "python") -> list[Markup]:
    """The markup of each line. Every line needs its newline: pygments drops an empty last line without one."""
    lines = text.rstrip("\n").split("\n") if isinstance(text, str) else text
    if language == "text":
        return [Markup.escape(block(line)) for line in lines]
    lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    whole = "".join(f"{block(line)}\n" for line in lines)
    marked = highlight(whole, lexer, HtmlFormatter(nowrap=True)).removesuffix("\n").split("\n")
    return [Markup(line) for line in marked]


def require_chart() -> ModuleType:
    """The package that draws charts. Raises UnsupportedError where it is not installed."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise UnsupportedError(f"charts: found no vl_convert, expected it: {to_install('report')}") from error


def svg(chart: dict[str, Any]) -> str:
    """The chart as SVG."""
    drawn: str = require_chart().vegalite_to_svg(chart)
    return drawn
