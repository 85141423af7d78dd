"""What differs between two versions of torch: the comparison of results, and `ddefuzz diff` over two interpreters."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.diff import command as diff
from ddefuzz.errors import EXIT_FOUND, InputError, UnsupportedError
from ddefuzz.versions.diff import compared
from ddefuzz.versions.side_by_side import Ask, CaseSeen, GuardSeen, read_saved, saved_text


def at(function: str) -> Signature:
    return Signature("dde", Site("C++", None, function), "guard_bool operator==")


A, B, C = at("a"), at("b"), at("c")


def seen(torch: str, number: int, *failures: Signature, guards: tuple[GuardSeen, ...] = (), **more: str) -> CaseSeen:
    outcome = more.get("outcome", "fail" if failures else "ok")
    return CaseSeen(
        number=number,
        stage="export",
        torch=torch,
        text=f"program {number}",
        outcome=outcome,
        reason=more.get("reason", ""),
        failures=failures,
        guards=guards,
    )


def kinds(old: list[CaseSeen], new: list[CaseSeen]) -> list[tuple[str, str, int]]:
    return [(row.kind, row.what or f"{row.old} -> {row.new}", row.cases) for row in compared(old, new).differences]


def test_new_gone_and_moved_findings() -> None:
    old = [seen("1", 0, A), seen("1", 1), seen("1", 2, B), seen("1", 3, C), seen("1", 4, C)]
    new = [seen("2", 0), seen("2", 1, B), seen("2", 2, B), seen("2", 3, at("d")), seen("2", 4, at("d"))]
    assert kinds(old, new) == [("gone finding", str(A), 1), ("moved finding", f"{C} -> {at('d')}", 2)]


def test_sites_without_a_module_or_function_are_compared() -> None:
    nowhere = Signature("dde", Site("C++", None, None), "guard_bool operator==")
    rows = kinds([seen("1", 0, A, nowhere)], [seen("2", 0, B, C)])
    assert [kind for kind, _, _ in rows] == ["moved finding"] * 4


def test_what_fails_in_the_new_version_only_is_new() -> None:
    assert kinds([seen("1", 0)], [seen("2", 0, A)]) == [("new finding", str(A), 1)]


def test_a_program_that_one_version_cannot_judge_is_left_out() -> None:
    result = compared([seen("1", 0, A)], [seen("2", 0, outcome="not-judged", reason="no such op")])
    assert (result.differences, result.cases) == ((), 0)
    assert result.not_judged == ("case 0: 2: no such op",)


def test_programs_with_another_text_are_not_compared() -> None:
    other = CaseSeen(number=0, stage="export", torch="2", text="another", outcome="ok")
    assert compared([seen("1", 0, A)], [other]).cases == 0


def test_guard_sites_and_changed_answers() -> None:
    old = [seen("1", 0, guards=(GuardSeen("f.py:f g", "Eq(u, 0)", "False"), GuardSeen("gone.py:f g", "u", "True")))]
    new = [seen("2", 0, guards=(GuardSeen("f.py:f g", "Eq(u, 0)", "raised"), GuardSeen("new.py:f g", "u", "True")))]
    assert kinds(old, new) == [
        ("new guard site", "new.py:f g", 1),
        ("gone guard site", "gone.py:f g", 1),
        ("changed answer", "f.py:f g [Eq(u, 0)]", 1),
    ]
    assert not kinds(old, [seen("2", 0, guards=old[0].guards)])


def test_results_are_saved_and_read(tmp_path: Path) -> None:
    cases = (seen("1", 0, A, guards=(GuardSeen("f", "u", "True"),)), seen("1", 1))
    path = tmp_path / "a.jsonl"
    path.write_text(saved_text(reversed(cases)))
    assert read_saved(path) == cases


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "found no line"), ("{}\n", r"a.jsonl:1: .*missing"), ('{"schema"', "a.jsonl:1: "), ("[1]\n", "a.jsonl:1: ")],
)
def test_a_wrong_file_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_saved(path)


def test_the_exit_code_says_whether_there_is_a_new_finding(tmp_path: Path) -> None:
    for name, cases in {"old": [seen("1", 0)], "new": [seen("2", 0, A)], "same": [seen("3", 0)]}.items():
        (tmp_path / f"{name}.jsonl").write_text(saved_text(cases))
    old, new, same = (str(tmp_path / f"{name}.jsonl") for name in ("old", "new", "same"))
    result = CliRunner().invoke(diff, [old, new, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == EXIT_FOUND
    document = json.loads(result.stdout)
    assert (document["cases"], document["counts"]["new finding"]) == (1, 1)
    assert document["differences"][0]["program"] == "program 0"
    again = CliRunner().invoke(diff, [old, same], catch_exceptions=False)
    assert again.exit_code == 0
    assert "no difference" in again.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.jsonl", "x.jsonl"], "x.jsonl"),
        ([sys.executable, sys.executable], "found two sides named"),
        ([f"a={sys.executable}", f"b={sys.executable}", "--budget", "5cpu"], "expected a time such as 10m"),
        ([f"a/b={sys.executable}", f"b={sys.executable}"], "without a slash"),
    ],
)
@pytest.mark.slow
def test_what_is_typed_wrongly_is_said(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(diff, words, catch_exceptions=False)


CHUNK = """\
# ddefuzz program v1
# expect: export/explicit dde at at::native::chunk
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.chunk(x, 2)
"""

RELU = """\
# ddefuzz program v1
# expect: export/explicit ok
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.relu(x)
"""


@pytest.mark.slow
def test_two_interpreters_run_the_same_programs(tmp_path: Path) -> None:
    for name, text in {"chunk": CHUNK, "relu": RELU}.items():
        (tmp_path / f"{name}.py").write_text(text)
    patched = tmp_path / "python"
    patched.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    patched.chmod(0o755)
    words = [f"old={sys.executable}", f"new={patched}", str(tmp_path / "chunk.py"), str(tmp_path / "relu.py")]
    more = ["--stage", "export", "-j", "2", "--save", str(tmp_path / "saved"), "--format", "json"]
    result = CliRunner().invoke(diff, words + more, catch_exceptions=False, env=dict(os.environ))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["cases"], document["differences"]) == (2, [])
    cases = read_saved(tmp_path / "saved" / "new.jsonl")
    assert [[str(one) for one in case.failures] for case in cases] == [
        ["dde at at::native::chunk [guard_bool operator==]"] if "chunk" in case.text else [] for case in cases
    ]


SEES = """\
#!{python}
import sys
if "-c" in sys.argv:
    print("2.13.0")
