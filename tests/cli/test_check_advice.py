"""The changes that `ddefuzz check` offers, as they are printed and written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from ddefuzz.checking.patch import Advice, Change, FailedAttempt, Fix
from ddefuzz.checking.problems import BY_HAND, YOURS, Problem
from ddefuzz.checking.report import advice_facts, change_view
from ddefuzz.classify.cause import MEANINGS, Classification
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, Observation, Stage
from ddefuzz.findings.textform import KnownFinding
from ddefuzz.show.terminal import terminal
from tests.cli.test_check import PROGRAM, SUBJECTS, check, document


@pytest.mark.slow
def test_a_branch_comes_with_a_promise_that_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\n\n\ndef f(x, keep):\n    kept = x[keep]\n    if kept.shape[0] > 2:\n        return kept.sum(0)\n"
        "    return kept\n\n\nf_args = (torch.ones(4, 2), torch.tensor([True, True, False, True]))\n"
    )
    found = document(f"{path}:f", "--stage", "export", "--stage", "compile")
    case, best = found["changes"][0]["case"], found["changes"][0]["change"]
    assert (case, best["kind"], best["harm"], best["passes"]) == ("f", "inside-promise", 3, ["export", "compile"])
    assert "+    torch._check(kept.shape[0] > 2)\n     if kept.shape[0] > 2:\n" in best["diff"]
    assert best["refuses"][0].startswith("refuses inputs for which kept.shape[0] <= 2, which eager takes, such as ")


@pytest.mark.slow
def test_a_stage_that_judges_no_dtensor_stops_no_change(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\nfrom torch.distributed.tensor import Shard, distribute_tensor\n\n"
        'if not torch.distributed.is_initialized():\n    torch.distributed.init_process_group("fake", rank=0, '
        "world_size=4)\n\n\ndef f(x):\n    return x.mean(0)\n\n\ndef f_args():\n"
        '    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (4,))\n'
        "    return (distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)]),)\n\n\nf_unbacked = {0: [0]}\n"
    )
    found = document(f"{path}:f", "--stage", "export", "--stage", "compile")
    assert [(one["stage"], one["outcome"]) for one in found["captures"]] == [
        ("export", "not-judged"),
        ("compile", "fail"),
    ]
    best = found["changes"][0]["change"]
    assert best["passes"] == ["compile"]
    assert "+    torch._check(x.shape[0] % 4 == 0)\n" in best["diff"]


@pytest.mark.slow
def test_a_branch_between_results_of_one_shape_is_a_selection() -> None:
    best = document(f"{SUBJECTS}:branch", "--stage", "export", "--stage", "compile")["changes"][0]["change"]
    assert (best["kind"], best["refuses"]) == ("rewrite", [])
    assert "+    return torch.where(torch.tensor(kept.shape[0]) > 2, kept + 1, kept)\n" in best["diff"]


def test_a_program_gets_a_change_that_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    text = PROGRAM.replace("parts[0]", "parts[0] if n > 3 else x").replace("torch.chunk(kept, 2)", "[kept]")
    path.write_text(text.replace("    parts", "    n = kept.shape[0]\n    parts"))
    changes = document(str(path), "--stage", "export")["changes"]
    assert "+    torch._check(n > 3)\n" in changes[0]["change"]["diff"]


@pytest.mark.slow
def test_a_patch_is_written_and_applied_only_when_asked_for(tmp_path: Path) -> None:
    path, patch = tmp_path / "own.py", tmp_path / "own.patch"
    function = "def f(x, keep):\n    kept = x[keep]\n    if kept.numel() == 0:\n        return x\n    return x\n"
    before = f"import torch\n\n\n{function}\n\nf_args = (torch.ones(3), torch.ones(3) > 0)\n"
    path.write_text(before)
    words = (f"{path}:f", "--stage", "export")
    assert check(*words, "--patch", str(patch)).returncode == 1
    assert path.read_text() == before
    assert "-    if kept.numel() == 0:\n-        return x\n" in patch.read_text()
    check(*words, "--apply")
    assert path.read_text() == before.replace("    if kept.numel() == 0:\n        return x\n", "")
    assert check(*words).returncode == 0


@pytest.mark.slow
def test_a_branch_on_a_number_is_selected_and_the_rest_is_promised(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\n\n\ndef f(x, idx):\n    n = idx.max().item()\n    if n > 2:\n        x = x * 2\n"
        "    return x, torch.diff(x.new_zeros(n + 1))\n\n\nf_args = (torch.ones(3), torch.tensor([0, 1, 3]))\n"
    )
    change = document(f"{path}:f", "--stage", "export")["changes"][0]["change"]
    assert change["does"] == "compute both branches and select; assert n + 1 >= 1"
    assert "+    x = torch.where(torch.tensor(n) > 2, x * 2, x)\n" in change["diff"]
    assert change["refuses"] == [
        f"refuses inputs for which n + 1 < 1; none of the {change['agrees']} sets of inputs that eager takes is refused"
    ]


CHANGE = Change(
    "inside-promise", 3, "assert n > 8", "--- a/m\n+++ b/m\n", (), "import m\n", ("export",), ("for 8 only",), 2
)


def test_a_change_is_printed_with_its_diff_and_code_to_paste() -> None:
    assert (
        by_name(advice_facts(Advice("why"), [CHANGE]))["next"]
        == "paste the code of change 1 and run this command again"
    )
    lines = terminal(change_view(1, CHANGE), 100).splitlines()
    assert lines[:3] == [
        "change 1  assert n > 8 (a promise about data inside)",
        "          passes export; agrees with eager on 2 sets of inputs",
        "          for 8 only",
    ]
    assert {"--- a/m", "+++ b/m", "import m"} <= set(lines)


def by_name(facts: Iterable[tuple[str, ...]]) -> dict[str, str]:
    return {name: "\n".join(lines) for name, *lines in facts if any(lines)}


def problem(key: str, *stages: Stage, consequence: bool = False, kind: Kind = "dde") -> Problem:
    signature = Signature(kind, Site("Python", "torch/_refs/__init__.py", "roll"), "")
    failure = Failure(kind, Observation("export", EXPLICIT, "fail"), "")
    classified = Classification(failure, signature, "avoidable", "")
    return Problem("f", classified, stages, YOURS, (key,), consequence=consequence)


PROBLEMS = (
    problem("dde-1", "export"),
    problem("dde-2"),
    problem("dde-3", consequence=True),
    problem("lost-4", "export", kind="lost-message"),
)


@pytest.mark.parametrize(
    ("fixes", "said"),
    [
        ((Fix("a", ("dde-1",)),), ["fixes problem 1"]),
        ((Fix("a", ("dde-1",), continued=True),), ["fixes problems 1, 2"]),
        ((Fix("a", ("dde-1",)), Fix("b", ("dde-2",))), ["a: fixes problem 1", "b: fixes problem 2"]),
        ((Fix("a", ("dde-1",)), Fix("b", ("dde-9",))), ["a: fixes problem 1", "b"]),
        ((Fix("a", ("lost-4",)),), []),
    ],
)
def test_a_change_says_which_problems_each_of_its_parts_fixes(fixes: tuple[Fix, ...], said: list[str]) -> None:
    change = msgspec.structs.replace(CHANGE, fixes=fixes)
    lines = [line.strip() for line in terminal(change_view(1, change, PROBLEMS), 100).splitlines()]
    assert lines[1 : lines.index("passes export; agrees with eager on 2 sets of inputs")] == said


def test_a_change_that_passes_some_stages_says_what_is_left() -> None:
    weaker = msgspec.structs.replace(CHANGE, fails="still fails in export-strict: `u0` at m.py:3")
    shown = terminal(change_view(1, weaker), 100)
    assert "this is not enough: it still fails in export-strict: `u0` at m.py:3" in shown
    assert "see what is left" in by_name(advice_facts(Advice("why"), [weaker]))["next"]


def test_without_help_it_is_said_what_a_person_does() -> None:
    (problem,) = PROBLEMS[:1]
    line = by_name(advice_facts(Advice("why"), (), [problem]))["next"]
    assert line.startswith("no change that was tried helps. By hand")
    assert line.endswith(BY_HAND[problem.classified.cause])
    assert set(BY_HAND) == {*MEANINGS} - {"wrong-key"}


def test_without_help_it_is_said_what_was_tried() -> None:
    advice = Advice(
        "why", tried=(FailedAttempt("this", "still fails"),), remaining="after `this` the next failure is X"
    )
    facts = by_name(advice_facts(advice))
    assert (facts["tried"], facts["left"]) == ("this: still fails", "after `this` the next failure is X")
    assert "next" not in facts


def test_without_a_change_the_next_step_is_said() -> None:
    stopped = Advice("why", stopped=True)
    assert by_name(advice_facts(stopped))["next"].startswith("give the search more time: --budget SECONDS")
    other = msgspec.structs.replace(PROBLEMS[0], about_data=False)
    assert by_name(advice_facts(stopped, (), (PROBLEMS[0], other)))["next"].startswith(
        "fix problem 2 first, which is not"
    )


def test_a_known_finding_names_the_op_that_showed_it_first() -> None:
    found = KnownFinding("dde-1", "torch.roll: roll needs u0", "triaged", ("2.15.0",), op="torch.roll")
    assert str(found) == "dde-1, triaged, fixed in 2.15.0: the same site, first seen with torch.roll"
    assert str(msgspec.structs.replace(found, op="")).endswith(": torch.roll: roll needs u0")
