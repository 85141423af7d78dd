"""How users call the public names: mypy checks it with the tests, and it is never run."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import torch

import ddefuzz
from ddefuzz.program.model import Program


def in_a_script(model: torch.nn.Module) -> None:
    report = ddefuzz.check(model, (torch.ones(4, 2),), stages=["export"], unbacked={0: [0]})
    assert_type(report, ddefuzz.Report)
    assert_type(report.text() + report.html() + report.patch(), str)
    assert_type([problem.kind for problem in report.problems], list[str])
    ddefuzz.check("model.py:make_model", timeout=20)
    ddefuzz.check(3)  # type: ignore[arg-type]
    assert_type(ddefuzz.strategies.programs().example(), Program)
    ddefuzz.check(ddefuzz.strategies.programs().example())
    with ddefuzz.open_database("sqlite:///f.db") as database:
        assert_type(ddefuzz.run(database, budget="1x"), ddefuzz.Summary)
        assert_type(database.findings(), tuple[ddefuzz.Finding, ...])
    assert_type(ddefuzz.check_key("ddefuzz.keys.key:key"), ddefuzz.KeyReport)


def test_with_the_fixture(ddefuzz_check: Callable[..., ddefuzz.Report]) -> None:
    ddefuzz_check(torch.nn.Linear(2, 3), (torch.ones(4, 2),))
