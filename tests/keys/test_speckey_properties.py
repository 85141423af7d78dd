"""The properties of specialization keys, on drawn tensors of every layout, dtype and kind."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.guards import watch
from ddefuzz.keys.case import KINDS, Options, PropertyName, SizeParts, StrideParts, Tensors, TensorSpec, Violation
from ddefuzz.keys.families import facts
from ddefuzz.keys.function import KeyFunction
from ddefuzz.keys.key import RECENT, Dispatch, Key, key, paths
from ddefuzz.keys.properties import PROPERTIES, check, symbolic_tensor, texts
from ddefuzz.keys.tensors import drawn, exists, pairs, unbacked, with_tensor
from ddefuzz.oracles.keys_run import in_another_process, key_function
from ddefuzz.program.recipes import DTYPES

SIZES: tuple[SizeParts, ...] = ("all", "01")
STRIDES: tuple[StrideParts, ...] = ("all", "pattern", "none")

OPTIONS = (
    *(
        Options(sizes=sizes, strides=strides, divisible=divisible, alignment=not divisible, requires_grad=not divisible)
        for sizes, strides, divisible in product(SIZES, STRIDES, (False, True))
    ),
    Options(dtype=False, device=False, requires_grad=False),
)

BY_OPTIONS = {options: paths(options) for options in OPTIONS}

some_options = st.sampled_from(OPTIONS)
quiet = settings(max_examples=100, deadline=None, database=None)

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|prototype)")


@quiet
@given(drawn(), some_options)
def test_both_paths_give_equal_keys(one: TensorSpec, options: Options) -> None:
    def compare(tensor: torch.Tensor) -> None:
        fast, safe = BY_OPTIONS[options].fast(tensor), BY_OPTIONS[options].safe(tensor)
        assert fast is None or (fast == safe and hash(fast) == hash(safe))
        assert BY_OPTIONS[options].key(tensor) == safe

    with_tensor(one, compare)


@quiet
@given(drawn())
def test_only_exact_tensors_with_memory_take_the_fast_path(one: TensorSpec) -> None:
    is_plain = one.kind in ("tensor", "parameter") and 0 not in one.sizes
    assert with_tensor(one, lambda tensor: paths().fast(tensor) is not None) == is_plain


@pytest.mark.slow
@quiet
@given(unbacked(), some_options)
def test_a_key_adds_no_guard(tensors: Tensors, options: Options) -> None:
    sizes, exact = tensors[0].sizes, tensors[0].kind == "meta"
    tensor, env = symbolic_tensor(sizes, exact)
    before = (len(env.guards), dict(env.replacements), dict(env.var_to_range), env.num_deferred_runtime_asserts)
    with watch() as recorder:
        made = BY_OPTIONS[options].key(tensor)
        assert made == BY_OPTIONS[options].key(tensor)
        assert not recorder.guards()
        assert not recorder.constraints(lambda _kind, _text: True)
    assert before == (len(env.guards), dict(env.replacements), dict(env.var_to_range), env.num_deferred_runtime_asserts)
    assert BY_OPTIONS[options].fast(tensor) is None
    other, _ = symbolic_tensor(sizes, exact)
    assert BY_OPTIONS[options].key(other) != made, "symbols of another ShapeEnv are other sizes"


@quiet
@example((TensorSpec((3,), (1,), kind="nested"), TensorSpec((2,), (1,), kind="nested")), OPTIONS[6])
@example((TensorSpec((3,), (1,), kind="nested"), TensorSpec((16,), (1,), kind="nested")), OPTIONS[7])
@example((TensorSpec((), (), 1, "bfloat16"), TensorSpec((), (), 4, "bfloat16")), OPTIONS[0])
@example((TensorSpec((0,), (1,), kind="zeros"), TensorSpec((0,), (1,))), OPTIONS[0])
@example((TensorSpec((0,), (1,), kind="meta"), TensorSpec((0,), (1,))), OPTIONS[-1])
@example((TensorSpec((0, 3), (3, 1), kind="zeros"), TensorSpec((0, 2), (2, 1), kind="zeros")), OPTIONS[6])
@example((TensorSpec((2, 3), (3, 1), kind="zeros"), TensorSpec((2, 2), (2, 1), kind="zeros")), OPTIONS[6])
@example((TensorSpec((2, 0), (1, 1), kind="batched"), TensorSpec((0,), (1,))), OPTIONS[0])
@given(pairs(), some_options)
def test_keys_are_equal_if_the_parts_are(pair: tuple[TensorSpec, TensorSpec], options: Options) -> None:
    made = BY_OPTIONS[options].key
    first, second = (with_tensor(one, made) for one in pair)
    least, most = ([facts(one, options, least=least) for one in pair] for least in (True, False))
    assert first != second or least[0] == least[1]
    assert first == second or most[0] != most[1]


def behaviour(tensor: torch.Tensor, options: Options) -> tuple[Any, ...]:
    """What a kernel does that asks only for parts of the key, by torch's own questions about layouts."""
    sizes = tuple(tensor.shape)
    asked: list[Any] = [[(size == 0, size == 1) for size in sizes], tensor.dtype, tensor.is_conj(), tensor.is_neg()]
    if options.requires_grad:
        asked.append(tensor.requires_grad)
    if options.sizes == "all":
        asked.append(tensor.numel())
    if options.divisible:
        asked.append([size % 16 == 0 for size in sizes])
    if options.strides != "none":
        asked += [
            tensor.is_contiguous(),
            [n > 1 and tensor.numel() > 0 and s == 0 for n, s in zip(sizes, tensor.stride(), strict=True)],
        ]
        asked.append([n > 1 and tensor.numel() > 0 and s == 1 for n, s in zip(sizes, tensor.stride(), strict=True)])
        if tensor.dim() == 4:
            asked.append(tensor.is_contiguous(memory_format=torch.channels_last) if tensor.numel() else None)
    if options.alignment:
        asked.append(tensor.data_ptr() % 16 == 0 if tensor.numel() else None)
    return tuple(asked)


