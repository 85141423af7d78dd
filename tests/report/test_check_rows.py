"""The rows of a check, from observations made by hand."""

from __future__ import annotations

import msgspec

from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, ExceptionInfo, Observation
from ddefuzz.instrument.events import Frame, Guard, Place, Raised
from ddefuzz.oracles.program import Tried
from ddefuzz.report.check import Row, check_case, failed

EAGER = Observation("eager", EXPLICIT, "ok")
OK = Observation("export", EXPLICIT, "ok", graph="a")
GUARD = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard\nmore")
RAISED = Raised(
    "Eq(u0, 0)",
    "guard_bool",
    Place("Python", "torch/_refs/__init__.py", 1),
    (Frame("torch/_refs/__init__.py", 1, "roll", "a.numel() == 0", True),),
)
FAILED = Observation("export", EXPLICIT, "fail", exceptions=(GUARD,), raised=RAISED)


def tried(*observations: Observation) -> list[Tried]:
    return [Tried(one) for one in observations]


def test_a_failure_has_guard_site_cause_and_symbols() -> None:
    (row,) = [one.row for one in check_case("c", tried(EAGER, FAILED)) if one.row.stage == "export"]
    told = msgspec.to_builtins(row)
    assert told["schema"] == "ddefuzz.check/1"
    assert told["site"] == {"language": "Python", "module": "torch/_refs/__init__.py", "function": "roll"}
    assert (told["kind"], told["anchor"], told["cause"], told["expression"], told["verdict"]) == (
        "dde",
        "a.numel() == 0",
        "avoidable",
        "Eq(u0, 0)",
        "fails",
    )
    assert told["exception"] == "GuardOnDataDependentSymNode: Could not guard"
    assert told["frames"]["python"][0]["function"] == "roll"


def test_rows_are_json_and_back() -> None:
    row = check_case("c", tried(EAGER, FAILED))[1].row
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


def test_a_program_that_fails_in_eager_is_not_judged() -> None:
    refused = Observation("eager", EXPLICIT, "fail", exceptions=(ExceptionInfo("builtins.ValueError", "no"),))
    eager, export = (one.row for one in check_case("c", tried(refused, FAILED)))
    assert (eager.outcome, export.outcome, export.verdict, export.kind) == ("fail", "not-judged", "not-judged", None)
    assert export.reason == "the program fails in eager: ValueError: no"
    assert failed(check_case("c", tried(refused, FAILED)))


def test_what_hangs_in_eager_as_well_is_not_judged() -> None:
    eager = Observation("eager", EXPLICIT, "timeout", "stopped after 60 s")
    hang = Observation("export", EXPLICIT, "timeout", "stopped after 60 s")
    first, second = (one.row for one in check_case("c", tried(eager, hang)))
    assert (first.outcome, first.kind, second.outcome) == ("timeout", "timeout", "not-judged")
    assert second.reason == "the program fails in eager: stopped after 60 s"


def test_failures_under_size_oblivious_semantics_do_not_count() -> None:
    guard = Guard(Place("C++", "x.cpp", 1), "guard_or_false", "Eq(u0, 1)", False, "undecided")
    rescued = msgspec.structs.replace(OK, guards=(guard,))
    rows = check_case("c", tried(EAGER, rescued, msgspec.structs.replace(FAILED, semantics=SIZE_OBLIVIOUS)))
    assert [one.row.verdict for one in rows] == [None, "rescued", None]
    assert not failed(rows)


def test_a_verdict_that_needs_a_second_run_waits_for_it() -> None:
    guard = Guard(Place("C++", "x.cpp", 1), "guard_or_false", "Eq(u0, 1)", False, "other")
    other = msgspec.structs.replace(OK, guards=(guard,))
    second = msgspec.structs.replace(OK, semantics=SIZE_OBLIVIOUS, graph="b")
    assert check_case("c", tried(EAGER, other))[1].row.verdict is None
    assert check_case("c", tried(EAGER, other, second))[1].row.verdict == "changed"
