"""Facts about a program beyond its text: which input or number could replace each of its values.

They come from running the program eagerly, which is hundreds of times cheaper than capturing it. The caller
provides that (`Inspect`), so passes and driver do not depend on torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ddefuzz.program.model import Expr, Input, Program


@dataclass(frozen=True, slots=True)
class Scalar:
    """A Python number. If it varies with the data, `symbol` is that of input dims of the same size, if any."""

    value: int | float | bool
    symbol: str | None = None


StandIn: TypeAlias = Input | Scalar
"""What can replace a value: an input of its dtype, shape and kind of values (its name means nothing), or a number."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Replacements for names and other subexpressions, as far as they are known, and the functions to try first."""

    values: Mapping[Expr, StandIn] = field(default_factory=dict)
    failing: tuple[str, ...] = ()

    def tensor(self, expr: Expr) -> Input | None:
        """The input that could replace this tensor."""
        found = self.values.get(expr)
        return found if isinstance(found, Input) else None

    def scalar(self, expr: Expr) -> Scalar | None:
        """The facts that are known of this number."""
        found = self.values.get(expr)
        return found if isinstance(found, Scalar) else None


Inspect: TypeAlias = Callable[[Program], Mapping[Expr, StandIn] | None]
"""Runs a program eagerly, and returns what could replace its values. None if it does not run."""


def know_nothing(_program: Program) -> Mapping[Expr, StandIn] | None:
    """An `Inspect` that accepts every program and returns no facts."""
    return {}
