"""The forms of a program: names, well-formedness, text, and which dims are unbacked."""

from __future__ import annotations

from itertools import islice

import pytest

from ddefuzz.generate import opinfo
from ddefuzz.generate.make import singles
from ddefuzz.generate.variants import MAX_DIMS, MOST_PLACED, Variant, all_unbacked, placed, variants
from ddefuzz.ops.catalogue import OPS, parse
from ddefuzz.program.model import Program
from ddefuzz.program.text import digest, print_program

TEXT = """# ddefuzz program v1
# inputs: x0 = normal; x1 = normal
def program(x0: Float32[Tensor, "5 1"], x1: Float32[Tensor, "5 4"]):
    t0 = torch.add(x0, x1, alpha=2)
    return t0
"""


def program_of(text: str) -> Program:
    return parse(text, "<test>").program


def forms_of(program: Program) -> dict[str, list[Variant]]:
    found: dict[str, list[Variant]] = {}
    for variant in variants(program):
        found.setdefault(variant.name, []).append(variant)
    return found


def body_of(program: Program) -> list[str]:
    return [line.strip() for line in print_program(program).splitlines() if line.startswith("    ")]


def test_the_names_of_all_forms() -> None:
    assert list(forms_of(program_of(TEXT))) == [
        *("static", "all", "every", "dim x0.0", "dim x0.1", "dim x1.0", "dim x1.1", "shared", "mask", "item"),
        *("number 0", "scalar 0", "transposed", "expanded", "sliced", "out", "method", "in-place", "backward"),
    ]


def test_a_number_of_the_call_comes_from_a_tensor() -> None:
    forms = forms_of(program_of(TEXT))
    (number,), (scalar,) = forms["number 0"], forms["scalar 0"]
    assert body_of(number.program)[:2] == ["read = held.item()", "t0 = torch.add(x0, x1, alpha=read)"]
    assert body_of(scalar.program)[:1] == ["t0 = torch.add(x0, x1, alpha=held)"]
    assert "held = sizes(2)" in print_program(scalar.program)


@pytest.mark.parametrize(
    ("call", "numbers"),
    [
        ("torch.sum(x0, 1)", 0),
        ("torch.sum(x0, dim=7)", 0),
        ("torch.roll(x0, 3, 1)", 1),
        ("torch.clamp(x0, 0.5, 2.0)", 2),
        ("torch.clamp(x0, float('inf'), None)", 0),
        ("torch.sum(x0, 1, keepdim=True)", 0),
        ("torch.nn.functional.pad(x0, (7, 8, 9, 10))", 3),
    ],
)
def test_a_dim_is_no_number_from_data(call: str, numbers: int) -> None:
    program = program_of(
        TEXT.replace("torch.add(x0, x1, alpha=2)", call)
        .replace("; x1 = normal", "")
        .replace(', x1: Float32[Tensor, "5 4"]', "")
    )
    assert sum(name.startswith("number") for name in forms_of(program)) == numbers


@pytest.mark.parametrize(
    ("form", "shapes"),
    [
        ("static", ["5 1", "5 4"]),
        ("all", ["u0=5 1", "u1=5 u2=4"]),
        ("every", ["u0=5 u1=1", "u2=5 u3=4"]),
        ("dim x1.0", ["5 1", "u0=5 4"]),
        ("shared", ["u0=5 1", "u0=5 u1=4"]),
        ("mask", ["5 1", "5 4", "5"]),
    ],
)
def test_which_dims_are_unbacked(form: str, shapes: list[str]) -> None:
    (variant,) = forms_of(program_of(TEXT))[form]
    parameters = print_program(variant.program).split("def program(")[1].split("):")[0]
    assert parameters.split('"')[1::2] == shapes


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (
            "mask",
            [
                "kept = keep.nonzero().squeeze(1)",
                "x0_cut = x0.index_select(0, kept)",
                "x1_cut = x1.index_select(0, kept)",
                "t0 = torch.add(x0_cut, x1_cut, alpha=2)",
                "return t0",
            ],
        ),
        (
            "item",
            [
                "length = held.item()",
                "torch._check(length >= 0)",
                "torch._check(length <= 5)",
                "x0_cut = x0.narrow(0, 0, length)",
                "x1_cut = x1.narrow(0, 0, length)",
                "t0 = torch.add(x0_cut, x1_cut, alpha=2)",
                "return t0",
            ],
        ),
        ("method", ["t0 = x0.add(x1, alpha=2)", "return t0"]),
        ("in-place", ["changed = x0.clone()", "t0 = changed.add_(x1, alpha=2)", "return t0"]),
    ],
)
def test_what_a_form_calls(form: str, body: list[str]) -> None:
    assert body_of(forms_of(program_of(TEXT))[form][0].program) == body


