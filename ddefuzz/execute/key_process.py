"""Makes keys in another process: `python -m ddefuzz.execute.key_process TARGET`, with tensors and keys as JSON."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import msgspec

from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.key_function import load_key
from ddefuzz.keys.case import Drawn
from ddefuzz.keys.options import Options
from ddefuzz.keys.properties import texts
from ddefuzz.keys.violation import KeyFunction


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
