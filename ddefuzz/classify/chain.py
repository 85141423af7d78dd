"""Locates failed captures, by one function per kind: the code that evaluated a guard, or the chain of exceptions.

Dynamo strips tracebacks, so the raising frame is known in some stages only. A signature must be the same in all
stages. So each kind of failure is located by what all stages have: the op named in the message, or the user's
stack.
"""

from __future__ import annotations

import os
import re
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from ddefuzz.classify.aliases import decision, outlined
from ddefuzz.classify.anchor import callee, native_anchor, python_anchor, short_anchor
from ddefuzz.classify.failure import decisive
from ddefuzz.classify.plumbing import is_framework, is_python_plumbing
from ddefuzz.classify.signature import INDUCTOR_CODE, Site
from ddefuzz.classify.site import (
    USER_SITE,
    caller,
    function_name,
    inside_tracer,
    python_site,
    quoted_site,
    site,
    site_of,
    user_frame,
)
from ddefuzz.execute.protocol import ExceptionInfo, Observation
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.program.expressions import METHOD_PREFIX, OTHER_METHODS

DATA_DEPENDENT_BRANCHING = "Data-dependent branching"
"""The title of dynamo's graph break at a branch on a tensor (torch/_dynamo/symbolic_convert.py, `generic_jump`)."""

_OP = re.compile(r"\b(\w+)\.(\w+)\.\w+\b")
_SCHEMA = re.compile(r"\b(\w+::\w+)\(.*\) -> ")
"""The schema of an op as C++ messages quote it."""

_VOLATILE = re.compile(r"0x[0-9a-f]+|\b[usz]+f?\d+\b|\bL\['\w+'\](?:\[\d+\])*|local_name='\w+'|\d+|(?:/[\w.+-]+)+/")
_OPERANDS = re.compile(r"(?<=unsupported operand type\(s\) for )([^:]+): .*")
"""Which types an operator is given differs between programs."""

_OWN = f"{Path(__file__).parents[1]}{os.sep}"
_CALLS_KERNELS = f"{_OWN}execute{os.sep}together.py"

_GENERATED = re.compile(r"(?:^|/)c[a-z2-7]{51}\.py$")
"""A file that inductor wrote: its name is a hash in base 32 (torch/_inductor/codecache.py, `code_hash`)."""

_FATAL_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')


class Location(NamedTuple):
    """The site and anchor of a failure, and the frame that shows them, if there is one. `path` are the frames that lead
    to it, if an experiment knows them.
    """

    site: Site
    frame: Frame | None
    anchor: str
    path: tuple[Frame, ...] = ()


def guarded(observation: Observation) -> Location:
    """The code that evaluated the guard, if the recorder saw the error raised; else as `_unguarded`."""
    raised = observation.raised
    if raised is None:
        return _unguarded(observation)
    place, frame = site(raised)
    if place.language == "Python":
        return Location(place, frame, decision(place.module or "", place.function, python_anchor(frame)))
    anchor = native_anchor(raised)
    return Location(Site("C++", None, outlined(place.function or "", anchor)), frame, anchor)


def _unguarded(observation: Observation) -> Location:
    """A data-dependent error that `evaluate_expr` did not raise."""
    _, exception = decisive(observation)
    if not exception.frames and not _traced(observation):
        return Location(USER_SITE, None, exception.name)
    place, frame = python_site(exception.frames, _traced(observation))
    return Location(place, frame, python_anchor(frame))


def pending(observation: Observation) -> Location:
    """The op that made a symbol which none of its outputs has; `compute_unbacked_bindings` raises later."""
    _, exception = decisive(observation)
    frame = _user_frame(observation)
    return Location(Site("op", None, op_name(callee(frame)) if frame is not None else None), frame, exception.name)


