"""The inductor stage ends at the generated code: no compiler, no files, no cache. A called program is compiled."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import sympy  # type: ignore[import-untyped]
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


TANH = "    return torch.tanh(x)"
RESHAPE = "    return torch.relu(x).reshape(x.shape[1], x.shape[0]) + 1"


def confuse_sizes(patch: pytest.MonkeyPatch) -> None:
    """Inductor thinks to know that two sizes are equal."""
    allocator = importlib.import_module("torch._inductor.sizevars").SizeVarAllocator
    original = allocator.statically_known_true

    def known(self: object, expr: sympy.Basic) -> bool:
        return (isinstance(expr, sympy.Eq) and all(one.is_Symbol for one in expr.args)) or original(self, expr)

    patch.setattr(allocator, "statically_known_true", known)


def exchange_lowerings(patch: pytest.MonkeyPatch) -> None:
    """Inductor's code for tanh is that for sigmoid."""
    lowerings = importlib.import_module("torch._inductor.lowering").lowerings
    patch.setitem(lowerings, torch.ops.aten.tanh.default, lowerings[torch.ops.aten.sigmoid.default])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "line", "blamed"),
    [
        pytest.param(
            exchange_lowerings,
            TANH,
            "torch/_inductor/lowering.py:make_pointwise [lowerings aten.tanh.default]",
            marks=pytest.mark.long,
        ),
        (confuse_sizes, RESHAPE, "torch/_inductor/ir.py:View.create [answered True]"),
    ],
)
def test_the_part_of_inductor_that_is_wrong_is_blamed(
    plant: Callable[[pytest.MonkeyPatch], None], line: str, blamed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    text = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0=3 u1=4"]):\n{line}\n'
    names = ("capture", "agreement")
    (found,) = judge_run(Trial(Run(ProgramSubject(text), "inductor", calls=("example",)), names)).failures
    assert str(found.signature) == f"wrong-result at {blamed}"
    assert found.failure.evidence.startswith("at size example: ")
