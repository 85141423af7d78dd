"""What control runs of a smallest program showed, and what follows from it."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.chain import title_of
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.kind import decisive

ControlOutcome: TypeAlias = Literal["passes", "fails", "fails otherwise", "not judged"]
"""`fails`: as the program itself does. `not judged`: the program has no such form, or the run could not be made."""


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the program ends where no size depends on data: all sizes static, or dynamic and backed."""

    static: ControlOutcome
    backed: ControlOutcome


NOT_JUDGED = Control("not judged", "not judged")

KINDS_ABOUT_DATA = frozenset({"dde", "pending-unbacked"})
"""A guard or a binding names an unbacked symbol, so one was made: by the op itself where all inputs are static."""

EXCEPTIONS_ABOUT_DATA = frozenset({"DataDependentOutputException", "DynamicOutputShapeException"})
"""By these FakeTensorMode says that an output (`aten::equal`) or its shape (`aten::nonzero`) depends on the data."""

_TITLE_ABOUT_DATA = re.compile(r"\AData.dependent\b|data-dependent output shape\Z|\ADynamic shape operator\Z")
"""Titles of dynamo's graph breaks: `Data-dependent branching`, `Data dependent operator`, `Dynamic shape operator` …"""


def data_dependent(shown: Failure, control: Control | None) -> bool | None:
    """Whether the failure that the program shows is about data; None where nothing tells.

    What fails with static or backed sizes too is not, except where torch itself says that it depends on data.
    """
    _, exception = decisive(shown.observation)
    if shown.kind in KINDS_ABOUT_DATA or exception.name in EXCEPTIONS_ABOUT_DATA:
        return True
    if shown.kind == "unsupported" and _TITLE_ABOUT_DATA.search(title_of(exception)):
        return True
    if control is None or control == NOT_JUDGED:
        return None
    return "fails" not in (control.static, control.backed)
