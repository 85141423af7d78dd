"""The record of a classified failure, and the rules that give a failed capture its cause and signature."""

from __future__ import annotations

import msgspec

from ddefuzz.classify.anchor import bound_op, callee
from ddefuzz.classify.cause import cause
from ddefuzz.classify.chain import Located
from ddefuzz.classify.evidence import CONVERSIONS
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.instrument.events import Frame, Raised

OP_DECIDES = frozenset({"int-in-schema", "outputs-by-argument", "bool-of-a-tensor", "tensor-as-number"})
"""Rules for which the op that Python called is the site, because the op itself requires a plain number or bool."""


class Classified(msgspec.Struct, frozen=True):
    """A classified failure. `frame` is the frame that shows the site, `rule` the row of `cause.RULES` that applied."""

    failure: Failure
    signature: Signature
    cause: Cause
    rule: str
    frame: Frame | None = None


def ruled(failure: Failure, located: Located) -> Classified:
    """A failed capture with its signature and cause: the first row of `cause.RULES` that applies decides."""
    raised = failure.observation.raised
    rule = cause(failure, located.site, located.anchor)
    place, anchor = located.site, located.anchor
    if rule.name in OP_DECIDES and raised is not None:
        place, anchor = Site("op", None, f"aten::{_op(raised, located.frame)}"), raised.method
    return Classified(failure, Signature(failure.kind, place, anchor), rule.cause, rule.name, located.frame)


def _op(raised: Raised, frame: Frame | None) -> str:
    """The op whose binding guards. If the conversion of a tensor guards, the op that the frame calls."""
    op = bound_op(raised.native)
    return (
        callee(frame).rpartition(".")[2]
        if frame is not None and f"torch::autograd::THPVariable_{op}" in CONVERSIONS
        else op
    )