elif "-m" in sys.argv:
    {body}
"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('a line', flush=True); sys.stdin.read()", "printed 'a line', expected the result of a program"),
        ("sys.stdin.read(); sys.exit('no space')", "ended with no space, expected 0"),
    ],
)
def test_an_interpreter_that_prints_something_else_is_said(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "old.jsonl").write_text(saved_text([seen("1", 0)]))
    python = tmp_path / "python"
    python.write_text(SEES.format(python=sys.executable, body=body))
    python.chmod(0o755)
    with pytest.raises(UnsupportedError, match=message):
        CliRunner().invoke(diff, [str(tmp_path / "old.jsonl"), f"new={python}"], catch_exceptions=False)


def test_saved_results_of_the_same_name_get_names(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.jsonl").write_text(saved_text([seen(folder, 0)]))
    words = [str(tmp_path / folder / "x.jsonl") for folder in ("a", "b")]
    with pytest.raises(InputError, match=r"b/x\.jsonl: found two sides named 'x', expected different names: NAME=PATH"):
        CliRunner().invoke(diff, words, catch_exceptions=False)
    named = CliRunner().invoke(diff, [f"{at}={word}" for at, word in enumerate(words)], catch_exceptions=False)
    assert "0 (torch a) and 1 (torch b): 1 program compared" in named.stdout


class Refusing:
    """A pool whose only task is refused."""

    def submit(self, *_: object) -> Refusing:
        return self

    def result(self) -> object:
        raise InputError("<program>:1: found no program")


def test_a_text_that_is_no_program_is_not_judged_and_not_the_end() -> None:
    from ddefuzz.versions.see import _answer  # noqa: PLC0415 it imports torch

    seen = _answer(cast("Any", Refusing()), Ask(3, "export", "no program"))
    assert (seen.number, seen.outcome, seen.reason) == (3, "not-judged", "<program>:1: found no program")
