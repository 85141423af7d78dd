"""Samples of stacks: whose time it is, how it grows, and what speedscope reads."""

from __future__ import annotations

import json
import time

import pytest

from ddefuzz.cost.sampling import CpuTimes, Function, Samples, fit, growing, sampled, speedscope, spent_of

USER = Function("model.py", "forward")
EVALUATE = Function("torch/fx/experimental/symbolic_shapes.py", "evaluate_expr")
WRAPPER = Function("torch/fx/experimental/symbolic_shapes.py", "wrapper")
SIMPLIFY = Function("torch/fx/experimental/symbolic_shapes.py", "simplify")
SYMPY = Function("sympy/core/add.py", "flatten")


def test_what_a_function_calls_outside_of_torch_is_its_own_time() -> None:
    inner = (USER, EVALUATE, WRAPPER)
    samples = Samples({(*inner, SIMPLIFY, SYMPY): 0.08, inner: 0.02, (USER,): 0.01})
    assert samples.own() == {SIMPLIFY: 0.08, EVALUATE: 0.02}
    assert samples.chain(SIMPLIFY) == (EVALUATE,)
    assert samples.seconds == pytest.approx(0.11)


def test_a_chain_is_that_of_most_samples() -> None:
    other = Function("torch/_refs/__init__.py", "cat")
    samples = Samples({(EVALUATE, SIMPLIFY): 0.3, (other, SIMPLIFY): 0.4})
    assert samples.chain(SIMPLIFY) == (other,)


def spent(n: int, **own: float) -> CpuTimes:
    return CpuTimes(sum(own.values()), own, dict.fromkeys(own, ("torch/a.py:f",)))


def test_the_function_that_grows_fastest_is_named_before_the_one_that_takes_most() -> None:
    points = {n: spent(n, linear=0.1 * n, steep=0.004 * n**2) for n in (2, 4, 8, 16)}
    first, second = growing(points)
    assert (first.function, first.fit.exponent, first.chain) == ("steep", 2.0, ("torch/a.py:f",))
    assert second.function == "linear"


def test_few_samples_say_nothing() -> None:
    points = {n: spent(n, rare=0.0002 * n**2, linear=0.1 * n) for n in (2, 4, 8)}
    assert [one.function for one in growing(points)] == ["linear"]


def test_two_points_have_no_interval_and_one_no_exponent() -> None:
    two = fit([(5, 5.0), (10, 20.0)])
    assert two is not None
    assert (two.exponent, two.interval) == (2.0, None)
    assert fit([(5, 5.0), (10, 0.0)]) is None


def test_a_busy_function_is_seen_in_real_samples() -> None:
    before = time.process_time()
    with sampled() as samples:
        sum(number * number for number in range(3_000_000))
    spent_here = time.process_time() - before
    assert 0.5 * spent_here < samples.seconds <= spent_here
    here = {function.name for stack in samples.stacks for function in stack}
    assert "test_a_busy_function_is_seen_in_real_samples" in here
    assert spent_of(samples).own == {}  # none of torch


def test_speedscope_gets_frames_once_and_weights_in_seconds() -> None:
    document = json.loads(json.dumps(speedscope(Samples({(USER, EVALUATE): 0.004, (USER,): 0.002}), "export")))
    assert [frame["name"] for frame in document["shared"]["frames"]] == ["forward", "evaluate_expr"]
    (profile,) = document["profiles"]
    assert (profile["samples"], profile["weights"]) == ([[0, 1], [0]], [0.004, 0.002])
    assert profile["endValue"] == 0.006
