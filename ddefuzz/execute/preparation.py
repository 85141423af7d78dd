"""A subject that is ready to run: a callable, its arguments, and which of their dims are dynamic."""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.comparison import is_distributed
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.recorder import Inputs
from ddefuzz.program.options import NO_GRAD, TorchSetting

ALL = "all"  # every dim of every tensor, each with a symbol of its own

EXPECTED = '{argument: [dims]} such as {0: [0]} or {"ids": [0, 1]}, {"ids": {0: "batch"}} to share a size, or "all"'

_WRITTEN = re.compile(r"(?P<leaf>[^:;]+):(?P<dims>\d+(=\w+)?(,\d+(=\w+)?)*)")
"""`ids:0,1` or `ids:0=batch,1=length` of `--unbacked`."""

_ATTRIBUTE = re.compile(r"\['(\w+)'\]")


class _Place(NamedTuple):
    """A dim of an argument as it is written: the argument's number or name. `symbol` is None for one of its own."""

    target: int | str
    dim: int
    symbol: str | None


def with_unbacked(prepared: PreparedSubject, spec: object, where: str) -> PreparedSubject:
    """The subject with these dims unbacked: those that `spec` names, and those that are marked on its tensors.

    Raises InputError for a spec that cannot be used; `where` names it in the message.
    """
    leaves, names = leaves_of(prepared), leaf_names(prepared)
    every = [_Place(names[at], dim, None) for at, dim in _dims(leaves)]
    written = every if spec == ALL else list(_read(spec, where))
    if len({(one.target, one.dim) for one in written}) < len(written):
        raise InputError(f"{where}: found {reprlib.repr(spec)}, expected each dim once")
    places: list[UnbackedDim] = []
    for dim_place in written:
        for leaf in _leaves(dim_place.target, names, prepared, where, dim_place.dim):
            _check_dim(leaves[leaf], dim_place, names[leaf], where)
            places.append(UnbackedDim(leaf, dim_place.dim, dim_place.symbol or f"u{len(places)}"))
    seen = [(place.leaf, place.dim) for place in places]
    places += [place for place in _marked(leaves, len(places)) if (place.leaf, place.dim) not in seen]
    return replace(prepared, unbacked=tuple(places))


def as_backed(prepared: PreparedSubject) -> PreparedSubject:
    """The subject with its unbacked dims backed (`Dim.AUTO`), where it has no `dynamic_shapes` of its own."""
    if not prepared.unbacked or prepared.dynamic_shapes is not None:
        return prepared
    dims: dict[int, dict[int, Any]] = {}
    for place in prepared.unbacked:
        dims.setdefault(place.leaf, {})[place.dim] = torch.export.Dim.AUTO
    return replace(prepared, unbacked=(), dynamic_shapes=_shapes_of(prepared, dims))


def as_static(prepared: PreparedSubject) -> PreparedSubject:
    """The subject with all sizes of its arguments static."""

    def unmarked(_: int, leaf: Any) -> Any:
        plain = isinstance(leaf, torch.Tensor) and not isinstance(leaf, torch.nn.Parameter)
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if plain else leaf

    args, kwargs = with_leaves(prepared.args, prepared.kwargs, unmarked)
    return replace(prepared, args=args, kwargs=kwargs, unbacked=(), backed=(), dynamic_shapes=None)


def spec_of(text: str) -> object:
    """The spec that `--unbacked` gives: `all`, or dims of arguments by name. Raises InputError."""
    if text == ALL:
        return ALL
    spec: dict[str, dict[int, str | None]] = {}
    for part in text.split(";"):
        match = _WRITTEN.fullmatch(part.strip())
        if match is None:
            raise InputError(
                f"--unbacked: found {part.strip()!r}, expected NAME:DIM,DIM such as ids:0,1 "
                "(ids:0=batch to share a size), several joined by `;`, or all"
            )
        for dim in match["dims"].split(","):
            number, _, symbol = dim.partition("=")
            spec.setdefault(match["leaf"].strip(), {})[int(number)] = symbol or None
    return spec


