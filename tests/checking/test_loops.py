"""Loops whose number of rounds depends on data, found in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.checking.problems import loop_at

SOURCE = """\
def f(x):
    while x.numel() > 0:
        if x[0] > 1:
            break
        if x[1] > 1:
            x = x[1:]
        for one in x:
            if one > 2:
                break
    if x.numel() > 0:
        return x
"""


@pytest.mark.parametrize(
    ("line", "loop"),
    [(2, "while x.numel() > 0:"), (3, "while x.numel() > 0:"), (5, ""), (8, ""), (10, ""), (99, "")],
)
def test_only_what_ends_the_loop_counts(tmp_path: Path, line: int, loop: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    assert loop_at(str(path), line) == loop


@pytest.mark.parametrize("content", ["while (", "\x00"])
def test_a_file_that_is_no_python_has_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(content)
    assert loop_at(str(path), 1) == ""
    assert loop_at(str(tmp_path / "gone.py"), 1) == ""