def output(observation: Observation) -> Location:
    """The op. If C++ code called it and branches on its result, that C++ function."""
    _, exception = decisive(observation)
    op = _OP.search(exception.message)
    name = f"{op[1]}::{op[2]}" if op else exception.message.partition("\n")[0]
    calling = caller(exception.native)
    if calling is not None:
        # One function may guard alike on several tensors: cov on its weights, their sum and the degrees of freedom.
        maker = _OP.search(exception.maker)
        anchor = " of ".join([f"{exception.name} {name}", *([f"{maker[1]}::{maker[2]}"] if maker else [])])
        return Location(Site("C++", None, function_name(calling.function)), calling, anchor)
    return Location(Site("op", None, name), _user_frame(observation), exception.name)


def unsupported(observation: Observation) -> Location:
    """The line of a branch on a tensor. For any other graph break, the function that dynamo does not trace."""
    _, exception = decisive(observation)
    traced = _traced(observation)
    title = title_of(exception)
    if traced and title == DATA_DEPENDENT_BRANCHING:
        place, frame = python_site((), traced)
        return Location(place, frame, python_anchor(frame))
    function, anchor = refused(exception.message)
    user = _user_frame(observation)
    called = op_name(callee(user, function.rpartition(".")[2])) if user is not None else ""
    name = called if not function or called.endswith(f".{function}") else function
    return Location(Site("op", None, name or None), user, anchor)


def internal(observation: Observation) -> Location:
    root = observation.exceptions[-1] if observation.exceptions else ExceptionInfo("", observation.reason)
    message = f"{root.name}: {lasting(root.message)}"
    if (raising := quoted_site(root.message)) is not None:
        function = outlined(function_name(raising.function), message)
        return Location(Site("C++", None, function), raising, message)
    for exception in reversed(observation.exceptions):
        frames = [f for f in inside_tracer(exception.frames) if is_framework(f) and not is_python_plumbing(f)]
        if frames:
            place, frame = python_site(tuple(frames), ())
            return Location(place, frame, f"{root.name}: {short_anchor(frame)}")
    user = _user_frame(observation)
    if user is None:
        named = _SCHEMA.search(root.message)
        place = _raised_at(root) if named is None else Site("op", None, named[1])
        return Location(place, root.frames[-1] if root.frames else None, message)
    return Location(Site("op", None, op_name(callee(user))), user, message)


def died(observation: Observation) -> Location:
    """The stack that `faulthandler` prints when a worker dies, innermost frame first."""
    stack = (
        Frame(match["file"], int(match["line"]), match["function"])
        for match in _FATAL_FRAME.finditer(observation.output)
    )
    # ddefuzz's frames, and those outside of them, called what died. It also calls the kernels of generated code.
    inner = dropwhile(lambda frame: frame.file == _CALLS_KERNELS, stack)
    printed = list(takewhile(lambda frame: not frame.file.startswith(_OWN), inner))
    frames = [Frame(_from_torch(frame.file), frame.line, frame.function) for frame in reversed(printed)]
    reason = lasting(observation.reason)
    if not frames:
        return Location(Site("Python", None, None), None, reason)
    if _GENERATED.search(frames[-1].file):
        return Location(Site("Python", INDUCTOR_CODE, None), frames[-1], reason)
    if all(is_python_plumbing(frame) for frame in frames):
        return Location(Site("Python", None, None), frames[-1], reason)
    place, frame = python_site(tuple(frames), ())
    return Location(place, frame, reason)


def title_of(exception: ExceptionInfo) -> str:
    """The first line of a message, which is the title of a dynamo graph break."""
    return exception.message.strip().partition("\n")[0].strip()


def op_name(called: str) -> str:
    """The op of a call given as by `anchor.callee`: `.chunk` is `Tensor.chunk`."""
    if called.startswith("torch.ops."):
        return "::".join(called.split(".")[2:4])
    return f"{OTHER_METHODS.get(called[1:], METHOD_PREFIX)}{called[1:]}" if called.startswith(".") else called


