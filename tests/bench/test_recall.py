"""Planted faults: drawing by seed, finding in a campaign's results, and judging of what was blamed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddefuzz.bench.recall import FirstReached, Planted, Reach, draw, judge_fault, ninetieth, show
from ddefuzz.campaign.summary import Tally
from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import ExceptionInfo, Observation, Outcome, Run, Semantics
from ddefuzz.findings.database import Database
from ddefuzz.instrument.events import Frame, Place, Raised
from tests.cli.test_cli_typed import typed

REFS = Place("Python", "torch/_refs/__init__.py", 4026)
EXPAND = Place("C++", "aten/src/ATen/ExpandUtils.cpp", 34)

VIEW = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return x.view(-1, 2)
"""


def site(place: Place, **more: object) -> SiteRecord:
    known: dict[str, object] = {"function": "reshape", "call": "guard_or_false", "fallbacks": {"False": 1}}
    return SiteRecord(place.language, place.file, place.line, **(known | more))  # type: ignore[arg-type]


def failed(place: Place, asked: Frame | None = None, *, withheld: bool = True, native: str = "") -> Observation:
    """A run in which `asked`, else the frame at `place`, met the error."""
    frame = asked or Frame(place.file, place.line, "reshape", "guard_or_false(a == b)", exact=True)
    raised = Raised(
        "Eq(u0, 1)",
        "guard_or_false",
        place,
        (frame,),
        native=(Frame("", 0, native),) if native else (),
        withheld=withheld,
    )
    error = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")
    return Observation("fake", Semantics("explicit", (place,)), "fail", exceptions=(error,), raised=raised)


def ended(outcome: Outcome = "ok", message: str = "") -> Observation:
    errors = (ExceptionInfo("RuntimeError", message),) if message else ()
    return Observation("fake", Semantics("explicit", (REFS,)), outcome, exceptions=errors)


def test_the_same_seed_draws_the_same_places() -> None:
    records = [site(Place("Python", "torch/a.py", line)) for line in range(40)]
    drawn = draw(records, 10, 3)
    assert drawn == draw(reversed(records), 10, 3)
    assert drawn != draw(records, 10, 4)
    assert len({record.key for record in drawn}) == 10


def test_only_places_that_fell_back_are_drawn_each_once() -> None:
    records = [site(REFS), site(REFS, function="other"), site(EXPAND, fallbacks={}, raised=1)]
    assert [record.line for record in draw(records, 1, 0)] == [REFS.line]
    with pytest.raises(InputError, match=r"found 1 sites .* expected 2"):
        draw(records, 2, 0)


def test_a_fault_that_is_blamed_on_its_place_is_exact() -> None:
    judged = judge_fault(Planted(REFS, "reshape"), failed(REFS))
    assert (judged.found, judged.exact, judged.stage, judged.why) == (True, True, "fake", "")
    assert judged.named == "torch/_refs/__init__.py:reshape line 4026"


def test_a_fault_that_is_blamed_on_another_line_is_misnamed() -> None:
    caller = Frame("torch/_refs/nn/functional/__init__.py", 12, "pad", "reshape(x)", exact=True)
    judged = judge_fault(Planted(REFS, "reshape"), failed(REFS, caller))
    assert (judged.found, judged.exact) == (True, False)
    assert judged.why == "evaluated at torch/_refs/__init__.py:4026"


def test_a_fault_in_cxx_is_exact_when_cxx_at_that_place_evaluated_it() -> None:
    seen = failed(EXPAND, native="at::inferExpandGeometry(at::Tensor const&)")
    assert judge_fault(Planted(EXPAND, ""), seen).exact
    elsewhere = Place("C++", EXPAND.file, 99)
    assert not judge_fault(Planted(elsewhere, ""), seen).exact


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (ended(), "fake: torch catches the error and goes on"),
        (ended("fail", "no kernel\nat all"), "fake: ends otherwise: no kernel"),
        (failed(REFS, withheld=False), "fake: ends otherwise: Could not guard"),
    ],
)
def test_a_fault_that_does_not_show_is_not_found(seen: Observation, why: str) -> None:
    judged = judge_fault(Planted(REFS, "reshape"), seen)
    assert (judged.found, judged.exact, judged.why) == (False, False, why)


def test_the_program_is_run_where_it_reached_the_site_and_then_elsewhere() -> None:
    ran: list[Run] = []

    def runner(run: Run) -> Observation:
        ran.append(run)
        return failed(REFS) if run.stage == "export" else ended()

    reached = site(REFS, example=VIEW, stage="fake")
    judged = show(Planted(REFS, "reshape"), Reach(1.5, 3), reached, ("export", "compile"), runner)
    assert [(run.stage, run.semantics.without) for run in ran] == [("fake", (REFS,)), ("export", (REFS,))]
    assert (judged.found, judged.cpu_seconds, judged.cases, judged.program) == (True, 1.5, 3, VIEW)


def test_the_first_case_at_a_place_is_noted() -> None:
    first, tally = FirstReached(frozenset({REFS, EXPAND})), Tally()
    first(("case", ""), tally)
    assert first.when == {}
    tally.cpu_seconds["export"] = 2.0
    tally.digests[0] = "d"
    tally.ledger.fallback_sites.add(("Python", REFS.file, REFS.line))
    first(("case", ""), tally)
    tally.cpu_seconds["export"] = 9.0
    first(("case", ""), tally)
    assert first.when == {REFS: Reach(2.0, 1)}


def test_the_ninetieth_percentile() -> None:
    assert ninetieth([3.0]) == 3.0
    assert ninetieth([float(value) for value in range(11)]) == 9.0


@pytest.mark.slow
def test_recall_as_typed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/known.db"
    with Database.open(url) as database:
        everywhere = Place("C++", "aten/src/ATen/EmptyTensor.cpp", 161)
        gone = Place("Python", "torch/_refs/__init__.py", 1)
        database.add_sites("2.13.0", [site(everywhere, function=""), site(gone)])
    words = ("--sites", "2", "--budget", "6x", "-j", "1", "--db", url)
    done = typed("bench", "recall", *words, "--output", "json=found.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["schema"], found["found"], found["exact"], found["known_sites"]) == (
        "ddefuzz.bench.recall/1",
        1,
        1,
        2,
    )
    assert "not found  torch/_refs/__init__.py:1" in done.stdout
    assert "no case reached it" in done.stdout


def test_a_database_without_sites_is_one_clear_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    Database.open(url).close()
    done = typed("bench", "recall", "--db", url, folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "expected a database with sites" in done.stderr
