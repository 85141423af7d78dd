"""Every message that docs/faults.md quotes is one that the code can print."""

from __future__ import annotations

import ast
import os
import re
import signal
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from ddefuzz.execute.pool import exit_reason

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "faults.md"

LONGEST = 300
"""What is longer is a docstring."""

LETTERS = 6
"""What a text with holes has at least, to say something by itself."""

CODE = re.compile("`[^`]*`")
"""What messages quote cannot be quoted once more in the document."""

HOLE = "…"
"""In the document: what is not quoted. In a literal of the code: what is put in."""

NO_MESSAGE = re.compile(
    r"ddefuzz [a-z].*|--?[a-z-]+|[a-z_]+/[a-z_/.]+|[A-Z_]+|NAME_unbacked|crash|timeout|0/1|"
    r"kill -9|ulimit -n 1024|\| head|…"
)
"""What else stands in backticks: commands, options, files, variables, kinds."""


def quoted() -> list[str]:
    found = re.findall(r"`([^`]+)`", DOCUMENT.read_text(encoding="utf-8"))
    return sorted({text for text in found if not NO_MESSAGE.fullmatch(text)})


class Texts(NamedTuple):
    """The texts of the code: whole ones, their beginnings up to a joint, and those with values put in."""

    whole: frozenset[str]
    beginnings: frozenset[str]
    filled: tuple[re.Pattern[str], ...]


@cache
def texts() -> Texts:
    whole: set[str] = set()
    filled: set[str] = set()
    for path in (ROOT / "ddefuzz").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
                filled.add(CODE.sub(HOLE, "".join(map(str, parts)).strip()))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < LONGEST:
                text = CODE.sub(HOLE, node.value.strip())
                (filled if HOLE in text else whole).add(text)
    whole |= {os.strerror(number) for number in range(1, 134)}  # what the operating system says
    whole |= {exit_reason(-number) for number in (signal.SIGKILL, signal.SIGSEGV)}
    beginnings = {text[: joint.end()] + HOLE for text in whole | filled for joint in re.finditer(r"[;:,] |\(", text)}
    patterns = (map(re.escape, text.split(HOLE)) for text in filled if len(re.findall("[a-z]", text)) >= LETTERS)
    return Texts(frozenset(whole), frozenset(beginnings), tuple(re.compile("(.*?)".join(parts)) for parts in patterns))


@cache
def can_be_printed(text: str) -> bool:
    """Whether the code has this text, or one with holes that texts of the code, numbers or holes fill."""
    text = text.strip()
    known = texts()
    if text in known.whole or text in known.beginnings or re.fullmatch(rf"|{HOLE}|[0-9.]+", text):
        return True
    matches = (pattern.fullmatch(text) for pattern in known.filled)
    return any(match is not None and all(map(can_be_printed, match.groups())) for match in matches)


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_one_of_the_code(message: str) -> None:
    assert can_be_printed(message), f"{DOCUMENT.name} quotes {message!r}, which no text of the code can make"


@pytest.mark.parametrize(
    "message", ["workers could not use …: …", "findings database …: it is on fire, expected …", "stopped after … h"]
)
def test_a_message_that_the_code_has_not_is_found(message: str) -> None:
    assert not can_be_printed(message)


def test_the_document_quotes_messages() -> None:
    assert len(quoted()) > 25
