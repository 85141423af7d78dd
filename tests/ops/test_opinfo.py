"""Tests of the names that samples of OpInfo call, compared with torch's own database."""

from __future__ import annotations

from itertools import islice

import pytest

from ddefuzz.generate import opinfo
from ddefuzz.ops.catalogue import CALLABLES, parse
from ddefuzz.ops.opinfo import OPINFO, TAKES_OUT
from ddefuzz.program.evaluate import resolve
from ddefuzz.program.model import functions_in
from ddefuzz.program.text import print_program

DANGEROUS = ("load", "save", "compile", "export", "jit", "from_file", "map_", "apply_", "numpy", "storage", "_C")


def test_every_name_exists_in_torch() -> None:
    assert [name for name in OPINFO if not callable(resolve(name))] == []


def test_no_name_runs_code_or_accesses_files() -> None:
    assert [name for name in OPINFO if any(name.rpartition(".")[2].startswith(word) for word in DANGEROUS)] == []
    assert {name.split(".")[0] for name in OPINFO} == {"torch", "Tensor"}


def test_no_method_accepts_out() -> None:
    assert TAKES_OUT <= OPINFO
    assert not any(name.startswith("Tensor.") for name in TAKES_OUT)


def test_the_table_has_the_names_that_samples_call() -> None:
    called: set[str] = set()
    for op in opinfo.entries():
        for program in islice(opinfo.samples(op), 2):
            called.update(functions_in(program))
    assert sorted(called - CALLABLES) == []
    assert len(called) > 500


def test_the_table_has_the_forms_of_ops() -> None:
    forms = [form for info in opinfo.entries().values() for form in (info.method_variant, info.inplace_variant) if form]
    names = {name for name in map(opinfo.name_of, forms) if name is not None}
    assert sorted(names - CALLABLES) == []


@pytest.mark.parametrize("op", ["chunk", "add", "nn.functional.pad.constant", "__getitem__", "cauchy", "where", "T"])
def test_a_sample_can_be_read_back(op: str) -> None:
    for program in islice(opinfo.samples(op), 20):
        text = print_program(program)
        assert parse(text, op).program == program