@pytest.mark.slow
@settings(max_examples=100, deadline=None, database=None)
@given(pairs(kinds=("tensor",)), st.sampled_from([one for one in OPTIONS if one.dtype]))
def test_equal_keys_are_equal_behaviour(pair: tuple[TensorSpec, TensorSpec], options: Options) -> None:
    made = BY_OPTIONS[options].key
    if with_tensor(pair[0], made) == with_tensor(pair[1], made):
        assert with_tensor(pair[0], lambda one: behaviour(one, options)) == with_tensor(
            pair[1], lambda one: behaviour(one, options)
        )


def test_layouts_that_matter_differ() -> None:
    four = torch.zeros(2, 3, 4, 5)
    layouts = [
        four,
        four.contiguous(memory_format=torch.channels_last),
        torch.zeros(5, 4, 3, 2).permute(3, 2, 1, 0),
        torch.zeros(1, 3, 4, 5).expand(2, 3, 4, 5),
        torch.zeros(2, 3, 4, 10)[..., ::2],
        torch.zeros(2, 3, 4, 6)[..., :5],
    ]
    for options in OPTIONS:
        if options.strides != "none":
            made = {BY_OPTIONS[options].key(tensor) for tensor in layouts}
            assert len(made) == len(layouts), options


def test_every_kind_and_dtype_is_drawn() -> None:
    kinds: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(drawn())
    def draw(one: TensorSpec) -> None:
        assert exists(one)
        kinds[one.kind] += 1
        dtypes[one.dtype] += 1

    draw()
    assert set(kinds) == set(KINDS)
    assert set(dtypes) == set(DTYPES.values())


def test_a_key_has_no_tensor_and_no_symbol() -> None:
    plain = (bool, int, str, type(None), torch.dtype, torch.device)

    def check_parts(part: object) -> None:
        if isinstance(part, tuple):
            for inner in part:
                check_parts(inner)
        else:
            assert type(part) in plain, part

    for one in (torch.zeros(3, 4), symbolic_tensor((2, 3), False)[0], symbolic_tensor((2,), True)[0]):
        check_parts(key(one))


def test_a_wrapper_subclass_has_the_keys_of_its_parts() -> None:
    fake = torch_api.bound(torch_api.FAKE_MODE)()
    first, second = (fake.from_tensor(torch.zeros(2, dtype=dtype)) for dtype in (torch.float32, torch.float64))
    assert key(first) != key(second)
    jagged = [
        torch.nested.nested_tensor([torch.zeros(2, n), torch.zeros(3, n)], layout=torch.jagged) for n in (4, 4, 5)
    ]
    assert len({key(one) for one in jagged}) == 3
    assert all(paths().fast(one) is None for one in jagged)


@pytest.mark.slow
def test_keys_are_stable_over_processes() -> None:
    tensors = [
        TensorSpec((2, 3), (3, 1)),
        TensorSpec((2,), (1,), dtype="bool"),
        TensorSpec((2, 3), (3, 1), kind="sparse"),
    ]
    assert in_another_process("ddefuzz.keys.key:key", tensors) == texts(key, tensors)


