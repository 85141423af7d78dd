"""Blocks on a terminal, as Markdown and as HTML: each block is shown, and foreign text leaves its place in none."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings

from ddefuzz.show.blocks import (
    Block,
    Code,
    Commands,
    Details,
    Facts,
    Heading,
    Items,
    Paragraph,
    Picture,
    Span,
    TableRow,
    marked,
    prose,
    table,
)
from ddefuzz.show.html import html
from ddefuzz.show.markdown import markdown
from ddefuzz.show.terminal import terminal
from tests.show.hostile import CONTROL, MARKDOWN, leaves, markdown_wrong, parsed, texts


def every_block(text: str) -> tuple[Block, ...]:
    """A document with the text in each place."""
    return (
        Heading((text, Span(text, code=True)), 1, anchor=text),
        prose("Made by `{}`; **do not {}**. [{}](page.md) says more of {}.", text, text, text, text),
        Paragraph(text, "bad"),
        Items((text, (text, Span(text, code=True, style="dim")))),
        Facts(((f"fact {text}", text), ("code", Span(text, code=True)))),
        table(
            ("op", text),
            [TableRow((text, text), detail=text), TableRow(((text, "\n", text), Span(text)))],
            code=("op",),
        ),
        Code(text),
        Code(text, "diff"),
        Commands((text,), before=text),
        Picture(text, "chart.svg"),
        Details(text, (Paragraph(text),)),
    )


def test_every_block_is_tried() -> None:
    assert {type(block) for block in every_block("x")} == set(get_args(Block))


@settings(database=None, deadline=None, derandomize=True, max_examples=60)
@given(texts)
def test_no_text_leaves_its_place_in_markdown(text: str) -> None:
    ours = [token.type for token in leaves(MARKDOWN.parse(markdown(every_block("x"))))]
    shown = markdown(every_block(text))
    assert CONTROL.search(shown) is None
    if text.strip():
        theirs = [token.type for token in leaves(MARKDOWN.parse(shown))]
        for kind in ("heading_open", "list_item_open", "link_open", "image", "blockquote_open", "table_open", "fence"):
            assert theirs.count(kind) == ours.count(kind), kind
        assert not [wrong for wrong in markdown_wrong(shown) if wrong.startswith(("reference", "s_open", "em_open"))]


@settings(database=None, deadline=None, derandomize=True, max_examples=60)
@given(texts)
def test_no_text_leaves_its_place_in_html(text: str) -> None:
    ours, theirs = (parsed(html(of, [b for b in every_block(of) if not isinstance(b, Code)])) for of in ("x", text))
    assert CONTROL.search(html(text, every_block(text))) is None
    if text.strip():
        assert [one for one in theirs.elements if one != "br"] == [one for one in ours.elements if one != "br"]
    assert theirs.others == ours.others
    assert not {one.split()[0] for one in parsed(html(text, every_block(text))).elements} & {"script", "img"}


@settings(database=None, deadline=None, derandomize=True, max_examples=60)
@given(texts)
def test_no_text_is_a_control_on_a_terminal(text: str) -> None:
    assert CONTROL.search(terminal(every_block(text), 80)) is None
    assert "\x1b[31m" not in terminal([Heading(text), Items((text,))], 80, color=True)


def test_what_a_terminal_shows() -> None:
    rows = [
        TableRow(("aten.add", Span("fails", style="bad"), "3"), detail="first\nsecond"),
        TableRow(("b", ("x", "\n", "y"), "12")),
    ]
    shown = terminal(
        [
            Heading("A title", 1),
            prose("Made by `{}`; **do not edit**. [sweep.md](sweep.md) says more.", "ddefuzz sweep"),
            Facts((("kind", "dde"), ("empty", ""), ("calls", "a\nb"))),
            table(("op", "status", "runs"), rows, right=("runs",)),
            Commands(("ddefuzz findings list  " + "long " * 20,)),
        ],
        70,
    )
    assert shown.splitlines() == [
        "A title",
        "Made by `ddefuzz sweep`; do not edit. sweep.md says more.",
        "",
        "kind   dde",
        "calls  a",
        "       b",
        "",
        "op        status  runs",
        "──────────────────────",
        "aten.add  fails      3",
        "    first",
        "    second",
        "b         x         12",
        "          y",
        "",
        "Next:",
        "  ddefuzz findings list  " + ("long " * 20).rstrip(),
    ]
    assert "\x1b[31mfails" in terminal([table(("a",), [(Span("fails", style="bad"),)])], 70, color=True)


def test_what_markdown_shows() -> None:
    rows = [TableRow(("aten|add", "x_", "3"), detail="first\nsecond"), TableRow(("b", ("x", "\n", "y"), "12"))]
    shown = markdown(
        [
            Heading("A *title*"),
            prose("Made by `{}`; **do not edit**. [sweep.md](sweep.md) says more.", "ddefuzz sweep"),
            Facts((("kind", "dde"), ("empty", ""), ("calls", "a\nb"))),
            table(("op", "status", "runs"), rows, code=("op",), right=("runs",)),
            Details("more", (Code("x = 1"),)),
        ]
    )
    assert shown.splitlines() == [
        "## A \\*title\\*",
        "",
        "Made by `ddefuzz sweep`; **do not edit**. [sweep.md](sweep.md) says more.",
        "",
        "- **kind**: dde",
        "- **calls**: a<br>b",
        "",
        "| op | status | runs |",
        "| --- | --- | ---: |",
        "| `aten\\|add` | x\\_ | 3<br>first<br>second |",
        "| `b` | x<br>y | 12 |",
        "",
        "<details><summary>more</summary>",
        "",
        "```python",
        "x = 1",
        "```",
        "",
        "</details>",
    ]


def test_a_column_is_left_out_on_narrow_pages() -> None:
    whole = table(("id", "stage"), [("a", "export")])
    wide = [type(column)(column.title, least_width=100) if at else column for at, column in enumerate(whole.columns)]
    narrow = type(whole)(tuple(wide), whole.rows)
    assert "export" in terminal([narrow], 100)
    assert "export" not in terminal([narrow], 99)


def test_a_template_takes_its_values_as_text() -> None:
    assert marked("a `{}` b **{}**", "`x`", "**y**") == (
        "a ",
        Span("`x`", code=True),
        " b ",
        Span("**y**", style="bold"),
        "",
    )
    with pytest.raises(IndexError):
        marked("{} {}", "x")
