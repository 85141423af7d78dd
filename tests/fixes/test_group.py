"""Tests of grouping findings by the change that mends them: on hand-made findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ddefuzz.answers.model import Answers, PatchEvidence, Score, Tally
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site, Verdict
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.model import Finding, Occurrence
from ddefuzz.fixes.group import Coverage, coverage, grouped, on_trial, why_none
from ddefuzz.fixes.model import LABELS, TOML, Fix, named, read_fixes, remove_others, write_fixes
from ddefuzz.fixes.native import file_of, native_change, python_number
from ddefuzz.instrument.events import Place, RaisedError

ROLL = Site("Python", "torch/_refs/__init__.py", "roll")
DIFF = Site("C++", None, "at::native::diff_helper")
NOW = "2026-01-01T00:00:00.000000Z"


def seen(op: str) -> Occurrence:
    return Occurrence("2.13.0+cpu", "export", str(EXPLICIT), op, "fails", 1, NOW, NOW)


def found(
    number: int,
    site: Site,
    anchor: str,
    answers: Answers | None = None,
    *ops: str,
    cause: Cause = "avoidable",
    state: State = "new",
    kind: str = "dde",
    duplicate_of: str | None = None,
) -> Finding:
    return Finding(
        id=f"{kind}-{number:010}",
        signature=Signature(kind, site, anchor),
        cause=cause,
        state=state,
        answers=answers,
        occurrences=tuple(seen(op) for op in ops),
        duplicate_of=duplicate_of,
    )


def answered(verdict: Verdict, form: str = "guard_or_false", *, differ: int | None = None) -> Answers:
    patch = None if differ is None else PatchEvidence(form, f"{form}(n)", Score(agree=2, differ=differ), Score())
    tally = Tally(answer="False", programs=2, captures=2, follows=1, agrees=("example", "0"))
    return Answers(verdict, "aot", "2.13.0+cpu", 2, (tally,), patch)


def test_a_group_names_its_guards_ops_findings_versions_and_evidence() -> None:
    (fix,) = grouped([found(1, ROLL, "n == 0", answered("guard_or_false here", differ=0), "torch.roll", "Tensor.roll")])
    assert (fix.label, fix.form, fix.severity) == ("backed by forced answers", "guard_or_false", "cannot capture")
    assert fix.change == "`n == 0` becomes `guard_or_false(n)`"
    assert (fix.guards, fix.ops, fix.versions) == (("n == 0",), ("Tensor.roll", "torch.roll"), ("2.13.0+cpu",))
    assert fix.evidence[1] == (
        "False: captures 2 of 2 (in 1 of them a later guard was answered, too); agrees at example, 0."
    )


@pytest.mark.parametrize("file", ["../x.py", "/torch/x.py"])
def test_a_site_that_is_in_no_file_of_torch_is_in_no_group(file: str) -> None:
    outside = found(1, Site("Python", file, "f"), "n == 0", answered("guard_or_false here"))
    (fix,) = grouped([outside, found(2, ROLL, "n == 0", answered("guard_or_false here"))])
    assert fix.findings == ("dde-0000000002",)


def test_a_guard_is_a_change_each_and_what_takes_symint_is_one() -> None:
    right = answered("guard_or_true here")
    fixes = grouped(
        [
            found(1, ROLL, "n == 0", right),
            found(2, ROLL, "m == 0", right),
            found(3, DIFF, "guard_bool operator>", right),
            found(4, DIFF, "guard_bool operator==", answered("another guard decides")),  # no change is known
            found(5, DIFF, "guard_int", answered("needs SymInt"), cause="int-required"),
            found(6, DIFF, "sizes", cause="int-required", kind="recompiles"),
        ]
    )
    members = sorted(fix.findings for fix in fixes)
    assert members == [
        ("dde-0000000001",),
        ("dde-0000000002",),
        ("dde-0000000003",),
        ("dde-0000000005", "recompiles-0000000006"),
    ]
    labels = {fix.findings[0][-1]: fix.label for fix in fixes}
    assert labels == dict.fromkeys("123", "backed by forced answers") | {"5": "untested idea"}


def test_the_most_severe_comes_first_then_what_repairs_most_ops() -> None:
    idea = answered("guard_or_true here")
    fixes = grouped(
        [
            found(1, DIFF, "sizes", None, "torch.diff", cause="int-required", kind="recompiles"),
            found(2, ROLL, "n == 0", idea, "torch.roll"),
            found(3, ROLL, "m == 0", idea, "torch.roll", "Tensor.roll"),
        ]
    )
    assert [fix.findings[0] for fix in fixes] == ["dde-0000000003", "dde-0000000002", "recompiles-0000000001"]


def test_what_is_closed_or_the_programs_own_is_in_no_group() -> None:
    right = answered("guard_or_true here")
    findings = [
        found(1, ROLL, "n == 0", right, state="wont-fix"),
        found(2, ROLL, "m == 0", right, cause="user"),
        found(3, ROLL, "values", cause="wrong-capture", kind="wrong-values"),
    ]
    assert not grouped(findings)
    assert coverage(findings, ()).findings == 1  # nothing is known about the third


def test_a_duplicate_is_mended_with_its_original() -> None:
    first = found(1, ROLL, "n == 0", answered("guard_or_true here"))
    (fix,) = grouped([first, found(2, ROLL, "m == 0", state="duplicate", duplicate_of=first.id)])
    assert fix.findings == ("dde-0000000001", "dde-0000000002")


def test_a_patch_with_which_something_differs_is_an_untested_idea() -> None:
    (fix,) = grouped([found(1, ROLL, "n == 0", answered("either answer here", differ=3))])
    assert fix.label == "untested idea"


def test_a_patch_that_does_something_else_than_the_verdict_is_not_its_change() -> None:
    (fix,) = grouped([found(1, ROLL, "n == 0", answered("torch._check here", differ=0))])
    assert (fix.form, fix.change) == ("torch._check", "`n == 0` becomes torch._check")
    assert "With the patch" in fix.evidence[-1]


def test_of_two_right_answers_that_of_usual_sizes_is_named() -> None:
    raised = RaisedError("u0 < 2", "guard_bool", Place("Python", "torch/_refs/__init__.py", 1), ())
    failure = Failure("dde", Observation("aot", EXPLICIT, "fail", raised=raised), "")
    rare = replace(found(1, ROLL, "n < 2", answered("either answer here", "guard_or_true", differ=0)), failure=failure)
    (fix,) = grouped([rare])
    assert (fix.form, fix.change) == ("guard_or_false", "`n < 2` becomes guard_or_false")
    usual = replace(rare, answers=answered("either answer here", differ=0))
    assert grouped([usual])[0].change == "`n < 2` becomes `guard_or_false(n)`"


def test_why_no_change_is_known_is_said() -> None:
    def why(*given: Any, **named: Any) -> str:
        return why_none(found(1, ROLL, "n == 0", *given, **named))[0]

    assert why(cause="user").startswith("Its cause is user")
    assert why(state="wont-fix").startswith("It is wont-fix")
    assert why(kind="recompiles").startswith("It is of kind recompiles")
    assert why(cause="unclassified") == "Its cause is unclassified: no change was looked for."
    assert why() == "No answer of its guard was tried."
    assert why(answered("another guard decides")).startswith("Verdict of the forced answers: another guard decides")


def test_a_finding_is_in_one_group_that_of_a_verified_change_first() -> None:
    findings = [
        found(1, ROLL, "n == 0", answered("guard_or_true here")),
        found(2, ROLL, "m", answered("no answer captures")),
    ]
    (made,) = grouped(findings)
    known = replace(made, label="verified", findings=tuple(one.id for one in findings), later=(findings[1].id,))
    (fix,) = grouped(findings, [known])
    assert (fix.id, fix.label, fix.findings) == (made.id, "verified", known.findings)
    assert coverage(findings, [fix]) == Coverage(2, {**dict.fromkeys(LABELS, 0), "verified": 2})


def test_findings_of_python_without_a_known_change_are_tried_all_the_same() -> None:
    findings = [
        found(1, ROLL, "n == 0", answered("guard_or_true here")),
        found(2, ROLL, "m", answered("no answer captures")),
        found(3, DIFF, "guard_bool", answered("no answer captures")),
        found(4, Site("Python", "torch/distributed/tensor/_api.py", "forward"), "m", answered("no answer captures")),
    ]
    (trial,) = on_trial(findings, grouped(findings))
    assert trial.findings == (findings[1].id,)


def test_a_refuted_change_is_no_idea_if_nothing_else_names_one() -> None:
    findings = [
        found(1, ROLL, "n == 0", answered("guard_or_true here")),
        found(2, ROLL, "m", answered("no answer captures")),
    ]
    (made,) = grouped(findings)
    tried = replace(made, doubts=("it differs",))
    another = replace(
        made, id="fix-0123456789", label="untested idea", findings=(findings[1].id,), doubts=("it fails",)
    )
    assert grouped(findings, [tried, another]) == (replace(tried, label="in doubt"),)


@pytest.mark.parametrize(
    ("anchor", "verdict", "text"),
    [
        (
            "guard_bool operator>",
            "guard_or_true here",
            "`a > b` of a SymInt becomes `TORCH_GUARD_OR_TRUE(a.sym_gt(b))`",
        ),
        ("guard_bool operator!=", "torch._check here", "becomes `TORCH_SYM_CHECK(a.sym_ne(b), …)`"),
        ("guard_bool operator==", "either answer here", "becomes `TORCH_GUARD_OR_FALSE(a.sym_eq(b))`"),
        ("guard_bool", "no answer is right for all sizes", "is not evaluated: a symbolic form"),
        ("guard_float", "needs SymInt", "takes a Scalar or a tensor for float"),
        ("guard_int", "needs SymInt", "reads sizes as c10::SymInt"),
    ],
)
def test_a_change_of_native_code_is_a_text(anchor: str, verdict: Verdict, text: str) -> None:
    assert text in native_change(DIFF, anchor, verdict)


def test_either_answer_is_that_of_usual_sizes() -> None:
    change = native_change(DIFF, "guard_bool operator>", "either answer here", True)
    assert change.endswith("becomes `TORCH_GUARD_OR_TRUE(a.sym_gt(b))`")


@pytest.mark.parametrize(
    ("verdict", "label"),
    [("guard_or_true here", "in doubt"), ("guard_or_false here", "backed by forced answers")],
)
def test_an_answer_that_sends_all_sizes_to_the_branch_of_rare_ones_is_in_doubt(verdict: Verdict, label: str) -> None:
    raised = RaisedError("Eq(u0, 0)", "guard_bool", Place("C++", "x.cpp", 1), ())
    failure = Failure("dde", Observation("aot", EXPLICIT, "fail", raised=raised), "")
    (fix,) = grouped([replace(found(1, DIFF, "guard_bool operator==", answered(verdict)), failure=failure)])
    assert fix.label == label


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ("aten::sparse_coo_tensor", "the signature of torch.sparse_coo_tensor (torch/csrc/autograd/python_torch"),
        ("aten::unfold", "the schema of aten::unfold takes SymInt for int (native_functions.yaml)"),
    ],
)
def test_an_op_with_a_binding_of_its_own_has_its_signature_there(op: str, text: str) -> None:
    assert native_change(Site("op", None, op), "guard_int", "needs SymInt").startswith(text)


def test_a_call_that_asks_by_itself_becomes_one_that_does_not() -> None:
    """`guard_or_false(x.is_contiguous())` raises the same error in `is_contiguous`."""
    (fix,) = grouped([found(1, ROLL, "x.mT.is_contiguous()", answered("guard_or_false here", differ=1))])
    assert fix.change == "`x.mT.is_contiguous()` becomes `is_contiguous_or_false(x.mT)`"


def test_no_change_is_named_where_none_is_known() -> None:
    assert not native_change(DIFF, "guard_bool", "another guard decides")


def test_a_structured_kernel_gets_a_meta_function_in_python() -> None:
    site = Site("C++", None, "at::meta::structured_topk::meta")
    assert native_change(site, "guard_int", "needs SymInt").startswith(
        "aten::topk, also with out=, gets a meta function in Python"
    )


def test_an_op_that_python_calls_takes_symint() -> None:
    site = Site("Python", "torch/_meta_registrations.py", "meta_angle_out")
    change = native_change(site, "RuntimeError: torch._resize_output_(out, self.size(), self.device)", "needs SymInt")
    assert change == f"in {site}, `torch._resize_output_(out, self.size(), self.device)` takes SymInt for int"


@pytest.mark.parametrize(
    ("anchor", "after"),
    [
        ("math.sqrt(q.size(-1))", "torch.sym_sqrt(q.size(-1))"),
        ("int(n * 0.5)", "torch.sym_int(n * 0.5)"),
        ("result.shape.numel()", "result.numel()"),
        ("float(n)", "torch.sym_float(n)"),
        ("complex(n)", "keeps a symbolic number"),
    ],
)
def test_a_number_in_python_becomes_a_symbolic_one(anchor: str, after: str) -> None:
    assert after in python_number(anchor, of_tensor=False)


def test_a_number_of_a_tensor_is_read_from_it() -> None:
    """`torch.sym_float` of a tensor is `float` of it (torch/__init__.py)."""
    after = python_number("float(self.num_batches_tracked)", of_tensor=True)
    assert after.startswith("`float(self.num_batches_tracked)` becomes `self.num_batches_tracked.item()`")


@pytest.mark.parametrize(
    ("site", "file"),
    [
        (ROLL, "torch/_refs/__init__.py"),
        (Site("C++", None, "c10::SymbolicShapeMeta::compute_numel"), "c10/core/SymbolicShapeMeta.cpp"),
        (Site("op", None, "aten::unfold"), "aten/src/ATen/native/native_functions.yaml"),
        (Site("C++", None, "at::native::squeeze_"), "aten/src/ATen/native/TensorShape.cpp"),
        (Site("C++", None, "at::native::squeeze_other"), ""),
    ],
)
def test_the_file_of_a_function_is_known_or_empty(site: Site, file: str) -> None:
    assert file_of(site) == file


FIX = Fix(
    id="fix-0123456789",
    label="verified",
    form="guard_or_false",
    change="`n == 0` becomes `guard_or_false(n)`",
    site=ROLL,
    severity="cannot capture",
    findings=("dde-0000000001",),
    patch="--- a/x\n+++ b/x\n",
    test="import torch\n",
    pull_request="# title\n",
)


def test_the_text_form_gives_the_same_fix(tmp_path: Path) -> None:
    native = replace(FIX, id="fix-aaaaaaaaaa", site=DIFF, patch="", test="", pull_request="")
    write_fixes([FIX, native], tmp_path)
    assert read_fixes(tmp_path) == (FIX, native)
    write_fixes([replace(FIX, patch="")], tmp_path)
    assert read_fixes(tmp_path)[0].patch == ""
    assert not read_fixes(tmp_path / "none")
    (tmp_path / native.id / "notes").write_text("mine")
    remove_others([], tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["notes"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("ddefuzz.fix/1", "ddefuzz.fix/0", "found schema 'ddefuzz.fix/0', expected 'ddefuzz.fix/1'"),
        ("label = ", "lable = ", "lable"),
        ("fix-0123456789", "fix-aaaaaaaaaa", "found id 'fix-aaaaaaaaaa', expected that of its folder"),
        ("verified", "sure", "sure"),
    ],
)
def test_a_damaged_text_form_is_refused_in_one_line(tmp_path: Path, before: str, after: str, message: str) -> None:
    write_fixes([FIX], tmp_path)
    path = tmp_path / FIX.id / TOML
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(InputError, match=message) as error:
        read_fixes(tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fix_is_named_by_the_start_of_its_id_or_by_a_finding() -> None:
    assert named("fix-01", [FIX]) == named("dde-0000000001", [FIX]) == FIX
    for typed, message in (("fix-9", "found no such fix"), ("", "found no such fix")):
        with pytest.raises(InputError, match=message):
            named(typed, [FIX])
    with pytest.raises(InputError, match="found 2 such fixes"):
        named("fix-01", [FIX, replace(FIX, id="fix-0123000000")])
