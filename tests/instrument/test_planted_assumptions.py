"""Tests of planted assertions and replacements on real torch: each is made, or left out, at its place alone."""

from __future__ import annotations

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.instrument.events import Fault, FaultKind, Place

HEADER = "# ddefuzz program v1\n"
OWN_BROADCAST = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    return x[:1] + x
"""
SLICED = f"""{HEADER}# inputs: mask = trues(3); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    return x[mask][:2]
"""


def seen(text: str, stage: Stage, *faults: Fault) -> Observation:
    return observe(Run(ProgramSubject(text), stage, Semantics(faults=faults), graph=True, calls=("example", "1", "2")))


def fault_at_a_fallback(kind: FaultKind, number: int) -> Fault:
    healthy = seen(SLICED, "aot")
    place = next(guard.place for guard in healthy.guards if guard.place.file.endswith("fake_impls.py"))
    return Fault(place, kind, number)


@pytest.mark.parametrize("stage", ["export", "aot"])
def test_a_dropped_assertion_is_not_made(stage: Stage) -> None:
    healthy = seen(OWN_BROADCAST, stage)
    assert not healthy.calls[0].captured.returned
    made = next(one for one in healthy.constraints if one.text == healthy.calls[0].captured.expression)
    faulty = seen(OWN_BROADCAST, stage, Fault(made.place, "drop assertion"))
    assert made.text not in [one.text for one in faulty.constraints]
    assert all(one.captured.expression != made.text for one in faulty.calls)
    elsewhere = Place("Python", made.place.file, made.place.line + 1)
    assert seen(OWN_BROADCAST, stage, Fault(elsewhere, "drop assertion")).graph == healthy.graph


def test_an_added_assertion_refuses_calls() -> None:
    faulty = seen(SLICED, "aot", fault_at_a_fallback("add assertion", 1))
    refused = [one.captured for one in faulty.calls if not one.captured.returned]
    assert refused
    assert {one.text for one in faulty.constraints} >= {one.expression for one in refused}


def test_a_planted_replacement_is_recorded_where_it_was_planted() -> None:
    fault = fault_at_a_fallback("specialize", 0)
    (made,) = (one for one in seen(SLICED, "aot", fault).constraints if one.text == "u0 = 2")
    assert (made.kind, made.place) == ("replacement", fault.place)
