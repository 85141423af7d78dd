"""Runs key functions: on the tensors of a case, on drawn tensors, and in another process
(`python -m ddefuzz.oracles.keys_run TARGET`, with tensors and keys as JSON).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial, wraps
from inspect import signature
from math import inf
from typing import Final

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute.observe import running_user_code
from ddefuzz.execute.protocol import KeySubject, Observation, Run, measured, not_judged
from ddefuzz.execute.subject import load_module
from ddefuzz.execute.worker import late
from ddefuzz.keys.case import Options, Property, Tensors, TensorSpec, parse_key, print_key
from ddefuzz.keys.function import AnyKey, KeyFunction, defined
from ddefuzz.keys.properties import PROPERTIES, check, smallest_of, texts, violation
from ddefuzz.oracles.keys import KeyCheck, PropertyTask, check_trust

MARK: Final = b"\nkeys: "
"""What comes before the keys of another process. The function may print, too."""


def run(task: Run) -> Observation:
    """Make the keys of a case. It is not judged if this torch does not have the key function."""
    if not isinstance(task.subject, KeySubject):
        return not_judged(task, "it is not a case of a key function")
    try:
        keyed = keyed_by(task.subject.text, trust=task.subject.trust)
    except InputError as error:
        return not_judged(task, str(error))
    return Observation(task.stage, task.semantics, "ok", measured=measured(keyed))


def keyed_by(text: str, *, trust: bool) -> KeyCheck:
    """What the key function of a case does. Raises InputError if there is no such function, or it needs `trust`."""
    check_trust(text, trust=trust)
    case = parse_key(text, "<key>")
    function = key_function(case.function, case.options)
    place = defined(function.key, case.function)
    violated = violation(case, function)
    if violated is None:
        return KeyCheck(case.violates, place)
    return KeyCheck(case.violates, place, violated.why, violated.part, violated.tensors, violated.keys, violated.asked)


def smallest_case(text: str, shown: Callable[[str], bool]) -> tuple[str, int]:
    """The smallest case that `shown` accepts, with tensors that the property simplifies; and the number of them."""
    case = parse_key(text, "<key>")

    def text_of(tensors: Tensors) -> str:
        return print_key(msgspec.structs.replace(case, tensors=tensors))

    if case.given:
        return text, len(case.given)
    best = smallest_of(case.tensors, lambda tensors: shown(text_of(tensors)), PROPERTIES[case.violates].simpler)
    return text_of(best), len(best)


def try_property(task: PropertyTask) -> Property:
    """One property of a function."""
    function = key_function(task.target, task.options)
    with running_user_code(task.target.rpartition(":")[0]):
        return check(task.name, function, task.examples, task.kinds)


def load_key(target: str) -> AnyKey:
    """The function that MODULE:FUNCTION or FILE:FUNCTION names; the module is executed. Raises InputError."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError(f"found {target!r}, expected MODULE:FUNCTION or FILE:FUNCTION")
    module = load_module(place)
    function = getattr(module, name, None)
    if not callable(function):
        shown = f"{type(function).__name__}" if hasattr(module, name) else "no such name"
        raise InputError(f"{target}: found {shown}, expected a function of one tensor that returns its key")
    made: AnyKey = function
    return made


def key_function(target: str, options: Options) -> KeyFunction:
    """The key function that the target names. Raises InputError if there is none."""
    function = load_key(target)
    key = of_one_tensor(function)
    several = function if key is not function or takes(function)[1] > 1 else None
    return KeyFunction(key, options, partial(in_another_process, target), several)


def of_one_tensor(function: Callable[..., Hashable]) -> AnyKey:
    """The key of a tensor. Where the function needs more arguments, the others are always of the same kind."""
    needed = takes(function)[0]
    if needed < 2:
        return function
    zeros = late("torch").zeros
    return wraps(function)(lambda tensor: function(tensor, *(zeros(3) for _ in range(needed - 1))))


def takes(function: Callable[..., Hashable]) -> tuple[int, float]:
    """How many arguments a function takes at least and at most."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C++
        return 1, 1
    placed = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is one.empty for one in placed)
    return needed, inf if any(one.kind is one.VAR_POSITIONAL for one in parameters) else needed


def in_another_process(target: str, tensors: Sequence[TensorSpec]) -> list[str]:
    """The texts of the tensors' keys, made in a new process where texts have other hashes."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__, target],
        input=msgspec.json.encode(list(tensors)),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    try:
        return msgspec.json.decode(ended.stdout.rpartition(MARK)[2] if not ended.returncode else b"", type=list[str])
    except msgspec.DecodeError as error:
        reason = " ".join(ended.stderr.decode(errors="replace").split())[-300:] or f"exit code {ended.returncode}"
        raise InputError(f"{target}: keys could not be made in another process: {reason}") from error


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[TensorSpec])
    made = texts(of_one_tensor(load_key(sys.argv[1])), wanted)
    sys.stdout.flush()
    sys.stdout.buffer.write(MARK + msgspec.json.encode(made))
