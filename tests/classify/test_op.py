"""Tests of finding the op of a program that led to a failure."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.classify.evidence import failing_ops
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.instrument.events import PROGRAM_FILE, Frame, Place, RaisedError


def at(code: str, *, exact: bool = False) -> Observation:
    frames = (Frame(PROGRAM_FILE, 4, "program", code, exact),)
    return Observation("export", EXPLICIT, "fail", exceptions=(ExceptionInfo("RuntimeError", "no", frames),))


def backward(formula: str) -> Observation:
    native = (Frame("", 0, f"torch::autograd::generated::{formula}::apply(std::vector<at::Tensor>&&)"),)
    raised = RaisedError("Eq(u0, 1)", "guard_bool", Place("C++", "c10/core/SymInt.h", 301), (), native=native)
    return Observation("aot", EXPLICIT, "fail", raised=raised)


@pytest.mark.parametrize(
    ("code", "op"),
    [
        ("torch.diff(x[keep])", "torch.diff"),
        ("x.chunk(2)", "Tensor.chunk"),
        ("torch.sparse_coo_tensor(i, v).to_dense()", "Tensor.to_dense"),
        ("torch.vmap(torch.cat)((x,))", "torch.vmap(torch.cat)"),
        ("torch.func.grad(lambda a: torch.relu(a).sum())(x)", "torch.func.grad"),
        ("torch.vmap(torch.func.grad(lambda a: a.sum()))(x)", "torch.vmap"),
        ("torch.nn.Linear(4, 3)(x)", "torch.nn.Linear"),
        ("math.floor(x.shape[0] / 2)", "math.floor"),
        ("[x, y].pop(x.shape[0])", "list.pop"),
        ("torch.nn.Sequential(torch.nn.ReLU(), torch.nn.ReLU()).eval()(x)", "torch.nn.Sequential"),
        ("torch.cond(p, lambda a: a.cos(), lambda a: a.sin(), (x,))", "torch.cond"),
        ("return (x, torch._C._select_conv_backend(x))[0]", "torch._C._select_conv_backend"),
        ("a = torch.topk(x, 1)[0]", "torch.topk"),
        ("x[keep]", "Tensor.__getitem__"),
        ("x.shape[0] + y", "operator.add"),
        ("x @ y", "operator.matmul"),
    ],
)
def test_the_outermost_call_on_the_line_is_the_op(code: str, op: str) -> None:
    assert failing_ops(at(code)) == (op,)


def test_an_exact_subscript_of_a_call_is_one() -> None:
    assert failing_ops(at("torch.nonzero(x)[0]", exact=True)) == ("Tensor.__getitem__",)


PROGRAM = """def program(x: Float32[Tensor, "u0 2"]):
    a = torch.masked_select(x, x > 0)
    return torch.relu(a[: x.shape[0]])
"""


def test_a_backward_formula_is_of_the_call_of_its_name() -> None:
    assert failing_ops(backward("MaskedSelectBackward0"), PROGRAM) == ("torch.masked_select",)
    assert failing_ops(backward("TraceBackward0"), PROGRAM) == ()
    assert failing_ops(backward("CumsumBackward0"), PROGRAM.replace("return torch.relu(a[: x.shape[0]])", "")) != ()


@pytest.mark.parametrize(
    ("call", "formula"), [("torch.pinverse(x)", "LinalgPinvBackward0"), ("torch.det(x)", "LinalgDetBackward0")]
)
def test_a_backward_formula_is_of_an_alias_of_its_op(call: str, formula: str) -> None:
    program = f"def program(x):\n    a = {call}\n    return torch.autograd.grad(a.sum(), x)\n"
    assert failing_ops(backward(formula), program) == (call.partition("(")[0],)


def test_the_line_that_torch_quotes_is_the_programs() -> None:
    message = f'LoweringException: no\n  File "{PROGRAM_FILE}", line 4, in program\n    return torch.var(x)\n'
    observation = Observation("inductor", EXPLICIT, "fail", exceptions=(ExceptionInfo("InductorError", message),))
    assert failing_ops(observation) == ("torch.var",)


def test_an_unknown_op_is_empty() -> None:
    assert failing_ops(Observation("aot", EXPLICIT, "fail"), PROGRAM) == ()
    assert failing_ops(at("no python (")) == ()


def test_a_gradient_is_that_of_the_call_whose_backward_formula_runs() -> None:
    program = "def program(x):\n    a = torch.trace(x)\n    return torch.autograd.grad(a, x)\n"
    one = backward("TraceBackward0")
    line = Frame(PROGRAM_FILE, 3, "program", "torch.autograd.grad(a, x)", exact=True)
    raised = msgspec.structs.replace(one.raised, python=(line,)) if one.raised is not None else None
    assert failing_ops(msgspec.structs.replace(one, raised=raised), program) == ("torch.trace",)
    assert failing_ops(at("torch.autograd.grad(a, x)"), "") == ("torch.autograd.grad",)
