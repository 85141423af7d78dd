"""Compares a call of a captured program with one of eager.

The source from the line `# ---` on is copied into scripts. It is written for Python 3.9 and torch 2.6, and later.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

# ---
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1e-4, 1e-5),
    torch.complex64: (1e-4, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (5e-2, 1e-2),
}
"""Relative and absolute tolerance by dtype. Other dtypes have to be equal."""

SMALL = (torch.float16, torch.bfloat16, torch.float32)

ROUNDED = {"values", "number", "gradient"}
"""Differences that may be of rounding alone. A run of eager in float64 decides."""

OPAQUE = ("torch.bits", "torch.float4")
"""How the dtypes begin that torch neither compares nor prints."""

NUMBERS = (bool, int, float, complex)

PLAIN = (str, torch.dtype, torch.device, torch.memory_format, torch.layout)


class CallResult(NamedTuple):
    """A call: its error, or its result, and the inputs and their gradients after it."""

    error: Any = None
    result: Any = None
    inputs: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()


def ended(compute: Callable[..., Any], inputs: tuple[Any, ...], backward: bool) -> CallResult:
    """Call it, with the same seeds each time. With `backward`, also compute the gradients of what it returns."""
    torch.manual_seed(0)
    random.seed(0)
    try:
        result = compute(*inputs)
        return CallResult(None, result, inputs, gradients_of(result, inputs) if backward else ())
    except Exception as error:  # noqa: BLE001 it is what is compared
        return CallResult(error)


def gradients_of(result: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the inputs that require one, of the sum of what is returned."""
    wanted = [one for one in inputs if one.requires_grad and one.is_leaf]
    parts = [part for part in floats(result) if part.requires_grad]
    if not (wanted and parts):
        return ()
    total: Any = sum(part.abs().sum().to(torch.float64) for part in parts)
    total.backward()
    return tuple(one.grad for one in wanted)


def floats(value: Any) -> list[torch.Tensor]:
    """The tensors of floats in nested containers."""
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in floats(item)]
    is_float = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return [value] if is_float else []


def seen(eager: CallResult, captured: CallResult, wide: Callable[[], CallResult]) -> dict[str, str]:
    """How the two calls ended, and how their results differ. `wide` is eager with its inputs in float64."""
    ends = {
        name: "returns" if call.error is None else "raises"
        for name, call in zip(("eager", "captured"), (eager, captured))
    }
    refused = [call.error for call in (captured, eager) if call.error is not None]
    if len(refused) == 1:
        asserted = re.search(r"Runtime assertion failed for expression (.+?) on node", str(refused[0]), re.DOTALL)
        ends["message"] = (asserted[1] if asserted else str(refused[0]).strip().partition("\n")[0]).strip()
    if refused:
        return ends
    whats = compared(eager, captured)
    if ROUNDED.intersection(whats) and is_rounding(wide(), captured):
        whats = [what for what in whats if what not in ROUNDED]
    if whats:
        ends["differs"] = next((what for what in whats if what != "strides"), "strides")
    return ends


def is_rounding(exact: CallResult, captured: CallResult) -> bool:
    """Whether what was captured is as near to eager in float64 as its dtypes allow."""
    wanted, got = ([*floats(call.result), *floats(call.gradients)] for call in (exact, captured))
    if exact.error is not None or len(wanted) != len(got):
        return False
    return all(a.shape == b.shape and close(a.to(b.dtype), b) for a, b in zip(wanted, got))


def compared(eager: CallResult, captured: CallResult) -> list[str]:
    """The differences between two calls: results, inputs that were changed, gradients."""
    whats = differences(eager.result, captured.result)
    whats += ["mutation" for pair in zip(eager.inputs, captured.inputs) if differences(*pair)]
    pairs = zip(eager.gradients, captured.gradients)
    return whats + ["gradient" for pair in pairs if set(differences(*pair)) - {"strides"}]


def differences(expected: Any, actual: Any) -> list[str]:
    """The differences between two values, in nested containers one after the other."""
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return of_tensors(expected, actual)
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return ["structure"]
        return [what for pair in zip(expected, actual) for what in differences(*pair)]
    if isinstance(expected, dict) and isinstance(actual, dict):
        if list(expected) != list(actual):
            return ["structure"]
        return [what for key, value in expected.items() for what in differences(value, actual[key])]
    if isinstance(expected, NUMBERS) and isinstance(actual, NUMBERS):
        wanted, got = (torch.tensor(value, dtype=torch.complex128) for value in (expected, actual))
        is_inexact = isinstance(expected, (float, complex))
        same = close(wanted, got) if is_inexact else expected == actual
        return [] if same and type(expected) is type(actual) else ["number"]
    same = type(expected) is type(actual) and (not isinstance(expected, PLAIN) or expected == actual)
    return [] if same else ["structure"]


def of_tensors(expected: torch.Tensor, actual: torch.Tensor) -> list[str]:
    """The differences between two tensors."""
    for what, name in (("dtype", "dtype"), ("shape", "shape"), ("structure", "layout")):
        if getattr(expected, name) != getattr(actual, name):
            return [what]
    whats = [] if close(expected, actual) else ["values"]
    is_strided = expected.layout == torch.strided
    return whats + (["strides"] if is_strided and strides(expected) != strides(actual) else [])


def close(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    """Whether two tensors of one dtype and shape have equal values, within the tolerance of the dtype."""
    relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    expected, actual = comparable(expected, actual)
    return torch.allclose(expected, actual, rtol=relative, atol=absolute, equal_nan=True)


def comparable(expected: torch.Tensor, actual: torch.Tensor) -> list[torch.Tensor]:
    """The same values as dense tensors, as bytes for a dtype without arithmetic.

    A dim that both expand has one element: the memory of an expanded tensor may be a small part of its size.
    """
    both = [(one if one.layout == torch.strided else one.to_dense()).detach() for one in (expected, actual)]
    for dim, size in enumerate(expected.shape):
        if size > 1 and all(one.stride(dim) == 0 for one in both):
            both = [one.narrow(dim, 0, 1) for one in both]
    if str(expected.dtype).startswith(OPAQUE):
        both = [one.contiguous().view(torch.uint8) for one in both]
    return both


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that decide where elements are: none of an empty tensor, and none of dims of size 1."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1] if tensor.numel() else []


def in_float64(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The inputs with their floats in float64."""
    return tuple(
        one.detach().to(torch.float64).requires_grad_(one.requires_grad) if one.dtype in SMALL else one
        for one in inputs
    )


def is_as(expected: dict[str, str], actual: dict[str, str]) -> bool:
    """Whether the calls ended as expected. Of messages, the words that are the same in every run are compared."""
    known, message = (words(one.get("message", "")) for one in (expected, actual))
    same = all(actual.get(name) == value for name, value in expected.items() if name not in ("message", "size"))
    return same and message[: len(known)] == known and ("differs" in actual) == ("differs" in expected)


def words(text: str) -> list[str]:
    """The words of a message without numbers, symbols, addresses and folders."""
    return re.findall(r"\b[A-Za-z_.]+\b", re.sub(r"\S*/\S*|0x\w+|\w*\d\w*", " ", text))
