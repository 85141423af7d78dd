"""Checks of out= overloads: they write what the functional overload returns, in a tensor of any size, and return it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ddefuzz.custom_ops.arguments import Call, argument_text
from ddefuzz.custom_ops.log import Log, frames_of, is_equal, leaves_of, line_of


def out_arguments(op: Any) -> list[str]:
    """The names of the arguments that an out= overload writes to. Empty for another overload."""
    return [one.name for one in op._schema.arguments if one.kwarg_only and one.is_out]


def functional_of(op: Any) -> Any:
    """The overload of the same op that has the same parameters but those of out=. None if there is none."""
    outs = out_arguments(op)
    packet = op.overloadpacket
    wanted = [(one.name, str(one.real_type)) for one in op._schema.arguments if one.name not in outs]
    for name in packet.overloads():
        other = getattr(packet, name)
        if [(one.name, str(one.real_type)) for one in other._schema.arguments] == wanted:
            return other
    return None


def _overloads(log: Log) -> Iterator[tuple[str, Any, list[str]]]:
    """The out= overloads, and the names of their out arguments."""
    packet = log.op.op.overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        if other is not log.op.op and log.only_out in ("", other.name()) and functional_of(other) is log.op.op:
            outs = out_arguments(other)
            if outs:
                yield other.name(), other, outs


def check_out(log: Log, call: Call) -> None:
    """Call the out= overloads with tensors of the right sizes, and with empty ones, which have to be resized."""
    if log.op.schema.is_mutable:
        log.skipped["out"] = "the op writes to its arguments"
        return
    overloads = list(_overloads(log))
    if not overloads:
        log.skipped["out"] = "the op has no out= overload"
        return
    with torch.no_grad():
        expected = [one for one in leaves_of(log.op.call(call.given.copied())) if isinstance(one, torch.Tensor)]
        for name, other, outs in overloads:
            if len(outs) == len(expected):
                right = [torch.full_like(one, 1) if one.numel() else torch.empty_like(one) for one in expected]
                if _call(log, call, (name, other), dict(zip(outs, right, strict=True)), expected):
                    empty = [value.new_empty(0) for value in expected]
                    _call(log, call, (name, other), dict(zip(outs, empty, strict=True)), expected)


def _call(
    log: Log,
    call: Call,
    overload: tuple[str, Any],
    written: dict[str, torch.Tensor],
    expected: list[torch.Tensor],
) -> bool:
    """Whether an overload writes what is expected to these tensors. If not, a problem is noted."""
    log.tried["out"] += 1
    (name, op), copy = overload, call.given.copied()
    before = {out: (argument_text(value), value.untyped_storage().data_ptr()) for out, value in written.items()}
    torch.manual_seed(0)
    try:
        returned = [one for one in leaves_of(op(*copy.args, **copy.kwargs, **written)) if isinstance(one, torch.Tensor)]
    except NotImplementedError:
        log.tried["out"] -= 1
        log.notes[f"{name} has no kernel here"] = None
        return False
    except Exception as error:  # noqa: BLE001 of the overload
        shown = ", ".join(f"{out} = {text}" for out, (text, _) in before.items())
        log.wrong("out", name, f"{name} raises {line_of(error)} with {shown}", call, frames=frames_of(error))
        return False
    for at, (out, value) in enumerate(written.items()):
        why = _problem(value, expected[at], before[out][0], returned[at] if at < len(returned) else value)
        if why:
            log.wrong("out", name, f"{name}: {out} {why}", call)
            return False
    return True


def _problem(value: torch.Tensor, expected: torch.Tensor, before: str, returned: torch.Tensor) -> str:
    """What is wrong with a tensor that was written to. Empty if nothing is."""
    if value.shape != expected.shape or value.dtype != expected.dtype:
        wanted = argument_text(expected)
        return f"was {before} and is {argument_text(value)}, the functional overload returns {wanted}"
    if not is_equal(value, expected, 1e-5):
        return "has other values than the functional overload returns"
    if returned is not value:
        return "is not what the call returns"
    return ""
