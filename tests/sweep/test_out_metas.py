"""Counts of compilations with out=, under a change of torch in memory."""

from __future__ import annotations

import pytest

from ddefuzz.show.markdown import markdown
from ddefuzz.sweep.recompile import (
    OpRecompilations,
    RecompileTask,
    SequenceCount,
    document,
    recompiles_text,
    recompiles_view,
    sizes_text,
)
from ddefuzz.sweep.recompile_worker import run_recompile

ROW = SequenceCount(
    "topk", True, True, (5, 6, 7), 3, 1, "Eq(s77, 5)", "f", "torch", ((5, 6, 7),), form="out", with_fix=1
)


def test_consecutive_sizes_are_a_range() -> None:
    assert sizes_text(range(5, 105)) == "5 to 104"
    assert sizes_text((5, 7, 9, 11)) == "5, 7, 9, 11"


def test_the_count_with_the_change_is_shown() -> None:
    made = document("2.13.0", (5, 6, 7), [OpRecompilations("topk", (ROW,))], interrupted=False)
    assert "(with a meta for out=: 1); one graph is right for 5 to 7" in recompiles_text(made)
    assert "| topk | dynamic=True | 3 | 1 | 1 | `f` |" in markdown(recompiles_view(made))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["topk", "inner", "linalg.cholesky"])
def test_with_a_meta_for_out_an_op_compiles_once(op: str) -> None:
    task = RecompileTask(op, (5, 6, 7, 8), ("dynamic",), ("out",), with_fix=True)
    (row,) = run_recompile(task).rows
    assert (row.compilations, row.allowed, row.with_fix) == (4, 1, 1)
