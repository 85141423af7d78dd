"""Tests of the seven verdicts, and which of them need the second run."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.protocol import SIZE_OBLIVIOUS, Call, CallEnd, Difference, Observation, Outcome, Semantics
from ddefuzz.instrument.events import Counterfactual, Guard, Place
from ddefuzz.oracles.verdict import Verdict, is_mostly_alike, needs_second_run, verdict

EXPLICIT = Observation("export", Semantics(), "ok", graph="a = x + 1")


def answered(*counterfactuals: Counterfactual, outcome: Outcome = "ok") -> Observation:
    guards = tuple(
        Guard(Place("C++", "aten/src/ATen/ExpandUtils.cpp", line), "guard_or_false", "Eq(u0, 1)", False, answer)
        for line, answer in enumerate(counterfactuals)
    )
    return msgspec.structs.replace(EXPLICIT, outcome=outcome, guards=guards)


VALUES = (Difference("values", "result", "1 of 3"),)
DIFFERS = (Call("example", CallEnd(), CallEnd(), "differs", VALUES, symbols=(("u0", 2),)),)
REFUSED = (Call("example", CallEnd(), CallEnd("RuntimeError: no", "Eq((u0//2), 1)"), symbols=(("u0", 4),)),)
NOT_BROADCAST = (Call("example", CallEnd(), CallEnd("RuntimeError: no", "Eq(u0, u1)"), symbols=(("u0", 1), ("u1", 4))),)
ASSUMED_AWAY = (Call("1", CallEnd(), CallEnd(), "differs", VALUES, symbols=(("u0", 1),)),)


def second(outcome: Outcome = "ok", graph: str = "a = x + 1", calls: tuple[Call, ...] = ()) -> Observation:
    return Observation("export", SIZE_OBLIVIOUS, outcome, graph=graph, calls=calls)


@pytest.mark.parametrize(
    ("explicit", "expected"),
    [
        (answered(), "ok"),
        (answered("same"), "ok"),
        (answered("same", "undecided"), "rescued"),
        (answered(outcome="fail"), "fails"),
        (answered("undecided", outcome="fail"), "fails"),
        (answered(outcome="timeout"), "fails"),
        (answered(outcome="crash"), "fails"),
        (answered("other", outcome="crash"), "fails"),
        (answered("undecided", "other"), "rescued"),
        (answered("same", "undecided", "other", outcome="fail"), "fails"),
        (answered(outcome="not-judged"), "not-judged"),
        (answered("other", outcome="not-judged"), "not-judged"),
        (msgspec.structs.replace(EXPLICIT, calls=DIFFERS), "diverged"),
    ],
)
def test_one_run_is_enough(explicit: Observation, expected: Verdict) -> None:
    assert not needs_second_run(explicit)
    assert verdict(explicit) == expected


@pytest.mark.parametrize(
    ("guards", "alike"),
    [
        ((("c10/core/Contiguity.h", ""),), True),
        ((("torch/_prims_common/__init__.py", "check_contiguous_sizes_strides"), ("c10/core/Contiguity.h", "")), True),
        ((("torch/_prims_common/__init__.py", "__lt__"),), False),
        ((("c10/core/Contiguity.h", ""), ("torch/_refs/__init__.py", "should_expand")), False),
    ],
)
def test_layout_alone_is_mostly_alike(guards: tuple[tuple[str, str], ...], alike: bool) -> None:
    same = Guard(Place("Python", "torch/_refs/__init__.py", 1), "guard_or_false", "Eq(u0, 1)", False, "same", "cat")
    other = (Guard(Place("C++", file, 1), "guard_or_false", "Eq(u0, 1)", False, "other", name) for file, name in guards)
    assert is_mostly_alike(msgspec.structs.replace(EXPLICIT, guards=(same, *other))) is alike


@pytest.mark.parametrize(
    ("explicit", "size_oblivious", "expected"),
    [
        (answered("other"), second(), "ok"),
        (answered("other"), second(graph="a = x + 2"), "changed"),
        (answered("other"), second("fail"), "rescued"),
        (answered("other", outcome="fail"), second(), "regressed"),
        (answered("other", outcome="fail"), second(calls=REFUSED), "fails"),
        (answered("other", outcome="fail"), second(calls=NOT_BROADCAST), "regressed"),
        (answered("other", outcome="fail"), second("fail"), "fails"),
        (answered("other"), second(calls=DIFFERS), "diverged"),
        (answered("other"), second(calls=ASSUMED_AWAY), "ok"),
        (answered("other"), second("not-judged"), "not-judged"),
    ],
)
def test_a_different_fallback_needs_the_second_run(
    explicit: Observation, size_oblivious: Observation, expected: Verdict
) -> None:
    assert needs_second_run(explicit)
    assert verdict(explicit, size_oblivious) == expected


def test_the_second_run_must_be_given() -> None:
    with pytest.raises(DdefuzzError, match="size-oblivious run must be given"):
        verdict(answered("other"))


def test_missing_graphs_are_not_judged() -> None:
    assert verdict(msgspec.structs.replace(answered("other"), graph=None), second()) == "not-judged"
