"""Narrow pages: names break at their joints, rows fit, and the way to a site leaves machinery out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from ddefuzz.cli.frames_page import MARK, way_to_site
from ddefuzz.cli.layout import Detailed, details, folded
from ddefuzz.cli.output import Page, rendered
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.instrument.events import Frame, Place, Raised
from ddefuzz.oracles.failure import Failure

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


def test_rows_are_aligned_and_their_details_below() -> None:
    rows = [Detailed([Text("one"), Text("1")], Text(SITE)), Detailed([Text("three"), Text("12")])]
    shown = rendered(details(["name", "steps"], rows, 48, right=["steps"]), Page(48)).splitlines()
    assert shown == [
        " name   steps",
        " one        1",
        "    torch/fx/experimental/symbolic_shapes.py:",
        "    compute_unbacked_bindings",
        " three     12",
    ]


def test_the_way_to_a_site_begins_at_the_program_and_marks_the_site() -> None:
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
    raised = Raised("Eq(u0, 0)", "guard_bool", Place("C++", "aten/src/ATen/x.cpp", 1), python, native=native)
    guard = ExceptionInfo("torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode", "Could not guard")
    observation = Observation("export", EXPLICIT, "fail", exceptions=(guard,), raised=raised)
    way = way_to_site(Failure("dde", observation, "Eq(u0, 0)"))
    assert way.lines == (
        "  <program>:4 in program",
        "      torch.chunk( x, 2)",
        f"{MARK} at::native::chunk  (C++)",
    )
    assert way.left_out == len(python) + len(native) - 2
    assert way.marked


def test_a_site_that_is_no_frame_is_not_marked() -> None:
    line = Frame("<program>", 4, "program", "x.resize_as_(y)")
    refused = ExceptionInfo("torch._dynamo.exc.Unsupported", "Attempted to call function marked as skipped", (line,))
    observation = Observation("compile", EXPLICIT, "fail", exceptions=(refused,))
    way = way_to_site(Failure("unsupported", observation, refused.message))
    assert way.lines == ("  <program>:4 in program", "      x.resize_as_(y)")
    assert not way.marked
