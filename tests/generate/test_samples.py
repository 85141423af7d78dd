"""Samples of torch's ops and of the catalogue's ops, in forms."""

from __future__ import annotations

import pytest

from ddefuzz.generate.make import in_doubt, program_of, sampled
from ddefuzz.generate.opinfo import accepts
from ddefuzz.generate.profiles import SHORT, Draw, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.model import functions_in
from ddefuzz.program.sizes import static
from ddefuzz.program.text import print_program

BY_NAME = "(x, torch._debug_has_internal_overlap(x[:, ::2]))[0]"


@pytest.mark.parametrize("op", ["diff", "torch.narrow(x, d, a, x.shape[d] - a)", BY_NAME])
@pytest.mark.parametrize("form", UNBACKED_FORMS)
def test_the_requested_sample_or_another_form_of_the_op(op: str, form: str) -> None:
    found = sampled(Sample(op, form, 0, 12_345))
    assert found is not None
    program, origin = found
    assert origin.op == op
    assert accepts(program)
    assert any(dim.symbol for item in program.inputs for dim in item.shape) or origin.form in {"mask", "item"}
    assert sampled(Sample(op, form, 0, 12_345)) == found


def test_a_number_beyond_the_samples_is_another_sample() -> None:
    found = sampled(Sample("diff", "all", 10_000, 3))
    assert found is not None
    assert found[1].number < 10_000
    assert "torch.diff" in functions_in(found[0])


def test_an_op_without_samples_is_a_short_draw() -> None:
    asked = Sample("a // k", "all", 0, 0)
    assert sampled(asked) is None
    assert program_of("default", 7, 40, asked)[1] == Draw(40, profile=SHORT)


def text(shape: str, step: str) -> str:
    head = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "{shape}"]):\n'
    return f"{head}    y = {step}\n    return y\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (text("5 3", "torch.diff(x)"), text("u0=5 u1=3", "torch.diff(x)")),
        (text("u0=5 3", "torch.diff(x)"), text("u0=5 3", "torch.diff(x)")),
        (text("", "torch.relu(x)"), text("", "torch.relu(x)")),
    ],
)
def test_a_program_without_unbacked_dims_gets_all_of_them(before: str, after: str) -> None:
    assert print_program(in_doubt(parse(before, "a").program)) == print_program(parse(after, "a").program)


def test_static_has_no_symbol() -> None:
    assert "u0" not in print_program(static(parse(text("u0=5 3", "torch.diff(x)"), "a").program))
