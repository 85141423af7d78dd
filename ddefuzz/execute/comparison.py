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

ROUNDED = ("values", "number", "gradient")
"""Differences that may be of rounding alone. A run of eager in float64 decides."""

OPAQUE = ("torch.bits", "torch.float4")
"""How the dtypes begin that torch neither compares nor prints."""

EXPANDED = " (expanded)"
"""The end of the line of a difference of strides, if eager's tensor is an expanded view and the captured one is not."""

PLACEMENT = "placement"
"""The difference of two DTensors that are distributed in other ways. Eager gathers a tensor that has fewer rows than
there are processes; with an unbacked size, torch takes it for shardable (torch/distributed/tensor/_ops/utils.py).
"""

NUMBERS = (bool, int, float, complex)

PLAIN = (str, torch.dtype, torch.device, torch.memory_format, torch.layout)


class CallResult(NamedTuple):
    """A call: its error, or its result, and the inputs and their gradients after it."""

    error: Any = None
    result: Any = None
    inputs: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()


class Unequal(NamedTuple):
    """What of a value differs, where the value is in the result (`result[0]`, `input 1`), and how, in one line."""

    what: Any
    where: str
    how: str = ""


def ended(compute: Callable[..., Any], inputs: tuple[Any, ...], order: int) -> CallResult:
    """Call it, with the same seeds each time. Unless `order` is 0, also compute the gradients of what it returns."""
    torch.manual_seed(0)
    random.seed(0)
    try:
        result = compute(*inputs)
        return CallResult(None, result, inputs, gradients_of(result, inputs, order) if order else ())
    except Exception as error:  # noqa: BLE001 it is what is compared
        return CallResult(error)


def gradients_of(result: Any, inputs: tuple[Any, ...], order: int = 1) -> tuple[Any, ...]:
    """The gradient of each input that requires one, None if the result does not depend on it.

    Each float that is returned gets the same random gradient in every run. With an `order` of 2, the gradients of these
    gradients are computed, too; nothing if autograd refuses: what was captured has no gradient of its own then.
    """
    wanted = [one for one in inputs if isinstance(one, torch.Tensor) and one.requires_grad and one.is_leaf]
    floats = [part for part in parts_of(result).values() if is_inexact(part)]
    parts = [(place, part) for place, part in enumerate(floats) if part.requires_grad]
    total: Any = sum(weighted(part, place) for place, part in parts)
    if order == 2 and wanted and parts:
        try:
            first = torch.autograd.grad(total, wanted, create_graph=True, allow_unused=True)
            again = [(place, one) for place, one in enumerate(first) if one is not None and one.requires_grad]
            second: Any = sum(weighted(one, place) for place, one in again)
            return (*first, *(torch.autograd.grad(second, wanted, allow_unused=True) if again else ()))
        except Exception:  # noqa: BLE001
            return ()
    if wanted and parts:
        total.backward()
    return tuple(one.grad for one in wanted)


def weighted(part: torch.Tensor, seed: int) -> Any:
    """The sum of a tensor's elements with random weights, in float64."""
    own: Any = part.to_local() if is_distributed(part) else part  # type: ignore[attr-defined]
    dense = own if own.layout == torch.strided else own.to_dense()
    real = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    generator = torch.Generator().manual_seed(seed)
    return (real.to(torch.float64) * torch.randn(real.shape, generator=generator, dtype=torch.float64)).sum()


