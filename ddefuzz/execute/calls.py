"""The records of calling a captured program, next to a call of eager.

No torch here. Oracles judge these records, and their tests make them by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from ddefuzz.program.sizes import CallSize

What: TypeAlias = Literal[
    "structure", "number", "dtype", "shape", "values", "strides", "mutation", "gradient", "alias", "global state"
]
Agreement: TypeAlias = Literal["same", "differs", "incomparable"]


class Ended(msgspec.Struct, frozen=True):
    """How a call ended. `error` is the class and the first line of the message of the exception, empty if it returned.

    `expression` is the condition of a run-time assertion that failed, as torch printed it; empty for other errors.
    `follows` is the assertion that torch derived this condition from, empty if it made the condition itself.
    """

    error: str = ""
    expression: str = ""
    follows: str = ""

    @property
    def returned(self) -> bool:
        """Whether the call returned a result."""
        return not self.error


class Difference(msgspec.Struct, frozen=True, order=True):
    """One thing in which the captured program differs from eager.

    `where` names the value (`result[0]`, `input x`), `how` says how much in one line.
    """

    what: What
    where: str
    how: str


class Call(msgspec.Struct, frozen=True):
    """One call of a captured program and of eager, at the data sizes of this name.

    `symbols` are the values of the capture's unbacked symbols in this call, as far as they are known. `failing` is the
    condition of the first assertion of the traced graph that is not true in this call. `agreement` is None if one of
    the two did not return. `accepted` are differences that explicit unbacked semantics allow. `why` says why results
    are incomparable. `same` are other sizes that lead to the same inputs: they are called once.
    """

    size: CallSize
    eager: Ended
    captured: Ended
    agreement: Agreement | None = None
    differences: tuple[Difference, ...] = ()
    accepted: tuple[Difference, ...] = ()
    why: str = ""
    symbols: tuple[tuple[str, int], ...] = ()
    failing: str = ""
    recompiled: bool = False
    same: tuple[CallSize, ...] = ()


ACCEPTED: Final[frozenset[What]] = frozenset({"alias"})
"""A fallback may take the general path: a copy where eager returns a view. The program cannot see it without mutation,
and a mutation is compared by its effect."""


ONLY_IN_EAGER: Final = "only in eager"
"""The end of the line of a difference of memory that is shared in eager and not when captured."""


EXPANDED: Final = " (expanded)"
"""The end of the line of a difference of strides, if eager's tensor is an expanded view and the captured one is not."""


def is_accepted(one: Difference, among: Iterable[Difference]) -> bool:
    """Whether explicit unbacked semantics allow a difference, `among` all those of its call.

    A difference in aliasing is allowed. So are the strides of a copy where eager returns a view, of another tensor or
    of its own elements.
    """
    if one.what != "strides":
        return one.what in ACCEPTED
    if one.how.endswith(EXPANDED):
        return True
    return any(
        other.what == "alias" and other.where == one.where and other.how.endswith(ONLY_IN_EAGER) for other in among
    )


def differs(call: Call) -> bool:
    """Whether eager and the captured program differ in a call: in their results, or only one of them returned."""
    return call.agreement == "differs" or call.eager.returned != call.captured.returned
