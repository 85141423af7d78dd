"""Checks of the real kernel against its schema, its autograd formula and its vmap rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isfinite
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.custom_ops.arguments import Arguments, Inputs, Sizes, argument_text
from ddefuzz.custom_ops.fakes import is_without_formula
from ddefuzz.custom_ops.log import Log, frames_of, is_equal, leaves_of, line_of
from ddefuzz.custom_ops.out_overloads import check_out
from ddefuzz.custom_ops.variants import PLAIN, variants_of
from ddefuzz.execute.metas import shares_memory
from ddefuzz.instrument import torch_api

BATCH: Final = 3  # calls that a vmap rule is compared with

POINTS: Final[tuple[Callable[[torch.Tensor], torch.Tensor], ...]] = (
    lambda one: one,
    lambda one: -one,
    lambda one: one * 0.5 + 0.3,
)
"""Where derivatives are compared: at the example's values, and at others."""


def check_real(log: Log, inputs: Inputs, seed: int) -> None:
    """All checks of the real kernel at some sizes."""
    is_random = _is_random(log, inputs)
    if is_random:
        log.notes["two calls with the same arguments differ: no values are compared"] = None
    base = inputs.at(inputs.example)
    variants = () if base is None else variants_of(inputs, base, log.op.schema)
    cases = [(PLAIN, sizes) for sizes in inputs.few(seed)] + [(variant, inputs.example) for variant in variants]
    for variant, sizes in cases:
        given = variant.of(inputs.at(sizes))
        if given is None or not log.op.takes(given) or log.is_over:
            continue
        if log.only_out:
            check_out(log, given, sizes)
            continue
        _check_memory(log, given, sizes)
        if is_random:
            for name in ("gradient", "vmap", "out"):
                log.skipped[name] = "the op is random"
        elif variant is PLAIN or variant.option is not None:
            _check_gradient(log, given, sizes)
            _check_vmap(log, given, sizes)
            check_out(log, given, sizes)


def _is_random(log: Log, inputs: Inputs) -> bool:
    given = inputs.at(inputs.example)
    if given is None:
        return False
    with torch.no_grad():
        first, second = (leaves_of(log.op.call(given.copied())) for _ in range(2))
    return any(not is_equal(*pair) for pair in zip(first, second, strict=False))


