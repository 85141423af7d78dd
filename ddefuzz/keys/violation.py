"""The records of a key function under test and of what it violates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ddefuzz.instrument.events import Frame
from ddefuzz.keys.case import Drawn
from ddefuzz.keys.drawn import Tensors
from ddefuzz.keys.options import Options

AnyKey: TypeAlias = Callable[[Any], Hashable]

SHOWN_KEY: Final = 300
"""How many characters of a key are shown."""


class KeyFunction(NamedTuple):
    """A key function. `elsewhere` gives the texts of the keys that another process makes. `options` say what a key has
    to distinguish.
    """

    key: AnyKey
    options: Options
    elsewhere: Callable[[Sequence[Drawn]], list[str]]


class Violation(msgspec.Struct, frozen=True):
    """The smallest tensors that show it, as expressions and as data; their keys; and what is wrong.

    `part` is what the key confuses, or the error. `asked` is the line of the key function that evaluated a guard.
    """

    tensors: tuple[str, ...]
    keys: tuple[str, ...]
    why: str
    drawn: Tensors = ()
    part: str = ""
    asked: Frame | None = None

    def explains(self, other: Violation) -> bool:
        """Whether the other confuses what this one does, and perhaps more."""
        return set(self.part.split(", ")) <= set(other.part.split(", "))


def shown_key(key: object) -> str:
    """The text of a key, not too long."""
    text = repr(key)
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"


def said(error: Exception) -> str:
    """The first line of an error, without the symbols that torch lists in any order."""
    first = next(iter(str(error).strip().splitlines()), "").partition(" (Size-like symbols: ")[0]
    text = " ".join(f"{type(error).__name__}: {first}".split())
    return text if len(text) <= SHOWN_KEY else f"{text[:SHOWN_KEY]}…"
