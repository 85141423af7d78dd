"""`ci/bench keys` and `ci/bench recompiles`: that each number is there. No time is asserted."""

from __future__ import annotations

import json

import pytest
import torch

from ci.bench import counts
from tests.bench.typed_bench import invoked


def test_keys_are_measured_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ARGUMENTS": (1, 8), "DIMS": (2,), "REPEATS": 1, "CALLS": 10}.items():
        monkeypatch.setattr(counts, name, value)
    rows = json.loads(invoked("keys", "--format", "json"))["rows"]
    assert [(row["arguments"], row["dims"]) for row in rows] == [(1, 2), (8, 2)] * len(counts.POLICIES)
    for row in rows:
        assert min(row[f"{name}_ns"] for name in ("fast", "safe", "lookup", "dispatch", "keyed")) > 0


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the counts are those of 2.13")
def test_one_compilation_for_each_size_with_out() -> None:
    document = json.loads(invoked("recompiles", "--sizes", "10", "--format", "json"))
    found = {row["op"]: (row["compilations"], row["compilations_out"]) for row in document["rows"]}
    assert found == {
        "topk": (2, 10),
        "bmm": (2, 2),
        "linalg.cholesky": (2, 10),
        "linalg.norm": (2, 10),
        "max": (2, 10),
    }
