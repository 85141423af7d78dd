"""`ddefuzz bench keys` and `ddefuzz bench recompiles`: that each number is there. No time is asserted."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.bench import keys, recompiles
from ddefuzz.cli.bench_compile_counts import keys_text, recompiles_text


def test_keys_are_measured_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "ARGUMENTS", (1, 8))
    monkeypatch.setattr(keys, "DIMS", (2,))
    monkeypatch.setattr(keys, "REPEATS", 1)
    monkeypatch.setattr(keys, "CALLS", 10)
    said: list[str] = []
    found = keys.measure_keys(lambda text, is_last: said.append(text))
    assert [(row.arguments, row.dims) for row in found.rows] == [(1, 2), (8, 2)] * len(keys.POLICIES)
    for row in found.rows:
        assert min(row.fast_ns, row.safe_ns, row.lookup_ns, row.dispatch_ns, row.keyed_ns) > 0
    assert said[-1] == "4 of 4 measurements"
    assert len(keys_text(found).splitlines()) == 6


@pytest.mark.slow
@pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="the counts are those of 2.13")
def test_one_compilation_for_each_size_with_out() -> None:
    found = recompiles.measure_recompiles(10, lambda _text, is_last: None)
    counts = {row.op: (row.compilations, row.compilations_out) for row in found.rows}
    assert counts == {
        "topk": (2, 10),
        "bmm": (2, 2),
        "linalg.cholesky": (2, 10),
        "linalg.norm": (2, 10),
        "max": (2, 10),
    }
    assert len(recompiles_text(found).splitlines()) == 6
