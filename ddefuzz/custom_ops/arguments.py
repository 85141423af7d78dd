"""Arguments of an op at any sizes: real ones, and fake ones whose sizes are unbacked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.subject import of_user, seed
from ddefuzz.instrument import torch_api

Sizes: TypeAlias = Mapping[str, int]
"""The value of each size by its name."""

FIRST_SIZE: Final = 3  # of the first parameter of a function of sizes; each further one has one more
TELLING: Final = (0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64)  # sizes that code may treat apart
COMMON_FLOATS: Final = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
MOST_STEP: Final = 2  # a larger dim may have to be a multiple of what it is
LARGE: Final = 1_003
ROUND: Final = 100  # n * 0.29 is less than 29
MIXED: Final = 8  # how many drawn combinations of sizes are tried
MOST_ELEMENTS: Final = 2_000_000
MOST_DIMS: Final = 16  # of one example, that are changed one at a time


class Arguments(NamedTuple):
    """Positional arguments, and those by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def leaves(self) -> list[Any]:
        """What is in nested arguments."""
        flat: list[Any] = torch_api.bound(torch_api.TREE_FLATTEN)((self.args, self.kwargs))[0]
        return flat

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors in them."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def changed(self, change: Callable[[int, Any], Any]) -> Arguments:
        """The same with other leaves. `change` gets the number of each leaf."""
        flat, spec = torch_api.bound(torch_api.TREE_FLATTEN)((self.args, self.kwargs))
        leaves = [change(place, leaf) for place, leaf in enumerate(flat)]
        args, kwargs = torch_api.bound(torch_api.TREE_UNFLATTEN)(leaves, spec)
        return Arguments(args, kwargs)

    def with_tensors(self, change: Callable[[torch.Tensor], Any]) -> Arguments:
        """The same with each tensor changed."""
        return self.changed(lambda _, leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf)

    def copied(self) -> Arguments:
        """Tensors of their own: the op may write to them."""
        return self.with_tensors(copied)

    def named(self, parameters: Sequence[str]) -> list[str]:
        """What each leaf is called: `x`, `tensors[1]`."""
        pairs, _ = torch_api.bound(torch_api.TREE_PATHS)((self.args, self.kwargs))
        names = []
        for path, _leaf in pairs:
            index: int | None = getattr(path[1], "idx", None)
            name = str(path[1].key) if index is None else parameters[index]
            names.append(name + torch_api.bound(torch_api.KEY_TEXT)(path[2:]))
        return names


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same strides and storage offset, in memory of its own."""
    length = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
    memory = torch.empty(length, dtype=tensor.dtype, device=tensor.device)
    memory.untyped_storage().copy_(tensor.untyped_storage())
    made = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return made.detach().requires_grad_(tensor.requires_grad)


def is_common_float(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a float dtype that has all arithmetic."""
    return tensor.dtype in COMMON_FLOATS


class Linear(NamedTuple):
    """A number that depends on sizes: `2*n + 1`."""

    constant: int
    factors: tuple[tuple[str, int], ...] = ()

    def at(self, sizes: Mapping[str, Any]) -> Any:
        """Its value. The sizes may be symbolic."""
        total: Any = self.constant
        for name, factor in self.factors:
            total = total + (sizes[name] if factor == 1 else sizes[name] * factor)
        return total


