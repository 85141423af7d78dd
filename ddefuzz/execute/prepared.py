"""A subject that is ready to run: a callable, its arguments, and which of their dims are dynamic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ddefuzz.instrument import torch_api
from ddefuzz.instrument.inputs import Inputs


class UnbackedDim(NamedTuple):
    """Dim `dim` of the leaf `leaf` of the arguments is made unbacked. Dims with the same symbol share one size.

    Leaves are counted over the positional, then the keyword arguments, in the order of torch's pytree.
    """

    leaf: int
    dim: int
    symbol: str


DEEPEST = 4
"""How many steps lead from an argument to a leaf of it at most, where attributes are looked through."""

_CONTAINERS = (list, tuple, dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A subject to run once, by `call(*args, **kwargs)`. `dynamic_shapes` is as torch.export takes it for this call.

    The dims `backed` are dynamic with a known example size; torch may specialize them. `kept` are the sizes of symbols
    where a stage makes dims unbacked by masks and keeps only a part. `numbers_unbacked` makes the value of a 0-d input
    unbacked in torch.compile, which would read it as a backed integer.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    unbacked: tuple[UnbackedDim, ...] = ()
    dynamic_shapes: Any = None
    backed: tuple[UnbackedDim, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    numbers_unbacked: bool = False


def leaves_of(prepared: Prepared) -> list[Any]:
    """The leaves of the arguments, as `UnbackedDim.leaf` counts them."""
    leaves: list[Any] = torch_api.bound(torch_api.TREE_LEAVES)((prepared.args, dict(prepared.kwargs)))
    return leaves


def with_leaves(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], change: Callable[[int, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with each leaf replaced by `change(number, value)`."""
    leaves, structure = torch_api.bound(torch_api.TREE_FLATTEN)((args, dict(kwargs)))
    changed = [change(number, leaf) for number, leaf in enumerate(leaves)]
    rebuilt: tuple[tuple[Any, ...], dict[str, Any]] = torch_api.bound(torch_api.TREE_UNFLATTEN)(changed, structure)
    return rebuilt


def symbols_of(unbacked: tuple[UnbackedDim, ...]) -> tuple[str, ...]:
    """The symbols, each once, in order of first use."""
    return tuple(dict.fromkeys(place.symbol for place in unbacked))


def leaf_names(prepared: Prepared) -> tuple[str, ...]:
    """The leaves as the user writes them: `ids`, `batch['mask']`, `states[0]`, `cache.layers[0].keys`."""
    return tuple(_named(prepared).values())


def _named(prepared: Prepared) -> dict[str, str]:
    """For each leaf, what torch calls it, and how the user writes it.

    These differ for an object that a library has registered with torch's pytree under keys of its own: the leaf is then
    looked for in the object's attributes.
    """
    paths = torch_api.bound(torch_api.TREE_PATHS)((prepared.args, dict(prepared.kwargs)))[0]
    show = torch_api.bound(torch_api.KEY_TEXT)
    parameters = parameter_names(prepared)
    names = {}
    for path, leaf in paths:
        first = path[1]
        positional = path[0].idx == 0
        head = parameters[first.idx] if positional else first.key
        argument = prepared.args[first.idx] if positional else prepared.kwargs[first.key]
        name = f"{head}{show(path[2:])}"
        inside = attribute_path(argument, leaf) if len(path) > 2 and not isinstance(argument, _CONTAINERS) else None
        names[name] = name if inside is None else f"{head}{inside}"
    return names


def attribute_path(value: Any, wanted: Any) -> str | None:
    """How a part of an object is written after the object: `.layers[0].keys`. The nearest one; None if it is not found.

    Only attributes, items and keys down to `DEEPEST` are looked at.
    """
    level = [("", value)]
    seen = set()
    for _ in range(DEEPEST):
        below = [(f"{path}{step}", part) for path, one in level for step, part in _parts(one)]
        found = next((path for path, part in below if part is wanted), None)
        if found is not None:
            return found
        level = [(path, part) for path, part in below if id(part) not in seen]
        seen |= {id(part) for _, part in level}
    return None


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items() if isinstance(key, str | int)]
    if isinstance(value, list | tuple):
        return [(f"[{at}]", part) for at, part in enumerate(value)]
    if isinstance(value, torch.Tensor | torch.nn.Module | str | type):
        return []
    return [(f".{name}", part) for name, part in getattr(value, "__dict__", {}).items() if not name.startswith("_")]


def inputs_of(prepared: Prepared) -> Inputs:
    """The dims that masks make unbacked, and the names of the positional arguments."""
    names = leaf_names(prepared)
    masked: dict[str, list[str]] = {}
    for place in prepared.unbacked:
        masked.setdefault(place.symbol, []).append(f"dim {place.dim} of {names[place.leaf]}")
    return Inputs(
        {symbol: ", ".join(dims) for symbol, dims in masked.items()},
        parameter_names(prepared),
        names,
        _named(prepared),
    )


def sizes_by_name(prepared: Prepared) -> dict[str, int]:
    """The sizes of the example by the name of the dim: `dim 1 of ids`."""
    leaves, names = leaves_of(prepared), leaf_names(prepared)
    sizes = {
        f"dim {dim} of {name}": size
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
        for dim, size in enumerate(leaf.shape)
    }
    return sizes | {dims: sizes[dims.partition(", ")[0]] for dims in inputs_of(prepared).masked.values()}


def parameter_names(prepared: Prepared) -> tuple[str, ...]:
    """The names of the parameters that the positional arguments go to; their numbers where they have no name."""
    bound = bound_arguments(prepared.call, prepared.args, prepared.kwargs)
    names: list[str] = []
    for name, value in bound.items() if bound is not None else ():
        names += [f"{name}[{at}]" for at in range(len(value))] if name in _variadic(prepared.call) else [name]
    return (*names, *(str(at) for at in range(len(names), len(prepared.args))))


def bound_arguments(call: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The arguments by the names of parameters, as torch.export combines them. None if `call` has no signature."""
    try:
        return torch_api.bound(torch_api.COMBINE_ARGS)(call, args, dict(kwargs))
    except (TypeError, ValueError):
        return None


def shapes_around(prepared: Prepared, masks: int) -> dict[str, Any] | None:
    """The `dynamic_shapes` of a function with the parameters `*args, **kwargs` that gets `masks` additional tensors."""
    shapes, names = prepared.dynamic_shapes, parameter_names(prepared)
    if shapes is None:
        return None
    bound = bound_arguments(prepared.call, prepared.args, prepared.kwargs)
    combined = list(bound) if bound is not None else list(names)
    by_name = dict(shapes) if isinstance(shapes, Mapping) else dict(zip(combined, shapes, strict=False))
    positional: list[Any] = []
    for name in combined:
        if len(positional) < len(prepared.args):
            value = by_name.get(name)
            positional += list(value) if f"{name}[0]" in names and value is not None else [value]
    around: dict[str, Any] = {"args": (*positional, *(None for _ in range(masks)))}
    if prepared.kwargs:
        around["kwargs"] = {name: by_name.get(name) for name in prepared.kwargs}
    return around


def _variadic(call: Callable[..., Any]) -> frozenset[str]:
    target = call.forward if isinstance(call, torch.nn.Module) else call
    parameters = inspect.signature(target).parameters.values()
    return frozenset(one.name for one in parameters if one.kind is inspect.Parameter.VAR_POSITIONAL)
