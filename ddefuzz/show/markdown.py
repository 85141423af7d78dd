"""Blocks as Markdown of GitHub, for a file in a repository or a comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, assert_never
from urllib.parse import quote

import msgspec

from ddefuzz.escape import html_text, markdown_block, markdown_code, markdown_table, markdown_text
from ddefuzz.show.blocks import (
    Block,
    Code,
    Column,
    Commands,
    Details,
    Facts,
    Heading,
    Inline,
    Items,
    Paragraph,
    Picture,
    Span,
    Table,
    TableRow,
    spans,
)

LINK: Final = "/:#?&=%.-_~+,;@!"
"""Characters that are kept in the address of a link."""


def markdown(blocks: Iterable[Block]) -> str:
    """The text."""
    return "\n\n".join(_shown(part) for part in blocks) + "\n"


def _shown(part: Block) -> str:
    match part:
        case Heading(text, level):
            return f"{'#' * level} {_line(text)}"
        case Paragraph(text):
            return _line(text)
        case Items(items):
            return "\n".join(f"- {_line(item)}" for item in items)
        case Facts():
            return "\n".join(f"- **{markdown_text(name)}**: {_lines(value)}" for name, value in part.known)
        case Table(columns, rows):
            titles = [markdown_text(column.title) for column in columns]
            right = [title for title, column in zip(titles, columns, strict=True) if column.right]
            return markdown_table(titles, (list(_cells(row, columns)) for row in rows), right)
        case Code(text, language):
            return markdown_block(text, "" if language == "text" else language)
        case Commands(lines, before):
            return f"{markdown_text(before)}\n\n{markdown_block(chr(10).join(lines), 'sh')}"
        case Picture(text, path):
            return f"![{markdown_text(text)}]({quote(path, LINK)})"
        case Details(summary, blocks):
            inner = "\n\n".join(map(_shown, blocks))
            return f"<details><summary>{_summary(summary)}</summary>\n\n{inner}\n\n</details>"
        case other:
            assert_never(other)


def _cells(row: TableRow, columns: Sequence[Column]) -> Iterator[str]:
    """The cells of a row. Its detail is a line of the last one."""
    for at, (cell, column) in enumerate(zip(row.cells, columns, strict=True), 1):
        text = _line(cell, code=column.code)
        detail = _lines(row.detail) if at == len(columns) else ""
        yield "<br>".join(filter(None, (text, detail)))


def _lines(text: Inline) -> str:
    """Text of several lines. A part with a mark is on one."""
    pieces: list[Span] = []
    for part in spans(text):
        plain = not (part.code or part.style or part.href)
        for at, line in enumerate(part.text.split("\n") if plain else [part.text]):
            pieces += [Span("\n")] if at else []
            pieces.append(msgspec.structs.replace(part, text=line))
    return _line(tuple(pieces))


def _line(text: Inline, *, code: bool = False) -> str:
    return "".join("<br>" if part.text == "\n" else _span(part) for part in spans(text, code=code))


def _span(part: Span) -> str:
    text = markdown_code(part.text) if part.code else markdown_text(part.text)
    if not text:
        return " " if part.text else ""
    if part.style == "bold":
        text = f"**{text}**"
    if part.href:
        text = f"[{text}]({quote(part.href, safe=LINK)})"
    before, after = (" " if edge.isspace() else "" for edge in (part.text[0], part.text[-1]))
    return f"{before}{text}{after}"


def _summary(text: Inline) -> str:
    """A line of HTML, which a summary is."""
    return "".join(
        f"<code>{html_text(part.text)}</code>" if part.code else html_text(part.text) for part in spans(text)
    )
