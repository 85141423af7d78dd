"""What a planted fault does to called programs, by observations made by hand; and in real torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ci.bench.planted import PlantedFault, Programs, Reacher, effect_of
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, SIZE_OBLIVIOUS, Call, CallEnd, Difference, Observation, Run, Semantics
from ddefuzz.findings.database import Database
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.instrument.events import Answer, Constraint, Fault, Frame, Place
from ddefuzz.oracles.program import Trial, TriedRun
from tests.bench.typed_bench import bench

REFS = Place("Python", "torch/_refs/__init__.py", 40)
SAME = Call("2", CallEnd(), CallEnd(), "same")
WRONG = Call("2", CallEnd(), CallEnd(), "differs", (Difference("values", "result", "how"),))
REFUSED = Call("2", CallEnd(), CallEnd("RuntimeError: no"))
HEALTHY = Observation("aot", EXPLICIT, "ok", digest="digest", calls=(SAME,))
OTHER = msgspec.structs.replace(HEALTHY, digest="other", calls=(WRONG,))
ASSERTED = Constraint("assertion", "Eq(u0, 3)", "expect_true", REFS)
TURNED = PlantedFault(REFS, "reshape", Semantics(answers=(Answer(REFS, value=True),)))
CASES = tuple(Reacher(f"program {number}", "aot", captured=True, reached=frozenset(), cpu_seconds=number, cases=number)
              for number in range(3))  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, "equivalent"),
        ({"digest": "other"}, "harmless"),
        ({"calls": (WRONG,)}, "changes"),
        ({"calls": (REFUSED,)}, "changes"),
        ({"calls": (msgspec.structs.replace(WRONG, recompiled=True),)}, "equivalent"),
        ({"outcome": "fail", "calls": ()}, "stops"),
        ({"outcome": "crash", "calls": ()}, "stops"),
    ],
)
def test_the_effect_of_a_fault(changes: dict[str, object], effect: str) -> None:
    assert effect_of(HEALTHY, msgspec.structs.replace(HEALTHY, **changes))[0] == effect


def test_a_fault_that_makes_a_wrong_call_right_does_no_harm() -> None:
    refuses, right = (msgspec.structs.replace(HEALTHY, digest=str(call), calls=(call,)) for call in (REFUSED, SAME))
    assert effect_of(refuses, right) == ("harmless", "")
    assert effect_of(right, refuses)[0] == "changes"


def reported(place: Place) -> Classification:
    frame = Frame(place.file, place.line, "reshape")
    signature = Signature("wrong-result", Site("Python", place.file, "reshape"), "guard_or_false Eq(x0, n)")
    return Classification(Failure("wrong-result", HEALTHY, "how"), signature, "wrong-capture", "agreement", frame)


def programs_of(shown: dict[str, TriedRun]) -> Programs:
    """Programs that show what is given with the fault, and nothing without it."""

    def tester(trial: Trial) -> TriedRun:
        text = trial.run.subject.text  # type: ignore[union-attr]
        return TriedRun(HEALTHY) if trial.run.semantics == EXPLICIT else shown.get(text, TriedRun(HEALTHY))

    return Programs(tester)


def test_the_first_case_that_an_oracle_reports_finds_the_fault() -> None:
    wrong = OTHER
    found = programs_of({"program 1": TriedRun(wrong, (reported(REFS),))}).show(TURNED, "agreement", None, CASES)
    assert (found.effect, found.found, found.exact, found.cases, found.programs) == ("changes", True, True, 1, 2)
    elsewhere = msgspec.structs.replace(REFS, line=41)
    found = programs_of({"program 1": TriedRun(wrong, (reported(elsewhere),))}).show(TURNED, "agreement", None, CASES)
    assert (found.found, found.exact) == (True, False)
    unreported = programs_of({"program 1": TriedRun(wrong)}).show(TURNED, "agreement", None, CASES)
    assert (unreported.effect, unreported.found, unreported.programs) == ("changes", False, 3)
    assert unreported.why == "aot: at size 2: as eager, with the fault values of result differ"


def test_a_fault_that_hangs_is_not_run_with_every_case() -> None:
    hangs = TriedRun(msgspec.structs.replace(HEALTHY, outcome="timeout", reason="stopped after 60 s", calls=()))
    example = SiteRecord("Python", REFS.file, REFS.line, "reshape", "", example="known", stage="aot")
    programs = programs_of(dict.fromkeys(("known", *(case.program for case in CASES)), hangs))
    found = programs.show(TURNED, "agreement", example, CASES)
    assert (found.effect, found.programs, found.timeouts, found.found) == ("stops", 2, 2, False)


def test_a_fault_that_leaves_the_graph_as_it_is_costs_one_capture() -> None:
    ran: list[Run] = []

    def tester(trial: Trial) -> TriedRun:
        ran.append(trial.run)
        return TriedRun(HEALTHY)

    found = Programs(tester).show(TURNED, "agreement", None, CASES[:1])
    assert (found.effect, found.programs) == ("equivalent", 1)
    assert [(run.semantics, run.calls) for run in ran] == [(EXPLICIT, ()), (TURNED.semantics, ())]


def test_what_a_program_shows_without_the_fault_does_not_count() -> None:
    programs = Programs(lambda _: TriedRun(HEALTHY, (reported(REFS),)))
    assert not programs.show(TURNED, "agreement", None, CASES).found


def test_the_known_program_of_a_site_is_counted_apart() -> None:
    example = SiteRecord("Python", REFS.file, REFS.line, "reshape", "", example="known", stage="aot")
    wrong = TriedRun(OTHER, (reported(REFS),))
    found = programs_of({"known": wrong}).show(TURNED, "agreement", example, CASES)
    assert (found.found, found.found_by_example, found.exact, found.effect) == (False, True, True, "changes")


def test_a_dropped_assertion_is_named_by_the_op_that_made_it() -> None:
    user = Frame("<program>", 4, "program", "torch.cat((x, y))", exact=True)
    made = msgspec.structs.replace(ASSERTED, python=(user, Frame(REFS.file, REFS.line, "cat")))
    healthy = TriedRun(msgspec.structs.replace(HEALTHY, constraints=(made,)))
    dropped = PlantedFault(REFS, "", Semantics(faults=(Fault(REFS, "drop assertion"),)))
    for op, exact in (("torch.cat", True), ("torch.stack", False)):
        lacks = Classification(
            Failure("missing-assertion", HEALTHY, "eager refuses"),
            Signature("missing-assertion", Site("op", None, op), "RuntimeError"),
            "wrong-capture",
            "assertions",
        )
        shown = TriedRun(OTHER, (lacks,))
        programs = Programs(lambda trial, shown=shown: healthy if trial.run.semantics == EXPLICIT else shown)  # type: ignore[misc]
        assert programs.show(dropped, "assertions", None, CASES).exact is exact


def test_a_finding_of_the_database_is_not_new() -> None:
    wrong = OTHER
    again, new = reported(msgspec.structs.replace(REFS, file="torch/known.py")), reported(REFS)
    programs = programs_of({"program 1": TriedRun(wrong, (again, new))})
    assert not programs.show(TURNED, "agreement", None, CASES).exact
    programs = replace(programs, known=frozenset({again.signature}))
    assert programs.show(TURNED, "agreement", None, CASES).exact


@pytest.mark.parametrize(("captured_by_both", "effect"), [(True, "changes"), (False, "unreached")])
def test_a_fault_of_the_mechanism_may_stop_what_size_oblivious_semantics_capture(
    captured_by_both: bool, effect: str
) -> None:
    failed = msgspec.structs.replace(HEALTHY, outcome="fail", calls=())

    def tester(trial: Trial) -> TriedRun:
        if trial.run.semantics == SIZE_OBLIVIOUS:
            return TriedRun(HEALTHY if captured_by_both else failed)
        return TriedRun(HEALTHY) if trial.run.semantics == EXPLICIT else TriedRun(failed, (reported(REFS),))

    found = Programs(tester).show(TURNED, "mechanism", None, CASES)
    assert (found.effect, found.found, found.exact) == (effect, captured_by_both, captured_by_both)
    assert Programs(tester).show(TURNED, "agreement", None, CASES).effect == "stops"


def test_a_case_is_compared_with_other_semantics_as_in_a_campaign() -> None:
    """The campaign compares a sample of its programs only, the program of the database is always compared."""
    example = SiteRecord("Python", REFS.file, REFS.line, "reshape", "", example="known", stage="aot")

    def tester(trial: Trial) -> TriedRun:
        if trial.run.semantics != TURNED.semantics or not trial.oracles:
            return TriedRun(OTHER if trial.run.semantics == TURNED.semantics else HEALTHY)
        return TriedRun(OTHER, () if trial.sampled else (reported(REFS),))

    found = Programs(tester).show(TURNED, "mechanism", example, CASES)
    assert (found.found, found.found_by_example) == (False, True)


@pytest.mark.slow
def test_recall_of_called_programs_as_typed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/known.db"
    text = """\
