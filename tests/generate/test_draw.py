"""Drawing is a pure function of its key and index, and every drawn program is well formed."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings

import pytest
import torch

from ddefuzz.errors import InputError
from ddefuzz.generate.draw import CASE_BYTES, FOCUSED, case, drawn_case, from_bytes, generator_key
from ddefuzz.generate.profiles import PROFILES
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.model import Name, Program, Sequence, names_in
from ddefuzz.program.text import digest, print_program

SEED = 11
CASES = 100


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return [case("default", SEED, index) for index in range(CASES)]


def test_printing_and_parsing_give_the_program_back(programs: list[Program]) -> None:
    for program in programs:
        assert parse(print_program(program), "drawn.py").program == program


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_case_is_the_same_in_any_order_and_in_another_process(programs: list[Program]) -> None:
    indices = list(range(0, CASES, 4))
    random.Random(0).shuffle(indices)
    assert [digest(case("default", SEED, index)) for index in indices] == [digest(programs[i]) for i in indices]
    code = (
        "from ddefuzz.generate.draw import case; from ddefuzz.program.text import digest\n"
        f"print(*(digest(case('default', {SEED}, index)) for index in {indices}))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.split() == [digest(programs[index]) for index in indices]


def test_a_case_does_not_depend_on_what_ran_before() -> None:
    expected = [digest(case("default", SEED, index)) for index in range(20)]
    torch.manual_seed(1234)
    torch.rand(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.var(torch.ones(1))
    case("nn", 3, 7)
    assert [digest(case("default", SEED, index)) for index in range(20)] == expected


def test_drawing_leaves_torch_as_it_was() -> None:
    before = torch.get_num_threads(), torch.is_warn_always_enabled(), torch.get_rng_state().tolist()
    case("default", SEED, 0)
    assert (torch.get_num_threads(), torch.is_warn_always_enabled(), torch.get_rng_state().tolist()) == before


def test_seed_profile_and_index_tell_programs_apart(programs: list[Program]) -> None:
    assert len({digest(program) for program in programs}) >= CASES - 1
    assert digest(case("default", SEED + 1, 0)) != digest(programs[0])
    assert digest(case("slicing", SEED, 0)) != digest(programs[0])


def test_the_key_names_all_that_decides_the_cases() -> None:
    key = generator_key("nn", 5)
    assert torch.__version__ in key
    assert "hypothesis=" in key
    assert key.endswith("profile=nn seed=5")


@pytest.mark.slow
@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_keeps_the_number_of_steps(profile: str) -> None:
    drawn = [drawn_case(profile, SEED, index) for index in range(10)]
    assert all(PROFILES[profile].min_steps <= one.requested <= PROFILES[profile].max_steps for one in drawn)
    # A program may run out of attempts (0.3% do): one in ten is more than that, two would be a change.
    assert sum(one.requested <= len(one.program.steps) <= one.requested + 8 for one in drawn) >= 9


def test_no_step_is_dead(programs: list[Program]) -> None:
    for program in programs:
        read = set().union(names_in(program.returns), *(names_in(step.value) for step in program.steps))
        for step in program.steps:
            assert read.issuperset(step.targets), print_program(program)
        assert read.issuperset(item.name for item in program.inputs)


def test_what_is_returned_is_read_by_no_step(programs: list[Program]) -> None:
    for program in programs:
        tails = program.returns.items if isinstance(program.returns, Sequence) else (program.returns,)
        assert all(isinstance(tail, Name) for tail in tails)
        read = set().union(*(names_in(step.value) for step in program.steps))
        assert read.isdisjoint(names_in(program.returns))


def test_each_step_is_in_the_journal_before_it_runs() -> None:
    told: list[str] = []
    program = case("default", SEED, 3, told.append)
    assert program == case("default", SEED, 3)
    assert len(told) >= len(program.steps)


def test_a_byte_changed_late_keeps_the_steps_before_it() -> None:
    data = bytearray((FOCUSED[0]).to_bytes(2, "big") + random.Random(5).randbytes(CASE_BYTES))
    program = from_bytes("default", bytes(data))
    assert program is not None
    data[2 + 24 * 7 + 20] ^= 0xFF
    changed = from_bytes("default", bytes(data))
    assert changed is not None
    assert changed.steps[:2] == program.steps[:2]


def test_too_few_bytes_are_no_program() -> None:
    assert from_bytes("default", b"\0\0\0") is None


def test_an_unknown_profile_is_a_usage_error() -> None:
    with pytest.raises(InputError, match="found the profile 'nope', expected one of default"):
        case("nope", 0, 0)
