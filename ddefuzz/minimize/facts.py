"""What passes are told of a program besides its text: which input could stand for each of its values.

The facts come from running the program eagerly, which is hundreds of times cheaper than capturing it; how that is
done is the caller's business (`Inspect`), so that passes and driver know no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ddefuzz.program.model import Expr, Input, Program


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python number; one that varies with the data has a `symbol`, that of dims of the same size where there are."""

    value: int | float | bool
    symbol: str | None = None


StandIn: TypeAlias = Input | Scalar
"""For a tensor an input of its dtype, shape and kind of values (its name means nothing), for a number the number."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Stand-ins for names and other subexpressions as far as known, and the functions that are to be tried first."""

    values: Mapping[Expr, StandIn] = field(default_factory=dict)
    failing: tuple[str, ...] = ()

    def tensor(self, expr: Expr) -> Input | None:
        """The input that could stand for this tensor."""
        found = self.values.get(expr)
        return found if isinstance(found, Input) else None

    def scalar(self, expr: Expr) -> Scalar | None:
        """What is known of this number."""
        found = self.values.get(expr)
        return found if isinstance(found, Scalar) else None


Inspect: TypeAlias = Callable[[Program], Mapping[Expr, StandIn] | None]
"""Run a program eagerly and say what could stand for its values; None if it cannot run, so need not be captured."""


def know_nothing(_program: Program) -> Mapping[Expr, StandIn] | None:
    """The `Inspect` that has no facts and lets every program pass."""
    return {}
