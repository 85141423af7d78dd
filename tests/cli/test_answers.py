"""`ddefuzz answers` with real captures in workers."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest
from click.testing import CliRunner, Result

from ddefuzz.answers.experiment import GuardResult, PatchRefusal, TriedPatch, TriedPatches
from ddefuzz.answers.model import GIVEN, Answers, Experiment, PatchEvidence, Score, Tally
from ddefuzz.answers.patch import Patch
from ddefuzz.classify.signature import Cause, Signature, Site, Verdict
from ddefuzz.cli.answers import command
from ddefuzz.cli.findings import command as findings
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.model import as_document as as_finding
from ddefuzz.show.answers import AnswerResult, answers_view, stored_document, stored_page, stored_view
from ddefuzz.show.answers import document as as_document
from ddefuzz.show.blocks import Invocation
from ddefuzz.show.findings import show_view
from ddefuzz.show.markdown import markdown
from ddefuzz.show.terminal import terminal

DROPOUT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "2 u0"]):
    return torch.nn.functional.feature_alpha_dropout(x, training=True)
"""


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args)


@pytest.mark.slow
def test_a_file_is_answered_for(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(DROPOUT)
    result = run(str(path), "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == "ddefuzz.answers/1"
    (verdict,) = document["verdicts"]
    assert (verdict["verdict"], verdict["stage"]) == ("either answer here", "export")
    assert [row["answer"] for row in document["rows"]] == ["False", "True", "assert"]
    first = document["rows"][0]
    assert first["captures"] and first["site"] == verdict["site"]
    assert "example" in first["agrees"] and not first["refuses"] and not first["differs"]

    page = run(str(path)).stdout
    assert "verdict: either answer here" in page
    assert "Eq(2*u0, 0)" in page
    assert "sizes: example: as in the inputs" in page
    assert page.splitlines()[-2] == "Next:"
    assert page.splitlines()[-1].endswith(f"ddefuzz check {path}")


def answered(experiment: Experiment, patches: TriedPatches | None = None) -> AnswerResult:
    return AnswerResult("dde-1", GuardResult(experiment, patches), is_finding=True)


SITE = Site("C++", None, "at::native::chunk")
RIGHT = tuple(Tally(given, 2, 2, agrees=("0", "1")) for given in GIVEN[:3])


def test_what_is_no_guard_has_nothing_to_answer() -> None:
    page = terminal(
        answers_view([answered(Experiment("export", None, "", 0, "", (), (), "not a guard"))], Invocation()), 80
    )
    assert "verdict: not a guard: nothing to answer, because" in page
    assert "columns:" not in page
    assert page.endswith("Next:\n  ddefuzz findings show dde-1\n")


@pytest.mark.parametrize("verdict", ["another guard decides", "no answer captures"])
def test_where_another_guard_decides_the_next_step_lists_it(verdict: Verdict) -> None:
    found = Experiment("export", SITE, "Eq(u0, 0)", 0, "", (), RIGHT, verdict)
    assert terminal(answers_view([answered(found)], Invocation()), 80).partition("\nNext:\n")[2].splitlines() == [
        "  ddefuzz findings show dde-1",
        "  ddefuzz findings show dde-1 --minimal > dde-1.py && ddefuzz check dde-1.py  # lists the guards that follow",
    ]


def test_a_patch_is_printed_with_its_results() -> None:
    after = "if guard_or_false(n == 0):\n"
    patch = Patch("guard_or_false", "torch/x.py", "guard_or_false(n == 0)", "if n == 0:\n", after)
    samples = Score(agree=3, differ=1, same=4)
    best = TriedPatch(patch, PatchEvidence(patch.form, patch.code, Score(agree=2, same=2), samples))
    refused = (PatchRefusal("torch._check", "torch._check(n != 0)", "differs at 0"),)
    found = Experiment("export", SITE, "Eq(u0, 0)", 1, "n == 0", (), RIGHT, "guard_or_false here")
    page = terminal(answers_view([answered(found, TriedPatches(best, refused))], Invocation()), 80)
    assert "patch: guard_or_false (not right for all), tried in memory only" in page
    assert "--- a/torch/x.py\n+++ b/torch/x.py\n" in page
    assert "kept programs: 2 of 2 pass and agree; eager does the same in 2 of 2" in page
    assert "samples of torch: 3 of 4 pass and agree, 1 differ; eager does the same in 4 of 4" in page
    (verdict,) = json.loads(as_document([answered(found, TriedPatches(best, refused))]))["verdicts"]
    assert verdict["patch"]["diff"] == patch.diff
    assert verdict["patch"]["samples"] == {"agree": 3, "differ": 1, "stopped": 0, "same": 4, "changed": 0}
    assert verdict["patch"]["refused"][0]["why"] == "differs at 0"
    none = terminal(answers_view([answered(found, TriedPatches(None, refused))], Invocation()), 80)
    assert "patch: none (torch._check: differs at 0)" in none


def test_a_finding_keeps_and_shows_its_experiment() -> None:
    patch = PatchEvidence("guard_or_false", "guard_or_false(n == 0)", Score(agree=2, same=2), Score())
    kept = Answers("guard_or_false here", "aot", "2.13.0+cpu", 2, RIGHT, patch)
    finding = Finding(id="dde-1", signature=Signature("dde", SITE, "guard_bool"), cause="avoidable", answers=kept)
    page = terminal(show_view(finding, Invocation()), 160)
    assert "what would fix it" in page
    assert "verdict: guard_or_false here (2 programs in aot, torch 2.13.0+cpu)" in page
    assert (
        "so its cause is avoidable: the fallback False was not refuted (by 2 programs, 2 sizes, 1 kind of values)"
        in page
    )
    assert "samples of torch: none evaluates the branch" in page
    assert as_finding(finding)["answers"]["patch"]["kept"] == {"agree": 2, "same": 2}  # type: ignore[index]


@pytest.mark.parametrize("args", [(), ("one", "--all")])
def test_targets_or_all(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert "found none or several of ID or FILE, --all" in result.output


def kept(number: int, found: Answers | None, *, cause: Cause = "avoidable") -> Finding:
    return Finding(id=f"dde-{number}", signature=Signature("dde", SITE, "a | b"), cause=cause, answers=found)


def patched(agree: int, differ: int = 0) -> Answers:
    evidence = PatchEvidence("guard_or_false", "guard_or_false(a | b)", Score(agree, differ, same=agree), Score())
    return Answers("guard_or_false here", "aot", "2.13.0", 2, patch=evidence)


KEPT = [
    kept(1, None),
    kept(2, Answers("needs SymInt", "aot", "2.13.0", 1), cause="int-required"),
    kept(3, patched(1)),
    kept(4, patched(9, differ=1)),
    kept(5, patched(4)),
]


def test_stored_answers_are_counted_by_verdict_and_cause() -> None:
    page = terminal(stored_view(KEPT), 120)
    lines = page.splitlines()
    assert lines[0] == "4 of 5 findings of kind dde have answers, on torch 2.13.0"
    assert lines[1] == "verdicts: 3 guard_or_false here, 1 needs SymInt"
    assert lines[2] == "3 patches of Python proposed; nothing differs with 2"
    assert "dde-4" not in page  # something differs with its patch
    assert page.index("dde-5") < page.index("dde-3")  # more programs pass with it
    assert terminal(stored_view([]), 80).startswith("0 of 0 findings")


def test_stored_answers_as_markdown_and_json() -> None:
    page = markdown(stored_page(KEPT))
    assert "| guard_or_false here | 3 | 3 |  |" in page
    assert (
        "| dde-4 | `at::native::chunk [a \\| b]` | avoidable | guard_or_false here | guard_or_false, and something"
        in page
    )
    rows = json.loads(stored_document(KEPT))["rows"]
    assert (rows[0]["finding"], rows[0]["answers"]["verdict"]) == ("dde-2", "needs SymInt")


def test_stored_answers_need_no_target(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/f.db"
    Database.open(url).close()
    assert run("--stored", "--db", url).stdout.startswith("0 of 0 findings")
    assert "found none or several of ID or FILE, --all and --stored" in run("--stored", "--all", "--db", url).output
    assert "found the format markdown without --stored" in run("--all", "--db", url, "--format", "markdown").output


def test_a_finding_of_dtensors_is_refused(tmp_path: Path) -> None:
    """What an answer changes is a graph for one process, whose values are not compared in others."""
    url, folder, name = f"sqlite:///{tmp_path}/f.db", tmp_path / "findings", "dde-ff161614eb"
    copytree(Path(__file__).parents[2] / "findings" / name, folder / name)
    assert CliRunner().invoke(findings, ["import", str(folder), "--db", url]).exit_code == 0
    error = run(name, "--db", url).exception
    assert isinstance(error, InputError)
    assert str(error).startswith(f"{name}: found a program of DTensors, expected one without")
    assert run("--all", "--db", url).stdout == "no findings of kind dde with a program to try\n"
