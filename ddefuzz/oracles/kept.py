"""The part of a failure of one call that a finding stores, and the facts by which its script recognizes it."""

from __future__ import annotations

import msgspec

from ddefuzz.classify.classify import Classified
from ddefuzz.classify.expected import Expected, by_call
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import InputError
from ddefuzz.execute.calls import differs


def only_the_call(failure: Failure) -> Failure:
    """The failure with only the call that shows it; with any one call if the capture alone shows it.

    Without a call, what was captured is not looked at.
    """
    calls = failure.observation.calls
    shown = tuple(call for call in calls if call.size == failure.size) or calls[:1]
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(failure.observation, calls=shown))


def by_ending(classified: Classified, same_program: bool) -> Expected:
    """The facts of the call that shows the failure. Raises `InputError` if eager and the captured program end alike in
    it: then only a look into the capture shows the failure.
    """
    failure = classified.failure
    if not any(call.size == failure.size and differs(call) for call in failure.observation.calls):
        raise InputError(
            f"found a failure of kind {failure.kind}, expected one in which the captured program and eager end "
            "differently: only the captured graph shows it, and no script can show that"
        )
    return by_call(classified, same_program)
