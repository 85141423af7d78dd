"""Keys of tensors, on two paths that give equal keys for the same tensor.

The fast path is for an exact `torch.Tensor` or `Parameter` that has plain memory. It reads sizes and strides as ints.
The safe path takes everything else: subclasses, fake tensors, symbolic sizes, other layouts, functorch's wrappers. It
turns a symbolic size into the number of its ShapeEnv and the text of its expression, which adds no guard.

A key has only numbers, texts, dtypes and devices. It keeps no tensor, no ShapeEnv and no symbol alive.

`Dispatch` is a small cache from the arguments of a call to what was compiled for arguments of their keys. The last
calls are compared first, by the guards that dynamo has in C++. These tell apart at least what a key tells apart,
except the alignment. Only if none of them fits are the keys made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, lru_cache
from itertools import count
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch

from ddefuzz.instrument import torch_api
from ddefuzz.keys.case import ALIGNMENT, Options

Geometry: TypeAlias = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]
"""Makes the part from the sizes and the strides."""

REMEMBERED: Final = 65_536  # how many pairs of sizes and strides are remembered with their part


def geometry(options: Options) -> Geometry:
    """The function that makes the part. It works for ints only; see `symbolic` for others."""

    @lru_cache(maxsize=REMEMBERED)
    def part(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
        parts: list[Any] = [tuple(sizes) if options.sizes == "all" else tuple(min(size, 2) for size in sizes)]
        if options.divisible:
            parts.append(tuple(size % ALIGNMENT == 0 for size in sizes))
        if options.strides != "none":
            parts.append(tuple(strides) if options.strides == "all" else pattern(sizes, strides))
        return tuple(parts)

    return part


def pattern(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
    """For each dim None if its size is 0 or 1. Else its stride if that is 0 or 1; else its place in the order of the
    strides from the smallest, negative if it is not the extent of the dims before it. Empty if the layout has no
    strides.
    """
    if 0 in sizes or not strides:
        return (None,) * len(strides)
    places: list[Any] = [None] * len(sizes)
    extent = 1
    moving = [dim for dim, size in enumerate(sizes) if size > 1]
    for place, dim in enumerate(sorted(moving, key=lambda dim: (strides[dim], dim)), 2):
        stride = strides[dim]
        if stride in (0, 1):
            places[dim] = stride
        else:
            places[dim] = place if stride == extent else -place
        extent = max(stride * sizes[dim], extent)
    return tuple(places)


def symbolic(options: Options, sizes: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part where some size or stride is an expression, compared as it is, or a row of a nested tensor."""
    parts: list[Any] = [tuple(map(_capped, sizes)) if options.sizes == "01" else sizes]
    if options.divisible:
        parts.append(tuple(map(_divisible, sizes)))
    if options.strides != "none":
        parts.append(strides)
    return tuple(parts)


def _capped(size: Any) -> Any:
    """0, 1, or 2 for more. An expression as it is; a row of a nested tensor's sizes each."""
    if type(size) is tuple and all(type(one) is int for one in size):
        return tuple(map(_capped, size))
    return min(size, 2) if type(size) is int else size


def _divisible(size: Any) -> Any:
    if type(size) is tuple and all(type(one) is int for one in size):
        return tuple(map(_divisible, size))
    return size % ALIGNMENT == 0 if type(size) is int else None


Key: TypeAlias = tuple[Hashable, ...]
KeyFunction: TypeAlias = Callable[[torch.Tensor], Key]

EXACT = (torch.Tensor, torch.nn.Parameter)
"""The types that may take the fast path. A subclass may give any answer to any question, so none may."""

_numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_next_number = count()


class Paths(NamedTuple):
    """The key function, and its two paths. `fast` gives None for what it does not take."""

    key: KeyFunction
    fast: Callable[[torch.Tensor], Key | None]
    safe: KeyFunction


DEFAULT = Options()


