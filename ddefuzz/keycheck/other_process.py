"""Makes keys in a process of its own: `python -m ddefuzz.keycheck.other_process TARGET`, tensors and their keys as
JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from ddefuzz.errors import DdefuzzError
from ddefuzz.keycheck.drawn import Drawn, with_tensor
from ddefuzz.keycheck.load import AnyKey, load_key


def texts(key: AnyKey, tensors: Sequence[Drawn]) -> list[str]:
    """The text of each tensor's key; the error's if it has none."""
    return [_text(key, one) for one in tensors]


def _text(key: AnyKey, one: Drawn) -> str:
    try:
        return str(with_tensor(one, lambda tensor: repr(key(tensor))))
    except Exception as error:  # noqa: BLE001 the key function is under test
        return type(error).__name__


def in_another_process(target: str, tensors: Sequence[Drawn]) -> list[str]:
    """The same texts, made in a new process where texts have other hashes."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", __name__, target],
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