def is_inexact(value: Any) -> bool:
    """Whether it is a float or complex number, or a tensor of them."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point() or value.is_complex()
    return isinstance(value, (float, complex))


def parts_of(value: Any, where: str = "result") -> dict[str, Any]:
    """What is in nested containers, each by its place."""
    if isinstance(value, (list, tuple)):
        return {name: part for at, one in enumerate(value) for name, part in parts_of(one, f"{where}[{at}]").items()}
    if isinstance(value, dict):
        return {name: part for at, one in value.items() for name, part in parts_of(one, f"{where}[{at!r}]").items()}
    return {where: value}


def seen(eager: CallResult, captured: CallResult, wide: Callable[[], CallResult]) -> dict[str, str]:
    """How the two calls ended, and how their results differ. `wide` is eager with its inputs in float64."""
    ending = {
        name: "returns" if call.error is None else "raises"
        for name, call in zip(("eager", "captured"), (eager, captured))
    }
    refused = [call.error for call in (captured, eager) if call.error is not None]
    if len(refused) == 1:
        asserted = re.search(r"Runtime assertion failed for expression (.+?) on node", str(refused[0]), re.DOTALL)
        ending["message"] = (asserted[1] if asserted else str(refused[0]).strip().partition("\n")[0]).strip()
    if refused:
        return ending
    lacking = [lacks_values(part) for part in parts_of(captured.result).values() if isinstance(part, torch.Tensor)]
    unequal = [Unequal("values", "result")] if any(lacking) else compared(eager, captured)
    unequal = [one for one in unequal if one.what != PLACEMENT]
    if not any(lacking) and any(one.what in ROUNDED for one in unequal):
        exact = wide()
        unequal = [one for one in unequal if not is_rounding(one, exact, captured)]
    if unequal:
        ending["differs"] = next((one.what for one in unequal if one.what != "strides"), "strides")
    return ending


def by_place(call: CallResult) -> dict[str, Any]:
    """All parts of what a call left."""
    inputs = {f"input {place}": value for place, value in enumerate(call.inputs)}
    gradients = {f"gradient {place}": value for place, value in enumerate(call.gradients)}
    return {**parts_of(call.result), **inputs, **gradients}


def is_rounding(unequal: Unequal, exact: CallResult, captured: CallResult) -> bool:
    """Whether a part of what was captured is what eager computes in float64, as near as its dtype allows."""
    if unequal.what not in ROUNDED or exact.error is not None:
        return False
    right, actual = (by_place(call).get(unequal.where) for call in (exact, captured))
    if isinstance(right, torch.Tensor) and isinstance(actual, torch.Tensor):
        return right.shape == actual.shape and close(right.to(actual.dtype), actual)
    if is_inexact(right) and is_inexact(actual):
        return close(*(torch.tensor(one, dtype=torch.complex64) for one in (right, actual)))
    return type(right) is type(actual) and isinstance(actual, NUMBERS) and bool(right == actual)


def compared(eager: CallResult, captured: CallResult) -> list[Unequal]:
    """The differences between two calls: results, inputs that were changed, gradients."""
    valued = not any(map(spans_processes, eager.inputs))
    unequal = unlike(eager.result, captured.result, valued=valued)
    for place, pair in enumerate(zip(eager.inputs, captured.inputs)):
        unequal += [one._replace(what="mutation") for one in unlike(*pair, f"input {place}", valued=valued)]
    for place, pair in enumerate(zip(eager.gradients, captured.gradients)):
        actual = unlike(*pair, f"gradient {place}", valued=valued)
        unequal += [one._replace(what="gradient") for one in actual if one.what != "strides"]
    return unequal


def unlike(expected: Any, actual: Any, where: str = "result", *, valued: bool) -> list[Unequal]:
    """The differences between two values; those of values only if they are `valued`."""
    return [one for one in differences(expected, actual, where) if valued or one.what not in ROUNDED]


def is_distributed(value: Any) -> bool:
    """Whether it is a DTensor."""
    return isinstance(value, torch.Tensor) and hasattr(value, "device_mesh")


def spans_processes(value: Any) -> bool:
    """Whether it is a DTensor of several processes. The others do not exist, so collectives return no values."""
    return is_distributed(value) and value.device_mesh.size() > 1


def differences(expected: Any, actual: Any, where: str = "result") -> list[Unequal]:
    """The differences between two values, in nested containers one after the other."""
    kinds = f"{type(actual).__name__}, eager has {type(expected).__name__}"
    if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        return of_tensors(expected, actual, where)
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        if len(expected) != len(actual):
            return [Unequal("structure", where, f"{len(actual)} items, eager has {len(expected)}")]
        pairs = enumerate(zip(expected, actual))
        return [one for place, pair in pairs for one in differences(*pair, f"{where}[{place}]")]
    if isinstance(expected, dict) and isinstance(actual, dict):
        if len(expected) != len(actual) or not all(map(same_key, expected, actual)):
            return [Unequal("structure", where, f"keys {list(actual)}, eager has {list(expected)}")]
        entries = zip(expected.items(), actual.values())
        return [one for (key, value), other in entries for one in differences(value, other, f"{where}[{key!r}]")]
    if isinstance(expected, NUMBERS) and isinstance(actual, NUMBERS):
        inexact = isinstance(expected, (float, complex)) or isinstance(actual, (float, complex))
        both = [torch.tensor(value, dtype=torch.complex128) for value in (expected, actual)] if inexact else []
        same = close(*both) if inexact else expected == actual
        how = f"{actual!r}, eager has {expected!r}"
        return [] if same and type(expected) is type(actual) else [Unequal("number", where, how)]
    if type(expected) is type(actual) and isinstance(expected, PLAIN) and expected != actual:
        return [Unequal("structure", where, f"{actual!r}, eager has {expected!r}")]
    return [] if type(expected) is type(actual) else [Unequal("structure", where, kinds)]


def same_key(expected: Any, actual: Any) -> bool:
    """Whether two keys of dicts are equal. Two tensors are equal by `==` only if they are one."""
    if isinstance(expected, torch.Tensor):
        return not differences(expected, actual)
    return bool(expected == actual)


def of_tensors(expected: torch.Tensor, actual: torch.Tensor, where: str = "result") -> list[Unequal]:
    """The differences between two tensors."""
    for what, wanted, got in (
        ("dtype", expected.dtype, actual.dtype),
        ("shape", tuple(expected.shape), tuple(actual.shape)),
        ("structure", expected.layout, actual.layout),
    ):
        if wanted != got:
            return [Unequal(what, where, f"{got}, eager has {wanted}")]
    if is_distributed(expected) or is_distributed(actual):
        return of_shards(expected, actual, where)
    unequal = []
    if not lacks_values(expected) and not lacks_values(actual) and not close(expected, actual):
        unequal += [Unequal("values", where, how_much(expected, actual))]
    if expected.requires_grad != actual.requires_grad:
        words = ("requires no gradient", "requires a gradient")
        how = f"{words[actual.requires_grad]}, eager's {words[expected.requires_grad]}"
        unequal += [Unequal("requires_grad", where, how)]
    if expected.layout == torch.strided and strides(expected) != strides(actual):
        copied = EXPANDED if 0 in strides(expected) and 0 not in strides(actual) else ""
        unequal += [Unequal("strides", where, f"{actual.stride()}, eager has {expected.stride()}{copied}")]
    return unequal


def of_shards(expected: Any, actual: Any, where: str) -> list[Unequal]:
    """The differences between two tensors of which at least one is a DTensor: its placements, and its own shard."""
    both = [str(one.placements) if is_distributed(one) else "no DTensor" for one in (expected, actual)]
    if both[0] != both[1]:
        placed = is_distributed(expected) and is_distributed(actual)
        return [Unequal(PLACEMENT if placed else "structure", where, f"{both[1]}, eager has {both[0]}")]
    return of_tensors(expected.to_local(), actual.to_local(), where)


def lacks_values(tensor: torch.Tensor) -> bool:
    """Whether it has no values: a constant may be a fake one of tracing, an argument on the device `meta`."""
    return hasattr(tensor, "fake_mode") or tensor.is_meta


def how_much(expected: torch.Tensor, actual: torch.Tensor) -> str:
    """How many elements differ by more than the tolerance of the dtype, and the first of them."""
    relative, absolute = TOLERANCES.get(expected.dtype, (0.0, 0.0))
    expected, actual = comparable(expected, actual)
    unequal = ~torch.isclose(expected, actual, rtol=relative, atol=absolute, equal_nan=True)
    first = tuple(int(place) for place in unequal.nonzero()[0]) if unequal.any() else ()
    at = f" at {first}" if first else ""
    values = [one[first].item() for one in (actual, expected)]
    return f"{int(unequal.sum())} of {unequal.numel()} elements; first{at}: {values[0]!r}, eager has {values[1]!r}"


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
    """The words of a message without numbers, symbols, addresses, folders and dynamo's names of arguments."""
    return re.findall(r"\b[A-Za-z_.]+\b", re.sub(r"L\['\w+'\](\[\d+\])*|\S*/\S*|0x\w+|\w*\d\w*", " ", text))
