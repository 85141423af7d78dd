"""Arguments that are tried on the real kernel: an example with other layouts, dtypes, values and options, or arguments
that are drawn from the schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.custom_ops.arguments import Arguments, Call, Inputs, Sizes, copied, is_common_float

LAYOUTS: Final = ("as given", "transposed", "channels_last", "sliced")

OTHER_DTYPES: Final = {
    torch.float32: (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.complex64),
    torch.float64: (torch.float32, torch.float16),
    torch.float16: (torch.float32,),
    torch.bfloat16: (torch.float32,),
    torch.uint8: (torch.float32, torch.int64),
    torch.int64: (torch.int32,),
    torch.int32: (torch.int64,),
    torch.complex64: (torch.complex128,),
}

ALONE: Final = (torch.float32, (torch.float64, torch.float16))
"""The dtypes that one of several tensors gets alone."""

MOST_ALONE: Final = 3  # tensors that get another layout, dtype or a dim of size 1 alone
MOST_DIMS: Final = 4  # dims of one of them

VALUES: Final[Mapping[str, Callable[[torch.Tensor], torch.Tensor]]] = MappingProxyType(
    {"zeros": torch.zeros_like, "ones": torch.ones_like, "negated": torch.neg}
)
"""Other values of float and bool tensors: they decide the sizes of dynamic results."""


SHAPES: Final = ((4, 5), (5, 4), (5,), (2, 3, 8, 8), (3, 4, 5), ())
DTYPES: Final = (torch.float32, torch.int64, torch.bool)
OF_OPTIONAL: Final[Mapping[str, tuple[Any, ...]]] = MappingProxyType(
    {
        "Optional[bool]": (False, True),
        "Optional[int]": (0, 1, 2),
        "Optional[float]": (0.5, 2.0),
        "Optional[ScalarType]": (torch.float64, torch.int32),
    }
)
"""Values of parameters that are None."""

MOST_TRIES: Final = 400
OTHER_INTS: Final = (1, 2, 3, 0)
LEFT_OUT: Final = object()


class Like(NamedTuple):
    """In place of an optional tensor that is None: a copy of the tensor of this number among the arguments."""

    number: int

    def __repr__(self) -> str:
        return f"a copy of tensor {self.number}"


class Variant(NamedTuple):
    """Arguments that differ from the example. `only` is the number of the one tensor that has another layout or dtype,
    or whose dim `narrow` has the size 1. `option` is the name of a parameter that is no tensor, and another value of
    it; `place` is its number if it is given by position.
    """

    layout: str = LAYOUTS[0]
    only: int | None = None
    dtypes: tuple[torch.dtype, torch.dtype] | None = None
    values: str = ""
    option: tuple[str, Any] | None = None
    place: int | None = None
    narrow: int | None = None

    def of(self, given: Arguments | None) -> Arguments | None:
        """The arguments changed in this way, real or fake ones. None if there is nothing to change."""
        if given is None:
            return None
        if self.option is not None:
            return _with_option(given, *self.option, self.place)
        if self.dtypes is not None:
            old, new = self.dtypes
            return _with_tensors(given, self.only, lambda one: _to(one, new) if one.dtype == old else None)
        if self.narrow is not None:
            dim = self.narrow
            return _with_tensors(given, self.only, lambda one: _narrowed(one, dim))
        if self.values:
            return _with_tensors(given, None, lambda one: _with_values(one, VALUES[self.values]))
        if self.layout != LAYOUTS[0]:
            return _with_tensors(given, self.only, lambda one: laid_out(one, self.layout))
        return given

    def call(self, inputs: Inputs, sizes: Sizes) -> Call | None:
        """The call at some sizes. None if it cannot be made."""
        given = self.of(inputs.at(sizes))
        if given is None:
            return None
        narrowed = "a dim of size 1 and that of another tensor" if self.narrow is not None else ""
        return Call(given, sizes, narrowed or inputs.apart_at(sizes), self.values)

    @property
    def is_layout(self) -> bool:
        """Whether sizes, dtypes and values are those of the example. A fake kernel has to take such arguments."""
        return self._replace(layout=LAYOUTS[0], only=None) == PLAIN

    def __str__(self) -> str:
        if self.option is not None:
            return f"{self.option[0]} = {self.option[1]!r}"
        if self.dtypes is not None:
            return " in place of ".join(str(dtype).removeprefix("torch.") for dtype in reversed(self.dtypes))
        if self.narrow is not None:
            return f"a tensor that has the size 1 at dim {self.narrow}"
        return f"values that are {self.values}" if self.values else f"tensors that are {self.layout}"


PLAIN: Final = Variant()
"""The example as it is."""


def variants_of(inputs: Inputs, base: Arguments, schema: Any) -> Iterator[Variant]:
    """The variants of an example that may exist. `base` are its arguments."""
    yield from options_of(inputs, base, schema)
    count = len(base.tensors)
    alone = range(min(count, MOST_ALONE)) if count > 1 else ()
    for layout in LAYOUTS[1:]:
        yield Variant(layout)
        yield from (Variant(layout, only) for only in alone)
    for old, others in OTHER_DTYPES.items():
        yield from (Variant(dtypes=(old, new)) for new in others)
    yield from (Variant(only=only, dtypes=(ALONE[0], new)) for only in alone for new in ALONE[1])
    yield from (Variant(values=name) for name in VALUES)
    for only in alone:
        yield from (Variant(only=only, narrow=dim) for dim in range(min(base.tensors[only].dim(), MOST_DIMS)))


def options_of(inputs: Inputs, base: Arguments, schema: Any) -> Iterator[Variant]:
    """Other values of the parameters that are bools, numbers or dtypes, also of those that have their default."""
    names = base.named([parameter.name for parameter in schema.arguments])
    of_sizes = {names[place].partition("[")[0] for place in inputs.numbers}  # they have other values anyway
    for place, parameter in enumerate(schema.arguments):
        is_given = place < len(base.args)
        value = base.args[place] if is_given else base.kwargs.get(parameter.name, parameter.default_value)
        if parameter.name not in of_sizes:
            for other in _others(parameter.name, str(parameter.real_type), value, len(base.tensors)):
                yield Variant(option=(parameter.name, other), place=place if is_given else None)


def _others(name: str, kind: str, value: Any, count: int) -> tuple[Any, ...]:
    """Other values of a parameter. Only a dim may be negative. `count` is the number of tensors among the arguments."""
    if kind.startswith("Optional"):
        if value is not None:
            return (None, *_others(name, kind.removeprefix("Optional"), value, count))
        if kind == "Optional[Tensor]":
            return tuple(map(Like, range(min(count, MOST_ALONE))))
        return OF_OPTIONAL.get(kind, ())
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int) and "int" in kind.lower():
        others = (0, 1, -1, value + 1) if re.search("dim|axis", name) else (0, 1, value + 1)
        return tuple(other for other in others if other != value)
    if isinstance(value, float):
        return tuple(other for other in (0.0, 1.0, 2.0) if other != value)
    return ()


def _with_option(given: Arguments, name: str, value: Any, place: int | None) -> Arguments:
    if isinstance(value, Like):
        value = given.tensors[value.number].detach().clone()
    if place is None:
        return Arguments(given.args, {**given.kwargs, name: value})
    return Arguments((*given.args[:place], value, *given.args[place + 1 :]), given.kwargs)


def _narrowed(tensor: torch.Tensor, dim: int) -> torch.Tensor | None:
    """The first entry of a dim, contiguous, for an op that broadcasts. Of an unbacked size nothing is asserted."""
    if dim >= tensor.dim():
        return None
    if any(isinstance(size, torch.SymInt) for size in tensor.shape):
        return tensor.new_empty([1 if at == dim else size for at, size in enumerate(tensor.shape)])
    if not tensor.shape[dim]:
        return None
    made = torch.empty([1 if at == dim else size for at, size in enumerate(tensor.shape)], dtype=tensor.dtype)
    return made.copy_(tensor.detach().narrow(dim, 0, 1))


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    made = tensor.detach().to(dtype)
    return made.requires_grad_(tensor.requires_grad and dtype.is_floating_point)


def _with_values(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor | None:
    if tensor.dtype == torch.bool:
        change = torch.logical_not if change is torch.neg else change
    elif not is_common_float(tensor):
        return None
    made = copied(tensor)
    with torch.no_grad():
        return made.copy_(change(tensor.detach()))


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor | None:
    """A copy in another layout. None if it cannot have that. Works for fake tensors."""
    kept = tensor.requires_grad
    made: torch.Tensor | None = None
    if layout == "transposed" and tensor.dim() > 1:
        made = tensor.mT.contiguous().mT
    elif layout == "channels_last" and tensor.dim() == 4:
        made = tensor.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    elif layout == "sliced" and tensor.dim() > 0:
        pairs = torch.stack((tensor, tensor), -1)
        made = pairs.select(-1, 1)
    return None if made is None else made.detach().requires_grad_(kept)


def _with_tensors(
    given: Arguments, only: int | None, change: Callable[[torch.Tensor], torch.Tensor | None]
) -> Arguments | None:
    """The arguments with all tensors changed, or only one of them. None if none is changed."""
    number, changes = -1, 0

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal number, changes
        number += 1
        made = change(tensor) if only in (None, number) else None
        changes += made is not None
        return tensor if made is None else made

    made = given.with_tensors(changed)
    return made if changes else None


def drawn_arguments(schema: Any, takes: Callable[[Arguments], bool]) -> Arguments | None:
    """Arguments that the real kernel takes. None if none of those tried are taken."""
    return next(filter(takes, islice(_candidates(schema), MOST_TRIES)), None)


def _candidates(schema: Any) -> Iterator[Arguments]:
    """All tensors of one kind first, then of different kinds. Parameters with a default have it."""
    needed = [one for one in schema.arguments if not one.has_default_value()]
    count = sum("Tensor" in str(one.real_type) and "Optional" not in str(one.real_type) for one in needed)
    kinds = list(product(DTYPES[:2], SHAPES))
    matrices = product(kinds[:2], repeat=count)
    same = ((kind,) * count for kind in kinds)
    mixed = product(kinds, repeat=count) if count > 1 else ()
    for chosen in dict.fromkeys((*islice(matrices, 2**3), *same, *islice(mixed, MOST_TRIES))):
        for number in OTHER_INTS[: 1 + 3 * any("nt" in str(one.real_type) for one in needed)]:
            tensors = iter(chosen)
            values = {one.name: _value(one, tensors, number) for one in needed}
            if any(value is LEFT_OUT for value in values.values()):
                return
            args = tuple(values[one.name] for one in needed if not one.kwarg_only)
            yield Arguments(args, {one.name: values[one.name] for one in needed if one.kwarg_only})


def _value(parameter: Any, tensors: Iterator[tuple[torch.dtype, tuple[int, ...]]], number: int) -> Any:
    """A value of the parameter's type. LEFT_OUT if there is none that may be right."""
    kind = str(parameter.real_type)
    match kind:
        case _ if kind.startswith("Optional"):
            return None
        case "Tensor":
            return _drawn_tensor(*next(tensors))
        case "List[Tensor]":
            made = _drawn_tensor(*next(tensors))
            return [made, made.clone()]
        case "int" | "SymInt":
            return number
        case "number" | "float":
            return 0.5
        case "bool":
            return False
        case "List[int]" | "List[SymInt]":
            return [number] * (parameter.N or 2)
        case "List[float]":
            return [0.5, 0.5]
    return LEFT_OUT


def _drawn_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    if dtype == torch.float32:
        return torch.randn(shape, generator=generator)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)
