"""Samples of stacks: whose time it is, how it grows, and what speedscope reads."""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from ddefuzz.cost.sampling import CpuTimes, Function, Samples, fit, growing, sampled, speedscope, times_of

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


def test_only_functions_that_grow_faster_than_n_are_rows() -> None:
    points = {n: spent(n, linear=0.1 * n, steep=0.004 * n**2) for n in (2, 4, 8, 16)}
    (row,) = growing(points)
    assert (row.function, row.fit.exponent, row.chain, row.blamed) == ("steep", 2.0, ("torch/a.py:f",), "")


def test_the_caller_that_calls_it_in_a_loop_is_blamed() -> None:
    chain = ("torch/a.py:outer", "torch/a.py:loop", "torch/a.py:through")
    points = {
        n: CpuTimes(
            0.01 * n**2,
            {"torch/b.py:inner": 0.01 * n**2},
            {"torch/b.py:inner": chain},
            {"torch/b.py:inner": n**2, "torch/a.py:through": n**2, "torch/a.py:loop": n, "torch/a.py:outer": 1},
        )
        for n in (2, 4, 8)
    }
    (row,) = growing(points)
    assert (row.function, row.blamed, row.culprit) == ("torch/b.py:inner", "torch/a.py:loop", "torch/a.py:loop")
    (alone,) = growing({n: msgspec.structs.replace(times, calls={}) for n, times in points.items()})
    assert alone.culprit == "torch/b.py:inner"


def test_few_samples_say_nothing() -> None:
    assert growing({n: spent(n, rare=0.0002 * n**2) for n in (2, 4, 8)}) == ()


def test_a_garbage_collection_in_the_largest_export_says_nothing() -> None:
    collected = {2: 0.02, 4: 0.004, 8: 0.008, 16: 0.15}
    assert growing({n: spent(n, linear=0.1 * n, remove=seconds) for n, seconds in collected.items()}) == ()


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
    assert times_of(samples).own == {}  # none of torch


def test_speedscope_gets_frames_once_and_weights_in_seconds() -> None:
    document = json.loads(json.dumps(speedscope(Samples({(USER, EVALUATE): 0.004, (USER,): 0.002}), "export")))
    assert [frame["name"] for frame in document["shared"]["frames"]] == ["forward", "evaluate_expr"]
    (profile,) = document["profiles"]
    assert (profile["samples"], profile["weights"]) == ([[0, 1], [0]], [0.004, 0.002])
    assert profile["endValue"] == 0.006