@dataclass(frozen=True)
class Inputs:
    """One example at any sizes. `dims` are the sizes of each leaf that is a tensor, `numbers` the leaves that are ints
    and depend on sizes; both by the number of the leaf. A dim that is None depends on sizes in another way. `equal` are
    sizes of two tensors that are equal in the example: they may have to agree, although the real kernel takes others.
    """

    title: str
    example: dict[str, int]
    make: Callable[[Sizes], Arguments]
    dims: dict[int, list[Linear | None]]
    numbers: dict[int, Linear] = field(default_factory=dict)
    static: tuple[str, ...] = ()
    equal: tuple[tuple[str, str], ...] = ()

    def apart_at(self, sizes: Sizes) -> str:
        """Two sizes that are equal in the example, and not here: they may have to agree. Empty if there are none."""
        pairs = (f"{name} and {other}" for name, other in self.equal if sizes[name] != sizes[other])
        return next(pairs, "")

    @property
    def symbols(self) -> list[str]:
        """The names of the sizes that are unbacked."""
        return [name for name in self.example if name not in self.static]

    def sizes(self, seed_of: int) -> list[Sizes]:
        """The sizes to try: the example, each telling size alone, all equal, a large one, and drawn ones."""
        listed: list[Sizes] = [self.example]
        rng = Random(f"{seed_of} {self.title}")
        for size in TELLING:
            listed += [{**self.example, name: size} for name in self.example]
        listed += [{**self.example, name: 2 * size} for name, size in self.example.items()]
        listed += [dict.fromkeys(self.example, size) for size in (0, 1, 2, 9)]
        listed += [{name: rng.choice(TELLING) for name in self.example} for _ in range(MIXED)]
        listed += [{**self.example, name: size} for size in (ROUND, LARGE) for name in self.example]
        return [dict(pairs) for pairs in dict.fromkeys(tuple(sizes.items()) for sizes in listed)]

    def few(self, seed_of: int) -> list[Sizes]:
        """Some of them, for layouts and dtypes."""
        rng = Random(f"few {seed_of} {self.title}")
        listed: list[Sizes] = [self.example, *(dict.fromkeys(self.example, size) for size in (0, 1))]
        listed += [{name: rng.choice(TELLING) for name in self.example} for _ in range(3)]
        return [dict(pairs) for pairs in dict.fromkeys(tuple(sizes.items()) for sizes in listed)]

    def at(self, sizes: Sizes) -> Arguments | None:
        """The real arguments. None if they are too large, or the user's function refuses the sizes."""
        seed()
        with suppress(Exception):
            made = self.make(sizes)
            if sum(tensor.numel() for tensor in made.tensors) <= MOST_ELEMENTS:
                return made
        return None


class Call(NamedTuple):
    """A call of the op. `sizes` are those that its arguments were made at, None if they are unbacked. `apart` are two
    that differ here and are equal in the example. `values` says which other values its floats have.
    """

    given: Arguments
    sizes: Sizes | None
    apart: str = ""
    values: str = ""


def sizes_text(sizes: Sizes) -> str:
    """`n=0, k=4`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "no sizes"


def argument_text(value: Any) -> str:
    """`float32[3, 4]` for a tensor, with its strides if it is not contiguous."""
    if isinstance(value, torch.Tensor):
        shape = ", ".join(map(str, value.shape))
        dtype = str(value.dtype).removeprefix("torch.")
        is_plain = value.layout != torch.strided or not value.numel() or value.is_contiguous()
        return f"{dtype}[{shape}]" + ("" if is_plain else f" strides {tuple(value.stride())}")
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(argument_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return repr(value)


def call_text(op: str, given: Arguments) -> str:
    """`mylib::op(float32[3, 4], k=2)`."""
    parts = [*map(argument_text, given.args), *(f"{name}={argument_text(one)}" for name, one in given.kwargs.items())]
    return f"{op}({', '.join(parts)})"


def read_example(example: object, where: str) -> Arguments | Callable[..., Any]:
    """An example as the user wrote it. Raises InputError for what is none."""
    if callable(example) and not isinstance(example, torch.Tensor):
        return example
    if isinstance(example, Arguments):
        return example
    if isinstance(example, tuple) and len(example) == 2 and isinstance(example[0], tuple) and type(example[1]) is dict:
        return Arguments(*example)
    if isinstance(example, tuple):
        return Arguments(example, {})
    raise InputError(
        f"{where}: found {type(example).__name__}, expected a tuple of arguments, a pair (tuple, dict), or a function "
        "of sizes that returns one"
    )


def inputs_of(example: object, where: str, parameters: Sequence[str], accepts: Callable[[Arguments], bool]) -> Inputs:
    """The example at any sizes. `accepts` tries a call of the real kernel. Raises InputError for what is no example."""
    read = read_example(example, where)
    return _of_arguments(where, read, parameters, accepts) if isinstance(read, Arguments) else _of_function(where, read)


def _of_function(where: str, function: Callable[..., Any]) -> Inputs:
    """A function of sizes: how each dim depends on them is found by calling it."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InputError(f"{where}: found a function without a signature, expected one of sizes") from None
    example = {
        one.name: one.default if type(one.default) is int else FIRST_SIZE + place
        for place, one in enumerate(parameters)
    }

    def make(sizes: Sizes) -> Arguments:
        made = read_example(function(**sizes), f"{where}: its result")
        if not isinstance(made, Arguments):
            raise InputError(f"{where}: found a function that returns a function, expected a tuple")
        return made

    seed()
    with of_user(f"{where}: found an example that at {sizes_text(example)}"):
        base = make(example)
    static = tuple(name for name in example if not _is_of_size(make, base, example, name))
    free = [name for name in example if name not in static]
    at_base = _numbers(base)
    probes = [{**example, name: example[name] + step} for name in free for step in (1, 2, 4)]
    probes += [{**example, **{name: example[name] + 3 + place for place, name in enumerate(free)}}]
    made = []
    for sizes in probes:
        with suppress(Exception):
            made.append((sizes, _numbers(make(sizes))))
    ones = [numbers for sizes, numbers in made if sum(abs(sizes[name] - example[name]) for name in free) == 1]

    def linear(key: tuple[int, int]) -> Linear | None:
        factors = tuple((name, after[key] - at_base[key]) for name, after in zip(free, ones, strict=False))
        nonzero = tuple((name, factor) for name, factor in factors if factor)
        form = Linear(at_base[key] - sum(factor * example[name] for name, factor in nonzero), nonzero)
        return form if all(form.at(sizes) == numbers.get(key) for sizes, numbers in made) else None

    forms = {key: linear(key) for key in at_base}
    leaves = base.leaves
    dims = {
        place: [forms[place, dim] for dim in range(leaf.dim())]
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor)
    }
    numbers = {
        place: form
        for (place, dim), form in forms.items()
        if dim < 0 and form is not None and form.factors and place not in dims
    }
    return Inputs(where, example, make, dims, numbers, static)


