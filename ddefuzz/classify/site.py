"""Finds the call site of a data-dependent error: the innermost frame, in C++ or Python, of the code that evaluated the
guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from ddefuzz.classify.plumbing import (
    FUNCTIONAL_TENSOR,
    TRACER,
    is_cxx_plumbing,
    is_cxx_symbol,
    is_framework,
    is_guard_plumbing,
    is_operator_file,
    is_python_plumbing,
)
from ddefuzz.classify.signature import USER_CODE, Site
from ddefuzz.errors import DdefuzzError
from ddefuzz.instrument.events import Frame, RaisedError
from ddefuzz.instrument.torch_api import SIZES_FOR_CXX

USER_SITE = Site("Python", USER_CODE, None)
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def site(raised: RaisedError) -> tuple[Site, Frame]:
    """The site and its frame.

    If C++ evaluated the guard, the site is the innermost C++ function of that call that is not plumbing. If all
    of them are plumbing, or if Python evaluated the guard, it is the innermost Python frame that is not
    plumbing. Native and Python frames are never interleaved.
    """
    if raised.place.language == "C++" or raised.place.file in SIZES_FOR_CXX:
        native = innermost_site(raised)
        if native is not None:
            return Site("C++", None, function_name(native.function)), native
    return python_site(raised.python, raised.traced)


def python_site(real: tuple[Frame, ...], traced: tuple[Frame, ...]) -> tuple[Site, Frame]:
    """The innermost Python frame that is not plumbing.

    The real stack inside of dynamo is searched first, then the stack that dynamo interprets. If both are
    plumbing throughout, it is the innermost frame outside of the guards' own files.
    """
    for frames in (inside_tracer(real), traced):
        frame = _innermost(frames)
        if frame is not None:
            return site_of(frame, frames), frame
    rest = [frame for frame in (*traced, *inside_tracer(real)) if not is_guard_plumbing(frame)]
    if not rest:
        raise DdefuzzError(f"no frame to blame among {len(real)} real and {len(traced)} traced frames")
    return site_of(rest[-1], rest), rest[-1]


def inside_tracer(real: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames inside of dynamo's interpreter, if it runs. Those outside of it called the compiler."""
    first = next((index for index, frame in enumerate(real) if frame.file == TRACER.prefix), None)
    return real if first is None else real[first:]


def user_frame(frames: Iterable[Frame]) -> Frame | None:
    """The innermost frame of the user's own code."""
    own = [frame for frame in frames if not is_framework(frame) and not is_python_plumbing(frame)]
    return own[-1] if own else None


def _innermost(frames: tuple[Frame, ...]) -> Frame | None:
    return next((frame for frame in reversed(frames) if not is_python_plumbing(frame)), None)


def site_of(frame: Frame, frames: Iterable[Frame]) -> Site:
    """The site of a frame among others."""
    if not is_framework(frame):
        return USER_SITE
    return Site("Python", frame.file, _function(frame, tuple(frames)))


def _function(frame: Frame, frames: tuple[Frame, ...]) -> str:
    """The function's unqualified name. For a comprehension it is the enclosing function, as in newer Pythons."""
    name = frame.function.rpartition(".")[2]
    if name not in _COMPREHENSIONS:
        return name
    outer = (other for other in reversed(frames[: frames.index(frame)]) if other.file == frame.file)
    return next((other.function for other in outer if other.function not in _COMPREHENSIONS), name)


BINDINGS = ("torch::autograd::THP", "THP", "pybind11::cpp_function::dispatcher")
"""Prefixes of the functions that Python calls. A frame outside of one belongs to another native call."""

WITHOUT_NAMESPACE = ("THP", "DTensor_")
"""Prefixes of torch's C++ functions that have no namespace (torch/csrc/autograd/python_variable.cpp)."""

PYTHON_DISPATCHER = "torch::detail::(anonymous namespace)::ConcretePyInterpreterVTable::python_dispatcher"
"""C++ code that lets Python choose an op's kernel. Python calls that by a binding, which is no new call."""

_QUOTED = re.compile(r"frame #\d+: (?!<unknown function>)((?:(?! \+ 0x).)+) \+ 0x\S+ \((?=.* in ).*\)$")
_ANONYMOUS = "(anonymous namespace)"
_BATCHED = re.compile(r"at::functorch::\w+_generated_plumbing<.*&(at::functorch::\(anonymous namespace\)::\w+)")
_CLONE = re.compile(r"(?<!\s)\s*\[clone [^\[\]]*\]")
_CONVERSION = re.compile(r"(?<!\S)\S*\boperator\s+\S+$")
_OPERATOR = re.compile(r"operator\s*(\(\)|\[\]|<=>|->\*?|<<=?|>>=?|[<>]=?|[-+*/%^&|!=~]=?|==|&&|\|\||\+\+|--|,)")
_STAND_INS = {"(": "\x01", ")": "\x02", "<": "\x03", ">": "\x04", " ": "\x05"}
_BACK = str.maketrans({stand_in: char for char, stand_in in _STAND_INS.items()})
_AWAY = str.maketrans(_STAND_INS)


@lru_cache(maxsize=4096)
def function_name(printed: str) -> str:
    """The function's qualified name: no return type, template arguments, parameters, `[clone …]` or lambda in
    it.

    `std::conditional<false, at::Tensor&>::type at::native::(anonymous
    namespace)::_dropout_impl<true>(at::Tensor&)` becomes `at::native::(anonymous namespace)::_dropout_impl`. Of vmap's
    plumbing it is the batching rule, which is inlined.
    """
    batched = _BATCHED.search(printed)
    return batched[1] if batched else frame_name(printed)


def frame_name(printed: str) -> str:
    """The name of the function that a frame has, also if it is vmap's plumbing: what stand-alone scripts see."""
    name = _CLONE.sub("", printed).replace(_ANONYMOUS, _ANONYMOUS.translate(_AWAY))
    name = _OPERATOR.sub(lambda match: match[0].translate(_AWAY), name)
    name = _without_templates(name).partition("(")[0]
    name = re.sub(r"::\{lambda$|::\{lambda\b.*", "", name).rstrip()
    conversion = _CONVERSION.search(name)
    name = conversion[0] if conversion else name.rpartition(" ")[2]
    return name.removeprefix("*").removeprefix("&").translate(_BACK)


def native_call(native: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames of the native call that guards, innermost first: from the guard out to the Python interpreter.

    Python code that reached a C++ op may itself have been called by another C++ op (a decomposition). Only the
    inner call guards. It ends at its Python binding.
    """
    return next(_calls(native), ())


def innermost_site(raised: RaisedError) -> Frame | None:
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
        if name.isidentifier() and not name.startswith(WITHOUT_NAMESPACE):
            return  # a function of CPython: others of C++ have namespaces
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
