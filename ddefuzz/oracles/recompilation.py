"""The recompilation oracle: calls that differ only in sizes must share a compiled graph, if one graph is right for
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.evidence import NUMBER_METHODS
from ddefuzz.classify.expected import Expected
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.shape import expression_shape
from ddefuzz.classify.signature import Cause
from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import REPEATED, Observation, Runner
from ddefuzz.execute.repeated import Repeated
from ddefuzz.instrument.events import Constraint, Raised
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, unknown
from ddefuzz.program.sizes import REPEATED_SIZES

KIND: Kind = "recompiles"


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report more compilations than the policy allows, if a guard over sizes is the reason."""
    repeated = seen.observation.repeated
    if repeated is None or not repeated.is_above or repeated.failed is None:
        return ()
    return (Failure(KIND, seen.observation, _said(seen.observation, repeated)),)


def _said(observation: Observation, repeated: Repeated) -> str:
    sizes = ", ".join(call.size for call in observation.calls)
    return f"{repeated.guard}: {len(repeated.compiled)} compilations for the sizes {sizes}, {repeated.allowed} needed"


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The code that made the guard which was false at a call that should have reused a graph."""
    del runner
    repeated = failure.observation.repeated
    if repeated is None or repeated.failed is None:
        return unknown(seen)
    found, frame = site(as_raised(repeated.failed))
    return Located(found, frame, expression_shape(repeated.guard))


def as_raised(constraint: Constraint) -> Raised:
    """A guard as the record in which sites are looked for."""
    return Raised(
        constraint.text, constraint.method, constraint.place, constraint.python, constraint.traced, constraint.native
    )


def keep(failure: Failure) -> Failure:
    """The failure with the fewest first calls that show it, one compilation more than the policy allows.

    What the later calls do does not change what the first ones did.
    """
    observation = failure.observation
    repeated = observation.repeated
    if repeated is None or not repeated.is_above:
        return failure
    most = repeated.allowed + 1
    number = repeated.compiled[most - 1] + 1
    fewer = msgspec.structs.replace(repeated, compiled=repeated.compiled[:most])
    kept = msgspec.structs.replace(observation, calls=observation.calls[:number], repeated=fewer)
    return msgspec.structs.replace(failure, observation=kept, evidence=_said(kept, fewer))


def cause(failure: Failure) -> Cause:
    """Whose code made the guard, and whether it asked for a plain number."""
    repeated = failure.observation.repeated
    if repeated is None or repeated.failed is None:
        return "unclassified"
    found, _ = site(as_raised(repeated.failed))
    if found == USER_SITE:
        return "user"
    return "int-required" if repeated.failed.method in NUMBER_METHODS else "avoidable"


def expected(classified: Classified, same_program: bool) -> Expected:
    """By how many compilations a script recognizes it."""
    del same_program
    failure = classified.failure
    repeated = failure.observation.repeated
    if repeated is None:
        raise InputError("found no count of compilations in its stored failure, expected one")
    seen = {"compilations": str(len(repeated.compiled)), "needed": str(repeated.allowed)}
    return Expected("by_count", seen, sizes=tuple(call.size for call in failure.observation.calls))


KINDS: Mapping[Kind, KindRow] = {
    KIND: KindRow(
        "torch.compile compiles a function again for other sizes, and nothing in it needs that",
        "{site} makes torch.compile compile again: {evidence}",
        locate,
        expected,
        cause,
        about_data=True,
    ),
}

ORACLE = Oracle("recompilation", KINDS, judge, REPEATED_SIZES, keep, stages=tuple(REPEATED))
