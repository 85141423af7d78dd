"""A change is tried as it would be in the user's files: the modules are imported again, with the changed text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ddefuzz.checking.patch import Candidate, ChangedFile, TrialResult
from ddefuzz.checking.trial import describe, notes, try_change
from ddefuzz.checking.variants import variants_of
from ddefuzz.execute.preparation import leaf_names, leaves_of
from ddefuzz.execute.protocol import CAPTURE_STAGES, CallableSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.files import SOURCE as ROOT

SOURCE = """import torch
from {helper} import scaled


def build(by):
    def inner(x, mask=None, weights=None):
        return scaled(x if mask is None else x[mask], by) + (0 if weights is None else weights.sum())

    return inner


TABLE = {{"model": build(2)}}
model = TABLE["model"]
model_args = (torch.ones(4), None, torch.ones(3))
"""
HELPER = "LIMIT = 3\n\n\ndef scaled(x, by):\n    return x * by\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that imports one beside it, whose name no other test has: a closure in a table."""
    helper = f"helper_of_{tmp_path.name}"
    (tmp_path / f"{helper}.py").write_text(HELPER)
    path = tmp_path / "model.py"
    path.write_text(SOURCE.format(helper=helper))
    return path


def tried(path: Path, changed: Path, after: str, *, may_refuse: bool = False) -> TrialResult:
    files = (ChangedFile(str(changed), changed.read_text(), after),)
    return try_change(Candidate(CallableSubject(str(path), name="model"), (), files, may_refuse=may_refuse))


@pytest.mark.slow
def test_a_change_of_a_file_beside_it_reaches_a_closure(model: Path) -> None:
    (helper,) = model.parent.glob("helper*.py")
    before = dict(sys.modules)
    result = tried(model, helper, HELPER.replace("x * by", "x * by + LIMIT - 3"))
    assert result.agrees
    assert not result.is_live
    assert not tried(model, helper, HELPER.replace("x * by", "x * by + LIMIT")).agrees
    assert helper.read_text() == HELPER
    assert sys.modules[helper.stem] is before.get(helper.stem, sys.modules[helper.stem])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("scaled(x if", "guard_or_true(x if", "NameError: name 'guard_or_true' is not defined"),
        ("build(2)\n", "Promised(build)(2)\n", "NameError: name 'Promised' is not defined"),
        ('TABLE["model"]', 'TABLE["other"]', "KeyError: 'other'"),
    ],
)
def test_a_file_that_breaks_is_not_offered(old: str, new: str, said: str, model: Path) -> None:
    source = model.read_text().replace('"model": build(2)}', '"model": build(2)\n}')
    model.write_text(source)
    example = tried(model, model, source.replace(old, new)).compared[0]
    assert said in example.changed


def test_an_optional_argument_is_left_out_too(model: Path) -> None:
    source = model.read_text()
    breaks = source.replace(
        "        return scaled", "        torch._check(weights.shape[0] > 1)\n        return scaled"
    )
    result = tried(model, model, breaks, may_refuse=True)
    (without,) = (one for one in result.compared if one.inputs == "weights = None")
    assert without.refused
    assert "NoneType" in without.changed
    keeps = breaks.replace("weights.shape[0] > 1", "weights is None or weights.shape[0] > 1")
    assert not any("NoneType" in one.changed for one in tried(model, model, keeps, may_refuse=True).compared)
    assert describe(CallableSubject(str(model), name="model")).optional == ("weights",)


def test_a_lost_gradient_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "trains.py"
    source = (
        "import torch\n\n\nclass model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(2, 2)\n\n    def forward(self, x):\n        return self.linear(x)\n\n\n"
        "model_args = (torch.ones(3, 2),)\n"
    )
    path.write_text(source)
    assert tried(path, path, source.replace("self.linear(x)", "self.linear(x) + 0")).agrees
    example = tried(path, path, source.replace("self.linear(x)", "self.linear(x).detach()")).compared[0]
    assert example.differs.startswith("gradient 0")


def test_what_can_be_imported_once_only_is_changed_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "registers.py"
    source = (
        "import torch\n\ntorch.library.define('ddefuzz_test_once::f', '(Tensor x) -> Tensor')\n\n\n"
        "def model(x):\n    return x + 1\n\n\nmodel_args = (torch.ones(3),)\n"
    )
    path.write_text(source)
    result = tried(path, path, source.replace("x + 1", "x + 2"))
    assert result.is_live
    assert result.compared[0].differs


