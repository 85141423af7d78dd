"""The record of a failure: an observation that an oracle judged wrong."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ddefuzz.execute.protocol import Observation
from ddefuzz.program.sizes import CallSize

Kind: TypeAlias = str
"""The name of a kind of failures. The file of an oracle states its kinds (`oracles.oracle.KindRow`)."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An observation that an oracle judged wrong: the kind, the observation itself, and one line of evidence.

    `size` names the call that shows it, if a call does. `second` is the same run under other semantics, if the failure
    is a difference between the two.
    """

    kind: Kind
    observation: Observation
    evidence: str
    size: CallSize | None = None
    second: Observation | None = None
