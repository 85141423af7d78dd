"""Records of an experiment on one program: the values tried for the undecided guard, the outcomes and the verdict."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Stage
from ddefuzz.program.sizes import CallSize

Given: TypeAlias = Literal["False", "True", "assert"]
"""The values that are tried. `assert` defers the guard to a run-time assertion that it is true."""

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
The verdicts:

guard_or_false here               with False, the program is captured and agrees with eager at every size
guard_or_true here                with True, it is
torch._check here                 with a run-time assertion, it is captured and agrees where the assertion holds. This
                                  is preferred if False raises, because the guard is then a check of arguments
needs SymInt                      torch requires a number, which no value of a guard provides
no answer is right for all sizes  what is captured differs from eager, or rejects inputs that eager accepts
no answer captures                with each value, another guard cannot be decided, or something else fails
nothing to compare                what was captured has no graph to call
not a guard                       the program does not fail by an undecided guard
"""


class Row(msgspec.Struct, frozen=True):
    """One value and its outcome.

    `then` are further guards that had to be given a value, each with that value. `captures` says whether the
    program was captured; if not, `stopped` says why. Of the sizes that eager accepts, the captured program
    agrees at `agrees`, rejects `refuses`, and computes something else at `differs`. `accepts` are sizes that
    only eager rejects, so an assertion is missing. `raises` says that an error of the program's own op stopped
    the capture, not another guard.
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
        """Whether it captures, and agrees wherever eager returns."""
        return self.is_right_where_it_holds and not self.refuses

    @property
    def is_right_where_it_holds(self) -> bool:
        """Whether it captures, and agrees wherever it does not reject the inputs."""
        return self.captures and bool(self.agrees) and not self.differs and not self.accepts


class Experiment(msgspec.Struct, frozen=True):
    """The outcomes for the first undecided guard of a program."""

    program: str
    stage: Stage
    site: Site | None
    expression: str
    rows: tuple[Row, ...]
    verdict: Verdict
