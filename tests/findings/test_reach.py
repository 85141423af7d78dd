"""What a run reached, from observations made by hand: no torch."""

from __future__ import annotations

import msgspec
import pytest

from ddefuzz.classify.anchor import expression_shape, relation
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.ledger import SiteVisit, reached
from ddefuzz.instrument.events import Frame, Guard, Place, RaisedError
from ddefuzz.instrument.torch_api import SIZES_FOR_CXX

REFS = "torch/_refs/__init__.py"
HERE = Place("Python", REFS, 448)
HEADER = Place("C++", "c10/core/SymInt.h", 301)
CHUNK = Site("C++", None, "at::native::chunk")
ROLL = Site("Python", REFS, "roll")


def guard(expression: str, *, place: Place = HERE, fallback: bool = False) -> Guard:
    return Guard(place, "guard_or_false", expression, fallback, "same", "_broadcast_shapes")


def failing(place: Place, *, withheld: bool = False) -> Observation:
    raised = RaisedError("Eq(u0, 3)", "guard_bool", place, (), withheld=withheld)
    return Observation("export", EXPLICIT, "fail", raised=raised)


def classified(observation: Observation, site: Site, frame: Frame | None = None, kind: Kind = "dde") -> Classification:
    signature = Signature(kind, site, "a")
    return Classification(Failure(kind, observation, "Eq(u0, 3)"), signature, "avoidable", "rule", frame)


def test_a_guard_is_reached_once_for_each_way_and_shape() -> None:
    seen = Observation(
        "fake", EXPLICIT, "ok", guards=(guard("Eq(u0, 1)"), guard("Eq(u5, 1)"), guard("Eq(u0, 3)"), guard("Eq(u0, 7)"))
    )
    assert reached(seen) == (
        SiteVisit(HERE, "_broadcast_shapes", "guard_or_false", "False", "same", "Eq(x0, 1)"),
        SiteVisit(HERE, "_broadcast_shapes", "guard_or_false", "False", "same", "Eq(x0, n)"),
    )


def test_the_order_of_guards_says_nothing() -> None:
    guards = (guard("u0 < 2", fallback=True), guard("Eq(u0, 1)"), guard("u1", place=HEADER))
    there = Observation("fake", EXPLICIT, "ok", guards=guards)
    assert reached(there) == reached(msgspec.structs.replace(there, guards=guards[::-1]))


def test_an_error_in_python_is_at_the_frame_that_is_blamed() -> None:
    seen = failing(Place("Python", "torch/_prims_common/__init__.py", 9))
    (one,) = reached(seen, [classified(seen, ROLL, Frame(REFS, 4_098, "roll"))])
    assert one == SiteVisit(Place("Python", REFS, 4_098), "roll", "guard_bool", "raised", None, "Eq(x0, n)", ROLL)


@pytest.mark.parametrize("asked", [HEADER, Place("Python", SIZES_FOR_CXX.path, 3_590)])
def test_an_error_in_cxx_is_at_the_place_that_asked_with_the_function_that_is_blamed(asked: Place) -> None:
    seen = failing(asked)
    (one,) = reached(seen, [classified(seen, CHUNK)])
    assert (one.place, one.function, one.blamed) == (
        Place("C++", asked.file, asked.line),
        "at::native::chunk",
        CHUNK,
    )


def test_a_withheld_fallback_and_other_failures_are_no_errors_of_torch() -> None:
    planted, other = failing(HEADER, withheld=True), failing(HEADER)
    assert reached(planted, [classified(planted, CHUNK)]) == ()
    assert reached(other, [classified(other, CHUNK, kind="unsupported")]) == ()
    assert reached(other) == ()


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("Eq(u3*7, u0)", "Eq(x0*n, x1)"),
        ("Eq(u0, 1) & Eq(u0, 0)", "Eq(x0, 1) & Eq(x0, 0)"),
        ("Mod(u12, 16) < 0.5", "Mod(x0, n) < n"),
        ("zuf0 > s77", "x0 > x1"),
        ("True", "True"),
    ],
)
def test_shapes_are_without_names_and_numbers(expression: str, shape: str) -> None:
    assert expression_shape(expression) == shape


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("Eq(u3*7, u0)", "Eq"),
        ("Ne(u0, 1)", "Ne"),
        ("u1 == 6", "Eq"),
        ("1 <= u0 + (u0 - 2)*Max(1, u0 - 1)", "<"),
        ("-u0 < 0", "<"),
        ("(Max(1, u0) <= Min(3, u0)) | Eq(u0, 0)", "or"),
        ("Eq(u0, 1) & Eq(u0, 0)", "and"),
        ("u0", ""),
        ("u0 <", ""),
    ],
)
def test_a_relation_is_that_of_the_whole_expression(expression: str, kind: str) -> None:
    assert relation(expression) == kind
