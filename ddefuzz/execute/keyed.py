"""The record of what a key function did with the tensors of a case."""

from __future__ import annotations

import msgspec

from ddefuzz.instrument.events import Frame
from ddefuzz.keys.case import PropertyName


class Keyed(msgspec.Struct, frozen=True):
    """What a key function did. `why` says how it violates the property; it is empty if it does not.

    `part` is the part of the tensors that the key confuses, the error, or the line that evaluated a guard. `defined` is
    the definition of the function, `asked` the line in it that evaluated a guard or raised.
    """

    violates: PropertyName
    defined: Frame
    why: str = ""
    part: str = ""
    tensors: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    asked: Frame | None = None
