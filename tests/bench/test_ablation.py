"""`ci/bench ablation`: gains from hand-made points, and exports under each optimization."""

from __future__ import annotations

import pytest

from ci.bench.ablation import BASE, OPTIMIZATIONS, Ablation, AblationRow, AblationTask, run_ablation, view
from ddefuzz.show.markdown import markdown


def test_the_gain_of_what_torch_has_is_that_of_its_absence() -> None:
    undone = AblationRow("totals", 80, "fast-comparisons", (2.0, 4.0), (6.0, 8.0))
    patched = AblationRow("totals", 80, "keep-evaluations", (2.0, 4.0), (1.0, 2.0), "graph")
    assert undone.gains == (3.0, 2.0)
    assert patched.gains == (2.0, 2.0)
    text = markdown(view(Ablation("2.13.0", (undone, patched), lacking=("skip-evaluation",))))
    assert "| totals | 80 | fast-comparisons | undone | 7.00 s | 3.00 s | 2.50 (2.00 to 3.00) | equal |" in text
    assert "| totals | 80 | keep-evaluations | patch | 3.00 s | 1.50 s | 2.00 (2.00 to 2.00) |" in text
    assert "differs: graph" in text
    assert "Not in torch 2.13.0: skip-evaluation." in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, one in OPTIMIZATIONS.items() if one.is_there])
def test_an_optimization_changes_no_exported_program(name: str) -> None:
    base, changed = (run_ablation(AblationTask("totals", 5, one)) for one in (BASE, name))
    assert (changed.graph, changed.ranges) == (base.graph, base.ranges)
    assert changed.assertions == base.assertions