# Dispatch


@pytest.mark.slow
@quiet
@given(st.lists(pairs(kinds=("tensor", "parameter", "subclass", "meta")), max_size=6), some_options)
def test_dispatch_gives_what_was_made_for_the_keys(
    calls: list[tuple[TensorSpec, TensorSpec]], options: Options
) -> None:
    dispatch: Dispatch[tuple[Key, ...]] = Dispatch(lambda *args: tuple(map(made, args)), options)
    made = BY_OPTIONS[options].key
    for pair in [*calls, *calls]:
        args = with_tensor(pair[0], lambda a: with_tensor(pair[1], lambda b: (a, b)))  # noqa: B023 called at once
        assert dispatch(*args) == tuple(map(made, args))
    assert len(dispatch.recent) <= RECENT


def test_a_recent_call_makes_no_keys() -> None:
    calls: list[int] = []

    def make(*args: torch.Tensor) -> int:
        calls.append(len(args))
        return len(calls)

    dispatch = Dispatch(make)
    one, other = torch.zeros(2, 3), torch.zeros(2, 4)
    assert [dispatch(one), dispatch(other), dispatch(one), dispatch(torch.zeros(2, 3)), dispatch(one, one)] == [
        1,
        2,
        1,
        1,
        3,
    ]
    assert calls == [1, 1, 2]
    assert (dispatch(), dispatch()) == (4, 4)
    assert dispatch(torch.zeros(7)[1:][:6].view(2, 3)) == 5, "its data is not aligned"


# Planted faults


def violated(function: str, *names: PropertyName) -> dict[str, Violation]:
    target = f"ddefuzz.keys.planted:{function}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [check(name, key_function(target, Options()), 12, ("tensor",)) for name in names]
        return {one.name: one.violations[0] for one in found if one.violations}


@pytest.mark.slow
@pytest.mark.long
def test_planted_wrong_keys_are_found_with_the_smallest_tensors() -> None:
    in_this_process = [name for name in PROPERTIES if name != "same-in-other-process"]
    found = violated("forgets_strides", *in_this_process)
    assert set(found) == {"tells-apart", "adds-no-guard"}
    assert found["tells-apart"].tensors == (
        "torch.zeros((2, 3, 4, 5))",
        "torch.zeros((2, 3, 4, 5)).to(memory_format=torch.channels_last)",
    )
    assert found["adds-no-guard"].tensors == ("fake(u0)", "fake(u1)")
    assert found["adds-no-guard"].part == "Eq(u, u)"

    found = violated("asks_sizes", *in_this_process)
    assert set(found) == {"adds-no-guard"}
    assert "Eq(u3, 1)" in found["adds-no-guard"].why

    found = violated("keeps_tensor", "holds-no-tensor")
    assert found["holds-no-tensor"].tensors == ("torch.zeros(())",)


class SilentError(Exception):
    def __str__(self) -> str:
        raise ValueError


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError


def raising(error: BaseException) -> Callable[[object], Hashable]:
    def key(_tensor: object) -> Hashable:
        raise error

    return key


@pytest.mark.parametrize(
    ("key", "why", "keys"),
    [
        (raising(SystemExit(0)), "SystemExit: 0", ()),
        (raising(KeyboardInterrupt()), "KeyboardInterrupt:", ()),
        (raising(SilentError()), "SilentError: <ValueError in __str__>", ()),
        (lambda _: Unprintable(), "two keys of the same tensor differ", ("<ValueError in __repr__>",) * 2),
    ],
)
def test_what_a_function_does_instead_of_a_key_is_a_violation(
    key: Callable[[object], Hashable], why: str, keys: tuple[str, ...]
) -> None:
    function = KeyFunction(key, Options(), lambda _: [])
    (found,) = check("gives-a-key", function, 1, ("tensor",)).violations
    assert (found.why, found.keys) == (why, keys)


def test_a_key_that_is_another_one_at_each_call_is_a_violation() -> None:
    calls = iter(range(10**6))
    function = KeyFunction(lambda _: next(calls) % 7 == 0, Options(), lambda _: [])
    found = {name: check(name, function, 30, ("tensor",)).violations for name in ("gives-a-key", "tells-apart")}
    assert {one.why for one in found["gives-a-key"]} == {"two keys of the same tensor differ"}
    assert {one.why for one in found["tells-apart"]} == {"equal keys for different tensors"}
