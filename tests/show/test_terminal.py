"""The layout of pages: names are folded at separators, rows fit, and stacks leave out plumbing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.instrument.events import Frame, Place, RaisedError
from ddefuzz.oracles.capture import classify
from ddefuzz.show.blocks import Block, Facts, TableRow, table
from ddefuzz.show.evidence import MARK, stack_to_site
from ddefuzz.show.terminal import LEAST_PAGE, folded, terminal

SITE = "torch/fx/experimental/symbolic_shapes.py:compute_unbacked_bindings"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("at::native::tensordot", 40, ["at::native::tensordot"]),
        (SITE, 44, ["torch/fx/experimental/symbolic_shapes.py:", "compute_unbacked_bindings"]),
        ("dde at at::native::chunk", 20, ["dde at", "at::native::chunk"]),
        ("seconds: strict 36.1", 19, ["seconds: strict", "36.1"]),
        ("abcdef", 4, ["abcd", "ef"]),
        ("", 4, [""]),
    ],
)
def test_where_text_is_broken(text: str, width: int, lines: list[str]) -> None:
    assert folded(text, width).split("\n") == lines


@settings(database=None, deadline=None, derandomize=True)
@given(st.text("ab:/_. \n", max_size=60), st.integers(1, 30))
def test_folding_fits_and_loses_nothing_but_space(text: str, width: int) -> None:
    lines = folded(text, width).split("\n")
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())


def lines_of(width: int, *rows: TableRow, folding: Sequence[str] = ()) -> list[str]:
    return terminal([table(("name", "site", "n"), rows, right=["n"], folding=folding)], width).splitlines()


LONG, SHORT = (
    TableRow(("one", SITE, "1"), "a detail of the row"),
    TableRow(("three", "user code", "12")),
)


def test_rows_are_aligned_and_their_details_below() -> None:
    assert lines_of(80, LONG, SHORT) == [
        f"name   site{' ' * 64} n",
        "─" * 77,
        f"one    {SITE}   1",
        "    a detail of the row",
        f"three  user code{' ' * 59}12",
    ]


def test_a_column_of_long_text_is_folded() -> None:
    assert lines_of(60, LONG, SHORT, folding=["site"])[2:5] == [
        "one    torch/fx/experimental/symbolic_shapes.py:compute_   1",
        "       unbacked_bindings",
        "    a detail of the row",
    ]


def test_where_folding_is_not_enough_it_goes_into_the_detail() -> None:
    assert lines_of(32, LONG, SHORT, folding=["site"]) == [
        "name    n",
        "─────────",
        "one     1",
        "    torch/fx/experimental/",
        "    symbolic_shapes.py:compute_",
        "    unbacked_bindings · a detail",
        "    of the row",
        "three  12",
        "    user code",
    ]


@pytest.mark.parametrize("width", [-1, 0, 1])
def test_a_narrow_page_has_an_end(width: int) -> None:
    row, titles = TableRow(("ab/cd",) * 7, "a detail"), [f"title {number}" for number in range(7)]
    blocks: list[Block] = [
        table(titles, [row]),
        table(titles, [row], folding=titles),
        Facts((("a long name", "its value"),)),
    ]
    assert terminal(blocks, width) == terminal(blocks, LEAST_PAGE)
    assert folded("ab c", width).split("\n") == ["a", "b", "c"]


def test_names_in_the_first_column_stay_whole() -> None:
    row = TableRow(("data-dependent-output-15ea0d4b19", "depends on data, and more", "1"))
    first, second, *_ = lines_of(58, row)[2:]
    assert first.split() == ["data-dependent-output-15ea0d4b19", *["depends", "on", "data,", "and"], "1"]
    assert second.split() == ["more"]


@settings(database=None, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(*[st.text("ab:/_. ", max_size=40)] * 3), min_size=1, max_size=4),
    st.integers(LEAST_PAGE, 100),
    st.lists(st.sampled_from(["name", "site", "n"]), max_size=3, unique=True),
)
def test_a_table_fits_and_loses_nothing_but_space(
    cells: list[tuple[str, str, str]], width: int, folding: list[str]
) -> None:
    rows = [TableRow(row) for row in cells]
    lines = lines_of(width, *rows, folding=folding)
    assert max(map(len, lines)) <= width
    assert Counter("".join(lines[2:]).replace(" ", "").replace("·", "").replace("─", "")) >= Counter(
        "".join(map("".join, cells)).replace(" ", "")
    )


def test_the_stack_to_a_site_begins_at_the_program_and_marks_the_site() -> None:
    python = (
        Frame("torch/export/_trace.py", 1, "_export", "f()"),
        Frame("<program>", 4, "program", "torch.chunk(\n    x, 2)"),
        Frame("torch/_ops.py", 2, "__call__", "self._op()"),
        Frame("torch/fx/experimental/sym_node.py", 3, "guard_bool", "self.evaluate()"),
    )
    native = tuple(
        Frame("", 0, name)
        for name in (
            "at::_ops::chunk::call(at::Tensor const&, long, long)",
            "at::native::chunk(at::Tensor const&, long, long)",
            "c10::operator==(c10::SymInt const&, int)",
            "c10::SymBool::guard_bool(char const*, long) const",
            "torch::impl::PythonSymNodeImpl::guard_bool(char const*, long)",
        )
    )
    raised = RaisedError("Eq(u0, 0)", "guard_bool", Place("C++", "aten/src/ATen/x.cpp", 1), python, native=native)
    guard = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")
    observation = Observation("export", EXPLICIT, "fail", exceptions=(guard,), raised=raised)
    stack = stack_to_site(Failure("dde", observation, "Eq(u0, 0)"), Site("C++", None, "at::native::chunk"))
    assert stack.lines == (
        "  <program>:4 in program",
        "      torch.chunk( x, 2)",
        f"{MARK} at::native::chunk  (C++)",
    )
    assert stack.left_out == len(python) + len(native) - 2
    assert stack.marked
    stored = stack_to_site(Failure("dde", observation, "Eq(u0, 0)"), Site("Python", "torch/_ops.py", "__call__"))
    assert f"{MARK} torch/_ops.py:2 in __call__" in stored.lines, "the site that was stored is marked"
    gone = stack_to_site(Failure("dde", observation, "Eq(u0, 0)"), Site("Python", "torch/_ops.py", "gone"))
    assert not gone.marked


def test_the_call_of_an_op_that_is_the_site_is_marked() -> None:
    line = Frame("<program>", 4, "program", "x.resize_as_(y)")
    refused = ExceptionInfo("torch._dynamo.exc.Unsupported", "Attempted to call function marked as skipped", (line,))
    observation = Observation("compile", EXPLICIT, "fail", exceptions=(refused,))
    failure = Failure("unsupported", observation, refused.message)
    stack = stack_to_site(failure, classify(failure).signature.site)
    assert stack.lines == (f"{MARK} <program>:4 in program", "      x.resize_as_(y)")
    assert stack.marked
