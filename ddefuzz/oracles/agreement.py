"""The agreement oracle: a captured program must compute what eager computes, at every size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddefuzz.classify.anchor import callee
from ddefuzz.classify.chain import Location, op_name
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import python_site
from ddefuzz.execute.protocol import Call, Difference, Runner
from ddefuzz.instrument.torch_api import OUTPUT_STRIDES
from ddefuzz.oracles import metas
from ddefuzz.oracles.acceptance import OF_RESULTS, accepted_as, why_unspecified
from ddefuzz.oracles.blame import OracleInput, assumed_falsely, cheapest, guard_to_blame, op_to_blame, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle, only_differing, only_the_call
from ddefuzz.oracles.parts import part_to_blame
from ddefuzz.program.sizes import CALL_SIZES


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report a wrong result at some size, else a wrong value of the graph. Calls that captured the program again do not
    test the first capture.
    """
    pairs = [(call, difference) for call in seen.observation.calls for difference in differences(seen, call)]
    values = [(call, difference) for call, difference in pairs if difference.what != "strides"]
    if not pairs:
        return metas.judge(seen)
    call, difference = (values or pairs)[0]
    kind: Kind = "wrong-result" if values else "wrong-layout"
    evidence = f"at size {call.size}: {difference}"
    return (Failure(kind, seen.observation, evidence, call.size),)


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The guard whose true value fixes the result, if its fallback was not the true value; else what made an assertion
    of inductor that is not true; else the part of inductor without which the result is right, or the fake kernel that
    says something wrong of a value of the graph; else the op of the first wrong value. Strides that are wrong in
    inductor, but right in AOTAutograd's capture, also decomposed, are inductor's doing.
    """
    only_layout = failure.kind == "wrong-layout"

    def shows(seen: OracleInput, call: Call) -> bool:
        return any(only_layout or one.what != "strides" for one in differences(seen, call))

    compiled = seen.observation.stage == "inductor"
    seen, call = cheapest(seen, shows, runner)
    if only_layout and compiled and seen.observation.stage == "inductor" and _strides_vary(seen):
        return Location(Site("Python", OUTPUT_STRIDES.file, OUTPUT_STRIDES.name), None, "strides")
    first = differences(seen, call)
    anchor = next((one.what for one in first if one.what != "strides"), f"strides: {orders(first[0].how)}")
    return (
        guard_to_blame(seen, call, shows, runner)
        or assumed_falsely(seen, call, shows)
        or part_to_blame(seen, call, shows, runner)
        or metas.located_at(call, anchor if only_layout else "")
        or op_to_blame(seen, call, shows, anchor, runner)
        or _made_at(first, anchor)
        or unknown(seen)
    )


def _made_at(differences: tuple[Difference, ...], anchor: str) -> Location | None:
    """The function that made the first wrong result of the user's code, as the exported graph has it: that of torch if
    it is in a module of torch, else the one that the line calls.
    """
    frames = next((one.frames for one in differences if one.frames), ())
    if not frames:
        return None
    site, frame = python_site(frames, ())
    return Location(site if is_framework(frame) else Site("op", None, op_name(callee(frame))), frame, anchor)


def orders(difference: str) -> str:
    """The two orders in memory of a difference of strides, `contiguous for channels last`. One op may have several
    faults of layout, so what it does to the layout is part of the signature.
    """
    actual, _, wanted = difference.partition(", eager has ")
    return f"{_order(actual)} for {_order(wanted)}"


def _order(text: str) -> str:
    """What strides say of the order of dims in memory."""
    strides = [int(number) for number in re.findall(r"\d+", text)]
    if 0 in strides:
        return "expanded"
    if sorted(strides, reverse=True) == strides:
        return "contiguous" if strides[-1:] in ([], [1]) else "sliced"
    if len(strides) > 3 and min(strides) == strides[1] and sorted(strides[2:], reverse=True) == strides[2:]:
        return "channels last"
    return "permuted"


def _strides_vary(seen: OracleInput) -> bool:
    """Whether eager's strides of the first wrong result depend on the size: inductor keeps other strides alone."""
    first = (differences(seen, call)[:1] for call in seen.observation.calls)
    return len({difference.how.partition("eager has ")[2] for pair in first for difference in pair}) > 1


def differences(seen: OracleInput, call: Call) -> tuple[Difference, ...]:
    """The differences of a call that count."""
    if call.agreement != "differs" or call.recompiled or accepted_as(OF_RESULTS, seen, call):
        return ()
    return tuple(one for one in call.differences if not why_unspecified(seen, one))


def keep(failure: Failure) -> Failure:
    """What a finding stores: the calls that differ, or the one whose graph says something wrong."""
    return only_the_call(failure) if failure.kind == metas.KIND else only_differing(failure)


KINDS: Mapping[Kind, KindRow] = {
    "wrong-result": KindRow(
        "the captured program computes other values than eager at some size",
        "{site} makes the captured program wrong {evidence}",
        locate,
        wrong=True,
        severity="wrong values",
    ),
    "wrong-layout": KindRow(
        "the captured program's result has other strides than eager's at some size",
        "{site} gives the captured program's result other strides {evidence}",
        locate,
        severity="wrong layout",
    ),
    **metas.KINDS,
}

ORACLE = Oracle("agreement", "the captured program and eager have different results", KINDS, judge, CALL_SIZES, keep)
