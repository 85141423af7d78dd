"""Stages that go on where another one ends: what is theirs, and what is that stage's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.export import ExportedProgram

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CHEAP_RETRACES, RETRACES, ProgramSubject, Run, Semantics, Stage, differs
from ddefuzz.execute.retraces import RETRACE_FUNCTIONS
from ddefuzz.findings.model import title_of
from ddefuzz.instrument.events import Answer
from ddefuzz.oracles.program import Trial, judge_run
from tests.parameters import one_in

SLICED = """\
# ddefuzz program v1
# inputs: n = sizes(2, 4); x = normal()
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "u0 3"]):
    k = n.max().item()
    return x + 1.0, torch.zeros(k)
"""
UNDECIDED = """\
# ddefuzz program v1
# inputs: n = sizes(0, 1); x = normal()
def program(n: Int64[Tensor, "2"], x: Float32[Tensor, "u0"]):
    return torch.take(x, n)
"""


def seen_in(stage: Stage, text: str = SLICED, *, called: bool = True) -> Any:
    return observe(Run(ProgramSubject(text), stage, calls=("example", "0", "1", "2") if called else ()))


def test_every_stage_after_another_has_a_function() -> None:
    assert set(RETRACE_FUNCTIONS) == set(RETRACES)


@pytest.mark.parametrize("stage", CHEAP_RETRACES)
def test_what_follows_a_capture_is_called(stage: Stage) -> None:
    seen = seen_in(stage)
    assert (seen.stage, seen.outcome, seen.reason, seen.forms) == (stage, "ok", "", ())
    assert len(seen.calls) == 4
    assert all(call.agreement == "same" for call in seen.calls)


@pytest.mark.slow
@pytest.mark.parametrize("stage", one_in(2, sorted(RETRACES.keys() - {*CHEAP_RETRACES}, reverse=True)))
def test_what_compiles_is_called_only_if_it_is_asked_for(stage: Stage) -> None:
    assert [call.agreement for call in seen_in(stage).calls] == ["same"] * 4
    assert seen_in(stage, called=False).outcome == "ok"


@pytest.mark.parametrize("stage", CHEAP_RETRACES)
def test_a_failure_of_the_stage_before_is_an_observation_of_that_stage(stage: Stage) -> None:
    begins = RETRACES[stage].begins
    seen, plain = seen_in(stage, UNDECIDED), seen_in(begins, UNDECIDED)
    assert (seen.stage, seen.outcome) == (begins, "fail")
    assert seen.raised == plain.raised


def wrong_at(size: int) -> Callable[[ExportedProgram], Any]:
    """A module of an exported program that is wrong where the first result has so many rows."""
    original = ExportedProgram.module

    def module(program: ExportedProgram, *args: Any, **kwargs: Any) -> Any:
        compute = original(program, *args, **kwargs)
        return lambda *given: tuple(one + (one.shape[0] == size) for one in compute(*given))

    return module


def test_what_export_computes_wrongly_too_is_an_observation_of_export() -> None:
    with patch.object(ExportedProgram, "module", wrong_at(2)):
        seen = seen_in("saved")
    assert seen.stage == "export"
    assert [call.size for call in seen.calls if differs(call)] == ["2"]


def test_a_stage_has_the_calls_that_export_computes_rightly() -> None:
    def decomposed(program: ExportedProgram, *_: Any) -> ExportedProgram:
        compute = wrong_at(1)(program)
        vars(program)["module"] = lambda: lambda *given: tuple(one + (one.shape[0] == 2) for one in compute(*given))
        return program

    with (
        patch.object(ExportedProgram, "run_decompositions", decomposed),
        patch.object(ExportedProgram, "module", wrong_at(1)),
    ):
        seen = seen_in("decompose")
    assert seen.stage == "decompose"
    assert [call.size for call in seen.calls if differs(call)] == ["2"]
    assert "1" not in [call.size for call in seen.calls]


def test_a_failure_after_export_has_an_anchor_and_a_title_of_its_own() -> None:
    def raising(_program: ExportedProgram) -> Any:
        raise KeyError("planted")

    with patch.object(torch.export, "unflatten", raising):
        judged = judge_run(Trial(Run(ProgramSubject(SLICED), "unflatten")))
    (failure,) = judged.failures
    assert failure.signature.anchor.startswith("after export: KeyError")
    title = title_of(failure.signature, failure.cause, failure.failure)
    assert title.startswith("exported, but torch.export.unflatten raises: ")
    assert "after export" not in title


def test_nothing_is_reset_between_the_two_stages() -> None:
    """After `torch._dynamo.reset()`, run_decompositions() of this one raises: `should have been constant`."""
    text = """\
# ddefuzz program v1
# inputs: x = normal(); index = ones()
def program(x: Float32[Tensor, "2"], index: Int64[Tensor, ""]):
    return (x[:index], torch.zeros(index))
"""
    assert seen_in("decompose", text).outcome == "ok"


def test_answers_are_given_to_the_first_part_too_if_it_does_not_end_without_them() -> None:
    """`addmv` with `beta == 0` does not read its first argument: its decomposition then leaves it out."""
    text = """\
# ddefuzz program v1
# inputs: x = normal(); m = normal(); beta = values([0.5])
def program(x: Float32[Tensor, "2"], m: Float32[Tensor, "2 2"], beta: Float32[Tensor, ""]):
    return torch.addmv(x, m, x, beta=beta.item())
"""
    raised = seen_in("aot-decomposed", text).raised
    answers = (Answer(raised.place, value=True, expression=raised.expression),)
    run = Run(ProgramSubject(text), "aot-decomposed", Semantics(answers=answers), calls=("example", "values-numbers"))
    assert [(call.size, call.agreement) for call in observe(run).calls] == [
        ("example", "differs"),
        ("values-numbers", "same"),
    ]
