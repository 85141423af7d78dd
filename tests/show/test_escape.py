"""Every function that escapes, on hostile text: a parser of the language gives back the text, and nothing besides."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import tokenize
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given, settings
from junitparser import JUnitXml, TestCase, TestSuite
from markdown_it.token import Token

from ddefuzz.escape import (
    BREAK,
    block,
    csv_cell,
    from_sarif_message,
    github_data,
    github_log,
    github_property,
    html_comment,
    html_text,
    json_text,
    markdown_block,
    markdown_code,
    markdown_table,
    markdown_text,
    one_line,
    python_comment,
    python_docstring,
    sarif_message,
    shell_word,
    visible,
    whole_number,
    xml_text,
)
from tests.show.hostile import CONTROL, MARKDOWN, TOKENS, leaves, markdown_wrong, parsed, texts


def text_of(tokens: list[Token]) -> str:
    """The text that a reader sees."""
    return "".join(one.content for one in leaves(tokens) if one.type in ("text", "code_inline", "text_special"))


@given(texts)
def test_visible_text_has_no_control_and_keeps_what_can_be_read(text: str) -> None:
    shown = visible(text)
    assert CONTROL.search(shown) is None
    assert shown.replace("\n", "").isprintable()
    assert visible(shown) == shown
    if text.replace("\n", "").isprintable():
        assert shown == text


@given(texts)
@example("1. x")
@example("@name #1 org/repo#1 www.x.y https://x.y <a@b.c> [x](javascript:x)")
def test_markdown_text_is_one_paragraph_of_this_text(text: str) -> None:
    written = markdown_text(text)
    tokens = MARKDOWN.parse(written)
    assert [one.type for one in tokens] == (["paragraph_open", "inline", "paragraph_close"] if written else [])
    assert {one.type for token in tokens for one in token.children or ()} <= {"text", "text_special"}
    assert text_of(tokens).replace(BREAK, "") == one_line(text)
    assert markdown_wrong(written) == []


@given(texts, texts)
def test_markdown_text_stays_in_a_heading_and_an_item(text: str, other: str) -> None:
    page = f"## x {markdown_text(text)}\n\n- {markdown_text(other)}\n"
    blocks = [one.type for one in MARKDOWN.parse(page) if one.nesting == 1]
    item = ["bullet_list_open", "list_item_open", *(["paragraph_open"] if one_line(other) else [])]
    assert blocks == ["heading_open", *item]
    assert text_of(MARKDOWN.parse(page)).replace(BREAK, "") == f"x {one_line(text)}".strip() + one_line(other)


@given(texts)
def test_markdown_code_is_one_span_of_this_text(text: str) -> None:
    line = one_line(text)
    children = [one for token in MARKDOWN.parse(f"a {markdown_code(text)} b") for one in token.children or ()]
    assert [(one.type, one.content) for one in children] == (
        [("text", "a "), ("code_inline", line), ("text", " b")] if line else [("text", "a  b")]
    )


@given(texts)
def test_markdown_block_is_one_fence_of_this_text(text: str) -> None:
    tokens = MARKDOWN.parse(f"before\n\n{markdown_block(text, 'python')}\n\nafter\n")
    (fence,) = [one for one in tokens if one.type == "fence"]
    assert [one.type for one in tokens].count("paragraph_open") == 2
    assert fence.info == "python"
    assert fence.content.rstrip("\n") == block(text.rstrip()).rstrip("\n")


@given(texts, texts, texts)
def test_a_table_has_the_cells_that_it_was_given(first: str, second: str, third: str) -> None:
    rows = [(markdown_text(first), markdown_code(second)), (markdown_code(third), markdown_text(first))]
    tokens = MARKDOWN.parse(markdown_table(("one", "two"), rows, right=("two",)) + "\n\nafter\n")
    cells = [text_of([of]) for at, of in enumerate(tokens) if tokens[at - 1].type in ("td_open", "th_open")]
    assert [cell.replace(BREAK, "") for cell in cells[2:]] == list(map(one_line, (first, second, third, first)))
    assert [one.type for one in tokens if one.nesting == 1 and one.level == 0] == ["table_open", "paragraph_open"]


@given(texts)
def test_html_text_is_text_and_an_attribute(text: str) -> None:
    found = parsed(f'<p title="{html_text(text)}">{html_text(text)}</p>')
    assert (found.elements, found.others) == (["p title"], [])
    assert "".join(found.data) == one_line(text)


@given(texts)
def test_an_html_comment_ends_where_it_is_closed(text: str) -> None:
    page = f"<!-- title: {html_comment(text)} -->\n\nafter\n"
    found = parsed(page)
    assert (found.elements, len(found.others), "".join(found.data)) == ([], 1, "\n\nafter\n")
    assert found.others[0].replace("- -", "--").replace("- -", "--") == f" title: {one_line(text)} " or "--" in text
    assert [one.type for one in MARKDOWN.parse(page)] == ["html_block", "paragraph_open", "inline", "paragraph_close"]


@given(texts)
def test_xml_has_the_text_in_elements_and_attributes(text: str) -> None:
    suite = TestSuite(xml_text(text))
    suite.add_property("x", xml_text(text))
    suite.add_testcase(TestCase(xml_text(text)))
    document = JUnitXml("x")
    document.add_testsuite(suite)
    written = document.tostring()
    shown = block(text)
    (read,) = ET.fromstring(written)
    assert read.get("name") == shown
    assert next(read.iter("property")).get("value") == shown
    (again,) = JUnitXml.fromstring(written)
    assert [case.name for case in again] == [shown]
    element = ET.Element("x")
    element.text = xml_text(text)
    assert ET.fromstring(ET.tostring(element)).text == (shown or None)


def plain_sarif(text: str) -> str:
    """A plain message as a viewer shows it (3.11.5 and 3.11.6). Raises `AssertionError` for a placeholder or a link."""
    shown, at, inside = "", 0, False
    while at < len(text):
        if text[at] in "{}":
            assert text[at : at + 2] == text[at] * 2, text
            at += 1
        inside = inside or text[at] == "["
        backslashes = len(shown) - len(shown.rstrip("\\"))
        assert not (inside and text[at : at + 2] == "](" and backslashes % 2 == 0), text
        shown += text[at]
        at += 1
    return shown


@given(texts)
@example(r"[x]\](javascript:x)[y](1)")
def test_a_sarif_message_has_no_placeholder_and_no_link(text: str) -> None:
    shown = plain_sarif(sarif_message(text))
    assert shown == block(text) or "](" in text


@given(texts)
def test_the_text_of_a_sarif_message_can_be_read_back(text: str) -> None:
    assert from_sarif_message(sarif_message(text)) == block(text)


def undone(text: str) -> str:
    """What the runner of GitHub makes of the value of a command."""
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


@given(texts)
def test_a_workflow_command_is_one_line_with_this_message(text: str) -> None:
    line = f"::error file={github_property(text)},title={github_property(text)}::{github_data(text)}"
    assert len(line.splitlines()) == 1
    properties, message = line.removeprefix("::error ").split("::", 1)
    assert undone(message) == visible(text)
    assert [undone(one.partition("=")[2]) for one in properties.split(",")] == [visible(text)] * 2


def is_command(line: str) -> bool:
    """Whether GitHub's runner may take a line for a command, in its newer form or in its older one."""
    return line.strip().startswith("::") or "##[" in line


