"""The outcomes of control runs of a smallest program, and whether its failure depends on data."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.chain import title_of
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.kind import decisive
from ddefuzz.oracles.table import row_of

ControlOutcome: TypeAlias = Literal["passes", "fails", "fails otherwise", "not judged"]
"""`fails` means: with the failure of the program itself. `not judged` means: there is no such variant, or it could
not be run.
"""


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcomes if no size depends on data: with all sizes static, and with dynamic, backed sizes."""

    static: ControlOutcome
    backed: ControlOutcome


NOT_JUDGED = Control("not judged", "not judged")

EXCEPTIONS_ABOUT_DATA = frozenset({"DataDependentOutputException", "DynamicOutputShapeException"})
"""Exceptions of FakeTensorMode for an output (`aten::equal`) or its shape (`aten::nonzero`) that depends on data."""

_TITLE_ABOUT_DATA = re.compile(r"\AData.dependent\b|data-dependent output shape\Z|\ADynamic shape operator\Z")
"""Titles of dynamo's graph breaks: `Data-dependent branching`, `Data dependent operator`, `Dynamic shape operator` …"""


def data_dependent(shown: Failure, control: Control | None) -> bool | None:
    """Whether the failure that the program shows depends on data; None if it is not known.

    If the program fails with static or backed sizes too, it does not, unless torch itself states that it
    depends on data.
    """
    _, exception = decisive(shown.observation)
    if row_of(shown.kind).about_data or exception.name in EXCEPTIONS_ABOUT_DATA:
        return True
    if shown.kind == "unsupported" and _TITLE_ABOUT_DATA.search(title_of(exception)):
        return True
    if control is None or control == NOT_JUDGED:
        return None
    return "fails" not in (control.static, control.backed)
