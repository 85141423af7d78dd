"""Examples at other sizes: which dims change, together or alone, and what depends on sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.custom_ops.arguments import Arguments, Inputs, Linear, copied, fakes_of, inputs_of
from ddefuzz.custom_ops.variants import Variant, laid_out, variants_of


def made_of(example: object, accepts: Callable[[Arguments], bool] = lambda _given: True) -> Inputs:
    return inputs_of(example, "the example", ["x", "y", "k"], accepts)


def shapes_of(inputs: Inputs, **sizes: int) -> list[tuple[int, ...]]:
    made = inputs.at({**inputs.example, **{name.replace("__", "."): size for name, size in sizes.items()}})
    assert made is not None
    return [tuple(tensor.shape) for tensor in made.tensors]


def test_a_dim_that_the_kernel_takes_with_another_size_has_a_size_of_its_own() -> None:
    inputs = made_of((torch.zeros(3, 4), torch.zeros(3, 5)))
    assert inputs.example == {"x.shape[0]": 3, "x.shape[1]": 4, "y.shape[0]": 3, "y.shape[1]": 5}
    made = inputs.at({**inputs.example, "x.shape[1]": 7})
    assert made is not None
    assert [tuple(tensor.shape) for tensor in made.tensors] == [(3, 7), (3, 5)]
    assert inputs.apart_at(inputs.example) == ""
    assert inputs.apart_at({**inputs.example, "x.shape[0]": 7}) == "x.shape[0] and y.shape[0]"


def test_dims_that_have_to_agree_change_together() -> None:
    def accepts(given: Arguments) -> bool:
        first, second = given.tensors
        return first.shape[0] == second.shape[0] and first.shape[1] == 4

    inputs = made_of((torch.zeros(3, 4), torch.zeros(3)), accepts)
    assert inputs.example == {"x.shape[0]": 3}
    assert inputs.equal == ()
    made = inputs.at({"x.shape[0]": 9})
    assert made is not None
    assert [tuple(tensor.shape) for tensor in made.tensors] == [(9, 4), (9,)]


def test_a_dim_may_take_even_sizes_only() -> None:
    inputs = made_of((torch.zeros(4),), lambda given: given.tensors[0].shape[0] % 2 == 0)
    assert list(inputs.example) == ["x.shape[0]"]


def test_a_function_of_sizes_says_what_depends_on_them() -> None:
    inputs = made_of(lambda n, k=2: (torch.zeros(2 * n + 1, 4), torch.zeros(n * n), k))
    assert inputs.example == {"n": 3, "k": 2}
    assert inputs.dims == {0: [Linear(1, (("n", 2),)), Linear(4)], 1: [None]}
    assert inputs.numbers == {2: Linear(0, (("k", 1),))}


def test_a_parameter_that_is_no_size_keeps_its_value() -> None:
    inputs = made_of(lambda n, rank=2: (torch.zeros([n] * rank),))
    assert inputs.static == ("rank",)
    assert inputs.symbols == ["n"]


def test_offsets_stay_sorted_and_indices_stay_in_range() -> None:
    inputs = made_of((torch.tensor([0, 2, 5]), torch.tensor([2, 0, 1])))
    made = inputs.at({"x.shape[0]": 5, "y.shape[0]": 5})
    assert made is not None
    assert [tensor.tolist() for tensor in made.tensors] == [[0, 2, 5, 5, 5], [2, 0, 1, 2, 0]]


def test_unbacked_arguments_have_the_layout_of_the_example() -> None:
    inputs = made_of((torch.zeros(4, 3).t(),))
    base = inputs.at(inputs.example)
    assert base is not None
    fakes = fakes_of(inputs, base, lambda _place: True)
    (tensor,) = fakes.arguments.tensors
    assert [str(size) for size in tensor.shape] == ["u0", "u1"]
    assert tensor.stride(0) == 1


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@given(SHAPES, st.sampled_from(["transposed", "channels_last", "sliced"]))
def test_layouts_and_copies_keep_values(shape: tuple[int, ...], layout: str) -> None:
    tensor = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    made = laid_out(tensor, layout)
    for other in (tensor, tensor if made is None else made):
        clone = copied(other)
        assert torch.equal(clone, tensor)
        assert (clone.stride(), clone.storage_offset()) == (other.stride(), other.storage_offset())
        assert not tensor.numel() or clone.data_ptr() != other.data_ptr()


def variants(schema: str, example: tuple[Any, ...]) -> list[Variant]:
    inputs = made_of(example)
    base = inputs.at(inputs.example)
    assert base is not None
    return list(variants_of(inputs, base, torch._C.parse_schema(schema)))


def test_options_are_tried_with_other_values_also_if_they_have_their_default() -> None:
    listed = variants("a::op(Tensor x, int dim, bool keep=False, float p=2.0) -> Tensor", (torch.zeros(3, 4), 1))
    options = [variant.option for variant in listed if variant.option is not None]
    assert options == [("dim", 0), ("dim", -1), ("dim", 2), ("keep", True), ("p", 0.0), ("p", 1.0)]
    made = listed[0].of(Arguments((torch.zeros(3, 4), 1), {}))
    assert made is not None
    assert made.args[1] == 0
    kept = next(variant for variant in listed if variant.option == ("keep", True)).of(
        Arguments((torch.zeros(3), 1), {})
    )
    assert kept is not None
    assert kept.kwargs == {"keep": True}


def test_one_of_several_tensors_is_changed_alone() -> None:
    listed = variants("a::op(Tensor x, Tensor y) -> Tensor", (torch.zeros(3, 4), torch.ones(3, 4)))
    both = Arguments((torch.zeros(3, 4), torch.ones(3, 4)), {})
    narrowed = [variant.of(both) for variant in listed if variant.narrow == 0]
    assert [[tuple(one.shape) for one in made.tensors] for made in narrowed if made is not None] == [
        [(1, 4), (3, 4)],
        [(3, 4), (1, 4)],
    ]
    mixed = [variant for variant in listed if variant.dtypes == (torch.float32, torch.float16) and variant.only == 1]
    made = mixed[0].of(both)
    assert made is not None
    assert [one.dtype for one in made.tensors] == [torch.float32, torch.float16]
