"""A mutated program is valid in eager, differs from the original, and is the same for the same word."""

from __future__ import annotations

import pytest

from ddefuzz.generate.draw import case
from ddefuzz.generate.lockstep import tolerant_eager
from ddefuzz.generate.make import MUTATIONS, mutate
from ddefuzz.generate.profiles import HOW, How, profile_named
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.model import Program
from ddefuzz.program.text import digest, print_program

PARENTS = tuple(case("default", 3, index) for index in range(12))
PROFILE = profile_named("default")


def changed(how: How, word: int) -> list[tuple[Program, Program]]:
    """Parents with what became of them, where something did."""
    pairs = [(parent, mutate(how, parent, PARENTS[place - 1], word, PROFILE)) for place, parent in enumerate(PARENTS)]
    return [(parent, child) for parent, child in pairs if child is not None]


def test_every_mutation_is_in_the_table() -> None:
    assert tuple(MUTATIONS) == HOW


@pytest.mark.parametrize("how", HOW)
def test_a_changed_program_prints_parses_and_runs(how: How) -> None:
    pairs = [pair for word in range(4) for pair in changed(how, word)]
    assert len(pairs) >= 4
    for _, child in pairs:
        assert parse(print_program(child), "<child>").program == child
        with tolerant_eager():
            run_steps(child, materialize(child))


@pytest.mark.parametrize("how", HOW)
def test_it_is_another_program(how: How) -> None:
    pairs = changed(how, 11)
    assert sum(digest(parent) != digest(child) for parent, child in pairs) >= len(pairs) - 2


def test_the_same_word_is_the_same_change() -> None:
    assert changed("insert", 5) == changed("insert", 5)
    assert changed("insert", 5) != changed("insert", 6)


def test_a_program_with_gradients_is_left_alone() -> None:
    text = """\
# ddefuzz program v1
# inputs: x = normal, grad
def program(x: Float32[Tensor, "u0 4"]):
    t0 = torch.sin(x)
    return t0
"""
    program = parse(text, "<program>").program
    assert all(mutate(how, program, program, 1, PROFILE) is None for how in HOW)
