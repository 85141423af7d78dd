"""The part of inductor to blame for a compiled program: only with this part, the program shows the failure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from ddefuzz.classify.chain import Location
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.parts import ANSWERS, DECOMPOSITIONS, GROUPS
from ddefuzz.execute.protocol import COMPILES, DECOMPOSED, Call, Observation, Part, Run, Runner, Stage
from ddefuzz.oracles.blame import OracleInput, Shows

_Predicate: TypeAlias = Callable[[tuple[str, ...]], bool]

NAMES = tuple(group.name for group in GROUPS)


def groups_of(stage: Stage) -> tuple[str, ...]:
    """The groups of parts by which a stage can be wrong, in the order in which they are left out."""
    if stage == DECOMPOSED:
        return (DECOMPOSITIONS,)
    return NAMES if stage in COMPILES else ()


def part_to_blame(seen: OracleInput, call: Call, shows: Shows, runner: Runner) -> Location | None:
    """The part of inductor to blame for a call; None if the call shows the failure without any of them, too.

    Groups of parts are left out, the first ones of the table together. The last group that is needed for a right result
    has the part. Then its parts are left out in place of it, in the same way. If a part is expected, it is tried first.
    """
    groups = groups_of(seen.observation.stage)
    subject, stage = seen.subject, seen.observation.stage
    if not groups or subject is None:
        return None

    @cache
    def without(out: tuple[str, ...]) -> Observation:
        run = Run(subject, stage, seen.observation.semantics, calls=(call.size,), out=out, symbols=call.symbols)
        return runner(run)

    def is_compared(out: tuple[str, ...]) -> bool:
        return any(one.agreement in {"same", "differs"} for one in without(out).calls[:1])

    def is_right(out: tuple[str, ...]) -> bool:
        again = seen._replace(observation=without(out))
        return is_compared(out) and not shows(again, again.observation.calls[0])

    part = _expected(seen.expected)
    if part is not None and part.group in groups:
        before = groups[: groups.index(part.group)]
        if is_right((*before, str(part))) and not (before and is_right(before)):
            return _located(part)
    out = groups
    if not is_compared(groups):
        out = _harmless(groups, is_compared, is_right)
    if not is_right(out):
        return None
    count = _first(len(out), lambda count: is_right(out[:count]))
    before, group = out[: count - 1], GROUPS[NAMES.index(out[count - 1])]
    parts = sorted((one for one in without(out[:count]).parts if one.group == group.name), key=_suspicion)
    names = tuple(map(str, parts))
    at = _first(len(parts), lambda count: is_right((*before, *names[:count])))
    alone = parts and (at < len(parts) or is_right((*before, *names)))
    return _located(parts[at - 1] if alone else group.whole)


def _first(count: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest number that is enough, if `count` is, by bisection. `count` itself is not tried."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _harmless(groups: tuple[str, ...], is_compared: _Predicate, is_right: _Predicate) -> tuple[str, ...]:
    """The groups up to the first that gives the right result, without those that it cannot do without."""
    out: tuple[str, ...] = ()
    for name in groups:
        if is_compared((*out, name)):
            out = (*out, name)
            if is_right(out):
                break
    return out


def _suspicion(part: Part) -> bool:
    """What inductor wrongly thinks to know comes before what it does not know."""
    return part.group == ANSWERS and part.name == "False"


_SAID = {ANSWERS: "answered"}
"""How anchors begin, if not with the name of the group."""


def _expected(signature: Signature | None) -> Part | None:
    """The single part of a signature; None if it has a whole group, or none."""
    if signature is None:
        return None
    for group in GROUPS:
        begins = _SAID.get(group.name, group.name)
        if signature.anchor == begins or signature.anchor.startswith(f"{begins} "):
            name = signature.anchor.removeprefix(begins).strip()
            part = Part(group.name, signature.site.module or "", signature.site.function or "", name)
            return None if part == group.whole else part
    return None


def _located(part: Part) -> Location:
    anchor = f"{_SAID.get(part.group, part.group)} {part.name}".rstrip()
    if not part.file:
        return Location(Site("C++", None, part.function), None, anchor)
    return Location(Site("Python", part.file, part.function or None), None, anchor)
