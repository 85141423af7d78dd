"""The inductor stage ends at the generated code: no compiler, no files, no cache. A called program is compiled."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

import pytest
import torch

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Semantics
from ddefuzz.instrument.events import Place
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.program import Trial, judge_run

CASES = sorted((Path(__file__).parents[2] / "corpora" / "inductor").glob("*.py"))


CAUGHT = "compare_sizes"
"""The function whose three sites torch guards itself: `ir.View.dynamic_reshape_indexer` catches their errors."""


def run(text: str, *without: Place) -> Observation:
    return observe(Run(ProgramSubject(text), "inductor", Semantics("explicit", without)))


def places(seen: Observation) -> dict[Place, str]:
    """Inductor's own sites, each with the function that asked."""
    return {g.place: g.function for g in seen.guards if g.place.file.startswith("torch/_inductor/")}


@pytest.fixture(scope="module")
def reached() -> dict[Place, tuple[str, str]]:
    """Every site of inductor's that the corpus reaches: its function, and the first program that does."""
    found: dict[Place, tuple[str, str]] = {}
    for path in CASES:
        for place, function in places(run(path.read_text())).items():
            found.setdefault(place, (function, path.read_text()))
    return found


@pytest.mark.slow
def test_the_corpus_reaches_inductors_sites(reached: dict[Place, tuple[str, str]]) -> None:
    assert len(reached) >= 25


@pytest.mark.slow
def test_a_fault_planted_in_inductor_is_blamed_on_its_site(reached: dict[Place, tuple[str, str]]) -> None:
    blamed = {}
    uncaught = {place: text for place, (function, text) in reached.items() if function != CAUGHT}
    assert len(uncaught) == len(reached) - 3
    for place, text in uncaught.items():
        seen = run(text, place)
        (failure,) = judge([seen])
        frame = classify(failure).frame
        assert seen.raised is not None
        assert seen.raised.withheld
        blamed[place] = frame and (frame.file, frame.line)
    assert blamed == {place: (place.file, place.line) for place in uncaught}


def test_the_same_program_reaches_the_same_sites_again() -> None:
    text = CASES[0].read_text()
    first = run(text)
    assert first.guards
    assert run(text).guards == first.guards


def test_no_compiler_runs_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **_: object) -> None:
        raise AssertionError(f"started {args}")

    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert run(CASES[0].read_text()).outcome == "ok"
    assert [path for _, _, files in os.walk(tmp_path) for path in files] == []


@pytest.mark.slow
def test_a_wrong_lowering_is_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    monkeypatch.setitem(lowerings, torch.ops.aten.tanh.default, lowerings[torch.ops.aten.sigmoid.default])
    text = (
        "# ddefuzz program v1\n# inputs: x = normal\n"
        'def program(x: Float32[Tensor, "u0=3 4"]):\n    return torch.tanh(x)\n'
    )
    names = ("capture", "agreement")
    (found,) = judge_run(Trial(Run(ProgramSubject(text), "inductor", calls=("example", "0")), names)).failures
    assert (found.signature.kind, str(found.signature.site)) == ("wrong-result", "torch.tanh")
    assert found.failure.evidence.startswith("at size example: values of result")