def _is_of_size(make: Callable[[Sizes], Arguments], base: Arguments, example: Sizes, name: str) -> bool:
    """Whether a parameter changes dims and ints, and neither the number of arguments nor their kinds."""
    try:
        made = make({**example, name: example[name] + 1})
    except Exception:  # noqa: BLE001 the user's function
        return False
    kinds = [[(type(leaf), getattr(leaf, "dim", int)()) for leaf in one.leaves] for one in (made, base)]
    return kinds[0] == kinds[1] and _numbers(made) != _numbers(base)


def _numbers(given: Arguments) -> dict[tuple[int, int], int]:
    """The size of each dim by leaf and dim, and each int, as dim -1."""
    found_at: dict[tuple[int, int], int] = {}
    for place, leaf in enumerate(given.leaves):
        if isinstance(leaf, torch.Tensor):
            found_at.update({(place, dim): size for dim, size in enumerate(leaf.shape)})
        elif type(leaf) is int:
            found_at[place, -1] = leaf
    return found_at


_Dim: TypeAlias = tuple[int, int]  # the number of a leaf, and a dim of it


def _of_arguments(
    where: str, given: Arguments, parameters: Sequence[str], accepts: Callable[[Arguments], bool]
) -> Inputs:
    """Fixed arguments: dims that the real kernel takes with another size alone have a size of their own. Of the others
    those that are equal change together. What the kernel refuses stays as it is.
    """
    leaves, names = given.leaves, given.named(parameters)
    shapes = {place: tuple(leaf.shape) for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    dims: list[_Dim] = [(place, dim) for place, shape in shapes.items() for dim in range(len(shape))][:MOST_DIMS]

    def takes(group: Iterable[_Dim]) -> bool:
        listed = list(group)
        if not listed:
            return False
        return any(
            all(accepts(_resized(given, {one: shapes[one[0]][one[1]] + step for one in listed})) for step in steps)
            for steps in _steps(shapes[listed[0][0]][listed[0][1]])
        )

    groups: list[list[_Dim]] = [[one] for one in dims if takes([one])]
    left = [one for one in dims if [one] not in groups]
    by_size: dict[int, list[_Dim]] = {}
    for place, dim in left:
        by_size.setdefault(shapes[place][dim], []).append((place, dim))
    for group in by_size.values():
        parts = [part for part in _by_position(group, shapes) if takes(part)]
        if sum(map(len, parts)) == len(group):
            groups += parts
        elif takes(group):
            groups.append(group)
    symbols = {f"{names[group[0][0]]}.shape[{group[0][1]}]": group for group in groups}
    symbol_of = {one: name for name, group in symbols.items() for one in group}

    def make(sizes: Sizes) -> Arguments:
        return _resized(given, {one: sizes[name] for name, group in symbols.items() for one in group})

    forms: dict[int, list[Linear | None]] = {
        place: [
            Linear(0, ((symbol_of[place, dim], 1),)) if (place, dim) in symbol_of else Linear(size)
            for dim, size in enumerate(shape)
        ]
        for place, shape in shapes.items()
    }
    example = {name: shapes[group[0][0]][group[0][1]] for name, group in symbols.items()}
    equal = tuple(
        (name, other)
        for name, other in combinations(symbols, 2)
        if example[name] == example[other] > 1 and symbols[name][0][0] != symbols[other][0][0]
    )
    return Inputs(where, example, make, forms, equal=equal)


def _steps(size: int) -> list[tuple[int, int]]:
    """How much larger a dim is made to see that it can change: any size, even sizes, multiples of what it is."""
    return [(1, 3), (2, 4), *([(size, 3 * size)] if size > MOST_STEP else [])]


def _by_position(group: list[_Dim], shapes: Mapping[int, tuple[int, ...]]) -> Iterator[list[_Dim]]:
    """Dims of a group at the same place from the end: those that broadcasting pairs."""
    places: dict[int, list[_Dim]] = {}
    for place, dim in group:
        places.setdefault(len(shapes[place]) - dim, []).append((place, dim))
    yield from places.values()


def _resized(given: Arguments, sizes: Mapping[_Dim, int]) -> Arguments:
    """The arguments with other sizes. Values are repeated, so that they stay what they are: indices, boxes, masks.

    Of sorted integers only the last is repeated: they may be offsets.
    """

    def change(place: int, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach()
        for dim in range(leaf.dim()):
            size = sizes.get((place, dim), leaf.shape[dim])
            if size != leaf.shape[dim]:
                numbers = torch.arange(size)
                last = leaf.shape[dim] - 1
                index = numbers.clamp(max=last) if _is_sorted(made, dim) else numbers % max(leaf.shape[dim], 1)
                empty = made.new_zeros([*made.shape[:dim], size, *made.shape[dim + 1 :]])
                made = made.index_select(dim, index) if leaf.shape[dim] else empty
        same = made.shape == leaf.shape
        laid = copied(leaf) if same else _in_order(made, order_of(leaf))
        return laid.detach().requires_grad_(leaf.requires_grad)

    return given.changed(change)


def _is_sorted(tensor: torch.Tensor, dim: int) -> bool:
    """Whether it has integers that do not decrease along a dim, from 0 on: offsets."""
    is_whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    if not is_whole or tensor.shape[dim] < 2 or not tensor.numel():
        return False
    return not bool(tensor.select(dim, 0).any()) and bool((tensor.diff(dim=dim) >= 0).all())


def order_of(tensor: torch.Tensor) -> list[int]:
    """The dims of a tensor, those of large strides first."""
    strides: tuple[int, ...] = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim)) if tensor.numel() > 1 else []