@given(texts)
@example("a\n  ::stop-commands::x\nb ##[add-mask]c ###[d]\n::")
def test_a_line_of_a_log_is_no_workflow_command(text: str) -> None:
    shown = github_log(visible(text))
    assert not any(map(is_command, shown.split("\n")))
    assert shown.replace(BREAK, "") == visible(text)


@pytest.mark.parametrize("text", [":cat:", "a :+1: b", "x:100:y", ":heavy_check_mark:"])
def test_no_word_is_a_picture_on_github(text: str) -> None:
    assert not re.search(r":[a-z0-9_+-]+:", markdown_text(text))


@pytest.mark.parametrize("text", ["at::native::chunk", "a.py:12:5", "torch/a.py:f"])
def test_names_of_code_can_be_copied(text: str) -> None:
    assert markdown_text(text) == text


@given(texts)
@example("＝1+1")  # noqa: RUF001
def test_a_csv_cell_is_no_formula(text: str) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow(["a", csv_cell(text), "b"])
    ((first, cell, last),) = csv.reader(io.StringIO(out.getvalue(), newline=""), strict=True)
    assert (first, last) == ("a", "b")
    assert cell.removeprefix("'") == visible(text).removeprefix("'")
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r"))  # noqa: RUF001


@given(texts)
def test_json_is_ascii_and_has_the_text(text: str) -> None:
    written = json_text({"x": [text], text: 1})
    assert written.isascii()
    assert written.isprintable()
    valid = text.encode(errors="backslashreplace").decode()
    assert json.loads(written) == {"x": [valid], valid: 1}
    assert json.loads(json_text({"x": text}, indent=True)) == {"x": valid}


@given(texts)
def test_a_comment_of_python_is_one_comment(text: str) -> None:
    source = f"x = 1  {python_comment(text)}\ny = 2\n"
    assert ast.dump(ast.parse(source)) == ast.dump(ast.parse("x = 1\ny = 2\n"))
    (comment,) = [
        one.string for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type == tokenize.COMMENT
    ]
    assert comment == f"# {one_line(text)}".rstrip()


@given(texts)
def test_a_docstring_of_python_is_one_string(text: str) -> None:
    source = f"def f():\n    {python_docstring(text)}\n    return 1\n"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert len(function.body) == 2
    assert ast.get_docstring(function, clean=False) == block(text)


@given(texts)
def test_a_word_that_can_be_printed_is_quoted_for_all_shells(text: str) -> None:
    word = shell_word(text)
    assert visible(word, "") == word
    if text.isprintable():
        assert shlex.split(word) == [text]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_reads_the_words() -> None:
    words = [word for word in TOKENS if "\x00" not in word and "\ud800" not in word]
    script = "".join(f"printf '%s\\0' {shell_word(word)}\n" for word in words)
    ran = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60)
    assert ran.stdout.split(b"\0")[:-1] == [word.encode(errors="surrogateescape") for word in words]
    assert ran.stderr == b""


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=3000)
@given(texts, texts)
def test_a_page_of_all_places_of_markdown_has_nothing_of_the_text(text: str, other: str) -> None:
    page = "\n".join(
        [
            f"<!-- {html_comment(text)} -->",
            "",
            f"{markdown_text(text)} ({markdown_code(other)})",
            f"x {markdown_text(other)}.",
            "",
            markdown_block(other),
            "",
            markdown_table(("a", "b"), [(markdown_text(text), markdown_code(other))]),
            "",
        ]
    )
    comment = f"<!-- {html_comment(text)} -->".strip()
    assert markdown_wrong(page, (comment,)) == []


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("12", 12), ("²", None), ("9" * 5_000, None), ("-1", None)])
def test_a_number_has_few_digits_of_ascii(text: str, number: int | None) -> None:
    assert whole_number(text) == number
