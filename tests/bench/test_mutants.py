"""Which mutants count as found and named, the sample's file, and a campaign with a mutant."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import msgspec
import pytest

from ci.bench import mutants
from ci.bench.mutants import SAMPLE, Case, MutantResult, draw, in_turn, names, read_sample, result_of, view, written
from ci.bench.mutation import RULES, Mutant, area_of, mutants_in
from ddefuzz.campaign.tasks import CaseResult, CaseTask
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import LostTask
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.model import Sighting
from ddefuzz.generate.profiles import Again
from tests.bench.typed_bench import bench, text_of

REFS = "torch/_refs/__init__.py"
FEW = {
    "torch/_decomp/decompositions.py",
    "torch/_inductor/codegen/common.py",
    "torch/_inductor/lowering.py",
    "torch/_prims/__init__.py",
    "torch/_functorch/_aot_autograd/runtime_wrappers.py",
}
"""Files with mutants of every class."""

ROLL = Mutant("swapped operands", REFS, "roll", 0, "roll", 10, 10)
START = MutantResult(mutant=ROLL, diff="-a\n+b", limit=60, campaign="a campaign", reachers=3)


def sighting(site: Site, anchor: str = "a") -> Sighting:
    observation = Observation("export", EXPLICIT, "fail")
    failure = Classification(Failure("dde", observation, "u0 < 1"), Signature("dde", site, anchor), "avoidable", "rule")
    return Sighting(classified=failure, verdict="fails", ops=(), torch="2.13.0", program=None)


AT_ROLL = sighting(Site("Python", REFS, "roll"))
ELSEWHERE = sighting(Site("Python", REFS, "flip"))


def case(index: int, *keys: str, stage: str = "export") -> Case:
    task = CaseTask("default", 0, index, (stage,), origin=Again(f"program {index}"))
    return Case(task, keys, 1.0, (7,))


def case_result(*sightings: Sighting, cpu_seconds: float = 1.0) -> CaseResult:
    return CaseResult(0, "", sightings=sightings, cpu_seconds=cpu_seconds)


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        (Site("Python", REFS, "roll"), "function"),
        (Site("Python", "torch/_decomp/decompositions.py", "roll"), ""),
        (Site("op", None, "aten::roll"), "op"),
        (Site("op", None, "torch.roll"), "op"),
        (Site("op", None, "torch.flip"), ""),
        (Site("C++", None, "at::native::roll"), ""),
    ],
)
def test_who_is_named(site: Site, expected: str) -> None:
    assert names(sighting(site), ROLL) == expected


def test_a_failure_that_the_case_has_anyway_does_not_count() -> None:
    def runner(mutant: Mutant | None, task: CaseTask) -> CaseResult | LostTask:
        return case_result(AT_ROLL) if mutant else case_result(AT_ROLL if task.index == 1 else ELSEWHERE)

    cases = [case(0, AT_ROLL.signature.key), case(1)]
    found = result_of(START, cases, runner, lambda: False)
    assert found is not None and (found.found, found.cases) == (False, 2)
    found = result_of(START, [*cases, case(2)], runner, lambda: False)
    assert found is not None
    assert (found.found, found.named, found.kind, found.program) == (True, "function", "dde", "program 2")


def test_the_cases_end_when_the_mutant_is_named_or_the_limit_is_reached() -> None:
    def runner(mutant: Mutant | None, task: CaseTask) -> CaseResult | LostTask:
        return case_result(*[AT_ROLL if task.index == 1 else ELSEWHERE][: mutant is not None], cpu_seconds=25.0)

    found = result_of(START, map(case, range(9)), runner, lambda: False)
    assert found is not None and (found.cases, found.named) == (2, "function")
    found = result_of(START, map(case, range(2, 9)), runner, lambda: False)
    assert found is not None and (found.cases, found.cpu_seconds, found.named) == (3, 75.0, "")
    assert result_of(START, map(case, range(9)), runner, lambda: True) is None


def test_a_worker_that_is_lost_only_with_the_mutant_shows_it() -> None:
    def runner(mutant: Mutant | None, task: CaseTask) -> CaseResult | LostTask:
        return LostTask("crash", "signal 11") if mutant or task.index == 0 else case_result()

    found = result_of(msgspec.structs.replace(START, limit=600), [case(0), case(1)], runner, lambda: False)
    assert found is not None and (found.found, found.kind, found.named) == (True, "crash", "")


def test_unlike_cases_come_in_turn() -> None:
    cases = [case(0), case(1), case(2, stage="aot"), case(3)]
    assert [one.task.index for one in in_turn(cases)] == [0, 2, 1, 3]


@pytest.mark.slow
@pytest.mark.long
def test_a_sample_is_drawn_by_the_seed_one_mutant_a_function_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {file: area for file, area in area_of().items() if file in FEW}
    monkeypatch.setattr(mutants, "area_of", lambda: files)
    monkeypatch.setattr(mutants, "mutants_in", cache(lambda file: tuple(mutants_in(file))))
    drawn = draw(frozenset(), 20, 3)
    assert drawn == draw(frozenset(), 20, 3) != draw(frozenset(), 20, 4)
    assert len({(one.file, one.function) for one in drawn}) == len(drawn) == 20
    assert {one.rule for one in drawn} == set(RULES)
    (path := tmp_path / "sample.tsv").write_text("# seed 3\n" + written(drawn, {drawn[0].name: "a reason"}))
    assert read_sample(path) == [(drawn[0], "a reason"), *((one, "") for one in drawn[1:])]
    path.write_text("swapped operands\ttorch/_refs/__init__.py\tno_such\t0\n")
    with pytest.raises(InputError, match=r"sample.tsv: found 'swapped operands .*', expected a mutant of this torch"):
        read_sample(path)


def test_the_sample_has_mutants_of_every_class() -> None:
    sample = [one for one, _ in read_sample(SAMPLE)]
    assert len(sample) >= 200
    assert {one.rule for one in sample} == set(RULES)


def test_rates_leave_out_equivalent_mutants() -> None:
    done = [
        msgspec.structs.replace(START, found=True, named="function", kind="dde"),
        START,
        msgspec.structs.replace(START, equivalent="the branch is never taken"),
    ]
    shown = text_of(list(view(done, "seed 0")))
    assert "50%" in shown and "100%" in shown and "Missed: 1" in shown


SMALL = """
from ci.bench import mutants, mutation
from tests.in_process import InProcess

