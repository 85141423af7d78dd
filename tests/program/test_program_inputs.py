from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from ddefuzz.errors import InputError
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.evaluate import materialize
from ddefuzz.program.model import Dim, Input, Literal, Program, Recipe
from ddefuzz.program.recipes import DTYPES, FLOATS, INTEGERS, LAYOUTS, RECIPES, elements, fault_of
from ddefuzz.program.sizes import (
    CALL_SIZES,
    DATA_SIZES,
    LARGE,
    MOST_ELEMENTS,
    NUMBERS,
    TELLING,
    VALUE_CALLS,
    VALUE_KINDS,
    DataSize,
    at_data_size,
    check_sizes,
    kind_of_size,
    with_drawn,
)

EXAMPLES = {
    "normal": (),
    "uniform": (),
    "ones": (),
    "zeros": (),
    "ties": (),
    "special": (),
    "arange": (),
    "trues": (4,),
    "distinct": (2,),
    "sizes": (3, 0, 2, 1, 5, 4, 0, 0, 1),
    "index": (5,),
    "spd": (3,),
    "values": (1, 2.5, True, 0, 0, 0, 1, 1, 1),
}


def program_of(*inputs: Input) -> Program:
    return Program(inputs, (), Literal(0))


def made(item: Input) -> torch.Tensor:
    return materialize(program_of(item))[item.name]


def dims(*sizes: int) -> tuple[Dim, ...]:
    return tuple(map(Dim, sizes))


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize("kind", RECIPES)
def test_every_recipe_makes_its_dtype_and_shape_deterministically(kind: str, dtype: str) -> None:
    item = Input("x", dtype, dims(3, 3), Recipe(kind, EXAMPLES[kind]))
    if fault_of(item) is not None:
        assert kind in {"index", "sizes", "spd", "special"}
        return
    state = torch.random.get_rng_state()
    tensor = made(item)
    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.shape == (3, 3)
    torch.testing.assert_close(tensor, made(item), rtol=0, atol=0, equal_nan=True)
    assert made(item) is not tensor
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_valid_at_any_size_and_is_no_view(layout: str) -> None:
    for rank in range(6):
        for sizes in itertools.product((0, 1, 2), repeat=rank):
            item = Input("x", "float32", dims(*sizes), Recipe("normal"), layout, requires_grad=True)
            if fault_of(item) is not None:
                assert not LAYOUTS[layout].min_rank <= rank <= LAYOUTS[layout].max_rank
                continue
            tensor = made(item)
            assert tensor.shape == sizes
            assert tensor.is_leaf
            assert tensor.requires_grad
            assert not tensor._is_view()


@pytest.mark.parametrize(
    ("placement", "placements", "own"),
    [
        ("replicate", "(Replicate(),)", (5, 3)),
        ("shard0", "(Shard(dim=0),)", (2, 3)),
        ("shard1", "(Shard(dim=1),)", (5, 1)),
        ("partial", "(Partial(sum),)", (5, 3)),
        ("shard0_replicate", "(Shard(dim=0), Replicate())", (3, 3)),
        ("shard0_shard0", "(Shard(dim=0), Shard(dim=0))", (2, 3)),
        ("shard0_shard1", "(Shard(dim=0), Shard(dim=1))", (3, 2)),
    ],
)
def test_a_placed_input_is_a_dtensor_of_the_whole_shape(placement: str, placements: str, own: tuple[int, ...]) -> None:
    tensor: Any = made(Input("x", "float32", dims(5, 3), Recipe("normal"), placement, requires_grad=True))
    assert (str(tensor.placements), tuple(tensor.to_local().shape)) == (placements, own)
    assert tensor.shape == (5, 3)
    assert tensor.is_leaf
    assert tensor.requires_grad


def test_a_tensor_is_not_sharded_over_a_dim_that_it_lacks() -> None:
    fault = fault_of(Input("x", "float32", dims(5), Recipe("normal"), "shard1"))
    assert fault == ("the layout 'shard1' of 1 dims", "2 to 64 dims")


