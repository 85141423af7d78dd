"""Other inputs for a subject than its example: sizes, values, and optional arguments that are None."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from ddefuzz.execute.preparation import PreparedSubject, UnbackedDim, leaves_of, parameter_names, with_leaves

SMALL = (0, 1, 2)  # the sizes that decisions of torch and of users are about


HELD_OUT = 12  # the number of sets of inputs that are kept for the study


MOST_ALONE = 4  # up to this many symbols or tensors are varied each alone; more of them only together


MOST_LONG = 4096  # no dim is made longer
MOST_ELEMENTS = 2**24  # and no input larger


Values: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


_Recipe: TypeAlias = tuple[Callable[[torch.Tensor], bool], tuple[tuple[str, Values], ...]]
"""Which tensors, and other values of these in words."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Inputs in words, the sizes of symbols, and what is made of the values of leaves of the arguments by number.

    `omitted` is the parameter that is None. `longer` says that a dim is longer than the example's, which no mask makes.
    """

    inputs: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, Values] = field(default_factory=dict)
    omitted: str = ""
    longer: bool = False

    def resized(self, prepared: PreparedSubject) -> PreparedSubject:
        """The subject with these values, and with shorter arguments."""
        return self._made(prepared, shorter=True)

    def masked(self, prepared: PreparedSubject) -> PreparedSubject:
        """The subject with these values, whose symbols the masks of a stage make as short."""
        return replace(self._made(prepared, shorter=False), kept=self.sizes)

    def _made(self, prepared: PreparedSubject, *, shorter: bool) -> PreparedSubject:
        places = [place for place in prepared.unbacked if shorter and place.symbol in self.sizes]

        def leaf_of(at: int, leaf: Any) -> Any:
            made = self.values[at](leaf.detach()) if at in self.values else leaf
            for place in places:
                if place.leaf == at:
                    made = _of_size(made, place.dim, self.sizes[place.symbol])
            return leaf if made is leaf else like(leaf, made)

        args, kwargs = with_leaves(prepared.args, prepared.kwargs, leaf_of)
        if self.omitted:
            names = parameter_names(prepared)
            args = tuple(None if name == self.omitted else arg for name, arg in zip(names, args, strict=False))
            kwargs = {name: None if name == self.omitted else arg for name, arg in kwargs.items()}
        return replace(prepared, args=args, kwargs=kwargs)


def _of_size(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    """The first elements of a dim, and again from the first one if it has less."""
    length = tensor.shape[dim]
    if size <= length:
        return tensor.narrow(dim, 0, size)
    return tensor.index_select(dim, torch.arange(size) % length) if length else tensor


def variants_of(
    prepared: PreparedSubject, names: tuple[str, ...], numbers: Sequence[int | float] = ()
) -> tuple[Variant, ...]:
    """The example itself, and other inputs. `names` are those of the leaves. `numbers` are those of the conditions that
    the change is about: sizes, counts and values at each of them are inputs too, and one less and one more.
    """
    at = tuple(dict.fromkeys(one + by for one in numbers for by in (-1, 0, 1)))
    sizes = tuple(one for one in at if isinstance(one, int) and 0 <= one <= MOST_LONG and one not in SMALL)
    return (
        Variant("the example"),
        *_without(prepared),
        *_of_sizes(prepared, names),
        *(_of_sizes(prepared, names, sizes) if sizes else ()),
        *_of_values(prepared, names),
        *(_of_values(prepared, names, tuple(_recipes_at(at))) if at else ()),
        *_of_both(prepared, names),
    )


def _without(prepared: PreparedSubject) -> Iterator[Variant]:
    """Each optional argument that the example has as None."""
    yield from (Variant(f"{name} = None", omitted=name) for name in optional_of(prepared))


def optional_of(prepared: PreparedSubject) -> tuple[str, ...]:
    """The parameters whose default is None, and for which the example has something else."""
    try:
        parameters = inspect.signature(function_of(prepared.call, bound=True)).parameters
    except (TypeError, ValueError):
        return ()
    given = {**dict(zip(parameter_names(prepared), prepared.args, strict=False)), **prepared.kwargs}
    return tuple(name for name, one in parameters.items() if one.default is None and given.get(name) is not None)


def _recipes_at(numbers: Iterable[int | float]) -> Iterator[_Recipe]:
    """Tensors with as many elements that are true, and integers and floats of that value."""
    for number in numbers:
        if isinstance(number, int) and number >= 0:
            yield lambda one: one.dtype == torch.bool, ((f"true in its first {number} elements", _first(number)),)
        if isinstance(number, int):
            yield is_integer, ((f"all {number}", partial(torch.full_like, fill_value=number)),)
        yield torch.is_floating_point, ((f"all {number}", partial(torch.full_like, fill_value=number)),)


def _first(number: int) -> Values:
    return lambda tensor: (torch.arange(tensor.numel()) < number).view(tensor.shape)


def held_out_of(prepared: PreparedSubject, names: tuple[str, ...]) -> tuple[Variant, ...]:
    """Inputs that no search uses: random values, with the sizes of the example, one less, 0, 1 and 2."""
    leaves = leaves_of(prepared)
    tensors = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.numel()}
    lengths = {place.symbol: leaves[place.leaf].shape[place.dim] for place in prepared.unbacked}
    variants = [Variant("the example")]
    for number in range(HELD_OUT):
        values = {at: partial(_random_like, number=number) for at in tensors}
        small = SMALL[number // 4 % len(SMALL)]
        sizes = {
            symbol: length - 1 if number % 4 == 1 else min(small, length)
            for symbol, length in lengths.items()
            if length and number % 2
        }
        of_sizes = f" with sizes {', '.join(map(str, sizes.values()))}" if sizes else ""
        variants.append(Variant(f"random values {number}{of_sizes}", sizes, values))
    return tuple(variants)


def _random_like(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Random values between the least and the greatest of a tensor; a mask has every share of true elements."""
    generator = torch.Generator().manual_seed(number + 100)
    drawn = torch.rand(tensor.shape, generator=generator)
    if tensor.dtype == torch.bool:
        return drawn < number / max(HELD_OUT - 1, 1)
    if tensor.is_floating_point():
        return (drawn * 4 - 2).to(tensor.dtype)
    if tensor.is_complex():
        return torch.complex(drawn, drawn).to(tensor.dtype)
    least, greatest = int(tensor.min()), int(tensor.max())
    return (least + (drawn * (greatest - least + 1)).floor()).to(tensor.dtype)


