"""What people type in a decision: versions, labels and URLs."""

from __future__ import annotations

import re

from ddefuzz.errors import InputError

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.(post|dev)\d+)?(\+[\w.]+)?", re.ASCII)
"""A version of torch as `torch.__version__` has it."""

LABEL = re.compile(r"[+-]?[^\s+-]\S*")
"""A label to add (`+`, or nothing before it) or to remove (`-`)."""


def labelled(labels: tuple[str, ...], typed: tuple[str, ...]) -> tuple[str, ...]:
    """The labels after adding and removing the typed ones."""
    kept = set(labels)
    for one in typed:
        (kept.discard if one.startswith("-") else kept.add)(one.lstrip("+-"))
    return tuple(sorted(kept))


def checked_url(url: str) -> str:
    """The URL. Raises `InputError` if it is none."""
    if not url.startswith(("https://", "http://")):
        raise InputError(f"URL: found {url!r}, expected one that starts with https://")
    return url