def with_dynamic_shapes(prepared: PreparedSubject, shapes: object, where: str) -> PreparedSubject:
    """The subject with torch's own `dynamic_shapes`. Raises InputError if torch refuses them."""
    if shapes is None:
        return prepared
    by_tensor = getattr(shapes, "dynamic_shapes", None)  # of a torch.export.ShapesCollection
    bound = bound_arguments(prepared.call, prepared.args, prepared.kwargs)
    try:
        if by_tensor is not None:
            shapes = by_tensor(prepared.call, prepared.args, dict(prepared.kwargs))
        if bound is not None:
            torch_api.bound(torch_api.CHECK_DYNAMIC_SHAPES)(bound, shapes)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{where}: found {reprlib.repr(shapes)}, expected what torch.export takes for these arguments: {reason}"
        ) from error
    return replace(prepared, dynamic_shapes=shapes)


def as_saved(prepared: PreparedSubject, program: torch.export.ExportedProgram) -> PreparedSubject:
    """The subject with the dynamic dims of an exported program, and their symbols."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    shapes: dict[int, dict[int, Any]] = {}
    places: list[UnbackedDim] = []
    for at, name in enumerate(program.graph_signature.user_inputs):
        sizes = getattr(values.get(str(name)), "shape", ())
        symbolic = {dim: str(size) for dim, size in enumerate(sizes) if not isinstance(size, int)}
        places += [UnbackedDim(at, dim, size) for dim, size in symbolic.items() if size.startswith("u")]
        backed = {dim: torch.export.Dim.AUTO for dim, size in symbolic.items() if not size.startswith("u")}
        if backed:
            shapes[at] = backed
    bound = _shapes_of(prepared, shapes) if shapes else None
    return replace(prepared, unbacked=tuple(places), dynamic_shapes=bound)


def _shapes_of(prepared: PreparedSubject, dims: Mapping[int, Mapping[int, Any]]) -> Any:
    """The `dynamic_shapes` with these dims of the leaves.

    torch.export takes an object of a class that a library has registered with torch's pytree as a list of its parts.
    """
    nodes: Any = torch_api.bound(torch_api.TREE_NODES)
    builtins: Any = torch_api.bound(torch_api.TREE_BUILTINS)
    tree_map, numbers = torch_api.bound(torch_api.TREE_MAP), count()

    def registered(part: object) -> bool:
        return type(part) in nodes and type(part) not in builtins

    def shaped(part: object) -> Any:
        if registered(part):
            return [tree_map(shaped, one, is_leaf=registered) for one in nodes[type(part)].flatten_fn(part)[0]]
        return dims.get(next(numbers))

    args, kwargs = tree_map(shaped, (prepared.args, dict(prepared.kwargs)), is_leaf=registered)
    return bound_arguments(prepared.call, args, kwargs)


def _dims(leaves: list[Any]) -> Iterator[tuple[int, int]]:
    for at, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            yield from ((at, dim) for dim in range(leaf.dim()))


def _read(spec: object, where: str) -> Iterator[_Place]:
    wrong = InputError(f"{where}: found {reprlib.repr(spec)}, expected {EXPECTED}")
    if not isinstance(spec, Mapping):
        raise wrong
    for target, dims in spec.items():
        if type(target) not in (int, str):
            raise wrong
        if isinstance(dims, Mapping):
            pairs = list(dims.items())
        elif isinstance(dims, list | tuple):
            pairs = [(dim, None) for dim in dims]
        else:
            raise wrong
        for dim, symbol in pairs:
            if type(dim) is not int or not isinstance(symbol, str | None):
                raise wrong
            yield _Place(target, dim, symbol)


def _leaves(target: int | str, names: tuple[str, ...], prepared: PreparedSubject, where: str, dim: int) -> list[int]:
    """The numbers of the leaves that are named: one, or all of an argument that holds several."""
    if isinstance(target, int):
        count = len(prepared.args)
        if not 0 <= target < count:
            raise InputError(
                f"{where}: found dim {dim} of argument {target} to make unbacked, "
                f"expected one of {count} positional arguments, counted from 0"
            )
        first, last = (
            len(leaves_of(replace(prepared, args=prepared.args[:end], kwargs={}))) for end in (target, target + 1)
        )
        return list(range(first, last)) or [first]
    by_name = {form: at for at, name in enumerate(names) for form in (name, _ATTRIBUTE.sub(r".\1", name))}
    if target in by_name:
        return [by_name[target]]
    inside = [at for at, name in enumerate(names) if re.match(rf"{re.escape(target)}[.\[]", name)]
    if not inside:
        raise InputError(f"{where}: found argument {target!r} to make unbacked, expected one of {', '.join(names)}")
    return inside


def _check_dim(leaf: Any, written: _Place, name: str, where: str) -> None:
    wish = f"dim {written.dim} of argument {written.target} to make unbacked"
    if not isinstance(leaf, torch.Tensor):
        kind = type(leaf).__name__
        raise InputError(f"{where}: found {wish}, where {name} is of type {kind}, expected a tensor")
    if not 0 <= written.dim < leaf.dim():
        raise InputError(f"{where}: found {wish}, expected a dim of its shape {tuple(leaf.shape)}, counted from 0")


def _marked(leaves: list[Any], count: int) -> list[UnbackedDim]:
    """The dims that `mark_unbacked` has marked. Dims with one `shape_id` share a symbol."""
    places: list[UnbackedDim] = []
    for at, leaf in enumerate(leaves):
        marks = vars(leaf) if isinstance(leaf, torch.Tensor) else {}
        shared = marks.get(torch_api.SHAPE_ID_MARKS, {})
        dims = {dim for name in torch_api.UNBACKED_MARKS for dim in marks.get(name, ())}
        for dim in sorted(dims):
            places.append(UnbackedDim(at, dim, shared.get(dim) or f"u{count + len(places)}"))
    return places


class UnbackedDim(NamedTuple):
    """Dim `dim` of the leaf `leaf` of the arguments is made unbacked. Dims with the same symbol share one size.

    Leaves are counted over the positional, then the keyword arguments, in the order of torch's pytree.
    """

    leaf: int
    dim: int
    symbol: str


DEEPEST = 4  # how many steps lead from an argument to a leaf of it at most, where attributes are looked through

_CONTAINERS = (list, tuple, dict)


@dataclass(frozen=True, slots=True)
class PreparedSubject:
    """A subject to run once, by `call(*args, **kwargs)`. `dynamic_shapes` is as torch.export takes it for this call.

    The dims `backed` are dynamic with a known example size; torch may specialize them. `kept` are the sizes of symbols
    where a stage makes dims unbacked by masks and keeps only a part. `numbers_unbacked` makes the value of a 0-d input
    unbacked in torch.compile, which would read it as a backed integer. The input is cloned for it, so nothing may be
    written to it. `marks` are more arguments of `mark_unbacked`, by symbol, and `settings` those of torch in the run;
    programs have them as options (`program.options`).
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    unbacked: tuple[UnbackedDim, ...] = ()
    dynamic_shapes: Any = None
    backed: tuple[UnbackedDim, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    numbers_unbacked: bool = False
    marks: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settings: tuple[TorchSetting, ...] = ()


def changed(settings: tuple[TorchSetting, ...]) -> AbstractContextManager[None]:
    """In the block, torch has these settings. Raises UnsupportedError if it lacks one."""
    return _changed(settings) if settings else nullcontext()


@contextmanager
def _changed(settings: tuple[TorchSetting, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for setting in settings:
            if setting == NO_GRAD:
                stack.enter_context(torch.no_grad())
                continue
            module, _, name = setting.path.rpartition(".")
            values = {torch_api.Api(f"{module}:{name}", "an option of programs"): setting.value}
            patch = torch_api.Api(f"{module}:patch", "changes settings")
            stack.enter_context(torch_api.changed_settings(patch, values))
        yield


def leaves_of(prepared: PreparedSubject) -> list[Any]:
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


def leaf_names(prepared: PreparedSubject) -> tuple[str, ...]:
    """The leaves as the user writes them: `ids`, `batch['mask']`, `states[0]`, `cache.layers[0].keys`."""
    return tuple(_named(prepared).values())


def _named(prepared: PreparedSubject) -> dict[str, str]:
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
        nearest = next((path for path, part in below if part is wanted), None)
        if nearest is not None:
            return nearest
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


def inputs_of(prepared: PreparedSubject) -> Inputs:
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
        any(map(is_distributed, leaves_of(prepared))),
    )


def sizes_by_name(prepared: PreparedSubject) -> dict[str, int]:
    """The sizes of the example by the name of the dim: `dim 1 of ids`."""
    leaves, names = leaves_of(prepared), leaf_names(prepared)
    sizes = {
        f"dim {dim} of {name}": size
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor)
        for dim, size in enumerate(leaf.shape)
    }
    return sizes | {dims: sizes[dims.partition(", ")[0]] for dims in inputs_of(prepared).masked.values()}


def parameter_names(prepared: PreparedSubject) -> tuple[str, ...]:
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


def shapes_around(prepared: PreparedSubject, masks: int) -> dict[str, Any] | None:
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
