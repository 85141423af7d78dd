"""Finds the call site of a data-dependent error: the innermost frame of the code that evaluated the guard."""

from __future__ import annotations

from collections.abc import Iterable

from ddefuzz.classify.cxx import function_name, innermost_site
from ddefuzz.classify.plumbing import TRACER, is_framework, is_guard_plumbing, is_python_plumbing
from ddefuzz.classify.signature import USER_CODE, Site
from ddefuzz.errors import DdefuzzError
from ddefuzz.instrument.events import Frame, Raised
from ddefuzz.instrument.torch_api import SIZES_FOR_CXX

USER_SITE = Site("Python", USER_CODE, None)
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def site(raised: Raised) -> tuple[Site, Frame]:
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
            return _of(frame, frames), frame
    rest = [frame for frame in (*traced, *inside_tracer(real)) if not is_guard_plumbing(frame)]
    if not rest:
        raise DdefuzzError(f"no frame to blame among {len(real)} real and {len(traced)} traced frames")
    return _of(rest[-1], rest), rest[-1]


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


def _of(frame: Frame, frames: Iterable[Frame]) -> Site:
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
