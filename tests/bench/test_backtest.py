"""The backtest: which reported failures are among the findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.bench.backtest import Backtest, BacktestedCase, ShownFailure, view
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import write_findings
from tests.bench.typed_bench import bench, text_of
from tests.findings.arbitrary_findings import CHUNK, START, sighting

MODULE = """
import torch


def chunked(mask, x):
    return torch.chunk(x[mask], 2)


def branched(mask, x):
    return x * 2 if x[mask].shape[0] > 3 else x


def fine(mask, x):
    return x[mask] * 2


def args():
    return torch.tensor([True, True, False, True]), torch.ones(4)


CASES = [
    {"id": "chunked", "category": "split", "title": "chunk of a mask", "fn": chunked, "args": args},
    {"id": "branched", "category": "own", "title": "a branch", "fn": branched, "args": args},
    {"id": "fine", "category": "split", "title": "nothing", "fn": fine, "args": args},
]
"""


def case(
    name: str, category: str, *failures: ShownFailure, user: bool = False, not_judged: tuple[str, ...] = ()
) -> BacktestedCase:
    return BacktestedCase("cases.py", name, category, name, failures, user, not_judged)


def test_the_table_has_a_row_for_each_category_and_lists_what_is_missing() -> None:
    backtest = Backtest(
        torch="2.13.0",
        findings=3,
        source="findings",
        cases=(
            case(
                "a",
                "split",
                ShownFailure("export", "dde", "at::native::chunk", True),
                ShownFailure("compile", "dde", "f", False),
            ),
            case("b", "split", ShownFailure("export", "dde", "torch/_refs/__init__.py:roll", False)),
            case("c", "own", user=True),
            case("d", "own", not_judged=("export: it cannot be built",)),
        ),
    )
    text = text_of([*view(backtest)])
    rows = [line.split() for line in text.splitlines()]
    assert ["own", "2", "1", "0", "0"] in rows
    assert ["split", "2", "0", "2", "1", "50%"] in rows
    assert ["all", "4", "1", "2", "1", "50%"] in rows
    assert ["b", "export", "dde", "torch/_refs/__init__.py:roll"] in rows
    assert "it cannot be built" in text


@pytest.mark.slow
def test_cases_are_observed_and_found(tmp_path: Path) -> None:
    (tmp_path / "cases.py").write_text(MODULE)
    with Database.open(f"sqlite:///{tmp_path}/known.db") as database:
        database.record(sighting(CHUNK), START)
        write_findings(database.findings(), tmp_path / "findings")
    done = bench("backtest", "cases.py", "--stage", "export", "-j", "1", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    seen = {one["id"]: ([failure["is_known"] for failure in one["failures"]], one["user"]) for one in document["cases"]}
    assert seen == {"chunked": ([True], False), "branched": ([], True), "fine": ([], False)}
    again = bench("backtest", "cases.py", "--db", "sqlite:///known.db", "--stage", "export", folder=tmp_path)
    assert "sqlite:///known.db" in " ".join(again.stdout.split())
    refused = bench("backtest", "findings/../none.py", folder=tmp_path)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (2, 1)
