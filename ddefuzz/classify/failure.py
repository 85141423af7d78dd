"""The record of a failure: an observation that an oracle judged wrong."""

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
"""The kinds of failures. The oracles' tables state what each means."""


class Failure(msgspec.Struct, frozen=True):
    """An observation that an oracle judged wrong: the kind, the observation itself, and one line of evidence."""

    kind: Kind
    observation: Observation
    evidence: str
