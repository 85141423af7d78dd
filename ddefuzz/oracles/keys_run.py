"""Runs key functions: on the tensors of a case, on drawn tensors, and in another process
(`python -m ddefuzz.oracles.keys_run TARGET`, with tensors and keys as JSON).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import torch

from ddefuzz.errors import DdefuzzError, InputError
from ddefuzz.execute.protocol import KeySubject, Observation, Run, measured, not_judged
from ddefuzz.execute.subject import load_module
from ddefuzz.keys.case import KINDS, Checked, Drawn, Kind, Options, Property, check_trust, parse_key
from ddefuzz.keys.properties import PROPERTIES, AnyKey, KeyFunction, check, defined, texts, violation
from ddefuzz.oracles.keys import Keyed


def run(task: Run) -> Observation:
    """Make the keys of a case. It is not judged if this torch does not have the key function."""
    if not isinstance(task.subject, KeySubject):
        return not_judged(task, "it is not a case of a key function")
    try:
        keyed = keyed_by(task.subject.text, trust=task.subject.trust)
    except InputError as error:
        return not_judged(task, str(error))
    return Observation(task.stage, task.semantics, "ok", measured=measured(keyed))


def keyed_by(text: str, *, trust: bool) -> Keyed:
    """What the key function of a case does. Raises InputError if there is no such function, or it needs `trust`."""
    check_trust(text, trust=trust)
    case = parse_key(text, "<key>")
    function = key_function(case.function, case.options)
    place = defined(function.key, case.function)
    found = violation(case.violates, function, case.tensors)
    if found is None:
        return Keyed(case.violates, place)
    return Keyed(case.violates, place, found.why, found.part, found.tensors, found.keys, found.asked)


def checked(target: str, options: Options, examples: int, names: Sequence[str], tell: Callable[..., None]) -> Checked:
    """Every property of the function. `tell` gets the progress. Raises InputError for a target that has none."""
    wrong = next((name for name in names if name not in KINDS), None)
    if wrong is not None:
        raise InputError(f"--kind: found {wrong!r}, expected one of {', '.join(KINDS)}")
    kinds: tuple[Kind, ...] = tuple(kind for kind in KINDS if not names or kind in names)
    tried: list[Property] = []
    for result in check(key_function(target, options), examples, kinds):
        tried.append(result)
        tell(f"{len(tried)} of {len(PROPERTIES)} properties", is_last=len(tried) == len(PROPERTIES))
    return Checked(target, options, str(torch.__version__), tuple(tried))


def load_key(target: str) -> AnyKey:
    """The function that MODULE:FUNCTION or FILE:FUNCTION names; the module is executed. Raises InputError."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise InputError(f"found {target!r}, expected MODULE:FUNCTION or FILE:FUNCTION")
    module = load_module(place)
    function = getattr(module, name, None)
    if not callable(function):
        found = f"{type(function).__name__}" if hasattr(module, name) else "no such name"
        raise InputError(f"{target}: found {found}, expected a function of one tensor that returns its key")
    made: AnyKey = function
    return made


def key_function(target: str, options: Options) -> KeyFunction:
    """The key function that the target names. Raises InputError if there is none."""
    return KeyFunction(load_key(target), options, partial(in_another_process, target))


def in_another_process(target: str, tensors: Sequence[Drawn]) -> list[str]:
    """The texts of the tensors' keys, made in a new process where texts have other hashes."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__, target],
        input=msgspec.json.encode(list(tensors)),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": seed},
    )
    if ended.returncode:
        raise DdefuzzError(f"{target}: keys could not be made in another process: {ended.stderr.decode()[-300:]}")
    return msgspec.json.decode(ended.stdout.splitlines()[-1], type=list[str])


if __name__ == "__main__":
    wanted = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Drawn])
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(texts(load_key(sys.argv[1]), wanted)) + b"\n")