# ddefuzz program v1
# inputs: x = sizes(3, 4, 3)
def program(x: Int64[Tensor, "3"]):
    t0 = torch.bincount(x).float()
    t1 = torch.stack((t0, t0)).unsqueeze(0)
    return torch.bmm(t1, t1.transpose(1, 2))
"""
    place = Place("Python", "torch/_prims_common/__init__.py", 379)
    with Database.open(url) as database:
        known = SiteRecord("Python", place.file, place.line, "", "", {"False": 1}, example=text, stage="aot")
        database.add_sites("2.13.0", [known])
    words = ("--oracle", "specialization", "--sites", "1", "--budget", "1x", "-j", "1", "--stage", "aot", "--db", url)
    done = bench("recall", *words, "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["records"]
    assert found["planted"] == 1
    assert sum(found[name] for name in ("unreached", "equivalent", "harmless", "stops", "changes")) == 1


def test_a_failure_of_another_kind_may_name_another_place() -> None:
    elsewhere = reported(msgspec.structs.replace(REFS, line=41))
    signature = msgspec.structs.replace(elsewhere.signature, kind="lost-assertion")
    other = msgspec.structs.replace(elsewhere, signature=signature)
    tried = programs_of({"program 1": TriedRun(OTHER, (reported(REFS), other))})
    found = tried.show(TURNED, "agreement", None, CASES)
    assert (found.exact, found.elsewhere) == (True, 1)
    tried = programs_of({"program 1": TriedRun(OTHER, (other,))})
    assert not tried.show(TURNED, "agreement", None, CASES).exact
