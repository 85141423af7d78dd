"""Failures and graph breaks as text for pages: kind, site and cause by ddefuzz's classification, the user's line."""

from __future__ import annotations

from ddefuzz.artifacts.model import Cause
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.kind import decisive
from ddefuzz.classify.site import user_frame
from ddefuzz.execute.protocol import Observation
from ddefuzz.oracles import capture


def failure_of(observed: Observation) -> Cause | None:
    """The failure of a capture, classified; None if there is none."""
    found = capture.judge([observed])
    return cause_of(capture.classify(found[0])) if found else None


def cause_of(one: Classified) -> Cause:
    """A classified failure. The user's line is the innermost one that dynamo traced, or that ran."""
    observed = one.failure.observation
    exception = decisive(observed)[1] if observed.exceptions else None
    raised = observed.raised
    stacks = (
        raised.traced if raised is not None else (),
        exception.traced if exception is not None else (),
        raised.python if raised is not None else (),
        exception.frames if exception is not None else (),
    )
    frame = next((found for found in map(user_frame, stacks) if found is not None), None)
    return Cause(
        kind=one.signature.kind,
        site=str(one.signature.site),
        anchor=one.signature.anchor,
        cause=one.cause,
        evidence=one.failure.evidence,
        message=exception.message.strip() if exception is not None else "",
        line=f"{frame.file}:{frame.line} {frame.code}".strip() if frame is not None else "",
    )
