"""Other inputs for a user's callable: sizes 0, 1 and 2 of unbacked dims, masks all true and all false, other values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch

from ddefuzz.execute.prepared import Prepared, UnbackedDim, leaves_of, with_leaves

SMALL = (0, 1, 2)
"""The sizes that decisions of torch and of users are about."""

HELD_OUT = 12
"""The number of sets of inputs that are kept for the study."""

MOST_ALONE = 4
"""Up to this many symbols or tensors are varied each alone; more of them only together."""

Values: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Variant:
    """Inputs in words, the sizes of symbols, and what is made of the values of leaves of the arguments by number."""

    inputs: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[int, Values] = field(default_factory=dict)

    def resized(self, prepared: Prepared) -> Prepared:
        """The subject with these values, and with shorter arguments."""
        return self._made(prepared, shorter=True)

    def masked(self, prepared: Prepared) -> Prepared:
        """The subject with these values, whose symbols the masks of a stage make as short."""
        return replace(self._made(prepared, shorter=False), kept=self.sizes)

    def _made(self, prepared: Prepared, *, shorter: bool) -> Prepared:
        places = [place for place in prepared.unbacked if shorter and place.symbol in self.sizes]

        def leaf_of(at: int, leaf: Any) -> Any:
            made = self.values[at](leaf.detach()) if at in self.values else leaf
            for place in places:
                if place.leaf == at:
                    made = made.narrow(place.dim, 0, self.sizes[place.symbol])
            return leaf if made is leaf else _like(leaf, made)

        args, kwargs = with_leaves(prepared.args, prepared.kwargs, leaf_of)
        return replace(prepared, args=args, kwargs=kwargs)


def variants_of(prepared: Prepared, names: tuple[str, ...]) -> tuple[Variant, ...]:
    """The example itself, and other inputs. `names` are those of the leaves."""
    return (
        Variant("the example"),
        *_of_sizes(prepared, names),
        *_of_values(prepared, names),
        *_of_both(prepared, names),
    )


def held_out_of(prepared: Prepared, names: tuple[str, ...]) -> tuple[Variant, ...]:
    """Inputs that no search uses: random values, with the sizes of the example, one less, 0, 1 and 2."""
    leaves = leaves_of(prepared)
    tensors = {at: leaf for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.numel()}
    lengths = {place.symbol: leaves[place.leaf].shape[place.dim] for place in prepared.unbacked}
    found = [Variant("the example")]
    for seed in range(HELD_OUT):
        values = {at: partial(_random_like, seed=seed) for at in tensors}
        small = SMALL[seed // 4 % len(SMALL)]
        sizes = {
            symbol: length - 1 if seed % 4 == 1 else min(small, length)
            for symbol, length in lengths.items()
            if length and seed % 2
        }
        said = f" with sizes {', '.join(map(str, sizes.values()))}" if sizes else ""
        found.append(Variant(f"random values {seed}{said}", sizes, values))
    return tuple(found)


def _random_like(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Random values between the least and the greatest of a tensor; a mask has every share of true elements."""
    generator = torch.Generator().manual_seed(seed + 100)
    drawn = torch.rand(tensor.shape, generator=generator)
    if tensor.dtype == torch.bool:
        return drawn < seed / max(HELD_OUT - 1, 1)
    if tensor.is_floating_point():
        return (drawn * 4 - 2).to(tensor.dtype)
    if tensor.is_complex():
        return torch.complex(drawn, drawn).to(tensor.dtype)
    least, greatest = int(tensor.min()), int(tensor.max())
    return (least + (drawn * (greatest - least + 1)).floor()).to(tensor.dtype)


def _of_sizes(prepared: Prepared, names: tuple[str, ...]) -> Iterator[Variant]:
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
        for size in SMALL:
            if group and all(size < lengths[symbol] for symbol in group):
                dims = [f"{names[dim.leaf]}.shape[{dim.dim}]" for symbol in group for dim in by_symbol[symbol]]
                yield Variant(f"{' = '.join(dims)} = {size}", dict.fromkeys(group, size))


def _of_values(prepared: Prepared, names: tuple[str, ...]) -> Iterator[Variant]:
    for is_kind, recipes in _RECIPES:
        found = [at for at, arg in enumerate(leaves_of(prepared)) if isinstance(arg, torch.Tensor) and is_kind(arg)]
        groups = [(at,) for at in found] if len(found) <= MOST_ALONE else []
        for group in dict.fromkeys([*groups, tuple(found)]):
            for words, make in recipes:
                if group:
                    yield Variant(f"{', '.join(names[at] for at in group)} {words}", values=dict.fromkeys(group, make))


def _of_both(prepared: Prepared, names: tuple[str, ...]) -> Iterator[Variant]:
    """All unbacked dims of size 1 or 2, and integers one more: a branch for one element may not look at its value."""
    integers = [
        at for at, leaf in enumerate(leaves_of(prepared)) if isinstance(leaf, torch.Tensor) and _is_integer(leaf)
    ]
    values: dict[int, Values] = dict.fromkeys(integers, lambda tensor: tensor + 1)
    for sizes in _of_sizes(prepared, names) if integers else ():
        if len(sizes.sizes) == len({place.symbol for place in prepared.unbacked}) and 0 not in sizes.sizes.values():
            yield Variant(f"{sizes.inputs}, {', '.join(names[at] for at in integers)} one more", sizes.sizes, values)


def _is_bool(tensor: torch.Tensor) -> bool:
    return tensor.dtype == torch.bool


def _is_integer(tensor: torch.Tensor) -> bool:
    return not _is_bool(tensor) and not tensor.is_floating_point() and not tensor.is_complex()


def _is_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _first_only(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.zeros(tensor.numel(), dtype=torch.bool)
    flat[:1] = True
    return flat.view(tensor.shape)


def _first_positive(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(_first_only(tensor), 1.0, -1.0).to(tensor.dtype)


_RECIPES: tuple[tuple[Callable[[torch.Tensor], bool], tuple[tuple[str, Values], ...]], ...] = (
    (
        _is_bool,
        (
            ("all true", torch.ones_like),
            ("all false", torch.zeros_like),
            ("true in its first element only", _first_only),
            ("negated", torch.logical_not),
        ),
    ),
    (
        _is_integer,
        (
            ("all 0", torch.zeros_like),
            ("all 1", torch.ones_like),
            ("all 2", lambda tensor: torch.full_like(tensor, 2)),
            ("one more", lambda tensor: tensor + 1),
        ),
    ),
    (
        _is_float,
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


def _like(example: Any, tensor: torch.Tensor) -> torch.Tensor:
    """A leaf that requires a gradient as the example does."""
    return tensor.detach().clone().requires_grad_(example.requires_grad)
