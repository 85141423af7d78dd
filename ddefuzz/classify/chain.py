"""Where a failure that is no guard comes from: from the exceptions of the chain, in words that every stage shares.

Dynamo strips tracebacks on its way out, so what only some stages have (the raising frame) must not tell two bugs
apart: each kind is placed by what all of them have, the op in the message or the user's stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import NamedTuple

from ddefuzz.classify.anchor import callee, python_anchor, short_anchor
from ddefuzz.classify.cxx import caller, function_name
from ddefuzz.classify.machinery import is_framework, is_python_machinery
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import USER_SITE, inside_tracer, python_site, user_frame
from ddefuzz.execute.protocol import ExceptionInfo, Observation
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.oracles.capture import decisive
from ddefuzz.oracles.failure import Failure, Kind

DATA_DEPENDENT_BRANCHING = "Data-dependent branching"
"""The title of dynamo's graph break at a branch on a tensor (torch/_dynamo/symbolic_convert.py, `generic_jump`)."""

BINDINGS_SITE = Site("Python", torch_api.SYMBOLIC_SHAPES_FILE.path, torch_api.UNBACKED_BINDINGS.name)
"""The one function that raises PendingUnbackedSymbolNotFound."""

DYNAMO_SITE = Site("Python", torch_api.DYNAMO_FILES.path.rstrip("/"), None)
"""Dynamo as a whole: which of its files gives up changes between versions, the title of the graph break does not."""

_OP = re.compile(r"\b(\w+)\.(\w+)\.\w+\b")
_VOLATILE = re.compile(r"0x[0-9a-f]+|\b[usz]+f?\d+\b|\d+|(?:/[\w.+-]+)+/")
_FATAL_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')


class Located(NamedTuple):
    """A failure's place: the frame that shows it, if there is one."""

    site: Site
    frame: Frame | None
    anchor: str


def locate(failure: Failure) -> Located:
    """The place of a failure without a recorded guard."""
    return _LOCATORS[failure.kind](failure.observation)


def _unguarded(observation: Observation) -> Located:
    """A data-dependent error that was raised elsewhere than at the door."""
    _, exception = decisive(observation)
    if not exception.frames and not _traced(observation):
        return Located(USER_SITE, None, exception.name)
    site, frame = python_site(exception.frames, _traced(observation))
    return Located(site, frame, python_anchor(frame))


def _pending(observation: Observation) -> Located:
    frame = _user_frame(observation)
    return Located(BINDINGS_SITE, frame, callee(frame) if frame is not None else "")


def _output(observation: Observation) -> Located:
    """At the op, unless other C++ called it for its answer: that branches on data."""
    _, exception = decisive(observation)
    op = _OP.search(exception.message)
    name = f"{op[1]}::{op[2]}" if op else exception.message.partition("\n")[0]
    asking = caller(exception.native)
    if asking is not None:
        return Located(Site("C++", None, function_name(asking.function)), asking, f"{exception.name} {name}")
    return Located(Site("C++", None, name), _user_frame(observation), exception.name)


def _unsupported(observation: Observation) -> Located:
    """A branch on a tensor is at its branch; any other graph break is dynamo's own, known by its title."""
    _, exception = decisive(observation)
    traced = _traced(observation)
    title = title_of(exception)
    if traced and title == DATA_DEPENDENT_BRANCHING:
        site, frame = python_site((), traced)
        return Located(site, frame, python_anchor(frame))
    return Located(DYNAMO_SITE, _user_frame(observation), " ".join([title, *_subject(exception)]))


def _internal(observation: Observation) -> Located:
    root = observation.exceptions[-1] if observation.exceptions else ExceptionInfo("", observation.reason)
    for exception in reversed(observation.exceptions):
        frames = [f for f in inside_tracer(exception.frames) if is_framework(f) and not is_python_machinery(f)]
        if frames:
            site, frame = python_site(tuple(frames), ())
            return Located(site, frame, f"{root.name}: {short_anchor(frame)}")
    said = f"{root.name}: {lasting(root.message)}"
    user = _user_frame(observation)
    if user is None:
        return Located(_raised_at(root), root.frames[-1] if root.frames else None, said)
    return Located(Site("C++", None, callee(user)), user, said)


def _died(observation: Observation) -> Located:
    """From the stack that `faulthandler` prints when a worker dies, innermost first."""
    printed = [
        Frame(match["file"], int(match["line"]), match["function"])
        for match in _FATAL_FRAME.finditer(observation.output)
    ]
    frames = [Frame(_from_torch(frame.file), frame.line, frame.function) for frame in reversed(printed)]
    reason = lasting(observation.reason)
    if not frames:
        return Located(Site("Python", None, None), None, reason)
    site, frame = python_site(tuple(frames), ())
    return Located(site, frame, reason)


_LOCATORS: MappingProxyType[Kind, Callable[[Observation], Located]] = MappingProxyType(
    {
        "dde": _unguarded,
        "pending-unbacked": _pending,
        "data-dependent-output": _output,
        "unsupported": _unsupported,
        "crash": _died,
        "timeout": _died,
        "internal-error": _internal,
    }
)


def title_of(exception: ExceptionInfo) -> str:
    """The first line of a message, as dynamo titles its graph breaks."""
    return exception.message.strip().partition("\n")[0].strip()


def _subject(exception: ExceptionInfo) -> list[str]:
    """What a graph break is about: the first name in backquotes of its explanation."""
    explanation = re.search(r"^\s*Explanation:[^`\n]*`([\w.]+)`", exception.message, re.MULTILINE)
    return [explanation[1]] if explanation else []


def _traced(observation: Observation) -> tuple[Frame, ...]:
    return next((exception.traced for exception in observation.exceptions if exception.traced), ())


def _user_frame(observation: Observation) -> Frame | None:
    """The user's line: of the stack that dynamo interpreted, else of the exceptions' own, the root cause first."""
    stacks = (_traced(observation), *(inside_tracer(e.frames) for e in reversed(observation.exceptions)))
    return next((frame for stack in stacks if (frame := user_frame(stack)) is not None), None)


def _raised_at(exception: ExceptionInfo) -> Site:
    frames = [frame for frame in exception.frames if is_framework(frame)]
    return Site("Python", frames[-1].file, frames[-1].function) if frames else Site("Python", None, None)


def lasting(message: str) -> str:
    """The first line of a message without what changes from run to run: numbers, symbols, addresses, folders."""
    return " ".join(_VOLATILE.sub("…", message.strip().partition("\n")[0]).split())


def _from_torch(file: str) -> str:
    _, found, rest = file.rpartition("/site-packages/")
    return rest if found else file
