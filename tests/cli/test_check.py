"""`ddefuzz check`: its output and exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from ddefuzz.classify.signature import Site
from ddefuzz.cli.check_page import check_page
from ddefuzz.cli.main import main
from ddefuzz.cli.output import Page
from ddefuzz.report.check import Row

HERE = Path(__file__).parent
SUBJECTS = HERE / "check_subjects.py"
PROGRAM = """# ddefuzz program v1
# inputs: keep = trues(4); x = normal
def program(keep: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[keep]
    parts = torch.chunk(kept, 2)
    return parts[0]
"""


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def check(*words: str) -> Done:
    """`ddefuzz check WORDS` in this process: all tests share the fork server, which takes seconds to start."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["ddefuzz", "check", *words]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def check_as_typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("ddefuzz"), "check", *words], capture_output=True, text=True, check=False
    )


def rows(*words: str) -> list[dict[str, Any]]:
    done = check(*words, "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_users_branch_comes_with_a_check_that_was_tried() -> None:
    found = rows(f"{SUBJECTS}:branch", "--semantics", "explicit")
    assert [row["stage"] for row in found] == ["export", "export-strict", "compile"]
    for row in found:
        assert (row["case"], row["outcome"], row["kind"], row["cause"]) == ("branch", "fail", "dde", "user")
        assert row["site"] == {"language": "Python", "module": "user code", "function": None}
        assert row["anchor"] == "kept.shape[0] > 2"
        assert row["advice"]["origins"][0].startswith("u0 comes from `nonzero` at ")
        best = row["advice"]["suggestions"][0]
        assert best["code"] == ["torch._check(kept.shape[0] > 2)"]
        assert best["passes"] == ["export", "export-strict", "compile"]


def test_a_program_file_in_both_semantics(tmp_path: Path) -> None:
    path = tmp_path / "chunk.py"
    path.write_text(PROGRAM)
    found = rows(str(path), "--stage", "export", "--no-advice")
    assert [(row["semantics"], row["outcome"], row["verdict"]) for row in found] == [
        ("explicit", "fail", "fails"),
        ("size-oblivious", "fail", None),
    ]
    assert found[0]["site"]["function"] == "at::native::chunk"
    assert found[0]["cause"] == "result-depends-on-data"
    key = found[0]["key"]
    assert check(str(path), "--stage", "export", "--key", key).returncode == 0
    assert check(str(path), "--stage", "export", "--key", "dde-0000000000").returncode == 1


def test_a_program_gets_advice_that_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(PROGRAM.replace("parts[0]", "parts[0] if n > 3 else x").replace("torch.chunk(kept, 2)", "[kept]"))
    path.write_text(path.read_text().replace("    parts", "    n = kept.shape[0]\n    parts"))
    (row,) = rows(str(path), "--stage", "export", "--semantics", "explicit")
    assert (row["cause"], row["anchor"]) == ("user", "n > 3")
    assert row["advice"]["suggestions"][0]["code"] == ["torch._check(n > 3)"]


def test_a_module_of_cases_a_class_and_a_factory() -> None:
    both = rows(str(SUBJECTS), "--stage", "export", "--semantics", "explicit", "--no-advice")
    assert [(row["case"], row["outcome"]) for row in both] == [("one", "ok"), ("two", "fail")]
    (one,) = rows(str(SUBJECTS), "--case", "one", "--stage", "export", "--semantics", "explicit")
    assert (one["case"], one["verdict"]) == ("one", "ok")
    (module,) = rows(f"{SUBJECTS}:Roll", "--stage", "compile", "--semantics", "explicit", "--no-advice")
    assert module["site"]["function"] == "roll"
    done = check(f"{SUBJECTS}:factory", "--stage", "export")
    assert done.returncode == 0
    assert all(line.endswith(" runs") for line in done.stderr.splitlines())


def test_what_fails_only_with_size_oblivious_semantics_has_no_cause_in_the_table() -> None:
    site = Site("C++", None, "at::native::chunk")
    rows = [
        Row("f", "export", "explicit", "ok", verdict="rescued"),
        Row("f", "export", "size-oblivious", "fail", kind="dde", site=site, cause="avoidable"),
    ]
    lines = [line.split() for line in check_page(rows, Page(80)).splitlines()]
    assert lines[2:4] == [
        ["f", "export", "ok", "fail", "rescued"],
        ["size-oblivious", "only:", "dde", "in", "at::native::chunk"],
    ]


def test_a_crash_is_an_outcome() -> None:
    done = check(f"{SUBJECTS}:dies", "--stage", "export", "--semantics", "explicit")
    assert done.returncode == 1
    assert "crash" in done.stdout
    assert "SIGSEGV" in done.stdout


@pytest.mark.slow
def test_text_and_a_file_of_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    done = check_as_typed(f"{SUBJECTS}:fine", "--stage", "export", "--output", f"json={path}")
    assert done.returncode == 0
    assert "1 case, 2 runs: 2 ok" in done.stdout
    assert [json.loads(line)["outcome"] for line in path.read_text().splitlines()] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing.py",), "missing.py: found no such file"),
        ((f"{SUBJECTS}:missing",), "check_subjects.py:missing: found no such name, expected a callable"),
        ((str(SUBJECTS), "--case", "three"), "found no case 'three' among 2, expected one such as one, two"),
        ((f"{SUBJECTS}:fine", "--case", "one"), "found both a name and --case one"),
    ],
)
def test_what_cannot_be_used_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = check(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_does_not_parse_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(PROGRAM.replace("torch.chunk", "torch.load"))
    done = check(str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"ddefuzz: {path}:5: found a call of 'torch.load'")
