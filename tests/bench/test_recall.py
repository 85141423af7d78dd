"""Planted faults: drawing by seed, finding in a campaign's results, and judging of what was blamed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ci.bench.planted import PlantedFault, Programs, Reacher, draw
from ci.bench.recall import FaultResult, Survey, examples_of, ninetieth, reachers_of, read_kept
from ddefuzz.campaign.summary import Tally
from ddefuzz.campaign.tasks import CaseResult, StageOutcome, StageReached
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation, Outcome, Semantics, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord, SiteVisit
from ddefuzz.instrument.events import Answer, Fault, Frame, Place, RaisedError
from ddefuzz.oracles.program import tried_of
from tests.bench.typed_bench import bench

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
    raised = RaisedError(
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


def withheld(place: Place) -> PlantedFault:
    return PlantedFault(place, "reshape", Semantics("explicit", (place,)))


def test_the_same_seed_draws_the_same_places() -> None:
    records = [site(Place("Python", "torch/a.py", line)) for line in range(40)]
    drawn = draw("capture", records, (), 10, 3)
    assert drawn == draw("capture", reversed(records), (), 10, 3)
    assert drawn != draw("capture", records, (), 10, 4)
    assert len({one.place for one in drawn}) == 10


def test_only_places_that_fell_back_are_drawn_each_once() -> None:
    records = [site(REFS), site(REFS, function="other"), site(EXPAND, fallbacks={}, raised=1)]
    assert [one.place.line for one in draw("capture", records, (), 1, 0)] == [REFS.line]
    with pytest.raises(InputError, match=r"found 1 sites .* expected 2"):
        draw("capture", records, (), 2, 0)


def test_each_oracle_has_faults_of_its_own() -> None:
    records = [site(REFS), site(EXPAND, fallbacks={"True": 2, "False": 1})]
    assert [one.semantics for one in draw("agreement", records, (), 2, 0)] == [
        Semantics(answers=(Answer(EXPAND, value=False),)),
        Semantics(answers=(Answer(REFS, value=True),)),
    ]
    kinds = [one.semantics.faults[0].kind for one in draw("specialization", records, (), 2, 0)]
    assert kinds == ["specialize", "specialize"]
    made = SiteRecord("Python", "torch/_meta_registrations.py", 7, "", "")
    added, dropped = draw("assertions", records, [made], 3, 0)[1:]
    assert (added.semantics.faults[0].kind, added.place in {REFS, EXPAND}) == ("add assertion", True)
    assert dropped.semantics.faults == (Fault(Place("Python", made.file, 7), "drop assertion"),)


def test_faults_of_the_mechanism_are_at_guards_that_size_oblivious_semantics_answer_alike() -> None:
    records = [site(REFS, old={"same": 1}), site(EXPAND, old={"other": 3, "undecided": 1})]
    assert [one.semantics for one in draw("mechanism", records, (), 1, 0)] == [
        Semantics(answers=(Answer(REFS, value=True),))
    ]
    with pytest.raises(InputError, match=r"found 1 sites .* with the answer of size-oblivious semantics, expected 2"):
        draw("mechanism", records, (), 2, 0)


def judged(planted: PlantedFault, seen: Observation, healthy: Observation | None = None) -> PlantedFault:
    """What one program shows that is as `healthy` without the fault, and as `seen` with it."""
    programs = Programs(lambda trial: tried_of((healthy or ended()) if trial.run.semantics == EXPLICIT else seen))
    return programs.show(planted, "capture", None, [reacher("fake")])


def test_a_fault_that_is_blamed_on_its_place_is_exact() -> None:
    shown = judged(withheld(REFS), failed(REFS))
    assert (shown.effect, shown.found, shown.exact, shown.stage, shown.why) == ("changes", True, True, "fake", "")
    assert shown.named == "torch/_refs/__init__.py:reshape line 4026"
    assert (shown.cpu_seconds, shown.cases, shown.program, shown.programs) == (1.5, 3, VIEW, 1)


def test_a_fault_that_is_blamed_on_another_line_is_misnamed() -> None:
    caller = Frame("torch/_refs/nn/functional/__init__.py", 12, "pad", "reshape(x)", exact=True)
    shown = judged(withheld(REFS), failed(REFS, caller))
    assert (shown.found, shown.exact) == (True, False)


def test_a_fault_in_cxx_is_exact_when_cxx_at_that_place_evaluated_it() -> None:
    seen = failed(EXPAND, native="at::inferExpandGeometry(at::Tensor const&)")
    assert judged(withheld(EXPAND), seen).exact
    elsewhere = Place("C++", EXPAND.file, 99)
    assert not judged(withheld(elsewhere), seen).exact


def test_a_fault_that_torch_catches_changes_nothing() -> None:
    shown = judged(withheld(REFS), ended())
    assert (shown.found, shown.exact, shown.effect) == (False, False, "equivalent")


def test_a_program_that_fails_without_the_fault_too_shows_it_only_by_another_failure() -> None:
    healthy = failed(EXPAND, native="at::inferExpandGeometry(at::Tensor const&)")
    assert judged(withheld(REFS), healthy, healthy).effect == "harmless"
    assert judged(withheld(REFS), failed(REFS), healthy).found


def reacher(stage: Stage, *, captured: bool = False, shape: str = "Eq(x0, 1)", cases: int = 3) -> Reacher:
    return Reacher(VIEW, stage, captured, frozenset({(REFS, shape)}), 1.5, cases)


def survey(*found: Reacher) -> Survey:
    return Survey(torch="2.13.0", seed=1, budget="6x", cpu_seconds=2.0, interrupted=False, reachers=found)


def test_a_file_keeps_the_campaign_and_the_judged_faults(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    assert read_kept(file) == (None, {})
    cases, one = survey(reacher("aot", captured=True)), FaultResult("capture", 16, withheld(REFS))
    result = msgspec.structs.replace(one, fault=msgspec.structs.replace(one.fault, found=True))
    lines = b"".join(msgspec.json.encode(line) + b"\n" for line in (cases, result))
    file.write_bytes(lines + b'{"type": "Jud')  # cut short
    assert read_kept(file) == (cases, {one.key: result.fault})
    assert file.read_bytes() == lines
    others = (msgspec.structs.replace(one, tries=9), msgspec.structs.replace(one, oracle="agreement"))
    assert all(other.key != one.key for other in others)


@pytest.mark.parametrize("content", ['{"schema": "other"}\n', "[" * 10_000 + "\n"])
def test_another_file_is_one_clear_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "kept.jsonl").write_text(content)
    with pytest.raises(InputError, match=r"kept.*: found .*, expected what `python ci/bench recall --keep` wrote"):
        read_kept(tmp_path / "kept.jsonl")


def test_the_cases_at_a_place_are_noted_in_order() -> None:
    tally = Tally()
    tally.cpu_seconds["export"] = 2.0
    reached = (SiteVisit(REFS, "reshape", "guard_or_false", "False", "same", "Eq(x0, 1)"),)
    outcomes = (StageOutcome("export", "explicit", "ok", "ok", 0.1), StageOutcome("aot", "explicit", "fail", "", 0.1))
    stages = (StageReached("export", reached), StageReached("aot", reached), StageReached("compile", ()))
    reachers = list(reachers_of(CaseResult(0, "d", outcomes, VIEW, reached=stages), tally))
    assert [(one.stage, one.captured, one.cpu_seconds) for one in reachers] == [
        ("export", True, 2.0),
        ("aot", False, 2.0),
    ]
    assert list(survey(*reachers).cases(REFS, 1, 1, captured=False)) == reachers[:1]
    assert list(survey(*reachers).cases(EXPAND, 1, 1, captured=False)) == []


def test_few_programs_with_the_same_expressions_are_called() -> None:
    reachers = survey(
        reacher("fake"),
        *(reacher("aot", captured=True, cases=number) for number in range(5)),
        reacher("aot", captured=True, shape="x0 > 1", cases=9),
    )
    assert [one.cases for one in reachers.cases(REFS, 8, 2, captured=True)] == [0, 1, 9]
    assert [one.cases for one in reachers.cases(REFS, 1, 2, captured=True)] == [0]
    assert list(reachers.cases(EXPAND, 8, 2, captured=True)) == []


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
    words = ("--sites", "2", "--budget", "6x", "-j", "1", "--db", url, "--keep", "kept.jsonl")
    done = bench("recall", *words, "--output", "json=found.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "found.json").read_text())
    (found,) = document["records"]
    again = bench("recall", *words, "--format", "json", folder=tmp_path)
    assert json.loads(again.stdout) == document  # from the folder
    assert (document["schema"], found["found"], found["exact"], found["known_sites"]) == (
        "ddefuzz.bench.recall/4",
        1,
        1,
        2,
    )
    assert "not reached\n    torch/_refs/__init__.py:1" in done.stdout
    assert "no case reached it" in " ".join(done.stdout.split())


def test_a_database_without_sites_is_one_clear_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/empty.db"
    Database.open(url).close()
    done = bench("recall", "--db", url, folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "expected a database with sites" in done.stderr


def test_a_stored_program_that_the_catalogue_does_not_take_any_more_is_no_example() -> None:
    taken, lost = site(REFS, example=VIEW), site(EXPAND, example=VIEW.replace("x.view(-1, 2)", "torch.gone(x)"))
    assert examples_of((taken, lost)) == {REFS: taken}
