"""Hostile text, and parsers that say what of it leaves the place that it was put into."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

TOKENS = (
    *("\n", "\r", "\r\n", "\n\n", "\x85", "\u2028", "\u2029", "\t", "\x0b", "\x0c", "\x1c", "\x00", "\x07", "\x7f"),
    *("\x9b31m", "-->", "--!>", "--", "-", "<!--", "]]>", "<![CDATA[", "<?x?>", "<!DOCTYPE x>", '"""', "'''", '"'),
    *("'", "\\", "\\n", "`", "``", "```", "````", "\n```\n", "~~~", "|", "\\|", "||", "|---|", "@name"),
    *("@pytorch/core", "a@b.co", "#1", "org/repo#1", "org/repo@deadbeef", "GH-1", "gh-2", "# title", "&#35;1"),
    *("http://evil.example", "https://evil.example/x?y=1", "www.evil.example", "ftp://evil.example"),
    *("mailto:a@b.co", "<https://evil.example>", "[x](javascript:alert(1))", "![x](https://evil.example/x.png)"),
    *("[x]: https://evil.example", "<img src=x onerror=alert(1)>", "<script>alert(1)</script>", "</details>"),
    *("</summary>", "</code>", "<b>", "&lt;", "&amp;", "\x1b[31m", "\x1b]0;title\x07"),
    *("\x1b]8;;https://evil.example\x1b\\", "\x9d0;x\x9c", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800"),
    *("\udc80", "\udcff", "\ufffe", "\uffff", "😀", "é", "\xa0", "\u3000", "[bold]", "[/]", "[red]x[/red]"),
    *(":smile:", "**", "__x__", "_x_", "*x*", "~~x~~", "$x$", "$(id)", "`id`", ";id", "!", "=cmd()", "+1", "-1"),
    *("@SUM(1)", "%0A", "%25", "::error::x", "::stop-commands::t", "##[group]", "{0}", "{{", "}", "[x](1)", "\\]("),
    *("- x", "* x", "+ x", "1. x", "2) x", "> x", "---", "===", ":--", "    x", " ", "# coding: rot13", "noqa"),
    *("import os", "x"),
)  # fmt: skip

texts = st.lists(st.one_of(st.sampled_from(TOKENS), st.text(max_size=4)), max_size=8).map("".join)
"""Text that mixes `TOKENS` with any characters, lone surrogates too."""

MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})
"""CommonMark with GitHub's tables and strikethrough. Addresses that GitHub links are looked for with `REFERENCE`."""

REFERENCE = re.compile(
    r"(?<![\w`])@[A-Za-z0-9]|#[0-9]|\bGH-[0-9]|https?://|ftp://|\bwww\.|[\w.]@\w", re.IGNORECASE | re.ASCII
)
"""What GitHub links in text that is not code."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal acts on, or makes text look like another one. ZWSP is not among them."""


FOREIGN = frozenset({"link_open", "image", "heading_open", "list_item_open", "blockquote_open", "em_open", "s_open"})
"""What no frame of a page has where foreign text is. Frames have headings, items and bold text of their own."""


def leaves(tokens: list[Token]) -> Iterator[Token]:
    """Blocks and their inline parts."""
    for token in tokens:
        yield token
        yield from token.children or ()


def markdown_wrong(text: str, frame_html: tuple[str, ...] = ()) -> list[str]:
    """What in a Markdown text is a link, an image, HTML other than `frame_html`, or a reference that GitHub links."""
    wrong = [] if CONTROL.search(text) is None else [f"control {CONTROL.search(text)!r}"]
    for token in leaves(MARKDOWN.parse(text)):
        if token.type in (
            "link_open",
            "image",
            "heading_open",
            "list_item_open",
            "blockquote_open",
            "s_open",
            "em_open",
        ):
            wrong.append(f"{token.type} {token.content!r}")
        elif token.type == "text" and (found := REFERENCE.search(token.content)):
            wrong.append(f"reference {found[0]!r} in {token.content!r}")
        elif token.type in ("html_inline", "html_block") and token.content.strip() not in frame_html:
            wrong.append(f"{token.type} {token.content!r}")
    return wrong


class Elements(HTMLParser):
    """The elements, comments and data of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.others: list[str] = []
        self.data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(" ".join([tag, *(name for name, _ in attrs)]))

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_decl(self, decl: str) -> None:
        self.others.append(decl)

    def unknown_decl(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def parsed(page: str) -> Elements:
    """The parts of a page of HTML."""
    found = Elements()
    found.feed(page)
    found.close()
    return found