def test_out_has_a_candidate_for_each_number_of_results() -> None:
    bodies = [body_of(variant.program)[-2] for variant in forms_of(program_of(TEXT))["out"]]
    assert bodies == [
        "written = torch.add(x0, x1, alpha=2, out=torch.empty_like(t0))",
        "written = torch.add(x0, x1, alpha=2, out=(torch.empty_like(t0[0]), torch.empty_like(t0[1])))",
        "written = torch.add(x0, x1, alpha=2, "
        "out=(torch.empty_like(t0[0]), torch.empty_like(t0[1]), torch.empty_like(t0[2])))",
    ]


def test_backward_is_by_every_float_input() -> None:
    first = forms_of(program_of(TEXT))["backward"][0].program
    assert all(item.requires_grad for item in first.inputs)
    assert body_of(first)[-3:] == [
        "total = t0.sum()",
        "grads = torch.autograd.grad(total, [x0, x1], allow_unused=True)",
        "return grads",
    ]


def test_what_has_no_dims_has_few_forms() -> None:
    text = TEXT.replace('"5 1"', '""').replace('"5 4"', '""')
    forms = ["static", "number 0", "scalar 0", "out", "method", "in-place", "backward"]
    assert list(forms_of(program_of(text))) == forms


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        (["4"], ["replicate", "shard0"]),
        ([""], ["replicate"]),
        (
            ["4 3", "3 5"],
            [
                "replicate, replicate",
                "shard0, shard0",
                "shard1, shard1",
                "shard0, replicate",
                "shard1, replicate",
                "replicate, shard0",
            ],
        ),
        (
            ["4", "4 3"],
            [
                "replicate, replicate",
                "shard0, shard0",
                "replicate, shard1",
                "shard0, replicate",
                "replicate, shard0",
                "shard0, shard1",
            ],
        ),
        ([], []),
    ],
)
def test_the_ways_to_place_inputs(shapes: list[str], names: list[str]) -> None:
    given = ", ".join(f'x{at}: Float32[Tensor, "{shape}"]' for at, shape in enumerate(shapes))
    values = "".join(f"# inputs: {'; '.join(f'x{at} = normal' for at in range(len(shapes)))}\n" if shapes else "")
    text = f"# ddefuzz program v1\n{values}def program({given}):\n    return torch.ones(2)\n"
    assert [one.name for one in placed(parse(text, "placed.py").program)] == names


def test_many_inputs_are_placed_in_few_ways() -> None:
    inputs = [f"x{at}" for at in range(40)]
    program = parse(
        f"# ddefuzz program v1\n# inputs: {'; '.join(f'{name} = normal' for name in inputs)}\n"
        f"def program({', '.join(f'{name}: Float32[Tensor, {chr(34)}4 3{chr(34)}]' for name in inputs)}):\n"
        "    return torch.ones(2)\n",
        "placed.py",
    ).program
    assert len(list(placed(program))) == MOST_PLACED


def test_single_dims_are_bounded() -> None:
    text = TEXT.replace('"5 1"', '"2 2 2 2 2 2 2 2"')
    assert sum(name.startswith("dim") for name in forms_of(program_of(text))) == MAX_DIMS


@pytest.mark.parametrize("op", ["chunk", "add", "sort", "linalg.inv", "nn.functional.conv2d", "where", "cat"])
def test_forms_are_printed_and_read_back(op: str) -> None:
    for sample in islice(opinfo.samples(op), 5):
        made = list(variants(sample))
        assert {variant.name for variant in made} >= {"static"}
        for variant in made:
            assert program_of(print_program(variant.program)) == variant.program


@pytest.mark.parametrize("op", ["chunk", "add", "sort", "linalg.inv"])
def test_eager_accepts_most_forms(op: str) -> None:
    sample = next(program for program in opinfo.samples(op) if any(item.shape for item in program.inputs))
    accepted = {variant.name for variant in variants(sample) if opinfo.accepts(variant.program)}
    assert {"static", "backward"} <= accepted
    assert len(accepted) >= 6


def test_samples_and_forms_are_the_same_every_time() -> None:
    def digests() -> list[str]:
        return [digest(v.program) for sample in islice(opinfo.samples("multinomial"), 3) for v in variants(sample)]

    assert digests() == digests()


def test_all_unbacked_of_what_is_unbacked_already_names_no_symbol_twice() -> None:
    once = all_unbacked(program_of(TEXT))
    assert all_unbacked(once) == once


def test_every_op_of_the_catalogue_has_a_program() -> None:
    without = [str(spec) for spec in OPS if next(singles(spec, 1), None) is None]
    assert without == []


def test_programs_of_an_op_are_the_same_every_time() -> None:
    spec = next(spec for spec in OPS if "torch.chunk" in spec.callables)
    first = [digest(program) for program in singles(spec, 3)]
    assert len(first) == 3
    assert first == [digest(program) for program in singles(spec, 3)]
