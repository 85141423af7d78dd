"""The agreement oracle: a captured program computes what eager computes, at every size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddefuzz.classify.chain import Located
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Runner
from ddefuzz.oracles.seen import Seen, guard_to_blame, op_to_blame, unknown
from ddefuzz.program.model import functions_in

KINDS: Mapping[Kind, str] = {
    "wrong-result": "the captured program computes something else than eager at some size",
    "wrong-layout": "the captured program's result has other strides than eager's at some size",
}

UNSPECIFIED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(^|[._])(new_)?empty(_|$)|(^|\.)resize_"), "uninitialized memory"),
    (
        re.compile(
            r"rand|bernoulli|dropout|multinomial|(^|[._])(normal|uniform|exponential|geometric|cauchy|log_normal)_?$"
            r"|rrelu|fractional_max_pool|scaled_dot_product_attention"
        ),
        "random numbers",
    ),
)
"""What two right programs may compute differently, by the name of the function that makes it."""

TIES = re.compile(r"(^|[._])(topk|sort|argsort|kthvalue|mode|median|nanmedian|argmax|argmin|unique)")
"""Functions that are free to choose among equal values; inductor does so otherwise than eager."""


def unspecified(seen: Seen) -> str:
    """Why results of this program are not compared; empty if they are."""
    program = seen.program
    for name in functions_in(program) if program is not None else ():
        for pattern, why in UNSPECIFIED:
            if pattern.search(name):
                return f"{why} ({name})"
        if seen.observation.stage == "inductor" and TIES.search(name):
            return f"ties ({name})"
    return ""


def judge(seen: Seen) -> tuple[Failure, ...]:
    """A wrong result at some size; what was captured anew for a size says nothing of the first capture."""
    wrong = [call for call in seen.observation.calls if _differs(call)]
    if not wrong or unspecified(seen):
        return ()
    values = [call for call in wrong if any(one.what != "strides" for one in call.differences)]
    call = (values or wrong)[0]
    one = next((one for one in call.differences if one.what != "strides"), call.differences[0])
    kind: Kind = "wrong-result" if values else "wrong-layout"
    return (Failure(kind, seen.observation, f"at size {call.size}: {one.what} of {one.where}: {one.how}"),)


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The guard whose true answer mends it, if its fallback was not the truth; else the op of the first wrong value."""
    only_layout = failure.kind == "wrong-layout"

    def shows(call: Call) -> bool:
        return _differs(call) and (only_layout or any(one.what != "strides" for one in call.differences))

    call = next(call for call in failure.observation.calls if shows(call))
    return guard_to_blame(seen, call, shows, runner) or op_to_blame(seen, call, shows, runner) or unknown(seen)


def _differs(call: Call) -> bool:
    return call.agreement == "differs" and not call.recompiled