@pytest.mark.parametrize(
    ("layout", "shape", "strides", "offset"),
    [
        ("contiguous", (2, 3, 4), (12, 4, 1), 0),
        ("transposed", (2, 3, 4), (1, 2, 6), 0),
        ("expanded", (2, 3, 4), (0, 4, 1), 0),
        ("sliced", (2, 3, 4), (24, 8, 2), 1),
        ("channels_last", (2, 3, 4, 5), (60, 1, 15, 3), 0),
        ("channels_last_3d", (2, 3, 2, 4, 5), (120, 1, 60, 15, 3), 0),
    ],
)
def test_layouts_have_the_stated_strides(
    layout: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    tensor = made(Input("x", "float32", dims(*shape), Recipe("arange"), layout))
    plain = made(Input("x", "float32", dims(*shape), Recipe("arange")))
    assert (tensor.stride(), tensor.storage_offset()) == (strides, offset)
    assert torch.equal(tensor, plain[:1].expand(shape) if layout == "expanded" else plain)


@pytest.mark.parametrize("count", range(9))
def test_trues_and_distinct_have_the_stated_count(count: int) -> None:
    for dtype in ("bool", "int64", "float32", "bfloat16"):
        trues = made(Input("x", dtype, dims(2, 4), Recipe("trues", (count,))))
        assert torch.count_nonzero(trues) == count
    if count:
        distinct = made(Input("x", "int64", dims(8), Recipe("distinct", (count,))))
        assert len(set(distinct.tolist())) == torch.unique_consecutive(distinct).numel() == count


def test_spd_matrices_are_positive_definite() -> None:
    matrices = made(Input("x", "float64", dims(2, 5, 5), Recipe("spd", (5,))))
    assert torch.equal(matrices, matrices.mT)
    assert torch.linalg.cond(matrices).max() < 9
    torch.linalg.cholesky(matrices)


def test_index_and_listed_values() -> None:
    index = made(Input("x", "int64", dims(100), Recipe("index", (3,))))
    assert set(index.tolist()) == {0, 1, 2}
    assert made(Input("x", "int64", dims(2), Recipe("sizes", (3, 0)))).tolist() == [3, 0]
    assert made(Input("x", "float32", dims(2, 1), Recipe("values", (1, -2.5)))).tolist() == [[1.0], [-2.5]]


def test_values_depend_on_the_position_alone() -> None:
    x, y = (Input(name, "float32", dims(2, 3), Recipe("normal")) for name in "xy")
    first, second = materialize(program_of(x, y)).values()
    assert not torch.equal(first, second)
    assert torch.equal(second, materialize(program_of(Input("z", "bool", (), Recipe("zeros")), y))["y"])


CHAIN = program_of(
    Input("mask", "bool", (Dim(6, "u0"), Dim(2)), Recipe("trues", (5,))),
    Input("x", "float32", (Dim(6, "u0"), Dim(4)), Recipe("normal"), "sliced"),
    Input("labels", "int64", dims(7), Recipe("distinct", (3,))),
    Input("lengths", "int64", dims(2), Recipe("sizes", (3, 5))),
    Input("weights", "float32", (Dim(6, "u0"),), Recipe("values", (1, 2, 3, 4, 5, 6))),
)


@pytest.mark.parametrize(
    ("data_size", "size", "trues", "distinct", "lengths"),
    [
        ("0", 0, 0, 1, (0, 0)),
        ("1", 1, 1, 1, (1, 1)),
        ("2", 2, 2, 2, (2, 2)),
        ("equal", 4, 4, 4, (4, 4)),
        ("all", 7, 14, 7, (7, 7)),
    ],
)
def test_at_data_size_changes_every_data_dependent_size(
    data_size: DataSize, size: int, trues: int, distinct: int, lengths: tuple[int, ...]
) -> None:
    resized = at_data_size(CHAIN, data_size)
    tensors = materialize(resized)
    assert tensors["mask"].shape == (size, 2)
    assert tensors["x"].shape == (size, 4)
    assert tensors["mask"].sum() == trues
    assert len(set(tensors["labels"].tolist())) == distinct
    assert tuple(tensors["lengths"].tolist()) == lengths
    assert tensors["weights"].shape == (size,)
    assert resized.steps == CHAIN.steps
    assert all(fault_of(item) is None for item in resized.inputs)


@pytest.mark.parametrize("data_size", DATA_SIZES)
@pytest.mark.parametrize("kind", RECIPES)
def test_an_input_at_another_data_size_is_well_formed(kind: str, data_size: DataSize) -> None:
    for dtype in sorted(FLOATS | INTEGERS | {"bool"}):
        item = Input("x", dtype, (Dim(3, "u0"), Dim(3, "u0")), Recipe(kind, EXAMPLES[kind]))
        if fault_of(item) is None:
            (resized,) = at_data_size(program_of(item, Input("y", "bool", dims(5), Recipe("ones"))), data_size).inputs[
                :1
            ]
            assert fault_of(resized) is None
            assert made(resized).numel() == elements(resized)


TWO = """\
# ddefuzz program v1
# inputs: x = normal; y = normal; mask = trues(2)
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=3"], mask: Bool[Tensor, "20"]):
    return (x[:, :2], y + 77, mask)
"""


def drawn(program: Program, seed: int) -> list[dict[str, int]]:
    sizes = (size for size in with_drawn(program, CALL_SIZES, seed) if kind_of_size(size) == "drawn")
    return [{key: int(value) for key, _, value in (one.partition("=") for one in size.split(","))} for size in sizes]


def test_sizes_are_drawn_for_a_program_and_a_seed() -> None:
    program = parse(TWO, "two").program
    sizes = [size for seed in range(400) for size in drawn(program, seed)]
    assert all(list(size) == ["u0", "u1", "mask"] for size in sizes)
    pairs = [(size["u0"], size["u1"]) for size in sizes]
    assert {one for pair in pairs for one in pair} >= {*TELLING, 76, 77, 78}
    assert any(one == 1 < other for one, other in pairs)
    assert any(one == other > 2 for one, other in pairs)
    assert any(one >= LARGE for pair in pairs for one in pair)
    assert all(4 * size["u0"] <= MOST_ELEMENTS for size in sizes)
    assert drawn(program, 1) == drawn(program, 1) != drawn(program, 2)
    resized = at_data_size(program, "u0=5,u1=1,mask=3")
    assert [one.shape[0].size for one in resized.inputs] == [5, 1, 20]
    assert resized.inputs[2].recipe == Recipe("trues", (3,))


def test_a_renamed_input_has_the_same_drawn_sizes() -> None:
    one, other = (parse(text, "two").program for text in (TWO, TWO.replace("mask", "keep").replace("u1", "u7")))
    for seed in range(20):
        assert [[*size.values()] for size in drawn(one, seed)] == [[*size.values()] for size in drawn(other, seed)]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("u0", "found 'u0', expected sizes such as u0=5,u1=1"),
        ("u0=²", "expected sizes such as"),
        ("u0=-1", "expected sizes such as"),
        ("u0=12345678", "expected sizes such as"),
        ("u0=5,u9=1", "--sizes: found 'u9', expected some of mask, u0, u1"),
    ],
)
def test_sizes_that_a_program_does_not_have(size: str, message: str) -> None:
    program = parse(TWO, "two").program
    check_sizes(program, ["u0=5,mask=0", "u1=3"])
    with pytest.raises(InputError, match=message):
        check_sizes(program, [size])