class _State(NamedTuple):
    """A tensor before a call."""

    memory: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _state(tensor: torch.Tensor) -> _State:
    memory = torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8)
    memory.untyped_storage().copy_(tensor.untyped_storage())
    return _State(memory, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


def _is_same(before: _State, after: _State) -> bool:
    return torch.equal(before.memory, after.memory) and before[1:] == after[1:]


def _check_memory(log: Log, given: Arguments, sizes: Sizes) -> None:
    """What the kernel writes to, and what its results share memory with."""
    if log.op.is_composite:
        for name in ("mutation", "aliasing"):
            log.skipped[name] = "the op consists of other ops (CompositeImplicitAutograd), whose schemas count"
        return
    copy = given.copied()
    leaves, names, parameters = copy.leaves, copy.named(log.op.parameters), log.op.parameter_of(copy)
    places = [
        place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided
    ]
    before = {place: _state(leaves[place]) for place in places}
    with torch.no_grad():
        result = log.op.call(copy)
    log.tried["mutation"] += 1
    for place in places:
        alias = getattr(parameters[place], "alias_info", None)
        if not _is_same(before[place], _state(leaves[place])) and not (alias is not None and alias.is_write):
            same = before[place][1:] == _state(leaves[place])[1:]
            what = "values" if same else "sizes or strides"
            why = f"the real kernel changes the {what} of {names[place]}, and the schema does not declare it"
            log.wrong("mutation", names[place], why, given, sizes)
    log.tried["aliasing"] += 1
    _check_aliases(log, given, sizes, result, [(leaves[at], names[at], parameters[at]) for at in places])


def _check_aliases(
    log: Log, given: Arguments, sizes: Sizes, result: Any, arguments: list[tuple[torch.Tensor, str, Any]]
) -> None:
    returned = result if isinstance(result, tuple) and len(log.op.schema.returns) > 1 else (result,)
    parts: list[tuple[str, torch.Tensor, frozenset[str]]] = []
    for at, (value, declared_as) in enumerate(zip(returned, log.op.schema.returns, strict=False)):
        sets = frozenset() if declared_as.alias_info is None else frozenset(declared_as.alias_info.before_set)
        name = "result" if len(returned) == 1 else f"result[{at}]"
        inner = value if isinstance(value, (list, tuple)) else (value,)
        parts += [
            (name if len(inner) == 1 else f"{name}[{place}]", one, sets)
            for place, one in enumerate(inner)
            if isinstance(one, torch.Tensor) and one.numel()
        ]
    for name, tensor, sets in parts:
        for argument, called, parameter in arguments:
            alias = getattr(parameter, "alias_info", None)
            declared = alias is not None and (sets & frozenset(alias.before_set) or "*" in alias.after_set)
            if not declared and argument.numel() and shares_memory(tensor, [argument]):
                why = f"{name} shares memory with {called}, and the schema does not declare it"
                log.wrong("aliasing", name, why, given, sizes)
    for at, (name, tensor, sets) in enumerate(parts):
        for other, another, others in parts[:at]:
            if not sets & others and shares_memory(tensor, [another]):
                log.wrong("aliasing", name, f"{name} shares memory with {other}", given, sizes)


class _Point(NamedTuple):
    """The op as a function of its floats, with random weights for what it returns. `rough` is that of float32."""

    call: Callable[[list[torch.Tensor]], list[torch.Tensor]]
    leaves: list[torch.Tensor]
    names: list[str]
    is_rough: bool


def _check_gradient(log: Log, given: Arguments, sizes: Sizes) -> None:
    """Derivatives along random directions, one argument at a time, against finite differences."""
    if not log.wants("gradient"):
        return
    if log.op.schema.is_mutable:
        log.skipped["gradient"] = "the op writes to its arguments"
        return
    if not any(tensor.is_floating_point() for tensor in given.tensors):
        log.skipped["gradient"] = "no argument is a float tensor"
        return
    for number, move in enumerate(POINTS):
        point = _point(log, given, move)
        if point is None:
            continue
        gradients = _gradients(log, given, sizes, point)
        if gradients is None:
            return
        for place, gradient in enumerate(gradients):
            _compare_derivative(log, given, sizes, point, place, gradient, number)


def _point(log: Log, given: Arguments, move: Callable[[torch.Tensor], torch.Tensor]) -> _Point | None:
    """The op at other values, in float64 if its real kernel takes and returns that."""
    names = [
        name
        for name, leaf in zip(given.named(log.op.parameters), given.leaves, strict=True)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    for dtype in (torch.float64, torch.float32):
        made = given.with_tensors(partial(_moved, dtype, move))
        if not log.op.takes(made):
            continue
        leaves = [tensor for tensor in made.tensors if tensor.is_floating_point()]

        def call(floats: list[torch.Tensor], made: Arguments = made) -> list[torch.Tensor]:
            left = iter(floats)
            full = made.with_tensors(lambda one: next(left) if one.is_floating_point() else one.clone())
            parts = leaves_of(log.op.call(full))
            return [one for one in parts if isinstance(one, torch.Tensor) and one.is_floating_point()]

        with torch.no_grad():
            returned = call([leaf.clone() for leaf in leaves])
        if dtype == torch.float64 and any(one.dtype != torch.float64 for one in returned):
            continue
        if all(bool(torch.isfinite(one).all()) for one in returned):
            return _Point(call, leaves, names, dtype != torch.float64)
    return None


def _moved(dtype: torch.dtype, move: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return move(tensor.detach().to(dtype)).clone() if tensor.is_floating_point() else tensor.clone()


def _gradients(log: Log, given: Arguments, sizes: Sizes, point: _Point) -> tuple[torch.Tensor | None, ...] | None:
    """The gradients that autograd computes. None if there is no formula, or it fails; that is noted."""
    leaves = [leaf.clone().requires_grad_() for leaf in point.leaves]
    try:
        parts = [one for one in point.call(leaves) if one.requires_grad]
        if not parts:
            log.skipped["gradient"] = "results do not require a gradient: the op has no autograd formula"
            return None
        log.tried["gradient"] += 1
        total: Any = sum(_weighted(part, place) for place, part in enumerate(parts))
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(total, leaves, allow_unused=True)
    except Exception as error:  # noqa: BLE001 of the formula
        if is_without_formula(error):
            log.skipped["gradient"] = "the op has no autograd formula"
            log.tried["gradient"] = 0
        else:
            log.wrong("gradient", "", f"the backward raises {line_of(error)}", given, sizes, frames=frames_of(error))
        return None
    return gradients


def _weighted(part: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(part.shape, generator=generator, dtype=torch.float64)
    return (part.to(torch.float64) * weights).sum()


def _compare_derivative(
    log: Log,
    given: Arguments,
    sizes: Sizes,
    point: _Point,
    place: int,
    gradient: torch.Tensor | None,
    number: int,
) -> None:
    leaf, name = point.leaves[place], point.names[place]
    if gradient is not None and gradient.shape != leaf.shape:
        why = f"the gradient of {name} has the shape {tuple(gradient.shape)}, {name} has {tuple(leaf.shape)}"
        log.wrong("gradient", name, why, given, sizes)
        return
    if not leaf.numel():
        return
    generator = torch.Generator().manual_seed(number)
    direction = torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf.dtype)
    step = 1e-3 if point.is_rough else 1e-6
    with torch.no_grad():
        values = [_total(point, place, leaf + shift * step * direction) for shift in (-1, 0, 1)]
    (left, _), (middle, size), (right, _) = values
    numeric, before, after = (right - left) / (2 * step), (middle - left) / step, (right - middle) / step
    noise = 50 * size * torch.finfo(leaf.dtype).eps / step
    tolerance = 1e-2 if point.is_rough else 1e-4
    is_kink = abs(after - before) > 10 * tolerance * (abs(after) + abs(before)) + noise
    if is_kink or not isfinite(numeric):
        return
    exact = 0.0 if gradient is None else float((gradient.double() * direction.double()).sum())
    if abs(exact - numeric) > tolerance * (abs(exact) + abs(numeric)) + noise:
        says = "says that the result does not depend on it" if gradient is None else f"gives {exact:.4g}"
        why = f"along a random direction of {name}, autograd {says}; finite differences give {numeric:.4g}"
        log.wrong("gradient", name, why, given, sizes)


def _total(point: _Point, place: int, moved: torch.Tensor) -> tuple[float, float]:
    """The weighted sum of what is returned, and the size of its terms."""
    floats = [moved if at == place else leaf.clone() for at, leaf in enumerate(point.leaves)]
    parts = point.call(floats)
    total = sum(float(_weighted(part, at)) for at, part in enumerate(parts))
    return total, sum(float(part.abs().sum()) for part in parts)


def _check_vmap(log: Log, given: Arguments, sizes: Sizes) -> None:
    """A registered rule, for each tensor alone and all together, batched at the first and at the last dim."""
    key = torch_api.DISPATCH_KEY.get().FuncTorchBatched
    if not log.op.op.has_kernel_for_dispatch_key(key):
        log.skipped["vmap"] = "the op has no vmap rule"
        return
    direct = [place for place, one in enumerate(given.args) if isinstance(one, torch.Tensor)]
    if log.op.schema.is_mutable or len(direct) != len(given.tensors):
        log.skipped["vmap"] = "tensors in lists, or written to, are not batched here"
        return
    for places in [direct, *([place] for place in direct if len(direct) > 1)]:
        for dim in (0, -1):
            log.tried["vmap"] += 1
            _compare_vmap(log, given, sizes, tuple(places), dim)


def _compare_vmap(log: Log, given: Arguments, sizes: Sizes, places: tuple[int, ...], dim: int) -> None:
    rows = [
        [one.roll(at) if place in places and one.dim() else one for place, one in enumerate(given.args)]
        for at in range(BATCH)
    ]
    try:
        with torch.no_grad():
            expected = [leaves_of(log.op.call(Arguments(tuple(row), given.kwargs).copied())) for row in rows]
    except Exception:  # noqa: BLE001 the real kernel refuses other values
        return
    stacked = tuple(
        torch.stack([row[place] for row in rows], dim) if place in places else one
        for place, one in enumerate(given.args)
    )
    in_dims = tuple(dim if place in places else None for place in range(len(given.args)))
    names = ", ".join(log.op.parameters[place] for place in places)
    where = f"{names} at dim {dim}"
    try:
        with torch.no_grad():
            batched = leaves_of(torch.vmap(lambda *args: log.op.op(*args, **given.kwargs), in_dims)(*stacked))
    except Exception as error:  # noqa: BLE001 of the rule
        if "output dim" not in str(error) and "data-dependent" in str(error):
            return
        why = f"vmap raises {line_of(error)} with {where}"
        log.wrong("vmap", names, why, given, sizes, frames=frames_of(error))
        return
    for at, value in enumerate(batched):
        wanted = [row[at] for row in expected]
        if not all(isinstance(one, torch.Tensor) and one.shape == wanted[0].shape for one in wanted):
            return
        whole = torch.stack(wanted)
        if not isinstance(value, torch.Tensor) or not is_equal(value, whole, 1e-4):
            why = f"vmap with {where} differs from {BATCH} calls one after the other"
            log.wrong("vmap", names, why, given, sizes, fake=argument_text(value), real=argument_text(whole))
            return