def _of_sizes(prepared: PreparedSubject, names: tuple[str, ...], sizes: tuple[int, ...] = ()) -> Iterator[Variant]:
    """Small sizes that are less than the example's, or these sizes."""
    by_symbol: dict[str, list[UnbackedDim]] = {}
    for place in prepared.unbacked:
        by_symbol.setdefault(place.symbol, []).append(place)
    leaves = leaves_of(prepared)
    lengths = {symbol: leaves[dims[0].leaf].shape[dims[0].dim] for symbol, dims in by_symbol.items()}
    groups: list[tuple[str, ...]] = [(symbol,) for symbol in by_symbol] if len(by_symbol) <= MOST_ALONE else []
    for length in dict.fromkeys(lengths.values()):
        groups.append(tuple(symbol for symbol in by_symbol if lengths[symbol] == length))
    groups.append(tuple(by_symbol))
    for group in dict.fromkeys(groups):
        for size in sizes or SMALL:
            elements = [leaves[dim.leaf].numel() for symbol in group for dim in by_symbol[symbol]]
            grown = [count * size // max(lengths[symbol], 1) for symbol in group for count in elements]
            if not sizes and not all(size < lengths[symbol] for symbol in group):
                continue
            if group and max(grown, default=0) <= MOST_ELEMENTS:
                dims = [f"{names[dim.leaf]}.shape[{dim.dim}]" for symbol in group for dim in by_symbol[symbol]]
                longer = any(size > lengths[symbol] for symbol in group)
                yield Variant(f"{' = '.join(dims)} = {size}", dict.fromkeys(group, size), longer=longer)


def _of_values(prepared: PreparedSubject, names: tuple[str, ...], rows: tuple[_Recipe, ...] = ()) -> Iterator[Variant]:
    for is_kind, recipes in rows or _RECIPES:
        tensors = [at for at, arg in enumerate(leaves_of(prepared)) if isinstance(arg, torch.Tensor) and is_kind(arg)]
        groups = [(at,) for at in tensors] if len(tensors) <= MOST_ALONE else []
        for group in dict.fromkeys([*groups, tuple(tensors)]):
            for words, make in recipes:
                if group:
                    yield Variant(f"{', '.join(names[at] for at in group)} {words}", values=dict.fromkeys(group, make))


def _of_both(prepared: PreparedSubject, names: tuple[str, ...]) -> Iterator[Variant]:
    """All unbacked dims of size 1 or 2, and integers one more: a branch for one element may not look at its value."""
    integers = [
        at for at, leaf in enumerate(leaves_of(prepared)) if isinstance(leaf, torch.Tensor) and is_integer(leaf)
    ]
    values: dict[int, Values] = dict.fromkeys(integers, lambda tensor: tensor + 1)
    for sizes in _of_sizes(prepared, names) if integers else ():
        if len(sizes.sizes) == len({place.symbol for place in prepared.unbacked}) and 0 not in sizes.sizes.values():
            yield Variant(f"{sizes.inputs}, {', '.join(names[at] for at in integers)} one more", sizes.sizes, values)


def is_integer(tensor: torch.Tensor) -> bool:
    return tensor.dtype != torch.bool and not tensor.is_floating_point() and not tensor.is_complex()


def _first_only(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.zeros(tensor.numel(), dtype=torch.bool)
    flat[:1] = True
    return flat.view(tensor.shape)


def _first_positive(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(_first_only(tensor), 1.0, -1.0).to(tensor.dtype)


_RECIPES: tuple[_Recipe, ...] = (
    (
        lambda tensor: tensor.dtype == torch.bool,
        (
            ("all true", torch.ones_like),
            ("all false", torch.zeros_like),
            ("true in its first element only", _first_only),
            ("negated", torch.logical_not),
        ),
    ),
    (
        is_integer,
        (
            ("all 0", torch.zeros_like),
            ("all 1", torch.ones_like),
            ("all 2", lambda tensor: torch.full_like(tensor, 2)),
            ("one more", lambda tensor: tensor + 1),
        ),
    ),
    (
        torch.is_floating_point,
        (
            ("all positive", lambda tensor: tensor.abs() + 0.5),
            ("all negative", lambda tensor: -tensor.abs() - 0.5),
            ("positive in its first element only", _first_positive),
            ("all 0", torch.zeros_like),
            ("negated", torch.neg),
        ),
    ),
)
"""Other values, in words, by the kind of a tensor."""


def like(example: Any, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(example.requires_grad)


def signature_of(prepared: PreparedSubject) -> tuple[str, ...]:
    """The parameters with their defaults, as they are written. Empty if one is variadic, or has a default that has no
    text of its own.
    """
    try:
        parameters = inspect.signature(function_of(prepared.call, bound=True)).parameters
    except (TypeError, ValueError):
        return ()
    written: list[str] = []
    for parameter in parameters.values():
        default, kind = parameter.default, parameter.kind
        is_plain = default is parameter.empty or type(default) in (type(None), bool, int, str)
        if not is_plain or kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return ()
        if kind == parameter.KEYWORD_ONLY and "*" not in written:
            written.append("*")
        written.append(parameter.name if default is parameter.empty else f"{parameter.name}={default!r}")
    return tuple(written)


def function_of(call: Callable[..., Any], *, bound: bool = False) -> Any:
    if not isinstance(call, torch.nn.Module):
        return call
    return call.forward if bound else getattr(call.forward, "__func__", call)
