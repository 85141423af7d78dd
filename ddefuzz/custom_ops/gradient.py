"""Checks of the autograd formula: derivatives, and what it does with the incoming gradient.

`torch.autograd.gradcheck` is not for kernels that compute in float32, nor for points at which a derivative jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.custom_ops.arguments import Arguments, Call, is_common_float
from ddefuzz.custom_ops.log import KernelRefusalError, Log, frames_of, is_equal, is_without_formula, leaves_of, line_of
from ddefuzz.custom_ops.variants import LAYOUTS, laid_out

POINTS: Final[tuple[Callable[[torch.Tensor], torch.Tensor], ...]] = (
    lambda one: one,
    lambda one: -one,
    lambda one: one * 0.5 + 0.3,
)
"""Where derivatives are compared: at the example's values, and at others."""

OTHER_LAYOUTS: Final = ("transposed", "sliced")
"""Layouts of the incoming gradient, besides a contiguous one."""


class _Point(NamedTuple):
    """The op as a function of its float tensors: `call` gives the float tensors that it returns.

    `differentiable` are the numbers of those that require a gradient. `is_rough` says that it computes in float32.
    """

    call: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
    leaves: list[torch.Tensor]
    names: list[str]
    is_rough: bool
    differentiable: tuple[int, ...] = ()

    def weighted(self, leaves: Sequence[torch.Tensor]) -> tuple[float, float]:
        """The sum of what is differentiable with random weights, and the size of its terms."""
        parts = self.call(leaves)
        total = sum(float((parts[at] * _weights(parts[at], at)).sum()) for at in self.differentiable)
        return total, sum(float(parts[at].abs().sum()) for at in self.differentiable)


def check_gradient(log: Log, call: Call) -> None:
    """Compare derivatives along random directions, one argument at a time, with finite differences."""
    if not log.wants("gradient"):
        return
    if log.op.schema.is_mutable:
        log.skipped["gradient"] = "the op writes to its arguments"
        return
    if not any(is_common_float(tensor) for tensor in call.given.tensors):
        log.skipped["gradient"] = "no argument is a float tensor"
        return
    if not log.op.has_autograd:
        log.skipped["gradient"] = "the op has no autograd formula"
        _check_without_formula(log, call)
        return
    for number, move in enumerate(POINTS):
        point = _point(log, call.given, move)
        if point is None:
            continue
        point = _with_differentiable(log, call, point)
        gradients = None if point is None else _gradients(log, call, point, LAYOUTS[0])
        if point is None or gradients is None:
            return
        for place, gradient in enumerate(gradients):
            _compare_derivative(log, call, point, place, gradient, number)
        if not number:
            for layout in OTHER_LAYOUTS:
                _compare_layout(log, call, point, gradients, layout)


def _check_without_formula(log: Log, call: Call) -> None:
    """Whether results require a gradient, if an example does: it is that of what the kernel calls, if there is any."""
    if not any(one.requires_grad for one in call.given.tensors):
        return
    try:
        results = leaves_of(log.op.call(call.given.copied()))
    except KernelRefusalError:  # the op is not for arguments that require a gradient
        return
    if any(isinstance(one, torch.Tensor) and one.requires_grad for one in results):
        why = "results require a gradient, and the op has no autograd kernel: the dispatcher sees what the kernel calls"
        log.wrong("gradient", "", why, call)


def _point(log: Log, given: Arguments, move: Callable[[torch.Tensor], torch.Tensor]) -> _Point | None:
    """The op at other values, in float64 if its real kernel takes and returns that. None if it cannot be compared."""
    names = [
        name
        for name, leaf in zip(given.named(log.op.parameters), given.leaves, strict=True)
        if isinstance(leaf, torch.Tensor) and is_common_float(leaf)
    ]
    for dtype in (torch.float64, torch.float32):
        made = given.with_tensors(partial(_moved, dtype, move))
        if not log.op.takes(made):
            continue
        leaves = [tensor for tensor in made.tensors if is_common_float(tensor)]

        def compute(floats: Sequence[torch.Tensor], made: Arguments = made) -> list[torch.Tensor]:
            left = iter(floats)
            full = made.with_tensors(lambda one: next(left) if is_common_float(one) else one.clone())
            parts = leaves_of(log.op.call(full))
            dense = [one for one in parts if isinstance(one, torch.Tensor) and one.layout == torch.strided]
            return [one for one in dense if is_common_float(one)]

        with torch.no_grad():
            returned = compute([leaf.clone() for leaf in leaves])
        if any(one.dtype.itemsize < dtype.itemsize for one in returned):
            continue  # too coarse for differences
        if all(bool(torch.isfinite(one).all()) for one in returned):
            return _Point(compute, leaves, names, dtype != torch.float64)
    return None


