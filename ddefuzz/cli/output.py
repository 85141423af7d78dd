"""The options `--format` for stdout and `--output FORMAT=PATH` for files.

A format is a name and a function that makes text for a page. Each command has a table of its formats.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import rich_click as click
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from ddefuzz.cli.invocation import Invocation, current_invocation
from ddefuzz.cli.streams import in_log, write_stdout
from ddefuzz.errors import InputError
from ddefuzz.escape import html_text, json_text, markdown_text, visible
from ddefuzz.files import check_writable, write_atomically
from ddefuzz.internal import InternalError, noted
from ddefuzz.show.blocks import Block
from ddefuzz.show.markdown import markdown
from ddefuzz.show.terminal import terminal

FILE_WIDTH = 160
"""The width of text in files and pipes, in columns."""

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Page:
    """What text is laid out for: width, color, and how the reader calls ddefuzz."""

    width: int
    color: bool = False
    invocation: Invocation = field(default_factory=Invocation)


Writer = Callable[[Page], str]


class OutputOption(click.ParamType[tuple[str, Path]]):
    """The type of the option `--output`: `FORMAT=PATH`, with one of the given formats."""

    name = "FORMAT=PATH"

    def __init__(self, formats: tuple[str, ...]) -> None:
        self.formats = formats

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """Split and check the value. A wrong value is a usage error."""
        if isinstance(value, tuple):
            return value
        name, separator, path = str(value).partition("=")
        if not separator or not path:
            self.fail(f"found {value!r}, expected FORMAT=PATH", param, ctx)
        if name not in self.formats:
            self.fail(f"found the format {name!r}, expected one of {', '.join(self.formats)}", param, ctx)
        return name, writable(self, path, param, ctx)


class OutputFile(click.ParamType[Path]):
    """The type of an option for a file that is written in the end. A place that cannot be is an error at once."""

    name = "FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check the place."""
        return writable(self, str(value), param, ctx)


def writable(of: click.ParamType[Any], path: str, param: click.Parameter | None, ctx: click.Context | None) -> Path:
    """The path. One that cannot be written is a usage error."""
    try:
        check_writable(Path(path))
    except InputError as error:
        of.fail(str(error), param, ctx)
    return Path(path)


def output_options(*formats: str) -> Callable[[Command], Command]:
    """Give a command the parameters `format_` and `outputs` for `deliver`. The first format is the default."""

    def decorate(command: Command) -> Command:
        for_stdout = click.option(
            "--format",
            "format_",
            type=click.Choice(formats),
            default=formats[0],
            metavar="FORMAT",
            show_default=True,
            help=f"The format of stdout: {', '.join(formats)}.",
        )
        for_files = click.option(
            "--output",
            "outputs",
            type=OutputOption(formats),
            multiple=True,
            help="Also write this format to a file. Can be repeated.",
        )
        return for_stdout(for_files(command))

    return decorate


def deliver(writers: Mapping[str, Writer], format_: str, outputs: Iterable[tuple[str, Path]]) -> None:
    """Write the files, each completely or not at all, then stdout."""
    outputs = list(outputs)
    for _, path in outputs:
        check_writable(path)
    for name, path in outputs:
        write_atomically(path, _written(writers, name, Page(FILE_WIDTH, invocation=current_invocation())))
    text = _written(writers, format_, stdout_page())
    write_stdout(in_log(text) if format_ == "text" else text)


def _written(writers: Mapping[str, Writer], name: str, page: Page) -> str:
    """The text in a format. In text for people, the only control characters are newlines and rich's colors."""
    text = _with_errors(name, writers[name](page))
    if name != "text":
        return text
    return "".join(part if page.color and part.startswith("\x1b[") else visible(part) for part in _COLOR.split(text))


_COLOR: Final = re.compile(r"(\x1b\[[0-9;]*m)")


def _with_errors(name: str, content: str) -> str:
    """What is written, with a row for each exception of ddefuzz itself. The other formats have them as results."""
    errors, add = noted(), _ROWS.get(name)
    return add(content, errors) if errors and add is not None else content


Errors: TypeAlias = tuple[InternalError, ...]


def _text(content: str, errors: Errors) -> str:
    return content + "".join(f"{one}\n" for one in errors)


def _json(content: str, errors: Errors) -> str:
    """`errors` of the document. A list has them as items."""
    document = json.loads(content)
    documents = [one.document() for one in errors]
    if isinstance(document, dict):
        document["errors"] = documents
    else:
        document += documents
    return json_text(document, indent=True) + "\n"


def _jsonl(content: str, errors: Errors) -> str:
    return content + "".join(json_text(one.document()) + "\n" for one in errors)


def _markdown(content: str, errors: Errors) -> str:
    return f"{content}\n## Not judged\n\n" + "".join(f"- {markdown_text(str(one))}\n" for one in errors)


def _html(content: str, errors: Errors) -> str:
    rows = "".join(f"<li>{html_text(str(one))}</li>\n" for one in errors)
    body, end, rest = content.rpartition("</body>")
    return f"{body}<h2>not judged</h2>\n<ul>\n{rows}</ul>\n{end}{rest}"


_ROWS: Final[dict[str, Callable[[str, Errors], str]]] = {
    "text": _text,
    "json": _json,
    "jsonl": _jsonl,
    "markdown": _markdown,
    "html": _html,
}


def stdout_page() -> Page:
    """The width and color of the terminal (`NO_COLOR` is respected), or those of files without a terminal.

    `COLUMNS` overrides the width.
    """
    console = Console()
    if console.is_terminal:
        return Page(console.width, not console.no_color, current_invocation())
    width = console.width if os.environ.get("COLUMNS", "").isdigit() else FILE_WIDTH
    return Page(width, invocation=current_invocation())


def progress_console() -> Console:
    """The console on stderr for progress. It has live lines only on a terminal, and not in a CI log."""
    in_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return Console(stderr=True, highlight=False, force_terminal=False if in_ci else None)


def plain(text: str, style: str = "") -> Text:
    """Text without markup, with control characters escaped."""
    return Text(visible(text), style=style)


def rendered(renderable: RenderableType, page: Page) -> str:
    """The text of a rich renderable. No text in it is markup, or reaches a terminal as a control character."""
    console = Console(
        file=io.StringIO(),
        width=page.width,
        force_terminal=page.color,
        no_color=not page.color,
        color_system="standard" if page.color else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    segments = [one if one.control else Segment(visible(one.text), one.style) for one in console.render(renderable)]
    with console.capture() as capture:
        console.print(Segments(segments), crop=False)  # code is not cut at the width
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def page_writers(title: str, view: Callable[[Page], Iterable[Block]]) -> dict[str, Writer]:
    """The formats `text`, `markdown` and `html` of a document."""

    def html(page: Page) -> str:
        # Imported here, because the templates and the highlighting take longer to import than most commands.
        from ddefuzz.show.html import html  # noqa: PLC0415

        return html(title, view(page))

    return {
        "text": lambda page: terminal(view(page), page.width, color=page.color),
        "markdown": lambda page: markdown(view(page)),
        "html": html,
    }


def json_writers(documents: list[dict[str, Any]]) -> dict[str, Writer]:
    """`json`: one array; `jsonl`: a line for each."""
    return {
        "json": lambda _page: json_text(documents, indent=True) + "\n",
        "jsonl": lambda _page: "".join(json_text(one) + "\n" for one in documents),
    }
