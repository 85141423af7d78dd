"""A few ops swept on real torch, and upstream's own test on them."""

from __future__ import annotations

import pytest

from ddefuzz.generate import opinfo
from ddefuzz.generate.make import spread
from ddefuzz.generate.variants import variants
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.text import digest, print_program
from ddefuzz.sweep.tasks import Caps, DescribeTask, SweepTask, UpstreamTask, describe, run_sweep, run_upstream
from ddefuzz.sweep.worker import forward_of

FEW = Caps(full=1, some=1, samples=2, others=0, confirmed=1)


@pytest.mark.slow
def test_the_workers_say_what_there_is() -> None:
    answer = describe(DescribeTask(upstream=True))
    assert len(answer.entries) >= 560
    assert {"chunk", "linalg.lstsq.grad_oriented"} <= set(answer.listed)
    assert "arange" in answer.skipped
    assert describe(DescribeTask()).listed == ()


def test_an_op_that_fails() -> None:
    swept = run_sweep(SweepTask("chunk", "opinfo", 0, FEW)).swept
    assert (swept.explicit, swept.size_oblivious, swept.calls) == ("dde", "dde", ("torch.chunk",))
    (failed,) = swept.failures
    assert str(failed.signature.site) == "at::native::chunk"
    assert "all" in failed.forms
    assert "static" not in failed.forms
    assert failed.confirmed[0].signature == str(failed.signature)
    assert parse(failed.program, "minimal").program.inputs


def test_an_op_that_traces() -> None:
    result = run_sweep(SweepTask("flip", "opinfo", 0, FEW))
    assert (result.swept.explicit, result.swept.failures, result.sightings) == ("ok", (), ())
    assert result.swept.runs > result.swept.samples > 0


@pytest.mark.slow
def test_an_op_of_dtensors_fails_with_some_placements() -> None:
    result = run_sweep(SweepTask("mean", "opinfo", 0, Caps(placed=6, confirmed=1)))
    (failed,) = result.swept.failures
    assert str(failed.signature.site) == "torch/distributed/tensor/_ops/_math_ops.py:common_reduction_strategy"
    assert "replicate" not in failed.forms
    assert {"shard0", "shard1"} & set(failed.forms)
    assert failed.stages == ("compile",)
    assert parse(failed.program, "minimal").program.inputs[0].layout in failed.forms
    assert {sighting.signature for sighting in result.sightings} == {failed.signature}


@pytest.mark.slow
def test_what_fails_at_static_sizes_too_is_not_about_unbacked_ones() -> None:
    """DTensor computes the offset of a shard with plain numbers: torch/distributed/tensor/_utils.py."""
    swept = run_sweep(SweepTask("argmin", "opinfo", 0, Caps(placed=2, confirmed=1))).swept
    assert (swept.failures, swept.explicit) == ((), "ok")
    assert swept.dropped["fails at static sizes, too"] > 0


@pytest.mark.slow
def test_a_rescue_has_its_place() -> None:
    result = run_sweep(SweepTask("flip", "opinfo", 0, Caps(full=1, some=1, samples=4, others=0)))
    assert (result.swept.explicit, result.swept.size_oblivious) == ("ok", "dde")
    assert result.swept.rescued
    assert {f"{record.file}:{record.line}" for record in result.sites} >= set(result.swept.rescued)


def test_an_op_of_the_catalogue() -> None:
    swept = run_sweep(SweepTask("torch.chunk(x, k, d)", "catalogue", 0, FEW)).swept
    assert swept.explicit == "dde"
    assert "torch.chunk" in swept.calls


@pytest.mark.slow
def test_what_ended_a_worker_is_left_out() -> None:
    whole = run_sweep(SweepTask("flip", "opinfo", 0, FEW)).swept
    first = next(iter(variants(spread(opinfo.samples("flip"))[0]))).program

    assert run_sweep(SweepTask("flip", "opinfo", 0, FEW, (digest(first),))).swept.runs == whole.runs - 1


def test_the_same_every_time() -> None:
    task = SweepTask("diff", "opinfo", 0, FEW)
    first, second = run_sweep(task).swept, run_sweep(task).swept
    assert first.failures == second.failures
    assert (first.runs, first.sites, first.rescued) == (second.runs, second.sites, second.rescued)


def test_the_forward_of_a_backward_form() -> None:
    text = """# ddefuzz program v1
# inputs: x0 = normal
def program(x0: Float32[Tensor, "4"]):
    t0 = torch.sort(x0)
    return t0
"""
    backward = [variant.program for variant in variants(parse(text, "p").program) if variant.name == "backward"]
    shown = [print_program(forward_of(program)).splitlines()[-2:] for program in backward]
    assert shown == [["    t0 = torch.sort(x0)", "    return t0"]] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "outcome", "kind"),
    [("chunk", "fail", "dde"), ("cauchy", "fail", "unsupported"), ("flip", "ok", ""), ("zeros", "no-sample", "")],
)
def test_upstreams_own_test(op: str, outcome: str, kind: str) -> None:
    result = run_upstream(UpstreamTask(op, samples=3))
    assert (result.outcome, result.kind) == (outcome, kind)


@pytest.mark.slow
def test_captured_samples_are_called() -> None:
    swept = run_sweep(SweepTask("flip", "opinfo", 0, FEW, oracles=NAMES)).swept
    assert swept.called == 2
    assert swept.wrong == ()
    assert run_sweep(SweepTask("flip", "opinfo", 0, FEW)).swept.called == 0


def test_a_captured_sample_that_is_wrong_is_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._export.utils.insert_deferred_runtime_asserts", lambda *_, **__: None)
    result = run_sweep(SweepTask("torch._check(a != 1)", "catalogue", 0, FEW, oracles=("assertions",)))
    assert {one.signature.kind for one in result.swept.wrong} == {"lost-assertion"}
    assert {one.signature for one in result.sightings} == {one.signature for one in result.swept.wrong}
    assert result.swept.explicit == "ok"
