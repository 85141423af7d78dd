"""Classifies a failure: combines site, anchor, cause and signature."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddefuzz.classify.aliases import decision, outlined
from ddefuzz.classify.anchor import bound_op, callee, native_anchor, python_anchor
from ddefuzz.classify.cause import cause
from ddefuzz.classify.chain import Located, locate
from ddefuzz.classify.evidence import CONVERSIONS
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.classify.site import site
from ddefuzz.instrument.events import Frame, Raised

OP_DECIDES = frozenset({"int-in-schema", "outputs-by-argument", "bool-of-a-tensor", "tensor-as-number"})
"""Rules for which the op that Python called is the site, because the op itself requires a plain number or bool."""


class Classified(msgspec.Struct, frozen=True):
    """A classified failure. `frame` is the frame that shows the site, `rule` the row of `cause.RULES` that
    applied.
    """

    failure: Failure
    signature: Signature
    cause: Cause
    rule: str
    frame: Frame | None = None


def classify(failure: Failure) -> Classified:
    """Find the signature and cause of a failure."""
    raised = failure.observation.raised
    located = _guard(raised) if failure.kind == "dde" and raised is not None else locate(failure)
    rule = cause(failure, located.site, located.anchor)
    place, anchor = located.site, located.anchor
    if rule.name in OP_DECIDES and raised is not None:
        place, anchor = Site("op", None, f"aten::{_op(raised, located.frame)}"), raised.method
    return Classified(failure, Signature(failure.kind, place, anchor), rule.cause, rule.name, located.frame)


def distinct(failures: Iterable[Failure]) -> tuple[Classified, ...]:
    """Classify failures, and keep one per signature: the one of the first stage that shows it."""
    found: dict[Signature, Classified] = {}
    for failure in failures:
        classified = classify(failure)
        found.setdefault(classified.signature, classified)
    return tuple(found.values())


def _op(raised: Raised, frame: Frame | None) -> str:
    """The op whose binding guards. If the conversion of a tensor guards, the op that the frame calls."""
    op = bound_op(raised.native)
    return (
        callee(frame).rpartition(".")[2]
        if frame is not None and f"torch::autograd::THPVariable_{op}" in CONVERSIONS
        else op
    )


def _guard(raised: Raised) -> Located:
    place, frame = site(raised)
    if place.language == "Python":
        return Located(place, frame, decision(place.module or "", place.function, python_anchor(frame)))
    anchor = native_anchor(raised)
    return Located(Site("C++", None, outlined(place.function or "", anchor)), frame, anchor)