def test_inputs_are_at_the_numbers_of_conditions(tmp_path: Path) -> None:
    path = tmp_path / "sizes.py"
    path.write_text(
        "import torch\n\n\ndef model(x, keep, n):\n    return x[keep] * n\n\n\nmodel_unbacked = {0: [0]}\n"
        "model_args = (torch.ones(6), torch.ones(6, dtype=torch.bool), torch.tensor(3))\n"
    )
    prepared = prepare(CallableSubject(str(path), name="model"))
    variants = variants_of(prepared, leaf_names(prepared), (8, 4))
    inputs = [leaves_of(one.resized(prepared)) for one in variants]
    assert {leaves[0].shape[0] for leaves in inputs} == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
    assert {int(leaves[1].sum()) for leaves in inputs} >= {0, 1, 3, 4, 5, 6}
    assert {int(leaves[2]) for leaves in inputs} >= {3, 4, 5, 7, 8, 9}
    assert {one.longer for one in variants if one.sizes and max(one.sizes.values()) > 6} == {True}
    assert torch.equal(inputs[0][0], torch.ones(6))


def test_state_that_a_second_call_sees_is_said(tmp_path: Path) -> None:
    path = tmp_path / "state.py"
    path.write_text(
        "import torch\n\n\nclass model(torch.nn.Module):\n    calls = 0\n\n    def forward(self, x, by):\n"
        "        self.calls += by\n        return x * self.calls\n\n\n"
        "counts_args, same_args = (torch.ones(3), 1), (torch.ones(3), 0)\n\n\n"
        "def counts():\n    return model(), counts_args\n\n\ndef same():\n    return model(), same_args\n"
    )
    told = [notes(Candidate(CallableSubject(str(path), name=name), ())).lines for name in ("counts", "same")]
    assert told == [("a second call of the same object does something else (result); what is captured does not",), ()]


@pytest.mark.slow
def test_inputs_at_the_numbers_of_the_code_are_tried(tmp_path: Path) -> None:
    path = tmp_path / "few.py"
    path.write_text(
        "import torch\n\n\ndef model(x, mask):\n    y = x[mask]\n    torch._check(y.shape[0] <= 5)\n"
        "    return y.sum(0)\n\n\n"
        "model_args = (torch.randn(8, 3), torch.tensor([True, False] * 4))\n"
    )
    tried = Candidate(CallableSubject(str(path), name="model"), ("export", "aot-decomposed"), may_refuse=True)
    assert notes(tried).lines == ()

    def without(self: ShapeEnv, expression: Any, *args: Any, **kwargs: Any) -> bool:
        return True if "<= 5" in str(expression) else asserts(self, expression, *args, **kwargs)

    asserts = ShapeEnv.guard_or_defer_runtime_assert
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShapeEnv, "guard_or_defer_runtime_assert", without)
        lines = notes(tried).lines
    assert lines[0].startswith(
        "what export captured takes inputs that eager refuses, such as mask all true: RuntimeError"
    )


@pytest.mark.slow
@pytest.mark.long
def test_what_is_captured_in_any_stage_can_be_called(tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    path.write_text(
        "import torch\n\n\ndef model(x, mask):\n    return x[mask].sum(0)\n\n\n"
        "model_args = (torch.randn(4, 3), torch.tensor([True, False] * 2))\n"
    )
    stages = tuple(stage for stage in CAPTURE_STAGES if stage != "cpp-wrapper")  # as inductor, and slower
    result = try_change(Candidate(CallableSubject(str(path), name="model"), stages, may_refuse=True))
    assert [(seen.stage, seen.outcome) for seen in result.observations] == [(stage, "ok") for stage in stages]
    assert not any(one.captured or one.differs for one in result.compared)


@pytest.mark.slow
def test_a_gradient_of_zeros_is_no_other_than_none() -> None:
    subject = CallableSubject(str(ROOT / "corpora" / "reported" / "newer.py"), case="cond_empty_expert")
    assert notes(Candidate(subject, ("aot-decomposed",), may_refuse=True)).lines == ()


@pytest.mark.slow
def test_inputs_that_only_eager_takes_are_said(tmp_path: Path) -> None:
    path = tmp_path / "broadcasts.py"
    path.write_text(
        "import torch\n\n\ndef model(x, y):\n    return x * y\n\n\n"
        "model_args = (torch.ones(4), torch.ones(4))\nmodel_unbacked = {0: [0], 1: [0]}\n"
    )
    (line,) = notes(Candidate(CallableSubject(str(path), name="model"), ("export",), may_refuse=True)).lines
    assert line.startswith("what export captured refuses inputs that eager takes, such as x.shape[0] = 1: ")
