"""What an oracle says of a program's observations."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ddefuzz.execute.protocol import Observation

Kind: TypeAlias = Literal[
    "dde",
    "pending-unbacked",
    "data-dependent-output",
    "unsupported",
    "crash",
    "timeout",
    "internal-error",
    "wrong-result",
    "wrong-layout",
    "over-strict",
    "missing-assertion",
    "specialized",
]
"""What each means is in the tables of the oracles."""


class Failure(msgspec.Struct, frozen=True):
    """An observation that an oracle calls wrong: the kind, the observation itself, and one line of evidence."""

    kind: Kind
    observation: Observation
    evidence: str
