"""Properties of drawn programs: long enough, on unbacked sizes, valid, and varied."""

from __future__ import annotations

import msgspec
import pytest

from ci.bench.generation import GenerationRecord, measure_generation, skeleton, view
from ddefuzz.ops.catalogue import DRAWN, parse
from ddefuzz.program.model import Program
from tests.bench.typed_bench import text_of


@pytest.fixture(scope="module")
def record() -> GenerationRecord:
    return measure_generation(300, 3)


def test_the_targets_are_met(record: GenerationRecord) -> None:
    assert record.kept_and_carried >= 0.8
    assert record.valid >= 0.9
    assert record.returned_differ >= 0.8
    assert record.new_skeletons >= 0.6


def test_every_callable_is_counted_once(record: GenerationRecord) -> None:
    assert record.callables_drawn + len(record.callables_never_drawn) == len(DRAWN)


def test_the_record_goes_over_a_wire(record: GenerationRecord) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record), type=GenerationRecord) == record


def test_each_number_is_defined_in_a_line(record: GenerationRecord) -> None:
    assert "target 80%" in text_of(list(view(record)))


def test_the_share_that_is_captured_is_given_by_profile(record: GenerationRecord) -> None:
    measured = msgspec.structs.replace(record, captured={"captures": {"aot": 0.915, "export": 0.92}})
    page = text_of(list(view(measured)))
    assert "91.5%  of profile captures are captured in aot; target 90%" in page
    assert "92.0%  of profile captures are captured in export; target 90%" in page


def program(body: str) -> Program:
    text = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0 4"]):\n{body}'
    return parse(text, "case.py").program


def test_a_skeleton_is_ops_and_data_flow_without_numbers() -> None:
    one = program("    a = torch.roll(x, 1, 0)\n    b = torch.chunk(a, 2)\n    return b\n")
    same = program("    y = torch.roll(x, 3, 1)\n    z = torch.chunk(y, 1)\n    return (y, z)\n")
    other = program("    a = torch.roll(x, 1, 0)\n    b = torch.chunk(x, 2)\n    return (a, b)\n")
    assert skeleton(one) == skeleton(same)
    assert skeleton(one) != skeleton(other)
