"""Runs key functions: on the tensors of a case, on drawn tensors, and in another process
(`python -m ddefuzz.oracles.keys_run TARGET`, with tensors and keys as JSON).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.execute.isolation import kept_intact
from ddefuzz.execute.protocol import KeySubject, Observation, Run, measured, not_judged
from ddefuzz.execute.subject import load_module
from ddefuzz.keys.case import Options, Property, Tensors, TensorSpec, parse_key, print_key
from ddefuzz.keys.properties import PROPERTIES, AnyKey, KeyFunction, check, defined, smallest_of, texts, violation
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
    violated = violation(case.violates, function, case.tensors)
    if violated is None:
        return KeyCheck(case.violates, place)
    return KeyCheck(case.violates, place, violated.why, violated.part, violated.tensors, violated.keys, violated.asked)


def smallest_case(text: str, shown: Callable[[str], bool]) -> tuple[str, int]:
    """The smallest case that `shown` accepts, with tensors that the property simplifies; and the number of them."""
    case = parse_key(text, "<key>")

    def text_of(tensors: Tensors) -> str:
        return print_key(msgspec.structs.replace(case, tensors=tensors))

    best = smallest_of(case.tensors, lambda tensors: shown(text_of(tensors)), PROPERTIES[case.violates].simpler)
    return text_of(best), len(best)


def try_property(task: PropertyTask) -> Property:
    """One property of a function."""
    function = key_function(task.target, task.options)
    with kept_intact(task.target):
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
    return KeyFunction(load_key(target), options, partial(in_another_process, target))


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
    made = texts(load_key(sys.argv[1]), wanted)
    sys.stdout.flush()
    sys.stdout.buffer.write(MARK + msgspec.json.encode(made))
