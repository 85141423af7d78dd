"""The records of an experiment on one program: each answer to the undecided guard, what came of it, and the verdict."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Stage
from ddefuzz.program.sizes import CallSize

Given: TypeAlias = Literal["False", "True", "assert"]
"""The answers that are tried; `assert` defers the guard to a run-time assertion that it is true."""

GIVEN: tuple[Given, ...] = ("False", "True", "assert")

Verdict: TypeAlias = Literal[
    "guard_or_false here",
    "guard_or_true here",
    "torch._check here",
    "needs SymInt",
    "no answer is right for all sizes",
    "no answer captures",
    "nothing to compare",
    "not a guard",
]
"""
guard_or_false here               answered False it captures, and agrees with eager at every size
guard_or_true here                answered True it does
torch._check here                 as a run-time assertion it captures, and agrees wherever the assertion holds; it is
                                  preferred where the other answer raises: the guard is a check of arguments
needs SymInt                      a number is wanted, which no answer gives
no answer is right for all sizes  what captures differs from eager, or refuses what eager takes
no answer captures                another guard that cannot be decided, or another failure, follows each answer
nothing to compare                what was captured has no graph to call
not a guard                       the program fails otherwise than by an undecided guard
"""


class Row(msgspec.Struct, frozen=True):
    """One answer and what came of it.

    `then` are guards that had to be answered as well, each with its answer. `captures` says whether the program was
    captured; if not, `stopped` says by what. Of the sizes that eager takes, the captured program agrees at `agrees`,
    refuses `refuses` and computes something else at `differs`. `accepts` are sizes that eager refuses and it takes: an
    assertion is missing. `raises` says that it was stopped by an error of the program's own op, not by another guard.
    """

    site: Site
    answer: Given
    captures: bool
    agrees: tuple[CallSize, ...] = ()
    refuses: tuple[CallSize, ...] = ()
    differs: tuple[CallSize, ...] = ()
    accepts: tuple[CallSize, ...] = ()
    then: tuple[str, ...] = ()
    stopped: str = ""
    raises: bool = False

    @property
    def is_right(self) -> bool:
        """Whether it captures and agrees wherever eager returns."""
        return self.is_right_where_it_holds and not self.refuses

    @property
    def is_right_where_it_holds(self) -> bool:
        """Whether it captures and agrees wherever it does not refuse."""
        return self.captures and bool(self.agrees) and not self.differs and not self.accepts


class Experiment(msgspec.Struct, frozen=True):
    """What the answers to the first undecided guard of a program lead to."""

    program: str
    stage: Stage
    site: Site | None
    expression: str
    rows: tuple[Row, ...]
    verdict: Verdict