def test_kinds_of_values_keep_the_sizes() -> None:
    program = parse(TWO, "two").program
    for call in VALUE_CALLS:
        there = at_data_size(program, call)
        assert [one.shape for one in there.inputs] == [one.shape for one in program.inputs]
        assert there.inputs[0].recipe.kind in {*VALUE_KINDS.values(), *(["normal"] if call == NUMBERS else [])}
        assert there.inputs[2] == program.inputs[2]  # `trues(2)` is a size
        assert not any(map(fault_of, there.inputs))


def test_numbers_are_zero_beside_special_values() -> None:
    """`addmv(x, m, v, beta=0)` does not read `x`: NaN in it shows whether a captured program does."""
    number, other = (Input(name, "float32", dims(), Recipe("values", (0.5,))) for name in "bc")
    x, y = (Input(name, "float32", dims(2), Recipe("normal")) for name in "xy")
    there = at_data_size(program_of(number, x, y, other), NUMBERS)
    assert [one.recipe.kind for one in there.inputs] == ["zeros", "special", "normal", "zeros"]


def test_a_program_without_data_dependent_sizes_has_no_drawn_ones() -> None:
    program = program_of(Input("x", "float32", dims(2), Recipe("normal")))
    assert with_drawn(program, CALL_SIZES, 0) == CALL_SIZES[:-2]


def test_a_program_without_data_dependent_sizes_is_unchanged() -> None:
    program = program_of(Input("x", "float32", dims(2), Recipe("normal")))
    assert all(at_data_size(program, data_size) == program for data_size in DATA_SIZES)


@pytest.mark.parametrize("dtype", sorted(INTEGERS))
def test_what_an_integer_dtype_cannot_hold_is_a_fault_and_the_rest_can_be_made(dtype: str) -> None:
    limits = torch.iinfo(getattr(torch, dtype))
    for value in (limits.min, limits.max):
        item = Input("x", dtype, dims(1), Recipe("values", (value,)))
        assert fault_of(item) is None
        assert made(item).tolist() == [value]
    for value in (limits.min - 1, limits.max + 1):
        assert fault_of(Input("x", dtype, dims(1), Recipe("values", (value,)))) is not None
