"""Tests of the options of programs: their text, what is wrong with them, sizes within bounds, and code for scripts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ddefuzz.errors import ProgramError
from ddefuzz.execute.observe import observe
from ddefuzz.execute.preparation import changed
from ddefuzz.execute.protocol import ProgramSubject, Run
from ddefuzz.execute.subject import prepare
from ddefuzz.minimize.minimizer import minimize
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.code import marks_of, module_of, setup_of
from ddefuzz.program.equivalents import renamed
from ddefuzz.program.model import Option, Program
from ddefuzz.program.options import NO_GRAD, OPTIONS, TorchSetting, fitting, settings_in
from ddefuzz.program.sizes import CALL_SIZES, at_data_size, static, with_drawn
from ddefuzz.program.text import print_program

TEXT = """\
# ddefuzz program v1
# options: dynamic; min(u0=2); max(u0=12); strict(u1)
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "u1=3"]):
    a = x.reshape(x.shape[0] * 4)
    return a.sum() + y.sum()
"""
PROGRAM = parse(TEXT, "case.py").program


def with_options(options: str) -> str:
    return TEXT.replace("dynamic; min(u0=2); max(u0=12); strict(u1)", options)


def test_options_print_and_parse() -> None:
    assert print_program(PROGRAM) == TEXT
    assert PROGRAM.options == (
        Option("dynamic"),
        Option("min", "u0", 2),
        Option("max", "u0", 12),
        Option("strict", "u1"),
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("dynamics", "found the option 'dynamics', expected one of dynamic, no_duck_shapes"),
        ("", "found the option '', expected one such as 'dynamic' or 'min(u0=2)'"),
        ("min(u0=2", "found the option 'min(u0=2', expected one such as"),
        ("dynamic(u0)", "found the option dynamic(u0), expected dynamic"),
        ("min(u0)", "found the option min(u0), expected min(u0=2)"),
        ("min", "found the option min, expected min(u0=2)"),
        ("strict(u0=1)", "found the option strict(u0=1), expected strict(u0)"),
        ("min(u7=1)", "found the option min(u7=1), expected a symbol that an input has"),
        ("min(u0=7)", "found the option min(u0=7) of a size of 6, expected at most the size of the example"),
        ("max(u0=5)", "found the option max(u0=5) of a size of 6, expected at least the size of the example"),
        ("min(u0=1); min(u0=2)", "found the option min(u0=2) beside min(u0=1), expected one of them"),
    ],
)
def test_a_wrong_option_is_one_line(options: str, said: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(f"case.py:2: {said}")):
        parse(with_options(options), "case.py")


def test_strict_is_for_one_dim() -> None:
    text = with_options("strict(u0)").replace("u1=3", "u0")
    with pytest.raises(ProgramError, match=re.escape("found the option strict(u0) of 2 dims, expected")):
        parse(text, "case.py")


def test_options_of_sizes_go_with_the_sizes_and_their_names() -> None:
    assert static(PROGRAM).options == (Option("dynamic"),)
    (variant,) = renamed(PROGRAM, {})
    assert [option.symbol for option in variant.program.options] == [None, "u9000", "u9000", "u8999"]


def test_no_call_is_outside_of_the_bounds() -> None:
    sizes = [at_data_size(PROGRAM, size).inputs[0].shape[0].size for size in with_drawn(PROGRAM, CALL_SIZES, 3)]
    assert min(sizes) == 2
    assert max(sizes) <= 12
    named = [size for seed in range(20) for size in with_drawn(PROGRAM, ("drawn-1",), seed)]
    assert all(2 <= int(size.partition("u0=")[2].partition(",")[0]) <= 12 for size in named)


def test_scripts_have_the_settings_and_the_marks() -> None:
    assert setup_of(PROGRAM) == [
        "import torch._dynamo.config",
        "torch._dynamo.config.assume_static_by_default = False",
    ]
    assert marks_of(PROGRAM) == [
        "mark_unbacked(inputs[0], 0, min=2, max=12)",
        "mark_unbacked(inputs[1], 0, strict=True)",
    ]
    both = parse(with_options("freezing; strict(u0); specialize_on(u0=8)"), "case.py").program
    assert setup_of(both)[1:] == ["torch._inductor.config.freezing = True", "torch.set_grad_enabled(False)"]
    assert marks_of(both)[:2] == [
        "mark_unbacked(inputs[0], 0, strict=True)",
        "mark_unbacked(inputs[0], 0, specialize_on=[lambda size: size == 8])",
    ]
    compile(module_of(both, "compile"), "script", "exec")


def is_static_by_default() -> bool:
    return bool(torch._dynamo.config.assume_static_by_default)


def test_a_run_has_the_settings_and_leaves_none() -> None:
    with changed(prepare(ProgramSubject(TEXT)).settings):
        assert not is_static_by_default()
    with changed(prepare(ProgramSubject(with_options("no_grad"))).settings):
        assert not torch.is_grad_enabled()
    assert is_static_by_default()
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("stage", ["export", "export-strict", "compile"])
def test_a_program_is_captured_and_called_under_its_options(stage: str) -> None:
    seen = observe(Run(ProgramSubject(TEXT), stage, calls=CALL_SIZES))
    assert seen.outcome == "ok"
    assert {call.agreement for call in seen.calls} == {"same"}


def test_strict_refuses_a_size_that_becomes_a_number() -> None:
    text = with_options("strict(u0)").replace("a = x", "torch._check(x.shape[0] == 6)\n    a = x")
    for stage in ("export-strict", "compile"):
        seen = observe(Run(ProgramSubject(text), stage))
        assert seen.outcome == "not-judged"
        assert seen.reason == "a size became a number, which mark_unbacked(strict=True) refuses"
    assert observe(Run(ProgramSubject(text.replace("# options: strict(u0)\n", "")), "compile")).outcome == "ok"


def test_an_option_that_this_torch_lacks_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(OPTIONS["dynamic"], settings=(TorchSetting("torch._dynamo.config.gone", True),))
    monkeypatch.setattr("ddefuzz.program.options.OPTIONS", {**OPTIONS, "dynamic": lacking})
    seen = observe(Run(ProgramSubject(TEXT), "compile"))
    assert seen.outcome == "not-judged"
    assert "has no torch._dynamo.config:gone (an option of programs)" in seen.reason


def test_minimizing_keeps_only_the_option_that_is_needed() -> None:
    def accepts(program: Program) -> bool:
        return any(option.name == "min" for option in program.options)

    small = minimize(PROGRAM, accepts).program
    assert [str(option) for option in small.options] == ["min(u0=2)"]


def test_options_that_turn_gradients_off_fit_no_program_with_gradients() -> None:
    plain = parse(with_options("dynamic"), "case.py").program
    graded = parse(with_options("dynamic").replace("x = normal", "x = normal, grad"), "case.py").program
    names = {option.name for option in fitting(plain)} - {option.name for option in fitting(graded)}
    assert names == {name for name, kind in OPTIONS.items() if NO_GRAD in kind.settings}
    assert {one.path for option in fitting(graded) for one in settings_in(Program((), (), plain.returns, (option,)))}


def test_the_page_has_a_row_for_each_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
    for name, kind in OPTIONS.items():
        assert re.search(rf"\| `{name}(\(u0(=N)?\))?` \| {re.escape(kind.means)} \| {re.escape(kind.allows)} \|", page)
