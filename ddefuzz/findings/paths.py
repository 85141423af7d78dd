"""Remove folders of the machine from what is stored. Paths become relative to torch; temporary files keep their name
only.
"""

from __future__ import annotations

import re
import tempfile
from functools import lru_cache

import msgspec

from ddefuzz.classify.failure import Failure

TEMPORARY = "<temporary folder>"

_PATH = r"""[^\s"'\\:,()\[\]]*"""
"""The rest of a path in a JSON string, up to a character that ends a path in messages or that JSON escapes."""


def portable(failure: Failure) -> Failure:
    """The failure with paths in frames and messages that do not depend on the machine."""
    raw = msgspec.json.encode(failure).decode()
    return msgspec.json.decode(without_folders(raw), type=Failure)


def without_folders(text: str) -> str:
    """`/x/lib/python3.11/site-packages/torch/a.py` becomes `torch/a.py`. A temporary file keeps its name only."""
    installed, temporary = _patterns(tempfile.gettempdir())
    return temporary.sub(_temporary, installed.sub("", text))


def _temporary(path: re.Match[str]) -> str:
    name = path[0].rpartition("/")[2]
    return f"{TEMPORARY}/{name}" if "." in name.strip(".") else TEMPORARY


@lru_cache
def _patterns(folder: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    folders = "|".join(re.escape(one) for one in sorted({folder, "/tmp", "/var/tmp"}, reverse=True))
    return re.compile(f"{_PATH}/(?:site|dist)-packages/"), re.compile(rf"(?<![\w/.-])(?:{folders})/{_PATH}")
