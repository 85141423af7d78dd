"""What a stand-alone script has to recognize: the blamed function and the expression that it evaluated, or how a call
of the captured program ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.anchor import callee, python_anchor
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.evidence import failing_ops
from ddefuzz.classify.failure import Failure, decisive
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.site import frame_name, function_name, inside_tracer, native_call
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CallEnd
from ddefuzz.instrument.events import Frame, RaisedError
from ddefuzz.program.sizes import CallSize

Recognizer: TypeAlias = Literal["by_python", "by_native", "by_message", "by_call"]

PYTHON_INTERNAL: tuple[str, ...] = (
    "torch/fx/",
    "torch/utils/",
    "torch/__init__.py",
    "torch/_dynamo/",
    "torch/_subclasses/",
    "torch/_ops.py",
    "torch/_compile.py",
    "torch/_dispatch/",
    "torch/_library/",
    "torch/_functorch/",
    "torch/_higher_order_ops/",
    "torch/_prims_common/wrappers.py",
    "torch/_tensor.py",
    "torch/overrides.py",
    "torch/export/",
    "torch/_export/",
    "sympy/",
    "<",
)
"""Python files that guards and tracing pass through in any torch. The blamed function may be in one of them."""

NATIVE_INTERNAL: tuple[str, ...] = (
    "c10::",
    "torch::impl::",
    "torch::detail::",
    "torch::jit::",
    "torch::PythonArgs::",
    "torch::handle_torch_function",
    "torch::autograd::THP",
    "THP",
    "torch::autograd::dispatch_",
    "torch::autograd::to_args_sizes",
    "at::_ops::",
    "at::TensorBase::",
    "at::FunctionalTensorWrapper::",
    "pybind11::",
)
"""C++ names that guards and dispatch pass through in any torch. The blamed function may be one of them."""


class ExpectedFailure(msgspec.Struct, frozen=True):
    """The expected failure. `recognizer` names the method, `seen` is what the script compares, `internal` are
    frames to skip. With `is_root`, the exception is the root cause of the others. `size` is that of the call that
    shows it.
    """

    recognizer: Recognizer
    seen: dict[str, str]
    internal: tuple[str, ...] = ()
    is_root: bool = False
    size: CallSize | None = None


def by_exception(classified: Classification, same_program: bool) -> ExpectedFailure:
    """The facts by which plain torch can recognize a failed capture.

    Without `same_program`, the script has another program with the same signature. Its C++ code evaluates the
    same guard on another expression.
    """
    failure, frame = classified.failure, classified.frame
    raised = failure.observation.raised
    if failure.kind != "dde" or raised is None or frame is None:
        return _by_message(failure)
    # C++ frames have no files.
    if frame.file:
        return _by_python(classified, raised, frame)
    expected = _by_native(classified, raised, frame)
    if not same_program:
        del expected.seen["evaluated"]
    return expected


def by_call(classified: Classification, same_program: bool) -> ExpectedFailure:
    """The facts of the call that shows the failure: how eager and the captured program ended, and in what their results
    differ.

    Another program with the same signature may refuse with another message.
    """
    failure = classified.failure
    calls = failure.observation.calls
    if not calls:
        raise InputError("found no call in its stored failure, expected the one that shows it")
    call = next((one for one in calls if one.size == failure.size), calls[0])
    seen = {"eager": _ended(call.eager), "captured": _ended(call.captured)}
    whats = [one.what for one in call.differences]
    if whats:
        seen["differs"] = next((what for what in whats if what != "strides"), "strides")
    refused = call.captured if call.eager.returned else call.eager
    if same_program and not refused.returned:
        seen["message"] = refused.expression or refused.error.partition(": ")[2]
    return ExpectedFailure("by_call", seen, size=call.size)


def _ended(side: CallEnd) -> str:
    return "returns" if side.returned else "raises"


def _by_python(classified: Classification, raised: RaisedError, frame: Frame) -> ExpectedFailure:
    site = classified.signature.site
    if is_framework(frame):
        function = site.function if site.module == frame.file else frame.function
        place, expression = f"{frame.file}:{function}", python_anchor(frame)
    else:
        # Names of the program differ between scripts, but the op that it calls does not.
        place, expression = frame.function, callee(frame)
    frames = (*raised.traced, *inside_tracer(raised.python))
    inside = (f"{one.file}:{one.function}" for one in frames[_last(frame, frames) + 1 :])
    return ExpectedFailure("by_python", _facts(classified, place, expression), _with(PYTHON_INTERNAL, inside))


def _by_native(classified: Classification, raised: RaisedError, frame: Frame) -> ExpectedFailure:
    frames = native_call(raised.native)
    inside = (function_name(one.function) for one in frames[: _last(frame, frames)])
    facts = _facts(classified, frame_name(frame.function), raised.expression)
    return ExpectedFailure("by_native", facts, _with(NATIVE_INTERNAL, inside))


def _by_message(failure: Failure) -> ExpectedFailure:
    """Recognize by the message of the exception that decides the kind; of an internal error, of the root cause."""
    observation = failure.observation
    is_root = failure.kind == "internal-error" and bool(observation.exceptions)
    exception = observation.exceptions[-1] if is_root else decisive(observation)[1]
    facts = {"exception": exception.name, "message": exception.message.strip().partition("\n")[0]}
    op = next((name.rpartition(".")[2] for name in failing_ops(observation)), "")
    if op and any(re.search(rf"\b{re.escape(op)}\b", one.message) for one in observation.exceptions):
        facts["op"] = op
    return ExpectedFailure("by_message", facts, is_root=is_root)


def _facts(classified: Classification, function: str, expression: str) -> dict[str, str]:
    name = decisive(classified.failure.observation)[1].name
    return {"exception": name, "function": function, "evaluated": expression}


def _last(frame: Frame, frames: tuple[Frame, ...]) -> int:
    return max((at for at, one in enumerate(frames) if one == frame), default=len(frames))


def _with(general: tuple[str, ...], inside: Iterable[str]) -> tuple[str, ...]:
    """The general prefixes, and the names inside of the blamed function that none of them covers."""
    return (*general, *dict.fromkeys(name for name in inside if name and not name.startswith(general)))
