"""Properties of the minimizer for any program and any predicate. Nothing here captures anything."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.generate.draw import case
from ddefuzz.minimize.eager import inspect
from ddefuzz.minimize.minimizer import PASSES, Pass, minimize, sizes_agree
from ddefuzz.minimize.order import operations, sort_key
from ddefuzz.minimize.rewrite import Facts, Scalar, tidy
from ddefuzz.program.model import Name, Program, functions_in
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.text import parse, print_program
from tests.minimize.reduction import CHAIN, calls, calls_on_unbacked, one_way, program

FEW = settings(database=None, deadline=None, derandomize=True, max_examples=15)

drawn = st.sampled_from([case("default", 11, index) for index in range(40)])
"""Programs as campaigns draw them."""


@st.composite
def problems(draw: st.DrawFn) -> tuple[Program, str]:
    """A program and one of the functions that it calls."""
    one = draw(drawn.filter(lambda made: bool(functions_in(made))))
    return one, draw(st.sampled_from(functions_in(one)))


@FEW
@given(problems())
def test_the_result_is_accepted_valid_never_larger_and_a_fixed_point(problem: tuple[Program, str]) -> None:
    start, function = problem
    accepts = calls(function)
    improvements: list[Program] = []
    found = minimize(start, accepts, inspect=inspect, on_improvement=improvements.append)
    assert accepts(found.program)
    assert inspect(found.program) is not None
    assert sort_key(found.program) <= sort_key(start)
    assert [start, *improvements][-1] == found.program
    keys = [sort_key(one) for one in (start, *improvements)]
    assert keys == sorted(keys, reverse=True)
    again = minimize(found.program, accepts, inspect=inspect)
    assert again.program == found.program


@pytest.mark.slow
@pytest.mark.long
@FEW
@given(problems(), st.randoms(use_true_random=False))
def test_a_single_call_is_found_in_any_order_of_passes(problem: tuple[Program, str], random: Random) -> None:
    start, function = problem
    shuffled = random.sample(PASSES, len(PASSES))
    by_order = minimize(start, calls(function), inspect=inspect, max_attempts=2_000)
    by_chance = minimize(start, calls(function), inspect=inspect, passes=tuple(shuffled), max_attempts=2_000)
    assert operations(by_chance.program) == operations(by_order.program)


@pytest.mark.slow
@pytest.mark.parametrize("one_pass", PASSES, ids=lambda one: one.__name__)
@FEW
@given(start=drawn)
def test_every_pass_is_finite_and_makes_programs_that_print_and_parse(one_pass: Pass, start: Program) -> None:
    values = inspect(start)
    assert values is not None
    for candidate in map(tidy, one_pass(start, Facts(values))):
        if sizes_agree(candidate) and not any(map(fault_of, candidate.inputs)):
            assert parse(print_program(candidate), "<candidate>").program == candidate


@pytest.mark.parametrize("one_pass", PASSES, ids=lambda one: one.__name__)
def test_every_pass_works_without_facts(one_pass: Pass) -> None:
    list(one_pass(program(CHAIN), Facts()))


@FEW
@given(start=drawn)
def test_tidy_is_idempotent_and_no_larger(start: Program) -> None:
    once = tidy(start)
    assert tidy(once) == once
    assert sort_key(once)[:-1] <= sort_key(start)[:-1]
    assert operations(once) == operations(start)


def test_without_facts_only_the_text_is_used() -> None:
    found = one_way(CHAIN, calls("torch.chunk"), look=lambda _: {})
    assert functions_in(found.program) == ("torch.chunk",)


def test_no_candidate_is_tried_twice_or_without_need() -> None:
    tried: list[str] = []

    def accepts(one: Program) -> bool:
        tried.append(print_program(one))
        return calls_on_unbacked("torch.chunk")(one)

    start = program(CHAIN)
    found = minimize(start, accepts, inspect=inspect)
    assert len(tried) == len(set(tried)) == found.attempts
    assert print_program(start) not in tried


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_the_attempts_are_never_exceeded(budget: int) -> None:
    found = one_way(CHAIN, calls("torch.chunk"), max_attempts=budget)
    assert found.attempts <= budget
    assert found.exhausted


def test_programs_that_cannot_run_are_never_tried() -> None:
    def accepts(one: Program) -> bool:
        assert inspect(one) is not None
        return calls("torch.cat")(one)

    one_way(CHAIN, accepts)


def test_an_interrupt_passes_through_and_the_best_so_far_is_known() -> None:
    best: list[Program] = []

    def accepts(one: Program) -> bool:
        if len(best) == 2:
            raise KeyboardInterrupt
        return calls("torch.chunk")(one)

    with pytest.raises(KeyboardInterrupt):
        minimize(program(CHAIN), accepts, inspect=inspect, on_improvement=best.append)
    assert calls("torch.chunk")(best[-1])


def test_facts_show_which_values_depend_on_data() -> None:
    facts = Facts(inspect(program(CHAIN)) or {})
    kept, wide, keep = (facts.tensor(Name(name)) for name in ("kept", "wide", "keep"))
    assert kept is not None
    assert wide is not None
    assert keep is not None
    assert [dim.size for dim in kept.shape] == [4, 4]
    assert [dim.symbol is not None for dim in kept.shape] == [True, False]
    assert wide.shape[0].symbol != kept.shape[0].symbol
    assert keep.shape[0].symbol is None
    assert facts.scalar(Name("rows")) == Scalar(4, kept.shape[0].symbol)


def test_with_other_size_a_program_has_to_run_at_another_size() -> None:
    fixed = program("""
        # inputs: keep = trues(4); x = normal
        def program(keep: Bool[Tensor, "6"], x: Float32[Tensor, "6"]):
            return x[keep].reshape(2, 2)
    """)
    assert inspect(fixed) is not None
    assert inspect(fixed, other_size=True) is None