def paths(options: Options = DEFAULT) -> Paths:
    """The key function for these options, and its two paths."""
    names = [name for name in ("dtype", "device", "requires_grad") if getattr(options, name)]
    read = attrgetter(torch_api.HAS_SYMBOLIC_SIZES.name_here(), *names)
    part, exact, parameter = geometry(options), torch.Tensor, torch.nn.Parameter
    safe = _safe_path(options, names)
    aligned = options.alignment
    whole = (options.sizes, options.strides, options.divisible) == ("all", "all", False)

    def fast(tensor: torch.Tensor) -> Key | None:
        kind = type(tensor)
        if kind is not exact and kind is not parameter:
            return None
        parts = read(tensor)
        if not names:
            parts = (parts,)
        if parts[0]:
            return None
        try:
            # Raises for what has no plain memory: sparse tensors and functorch's wrappers. It is 0 for tensors that
            # are empty, on the meta device, or zero without memory. A kernel asks for it too.
            memory = tensor.data_ptr()
            if not memory:
                return None
            shape = (tensor.shape, tensor.stride()) if whole else part(tensor.shape, tensor.stride())
        except RuntimeError:
            return None
        return (parts, shape, tensor.is_conj(), tensor.is_neg(), memory % ALIGNMENT == 0 if aligned else None)

    def key(tensor: torch.Tensor) -> Key:
        return fast(tensor) or safe(tensor)

    return Paths(key, fast, safe)


def _safe_path(options: Options, names: list[str]) -> KeyFunction:
    part = geometry(options)
    read: Callable[[torch.Tensor], Any] = attrgetter(*names) if names else lambda _tensor: ()
    no_function = torch_api.bound(torch_api.NO_SUBCLASS_FUNCTION)
    aligns = options.alignment
    whole = (options.sizes, options.strides, options.divisible) == ("all", "all", False)
    several, exact, parameter, strided = len(names) > 1, *EXACT, torch.strided

    def safe(tensor: torch.Tensor) -> Key:
        kind = type(tensor)
        if kind is exact or kind is parameter:
            return safe_exact(tensor)
        with no_function():
            return general(tensor)

    def safe_exact(tensor: torch.Tensor) -> Key:
        """The same as `general`. It asks fewer questions of a tensor with plain memory."""
        if tensor.layout is not strided or tensor.is_meta or tensor.is_nested:
            return general(tensor)
        sizes, strides = tensor.shape, tensor.stride()
        for number in sizes:
            if type(number) is not int:
                return general(tensor)
        for number in strides:
            if type(number) is not int:
                return general(tensor)
        try:
            memory = tensor.data_ptr()
        except RuntimeError:  # NotImplementedError, which torch raises too, is one
            memory = 0
        if not memory:
            return general(tensor)
        values = read(tensor)
        return (
            (False, *values) if several else (False, values) if names else (False,),
            (sizes, strides) if whole else part(sizes, strides),
            tensor.is_conj(),
            tensor.is_neg(),
            memory % ALIGNMENT == 0 if aligns else None,
        )

    def general(tensor: torch.Tensor) -> Key:
        kind = type(tensor)
        layout = tensor.layout
        sizes, strides, offset = _geometry_of(tensor, kind, layout)
        plain = True
        for number in (*sizes, *strides):
            if type(number) is not int:
                plain = False
                break
        shape = part(sizes, strides) if plain else symbolic(options, sizes, strides)
        memory = 0  # the address of the first element, 0 if there is none
        if (kind is exact or kind is parameter) and not tensor.is_meta:
            with suppress(RuntimeError):
                memory = tensor.data_ptr()
        aligned = _alignment(tensor, memory, offset) if aligns else None
        values = read(tensor)
        parts = (not plain, *values) if several else (not plain, values) if names else (not plain,)
        facts = _facts(tensor, kind, layout, memory != 0, safe)
        return (parts, shape, tensor.is_conj(), tensor.is_neg(), aligned, *facts)

    return safe


def _geometry_of(
    tensor: torch.Tensor, kind: type, layout: torch.layout
) -> tuple[tuple[Any, ...], tuple[Any, ...], Any]:
    """The sizes, strides and storage offset, each int or symbolic part; no strides if the layout has none."""
    if tensor.is_nested and kind in EXACT:
        # Its sizes are a matrix: one row for each tensor in it.
        rows = torch_api.bound(torch_api.NESTED_SIZES)(tensor).tolist()
        return tuple(map(tuple, rows)), (), 0
    sizes = tuple([size if type(size) is int else _normalized(size) for size in tensor.shape])
    if layout is not torch.strided:
        return sizes, (), 0
    strides = tuple([stride if type(stride) is int else _normalized(stride) for stride in tensor.stride()])
    offset = tensor.storage_offset()
    return sizes, strides, offset if type(offset) is int else _normalized(offset)


_text: Callable[[object], str] = lru_cache(maxsize=REMEMBERED)(str)
"""The text of an expression, which takes sympy longer than everything else."""