def _traced(observation: Observation) -> tuple[Frame, ...]:
    return next((exception.traced for exception in observation.exceptions if exception.traced), ())


def _user_frame(observation: Observation) -> Frame | None:
    """The user's line: from the stack that dynamo interpreted, else from the tracebacks, root cause first."""
    stacks = (_traced(observation), *(inside_tracer(e.frames) for e in reversed(observation.exceptions)))
    return next((frame for stack in stacks if (frame := user_frame(stack)) is not None), None)


def _raised_at(exception: ExceptionInfo) -> Site:
    frames = [frame for frame in exception.frames if is_framework(frame)]
    return site_of(frames[-1], frames) if frames else Site("Python", None, None)


def lasting(message: str) -> str:
    """The first line of a message without what changes from run to run: numbers, symbols, addresses, folders, types."""
    return " ".join(_VOLATILE.sub("…", _OPERANDS.sub(r"\1", message.strip().partition("\n")[0])).split())


def _from_torch(file: str) -> str:
    _, separator, rest = file.rpartition("/site-packages/")
    return rest if separator else file


NOT_TRACED = "dynamo does not trace it"
"""The reason for a function that dynamo skips or does not know. Its title depends on how it is called."""

_UNTRACED_TITLES = re.compile(r"^(?:Attempted to call function marked as skipped|Unsupported Tensor\.\w+\(\) call)$")

_QUALIFIED = re.compile(r"module: (?P<module>[\w.]+), qualname: (?P<name>[\w.<>]+)")
_TARGET = re.compile(r"op: (?P<op>\w+); target: (?:<built-in method )?(?P<name>[\w.]+)")
_DELAYED = re.compile(r"when calling `[^`]+`\. Reason: (?P<reason>[^\n]+)")
_FILE = re.compile(r"in file `(?P<file>[^`]+)`")
_NAMES = re.compile(
    r"`(?P<name>(?:torch|Tensor)\.[\w.]+?)\.?(?:\(\))?`|(?<![\w.])(?P<bare>(?:torch|Tensor)\.[\w.]+\*?)\(\)"
)
_VARIABLES = f"torch.{torch_api.VARIABLE_FUNCTIONS.name}."


def refused(message: str) -> tuple[str, str]:
    """The function's name, and the reason without that name.

    The name is empty if the message has none, and unqualified (`is_same_size`) if the message has it so.
    """
    title, _, rest = message.strip().partition("\n")
    title = title.strip()
    delayed = _DELAYED.search(rest)
    if delayed:
        return "", delayed["reason"].strip()
    reason = NOT_TRACED if _UNTRACED_TITLES.match(title) else _NAMES.sub("…", title)
    return _function(title, rest), reason


def _function(title: str, rest: str) -> str:
    if qualified := _QUALIFIED.search(rest):
        file = _FILE.search(rest)
        # Dynamo reports functions that this file wraps as code of this file, all of a module alike.
        if file is not None and file["file"] in torch_api.DISABLE_DYNAMO_FILE:
            return f"{qualified['module']}.*"
        return _plain(f"{qualified['module']}.{qualified['name'].partition('.<locals>')[0]}")
    if target := _TARGET.search(rest):
        owner = "Tensor." if target["op"] == "call_method" else ""
        return f"{owner}{target['name']}"
    for text in (title, _explanation(rest)):
        if named := _NAMES.search(text):
            return _plain(named["name"] or named["bare"])
    return ""


def _plain(name: str) -> str:
    """The name as users write it. An in-place function becomes the method of that name."""
    if not name.startswith(_VARIABLES):
        return name.rstrip("*")
    name = name.removeprefix(_VARIABLES)
    return f"Tensor.{name}" if name.endswith("_") else f"torch.{name}"


def _explanation(rest: str) -> str:
    match = re.search(r"^[ \t]*Explanation:(.*)$", rest, re.MULTILINE)
    return match[1] if match else ""
