"""The profile of programs that capture does what its name says."""

from __future__ import annotations

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.generate.draw import case, with_write
from ddefuzz.generate.profiles import CAPTURES, drawable
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.text import print_program

DRAWS = 20


def test_it_draws_no_op_that_usually_stops_capture() -> None:
    assert not any(spec.stops for spec in drawable(CAPTURES))
    assert any(spec.stops for spec in drawable("default"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", [pytest.param("aot", marks=pytest.mark.long), "export"])
def test_most_of_its_programs_are_captured(stage: Stage) -> None:
    """With the default profile about half are. Of 220 draws aot captured 188 (85%): backward graphs of linear algebra
    guard on sizes. The bound leaves room for the chance in 20 draws.
    """
    texts = [print_program(case(CAPTURES, 7, index)) for index in range(DRAWS)]
    captured = sum(observe(Run(ProgramSubject(text), stage)).outcome == "ok" for text in texts)
    assert captured >= 0.6 * DRAWS


def test_a_program_of_dtensors_has_no_write_at_its_end() -> None:
    """What shares memory with a DTensor is not known."""
    text = """# ddefuzz program v1
# inputs: x = normal, shard0
def program(x: Float32[Tensor, "u0=8 4"]):
    return x.transpose(0, 1)
"""
    program = parse(text, "placed").program
    assert with_write(program, "1") == program