mutation.AREAS = {"prims": ("torch/_prims/", "torch/_prims_common/")}
mutants.Pool = InProcess
"""
"""Statements are counted in fewer files, in one process: in all files of torch, each process would take 7 CPU seconds
to number them.
"""


@pytest.mark.slow
@pytest.mark.long
def test_mutants_are_run_on_the_cases_of_a_campaign_and_kept(tmp_path: Path) -> None:
    wanted = ("guard added", "_broadcast_in_dim_meta")
    chosen = next(one for one in mutants_in("torch/_prims/__init__.py") if (one.rule, one.function) == wanted)
    (tmp_path / "sample.tsv").write_text(written([chosen]))
    words = ("mutants", "--budget", "2cpu", "--cpu", "1", "--sample", "sample.tsv", "--keep", "kept", "-j", "1")
    first = bench(*words, "--stage", "export", "--format", "json", folder=tmp_path, before=SMALL)
    assert first.returncode == 0, first.stderr
    record = json.loads(first.stdout)
    assert [one["mutant"]["function"] for one in record["mutants"]] == [chosen.function]
    assert record["cpu_seconds"] >= 2 and not record["interrupted"]
    again = bench(*words, "--stage", "export", "--format", "json", folder=tmp_path, before=SMALL)
    assert json.loads(again.stdout) == record