def _normalized(number: Any) -> Hashable:
    """The ShapeEnv's number and the text of the expression of a symbolic number; an int if it is known."""
    node = number.node
    known = node.maybe_as_int()
    if known is not None:
        return int(known)
    if node.is_nested_int():
        return ("nested", node.nested_int(), node.nested_int_coeff())
    env = node.shape_env
    own = _numbers.get(env)
    if own is None:
        own = _numbers[env] = next(_next_number)
    return ("symbolic", own, _text(node.expr))


def _alignment(tensor: torch.Tensor, memory: int, offset: Any) -> Hashable:
    """Whether the first element is aligned. Where there is no memory yet, its storage counts as aligned."""
    if memory:
        return bool(memory % ALIGNMENT == 0)
    return bool(offset * tensor.itemsize % ALIGNMENT == 0) if type(offset) is int else offset


@cache
def _dispatch_keys() -> Callable[[torch.Tensor], Any]:
    keys: Callable[[torch.Tensor], Any] = torch_api.bound(torch_api.DISPATCH_KEYS)
    return keys


def _facts(
    tensor: torch.Tensor, kind: type, layout: torch.layout, has_memory: bool, inner: KeyFunction
) -> tuple[Hashable, ...]:
    """What sets a tensor apart from those that the fast path takes: type, layout, wrappers and inner tensors."""
    facts: list[Hashable] = []
    if kind not in EXACT:
        facts.append(("type", f"{kind.__module__}.{kind.__qualname__}"))
    if layout is not torch.strided:
        facts.append(("layout", str(layout)))
        if tensor.is_sparse:
            facts.append(("sparse", tensor.sparse_dim(), tensor.dense_dim()))
    if tensor.is_nested:
        facts.append(("nested", True))
    elif kind in EXACT and not has_memory:
        # An empty tensor, a wrapper of functorch, a tensor that is zero without memory, or one on the meta device.
        facts.append(("dispatch", _dispatch_keys()(tensor).raw_repr()))
    flatten = getattr(kind, "__tensor_flatten__", None)
    if flatten is not None:
        names, context = flatten(tensor)
        parts = ((name, getattr(tensor, name)) for name in names)
        # Not each part is a tensor: DTensor has its mesh.
        keys = ((name, inner(part) if isinstance(part, torch.Tensor) else repr(part)) for name, part in parts)
        facts.append(("inner", *keys, repr(context)))
    return tuple(facts)


key = paths().key  # the key that tells everything apart except divisibility, which the sizes imply


V = TypeVar("V")

RECENT: Final = 4  # how many of the last calls are compared before keys are made


class _Recent(NamedTuple, Generic[V]):
    """What the arguments of a call were, without the arguments."""

    number: int
    check: Callable[..., bool]
    aligned: tuple[bool, ...] | None
    value: V


class Dispatch(Generic[V]):
    """What `compile` makes for the arguments of a call, made once for each key.

    A class, because it has a state that its calls change.
    """

    def __init__(self, make: Callable[..., V], options: Options = DEFAULT) -> None:
        self._make = make
        self._options = options
        self._paths = paths(options)
        self.table: dict[tuple[Key, ...], V] = {}
        self.recent: list[_Recent[V]] = []

    def __call__(self, *tensors: torch.Tensor) -> V:
        """The value for these arguments."""
        for recent in self.recent:
            if (
                len(tensors) == recent.number
                and recent.check(*tensors)
                and recent.aligned in (None, _alignments(tensors))
            ):
                return recent.value
        key = tuple(map(self._paths.key, tensors))
        if key not in self.table:
            self.table[key] = self._make(*tensors)
        value = self.table[key]
        if tensors and all(self._paths.fast(tensor) is not None for tensor in tensors):
            aligned = _alignments(tensors) if self._options.alignment else None
            self.recent = [_Recent(len(tensors), _guards(tensors), aligned, value), *self.recent[: RECENT - 1]]
        return value


def _alignments(tensors: tuple[torch.Tensor, ...]) -> tuple[bool, ...]:
    return tuple([tensor.data_ptr() % ALIGNMENT == 0 for tensor in tensors])


def _guards(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool]:
    made: Any = torch_api.bound(torch_api.TENSOR_GUARDS)(
        *tensors,
        dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
        dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
    )
    check: Callable[..., bool] = made.check
    return check