def _in_order(tensor: torch.Tensor, order: list[int]) -> torch.Tensor:
    """A dense copy whose dims are in memory in this order."""
    if not order or order == list(range(tensor.dim())):
        return tensor.contiguous() if tensor.is_contiguous() is not True else tensor.clone()
    back = [order.index(dim) for dim in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


class Fakes(NamedTuple):
    """Fake arguments, their mode and ShapeEnv. `names` are the sizes by the symbols that they were made as (`u0`),
    `dims` the dims of leaves that depend on sizes in another way, by theirs.
    """

    arguments: Arguments
    mode: Any
    env: Any
    names: dict[str, str]
    dims: dict[str, tuple[int, int]]


def fakes_of(inputs: Inputs, base: Arguments, takes_symint: Callable[[int], bool]) -> Fakes:
    """The arguments with all sizes unbacked. An int that depends on sizes is symbolic if its parameter `takes_symint`.

    `base` are the real arguments at the sizes of the example.
    """
    env = torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env)

    check: Any = torch._check

    def symbol() -> Any:
        made = env.create_unbacked_symint()
        check(made >= 0)
        return made

    symbols = {name: symbol() for name in inputs.symbols}
    values = {**inputs.example, **symbols}
    names = {str(made.node.expr): name for name, made in symbols.items()}
    dims: dict[str, _Dim] = {}

    def fake(place: int, leaf: Any) -> Any:
        if place in inputs.numbers and takes_symint(place):
            return inputs.numbers[place].at(values)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        forms = inputs.dims[place]
        if leaf.layout != torch.strided or all(form is not None and not form.factors for form in forms):
            return mode.from_tensor(leaf)
        shape = [symbol() if form is None else form.at(values) for form in forms]
        dims.update({str(shape[dim].node.expr): (place, dim) for dim, form in enumerate(forms) if form is None})
        order = order_of(leaf) or list(range(leaf.dim()))
        made = torch.empty([shape[dim] for dim in order], dtype=leaf.dtype, device=leaf.device)
        back = [order.index(dim) for dim in range(len(order))]
        return made.permute(back).detach().requires_grad_(leaf.requires_grad)

    with mode, torch_api.bound(torch_api.PYTHON_DISPATCHER)():
        return Fakes(base.changed(fake), mode, env, names, dims)