def _moved(dtype: torch.dtype, move: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    return move(tensor.detach().to(dtype)).clone() if is_common_float(tensor) else tensor.clone()


def _with_differentiable(log: Log, call: Call, point: _Point) -> _Point | None:
    """The point with the results that require a gradient. None if there are none, or the call fails; that is noted."""
    try:
        parts = point.call([leaf.clone().requires_grad_() for leaf in point.leaves])
    except KernelRefusalError as error:
        why = f"the forward raises {error} if its arguments require a gradient"
        log.wrong("gradient", "", why, call, frames=frames_of(error.__cause__ or error))
        return None
    places = tuple(place for place, part in enumerate(parts) if part.requires_grad)
    if not places:
        log.skipped["gradient"] = "results do not require a gradient: the op has no autograd formula"
        return None
    return point._replace(differentiable=places)


def _gradients(log: Log, call: Call, point: _Point, layout: str) -> tuple[torch.Tensor | None, ...] | None:
    """What autograd computes of incoming gradients in a layout. None if there is no formula, or it fails (noted).

    A problem is noted if the formula writes to the incoming gradients: autograd may use them elsewhere.
    """
    leaves = [leaf.clone().requires_grad_() for leaf in point.leaves]
    parts = point.call(leaves)
    incoming = [_weights(parts[at], at) for at in point.differentiable]
    incoming = [one if layout == LAYOUTS[0] else _or_same(laid_out(one, layout), one) for one in incoming]
    before = [one.clone() for one in incoming]
    try:
        log.tried["gradient"] += 1
        gradients: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            [parts[at] for at in point.differentiable], leaves, incoming, allow_unused=True
        )
    except Exception as error:  # noqa: BLE001 of the formula
        if is_without_formula(error):
            log.skipped["gradient"] = "the op has no autograd formula"
            log.tried["gradient"] = 0
        else:
            shown = "" if layout == LAYOUTS[0] else f" with an incoming gradient that is {layout}"
            why = f"the backward raises {line_of(error)}{shown}"
            log.wrong("gradient", "", why, call, frames=frames_of(error))
        return None
    if not all(map(torch.equal, incoming, before)):
        log.wrong("gradient", "", "the backward writes to the incoming gradient", call)
    return gradients


def _or_same(made: torch.Tensor | None, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if made is None else made


def _weights(part: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part.dtype)


def _compare_layout(log: Log, call: Call, point: _Point, expected: Sequence[torch.Tensor | None], layout: str) -> None:
    gradients = _gradients(log, call, point, layout)
    tolerance = 1e-3 if point.is_rough else 1e-7
    for name, value, wanted in zip(point.names, gradients or (), expected, strict=False):
        if not is_equal(value, wanted, tolerance):
            why = f"the gradient of {name} is another one if the incoming gradient is {layout}"
            log.wrong("gradient", name, why, call)


def _compare_derivative(
    log: Log,
    call: Call,
    point: _Point,
    place: int,
    gradient: torch.Tensor | None,
    number: int,
) -> None:
    leaf, name = point.leaves[place], point.names[place]
    if gradient is not None and gradient.shape != leaf.shape:
        why = f"the gradient of {name} has the shape {tuple(gradient.shape)}, {name} has {tuple(leaf.shape)}"
        log.wrong("gradient", name, why, call)
        return
    if not leaf.numel():
        return
    generator = torch.Generator().manual_seed(number)
    direction = torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf.dtype)
    step = 1e-2 if point.is_rough else 1e-6
    with torch.no_grad():
        values = [point.weighted(_shifted(point, place, shift * step * direction)) for shift in (-1, 0, 1)]
    (left, _), (middle, size), (right, _) = values
    numeric, before, after = (right - left) / (2 * step), (middle - left) / step, (right - middle) / step
    noise = 50 * size * torch.finfo(leaf.dtype).eps / step
    tolerance = 3e-2 if point.is_rough else 1e-4
    is_kink = abs(after - before) > 10 * tolerance * (abs(after) + abs(before)) + noise
    if is_kink or not isfinite(numeric):
        return
    exact = 0.0 if gradient is None else float((gradient.double() * direction.double()).sum())
    if abs(exact - numeric) > tolerance * (abs(exact) + abs(numeric)) + noise:
        says = "says that the result does not depend on it" if gradient is None else f"gives {exact:.4g}"
        why = f"along a random direction of {name}, autograd {says}; finite differences give {numeric:.4g}"
        log.wrong("gradient", name, why, call)


def _shifted(point: _Point, place: int, shift: Any) -> list[torch.Tensor]:
    return [leaf + shift if at == place else leaf.clone() for at, leaf in enumerate(point.leaves)]
