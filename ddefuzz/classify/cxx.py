"""Helpers for C++ frames: extracts plain function names, and selects the frames of the native call that guards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from ddefuzz.classify.plumbing import FUNCTIONAL_TENSOR, is_cxx_plumbing, is_cxx_symbol, is_operator_file
from ddefuzz.instrument.events import Frame, Raised

BINDINGS = ("torch::autograd::THP", "THP", "pybind11::cpp_function::dispatcher")
"""Prefixes of the functions that Python calls. A frame outside of one belongs to another native call."""

PYTHON_DISPATCHER = "torch::detail::(anonymous namespace)::ConcretePyInterpreterVTable::python_dispatcher"
"""C++ code that lets Python choose an op's kernel. Python calls that by a binding, which is no new call."""

_QUOTED = re.compile(r"frame #\d+: (?!<unknown function>)(.+) \+ 0x\S+ \(.* in .*\)$")
_ANONYMOUS = "(anonymous namespace)"
_CLONE = re.compile(r"\s*\[clone [^\]]*\]")
_OPERATOR = re.compile(r"operator\s*(\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[<>]=?|[-+*/%^&|!=~]=?|==|&&|\|\||\+\+|--|,)")
_STAND_INS = {"(": "\x01", ")": "\x02", "<": "\x03", ">": "\x04", " ": "\x05"}
_BACK = str.maketrans({stand_in: char for char, stand_in in _STAND_INS.items()})
_AWAY = str.maketrans(_STAND_INS)


@lru_cache(maxsize=4096)
def function_name(printed: str) -> str:
    """The function's qualified name: no return type, template arguments, parameters, `[clone …]` or lambda in
    it.

    `std::conditional<false, at::Tensor&>::type at::native::(anonymous
    namespace)::_dropout_impl<true>(at::Tensor&)` becomes `at::native::(anonymous namespace)::_dropout_impl`.
    """
    name = _CLONE.sub("", printed).replace(_ANONYMOUS, _ANONYMOUS.translate(_AWAY))
    name = _OPERATOR.sub(lambda match: match[0].translate(_AWAY), name)
    name = _without_templates(name).partition("(")[0]
    name = re.sub(r"::\{lambda$|::\{lambda\b.*", "", name).rstrip()
    conversion = re.search(r"\S*\boperator\s+\S+$", name)
    name = conversion[0] if conversion else name.rpartition(" ")[2]
    return name.removeprefix("*").removeprefix("&").translate(_BACK)


def native_call(native: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames of the native call that guards, innermost first: from the guard out to the Python interpreter.

    Python code that reached a C++ op may itself have been called by another C++ op (a decomposition). Only the
    inner call guards. It ends at its Python binding.
    """
    return next(_calls(native), ())


def innermost_site(raised: Raised) -> Frame | None:
    """The innermost frame of the guarding call that is not plumbing; None if all of it is.

    If the guard's C++ file is not an operator's own (`TensorImpl.h`), code of that file guards. The compiler
    may have inlined it into plumbing; then the plumbing frame is returned. Bindings are excepted: their guards
    belong to the Python caller (`x.is_contiguous()`).
    """
    frames = _outside_functional_tensors(raised.native)
    proper = next((frame for frame in frames if not is_cxx_plumbing(function_name(frame.function))), None)
    if proper is not None or raised.place.language == "Python" or is_operator_file(raised.place.file):
        return proper
    inlined = next((frame for frame in frames if not is_cxx_symbol(function_name(frame.function))), None)
    return None if inlined is None or function_name(inlined.function).startswith(BINDINGS) else inlined


def caller(native: tuple[Frame, ...]) -> Frame | None:
    """The innermost C++ function that called an op which raised; None if Python called it.

    Frames below the Python dispatcher belong to the same call, so the frames are followed out to the binding
    that Python itself called.
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
    """The innermost frame that is not plumbing in the C++ stack that a message quotes (`frame #5:
    at::meta::…`).

    Only frames inside of the innermost Python call count. Where C++ called Python, the quoted stack has Python
    frames between them.
    """
    for line in message.partition("<omitting python frames>")[0].splitlines():
        quoted = _QUOTED.match(line)
        if quoted and not is_cxx_plumbing(function_name(quoted[1])):
            return Frame("", 0, quoted[1])
    return None


def _outside_functional_tensors(native: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The native call that guards. If a functional tensor only passes it on, the call around it."""
    for call in _calls(native):
        if not any(function_name(frame.function).startswith(FUNCTIONAL_TENSOR) for frame in call):
            return call
    return native_call(native)


def _calls(native: tuple[Frame, ...]) -> Iterator[tuple[Frame, ...]]:
    """The nested native calls, the inner one first, each with its innermost frame first."""
    to_python = [index for index, frame in enumerate(native) if "PythonSymNodeImpl" in frame.function]
    rest = tuple(reversed(native[: to_python[-1] + 1] if to_python else native))
    while rest:
        call = tuple(_until_python(iter(rest)))
        if call:
            yield call
        rest = rest[len(call) or 1 :]


def _until_python(frames: Iterator[Frame]) -> Iterator[Frame]:
    for frame in frames:
        name = function_name(frame.function)
        if name.isidentifier() and not name.startswith("THP"):
            return  # a function of CPython, because C++ functions have namespaces
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
