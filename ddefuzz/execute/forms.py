"""The records of the run-time assertions that a captured program has, in each of the forms that it passes through.

No torch here. Oracles judge these records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

FormName: TypeAlias = Literal["traced", "lowered", "generated"]
"""
traced     the graph that the frontend captured: that of torch.export, or dynamo's, which a backend gets
lowered    the forward graph that AOTAutograd makes of it
generated  the Python code that inductor makes of that
"""


class Asserted(msgspec.Struct, frozen=True):
    """One run-time assertion of a captured program.

    `message` is what it says when it fails. `own` says that the user's code makes it at this place, by
    `torch._check`. `after` are the ops before it that use its sizes: they run unprotected.
    """

    condition: str
    message: str
    own: bool = False
    after: tuple[str, ...] = ()


class Form(msgspec.Struct, frozen=True):
    """A captured program in one of its forms, with its assertions in order."""

    name: FormName
    assertions: tuple[Asserted, ...]


def condition_of(message: str, forms: Iterable[Form]) -> str:
    """The condition of the assertion with this message; empty if there is none."""
    asserted = (one for form in forms for one in form.assertions)
    return next((one.condition for one in asserted if one.message == message), "")
