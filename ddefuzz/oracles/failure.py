"""What an oracle says of a program's observations."""

from __future__ import annotations

import msgspec

from ddefuzz.classify.signature import Kind
from ddefuzz.execute.protocol import Observation


class Failure(msgspec.Struct, frozen=True):
    """An observation that an oracle calls wrong: the kind, the observation itself, and one line of evidence."""

    kind: Kind
    observation: Observation
    evidence: str
