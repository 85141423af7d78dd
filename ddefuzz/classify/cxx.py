"""C++ frames: the plain name of a printed function, and the frames of the one native call that asked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddefuzz.classify.plumbing import FUNCTIONAL_TENSOR, is_cxx_plumbing, is_cxx_symbol, is_operator_file
from ddefuzz.instrument.events import Frame, Raised

BINDINGS = ("torch::autograd::THP", "THP", "pybind11::cpp_function::dispatcher")
"""What the functions that Python calls begin with: whatever is outside of one is another native call."""

PYTHON_DISPATCHER = "torch::detail::(anonymous namespace)::ConcretePyInterpreterVTable::python_dispatcher"
"""C++ that lets Python choose the kernel of an op, which Python then calls by a binding: no call of Python's own."""

_QUOTED = re.compile(r"frame #\d+: (?!<unknown function>)(.+) \+ 0x\S+ \(.* in .*\)$")
_ANONYMOUS = "(anonymous namespace)"
_CLONE = re.compile(r"\s*\[clone [^\]]*\]")
_OPERATOR = re.compile(r"operator\s*(\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[<>]=?|[-+*/%^&|!=~]=?|==|&&|\|\||\+\+|--|,)")
_STAND_INS = {"(": "\x01", ")": "\x02", "<": "\x03", ">": "\x04", " ": "\x05"}
_BACK = str.maketrans({stand_in: char for char, stand_in in _STAND_INS.items()})
_AWAY = str.maketrans(_STAND_INS)


def function_name(printed: str) -> str:
    """The function's qualified name: no return type, template arguments, parameters, `[clone …]` or lambda in it.

    `std::conditional<false, at::Tensor&>::type at::native::(anonymous namespace)::_dropout_impl<true>(at::Tensor&)`
    is `at::native::(anonymous namespace)::_dropout_impl`.
    """
    name = _CLONE.sub("", printed).replace(_ANONYMOUS, _ANONYMOUS.translate(_AWAY))
    name = _OPERATOR.sub(lambda match: match[0].translate(_AWAY), name)
    name = _without_templates(name).partition("(")[0]
    name = re.sub(r"::\{lambda$|::\{lambda\b.*", "", name).rstrip()
    conversion = re.search(r"\S*\boperator\s+\S+$", name)
    name = conversion[0] if conversion else name.rpartition(" ")[2]
    return name.removeprefix("*").removeprefix("&").translate(_BACK)


def asking(native: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames of the native call that asked, innermost first: from the guard out to the interpreter.

    A C++ op may be reached through Python that was itself called by another C++ op (a decomposition): only the inner
    one asked, and it ends where Python bound it.
    """
    return next(_calls(native), ())


def innermost_site(raised: Raised) -> Frame | None:
    """The innermost frame of the asking call that is not plumbing, None if all of it is.

    A place outside of the operators' own files (`TensorImpl.h`) did ask, even where the compiler has inlined it into
    plumbing: then that is the frame to show. Not so a binding: what it asks, Python asked (`x.is_contiguous()`).
    """
    frames = _outside_functional_tensors(raised.native)
    proper = next((frame for frame in frames if not is_cxx_plumbing(function_name(frame.function))), None)
    if proper is not None or raised.place.language == "Python" or is_operator_file(raised.place.file):
        return proper
    inlined = next((frame for frame in frames if not is_cxx_symbol(function_name(frame.function))), None)
    return None if inlined is None or function_name(inlined.function).startswith(BINDINGS) else inlined


def caller(native: tuple[Frame, ...]) -> Frame | None:
    """The innermost C++ function that called an op that refused, None where Python did.

    What the Python dispatcher calls again is no new call, so the frames are followed out to a binding that Python
    itself called.
    """
    names = [function_name(frame.function) for frame in native]
    for at in reversed(range(len(native))):
        if names[at].startswith(BINDINGS):
            if at == 0 or not names[at - 1].startswith(PYTHON_DISPATCHER):
                return None
        elif not is_cxx_plumbing(names[at]):
            return native[at]
    return None


def quoted_site(message: str) -> Frame | None:
    """The innermost frame that is not plumbing of the C++ stack that a message quotes (`frame #5: at::meta::…`).

    Only frames inside of the innermost Python call count: where C++ went through Python, that is said between them.
    """
    for line in message.partition("<omitting python frames>")[0].splitlines():
        quoted = _QUOTED.match(line)
        if quoted and not is_cxx_plumbing(function_name(quoted[1])):
            return Frame("", 0, quoted[1])
    return None


def _outside_functional_tensors(native: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The native call that asked; where a functional tensor only handed on the question, the call around it."""
    for call in _calls(native):
        if not any(function_name(frame.function).startswith(FUNCTIONAL_TENSOR) for frame in call):
            return call
    return asking(native)


def _calls(native: tuple[Frame, ...]) -> Iterator[tuple[Frame, ...]]:
    """The native calls in one another, the inner one first, each innermost first."""
    doors = [index for index, frame in enumerate(native) if "PythonSymNodeImpl" in frame.function]
    rest = tuple(reversed(native[: doors[-1] + 1] if doors else native))
    while rest:
        call = tuple(_until_python(iter(rest)))
        if call:
            yield call
        rest = rest[len(call) or 1 :]


def _until_python(frames: Iterator[Frame]) -> Iterator[Frame]:
    for frame in frames:
        name = function_name(frame.function)
        if name.isidentifier() and not name.startswith("THP"):
            return  # a function of CPython: C++ has namespaces
        yield frame
        if name.startswith(BINDINGS):
            return


def _without_templates(name: str) -> str:
    kept = []
    depth = 0
    for char in name:
        if char == "<":
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(char)
    return "".join(kept)
