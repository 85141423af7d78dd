"""`ddefuzz check`: its output and exit codes."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from ddefuzz.cli.main import main
from tests.typed import typed

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


def document(*words: str) -> dict[str, Any]:
    done = check(*words, "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def signature_of(problem: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = problem["classified"]["signature"]
    return found


def kind_of(problem: dict[str, Any]) -> str:
    return str(signature_of(problem)["kind"])


def raised_of(problem: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = problem["classified"]["failure"]["observation"]["raised"]
    return found


@pytest.mark.slow
def test_a_users_branch_is_one_problem_of_three_captures() -> None:
    found = document(f"{SUBJECTS}:branch", "--no-advice")
    assert [one["stage"] for one in found["captures"]] == ["export", "export-strict", "compile"]
    assert {one["outcome"] for one in found["captures"]} == {"fail"}
    (problem,) = found["problems"]
    assert (problem["case"], kind_of(problem), problem["classified"]["cause"]) == ("branch", "dde", "user")
    assert problem["stages"] == ["export", "export-strict", "compile"]
    assert problem["owner"]["kind"] == "yours"
    assert signature_of(problem)["anchor"] == "kept.shape[0] > 2"
    assert raised_of(problem)["symbols"][0]["op"] == "nonzero"
    assert problem["answers"] == [{"stage": "export", "value": True}]
    assert problem["chain"][-1]["code"] == "kept.shape[0] > 2"


def test_all_problems_of_a_model_are_listed_at_once() -> None:
    found = document(f"{SUBJECTS}:Deep", "--stage", "export", "--stage", "export-strict", "--no-advice")
    problems = found["problems"]
    assert [(one["owner"]["kind"], signature_of(one)["anchor"]) for one in problems] == [
        ("yours", "x.shape[1] > 3"),
        ("yours", "kept.shape[0] == 0"),
        ("PyTorch", "a.numel() == 0"),
    ]
    assert [one["stages"] for one in problems] == [["export", "export-strict"], [], []]
    assert {raised_of(one)["module"] for one in problems} == {"layers.0"}
    assert raised_of(problems[0])["symbols"][0]["source"] == "dim 1 of x"
    assert [one["answers"][0]["value"] for one in problems] == [True, False, False]


@pytest.mark.slow
def test_a_loop_over_data_is_left_and_named() -> None:
    found = document(f"{SUBJECTS}:loop", "--stage", "export", "--stage", "export-strict")
    problem = found["problems"][0]
    assert (problem["owner"]["kind"], problem["classified"]["cause"]) == ("yours", "user")
    assert signature_of(problem)["anchor"] == "order.numel() > 0"
    assert "torch.while_loop" in problem["remedy"]
    assert found["changes"] == []
    ((_, advice),) = found["advice"]
    assert advice["summary"] == "How often the loop `while order.numel() > 0:` runs is known only at run time."
    assert "timeout" not in {kind_of(one) for one in found["problems"]}


@pytest.mark.slow
def test_a_users_function_that_is_compiled_again_is_a_problem_of_its_own_row() -> None:
    found = document(f"{SUBJECTS}:lengthy", "--stage", "eager", "--oracle", "recompilation", "--no-advice")
    rows = {one["stage"]: one for one in found["captures"]}
    (problem,) = found["problems"]
    assert (kind_of(problem), problem["owner"]["kind"]) == ("recompiles", "yours")
    assert problem["chain"][-1]["code"] == "range(x.shape[0])"
    assert "compiles 4 times at sizes 5, 7, 9, 11; 2 would do" in problem["classified"]["failure"]["evidence"]
    assert set(problem["stages"]) <= {"recompile", "recompile-dynamic"} <= set(rows)
    assert rows["recompile"]["keys"] == problem["keys"]
    assert rows["recompile"]["outcome"] == "ok"


def test_an_error_that_is_not_about_data_says_so() -> None:
    done = check(f"{SUBJECTS}:odd_output", "--stage", "export", "--no-advice")
    assert done.returncode == 1
    assert "it fails with static sizes as well" in done.stdout
    assert "torch.export.register_dataclass" in done.stdout


@pytest.mark.slow
def test_dims_of_the_command_line_and_the_first_line() -> None:
    done = check(f"{SUBJECTS}:fine", "--stage", "export", "--unbacked", "x:0")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "fine exports: captured in export."
    done = check(f"{SUBJECTS}:fine", "--unbacked", "y:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--unbacked: found argument 'y' to make unbacked, expected one of x" in done.stderr


@pytest.mark.slow
def test_a_lost_message_does_not_make_a_captured_program_wrong() -> None:
    done = check(f"{SUBJECTS}:counted", "--stage", "export")
    unfolded = " ".join(done.stdout.split())
    assert unfolded.startswith(
        "counted exports: captured in export. 1 problem; neither stops capture nor makes its result wrong. "
    )
    assert "the captured program does not give the message of a `torch._check`" in unfolded
    assert "captured, but wrong" not in unfolded
    assert done.returncode == 0


def test_known_findings_are_named() -> None:
    found = document(
        f"{SUBJECTS}:Roll", "--stage", "compile", "--no-advice", "--known", str(HERE.parents[1] / "findings")
    )
    (problem,) = found["problems"]
    assert [one["id"] for one in found["known"]] == problem["keys"]
    done = check(f"{SUBJECTS}:Roll", "--stage", "compile", "--no-advice", "--known", str(HERE))
    assert done.returncode == 2
    assert "found no findings, expected a folder of them" in done.stderr


@pytest.mark.slow
def test_a_program_file_in_both_semantics(tmp_path: Path) -> None:
    path = tmp_path / "chunk.py"
    path.write_text(PROGRAM)
    both = ("--semantics", "explicit", "--semantics", "size-oblivious")
    found = document(str(path), "--stage", "export", "--no-advice", *both)
    assert [(one["semantics"], one["outcome"], one["verdict"]) for one in found["captures"]] == [
        ("explicit", "fail", "fails"),
        ("size-oblivious", "fail", None),
    ]
    problem = found["problems"][0]
    assert signature_of(problem)["site"]["function"] == "at::native::chunk"
    assert problem["classified"]["cause"] == "result-depends-on-data"
    (key,) = problem["keys"]
    assert check(str(path), "--stage", "export", "--key", key).returncode == 0
    assert check(str(path), "--stage", "export", "--key", "dde-0000000000").returncode == 1


@pytest.mark.slow
def test_a_module_of_cases_a_class_and_a_factory() -> None:
    both = document(str(SUBJECTS), "--stage", "export", "--no-advice")["captures"]
    assert [(one["case"], one["outcome"]) for one in both] == [("one", "ok"), ("two", "fail")]
    (one,) = document(str(SUBJECTS), "--case", "one", "--stage", "export")["captures"]
    assert (one["case"], one["outcome"]) == ("one", "ok")
    (problem,) = document(f"{SUBJECTS}:Roll", "--stage", "compile", "--no-advice")["problems"]
    assert signature_of(problem)["site"]["function"] == "roll"
    done = check(f"{SUBJECTS}:factory", "--stage", "export")
    assert done.returncode == 0
    assert any(line.startswith("factory: export captured in ") for line in done.stderr.splitlines())


def test_a_crash_is_an_outcome() -> None:
    done = check(f"{SUBJECTS}:dies", "--stage", "export")
    assert done.returncode == 1
    assert "crash" in done.stdout
    assert "SIGSEGV" in done.stdout


@pytest.mark.slow
def test_text_and_a_file_of_json(tmp_path: Path) -> None:
    path = tmp_path / "check.json"
    done = typed("check", f"{SUBJECTS}:fine", "--stage", "export", "--output", f"json={path}", folder=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("fine exports: captured in export.")
    assert [one["outcome"] for one in json.loads(path.read_text())["captures"]] == ["ok"]


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


@pytest.mark.slow
def test_a_program_is_called_at_the_sizes_that_are_given(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(
        '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=3"]):\n    return x + 1\n'
    )
    (capture,) = document(str(path), "--stage", "compile", "--sizes", "u0=77", "--sizes", "u0=12")["captures"]
    assert [call["size"] for call in capture["calls"]][-2:] == ["u0=77", "u0=12"]
    assert dict(capture["calls"][-2]["symbols"]) in ({"u0": 77}, {})
    refused = check(str(path), "--sizes", "u1=5")
    assert (refused.returncode, refused.stderr) == (2, "ddefuzz: --sizes: found 'u1', expected some of u0\n")


@pytest.mark.slow
def test_a_file_with_an_empty_list_among_others_is_left_out(tmp_path: Path) -> None:
    empty, good = tmp_path / "empty.py", tmp_path / "good.py"
    empty.write_text("CASES = []\n")
    good.write_text("import torch\ndef f(x):\n    return x + 1\nf_args = (torch.ones(2),)\n")
    done = check(str(empty), f"{good}:f", "--stage", "export", "--no-advice")
    assert done.returncode == 2
    assert f"left out (1 of 1): {empty}: found an empty list CASES, expected at least one case" in done.stderr
    assert check(str(empty)).returncode == 5
