"""Faults planted in torch's handling of run-time assertions, ranges and replacements: each is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy  # type: ignore[import-untyped]
import torch
from torch._dynamo import output_graph
from torch._dynamo.backends import debugging
from torch.fx import Graph, Node
from torch.fx.passes import runtime_assert
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Run, Stage
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.table import classified
from ddefuzz.program.sizes import CALL_SIZES

CHECKED = """\
# ddefuzz program v1
# inputs: x = normal; mask = trues(3)
def program(x: Float32[Tensor, "6 4"], mask: Bool[Tensor, "6"]):
    kept = x[mask]
    torch._check(kept.shape[0] <= 4)
    return kept.narrow(0, 0, 2) + 1
"""
KEPT = """\
# ddefuzz program v1
# inputs: x = normal; mask = trues(3)
def program(x: Float32[Tensor, "6 4"], mask: Bool[Tensor, "6"]):
    return x[mask] + 1
"""
TRACED = "torch/fx/passes/runtime_assert.py:insert_deferred_runtime_asserts"
ORACLES = ("assertions", "specialization")

Change = Callable[[Graph, list[Node]], None]


def found(text: str, stage: Stage) -> list[str]:
    observation = observe(Run(ProgramSubject(text), stage, calls=CALL_SIZES))
    assert observation.outcome == "ok"
    return [str(one.signature) for one in classified(OracleInput(text, observation), observe, ORACLES)]


def drop(graph: Graph, asserts: list[Node]) -> None:
    for node in asserts:
        graph.erase_node(node)


def repeat(graph: Graph, asserts: list[Node]) -> None:
    for node in asserts[:1]:
        with graph.inserting_after(node):
            graph.node_copy(node, lambda one: one)


def delay(graph: Graph, asserts: list[Node]) -> None:
    output = list(graph.nodes)[-1]
    for node in asserts:
        if not node.meta.get(torch_api.USERS_OWN):
            output.prepend(node)


def silence(graph: Graph, asserts: list[Node]) -> None:
    del graph
    for node in asserts:
        node.args = (node.args[0], "no")


def asserts_of(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is torch.ops.aten._assert_scalar.default]


def plant_in_dynamo(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Change the assertions that the pass has put into dynamo's graph."""
    original = runtime_assert.insert_deferred_runtime_asserts

    def planted(graph: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> None:
        original(graph, *args, **kwargs)
        change(graph.graph, asserts_of(graph.graph))

    monkeypatch.setattr(output_graph, "insert_deferred_runtime_asserts", planted)


@pytest.mark.parametrize("stage", ["export", "compile", "aot"])
@pytest.mark.parametrize("text", [CHECKED, KEPT], ids=["checked", "kept"])
def test_assertions_that_are_as_they_should_be_are_no_alarm(text: str, stage: Stage) -> None:
    assert found(text, stage) == []


@pytest.mark.parametrize(
    ("change", "kind", "condition"),
    [
        (drop, "lost-assertion", "sizes of nonzero"),
        (repeat, "repeated-assertion", "repeated-assertion"),
        (delay, "late-assertion", "sizes of nonzero"),
    ],
)
def test_a_fault_in_the_pass_is_found(
    monkeypatch: pytest.MonkeyPatch, change: Change, kind: str, condition: str
) -> None:
    plant_in_dynamo(monkeypatch, change)
    assert found(CHECKED, "compile") == [f"{kind} at {TRACED} [{condition}]"]


def test_assertions_that_autograd_loses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = debugging.boxed_nop

    def planted(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        drop(graph.graph, asserts_of(graph.graph))
        return original(graph, inputs)

    monkeypatch.setattr(debugging, "boxed_nop", planted)
    (one,) = found(CHECKED, "aot")
    assert one == (
        "lost-assertion at torch/_functorch/_aot_autograd/graph_capture.py:aot_dispatch_base_graph [sizes of nonzero]"
    )


def test_a_message_that_is_dropped_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "checked.py"
    path.write_text(
        "import torch\n"
        "def program(x, mask):\n"
        "    kept = x[mask]\n"
        "    torch._check(kept.shape[0] <= 4, lambda: 'four rows at most')\n"
        "    return kept + 1\n"
        "def make():\n"
        "    return program, (torch.ones(6, 4), torch.arange(6) < 3)\n"
    )
    run = Run(CallableSubject(str(path), name="make"), "compile", calls=("example",))
    healthy = observe(run)
    assert [one.message for one in healthy.constraints] == ["four rows at most"]
    assert classified(OracleInput("", healthy), observe, ORACLES) == ()
    plant_in_dynamo(monkeypatch, silence)
    (one,) = classified(OracleInput("", observe(run)), observe, ORACLES)
    assert str(one.signature) == f"lost-message at {TRACED} [sizes of nonzero]"


def plant_in_symbols(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], None]) -> None:
    """Change what torch assumes of each unbacked symbol as soon as it is made."""
    env = torch.fx.experimental.symbolic_shapes.ShapeEnv
    original = env.create_unbacked_symint

    def planted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        change(self, made.node.expr)
        return made

    monkeypatch.setattr(env, "create_unbacked_symint", planted)


def test_a_range_that_nothing_asserts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_symbols(monkeypatch, lambda env, symbol: env._update_var_to_range(symbol, ValueRanges(2, int_oo)))
    (one,) = found(KEPT, "export")
    assert one.startswith("narrowed at ")
    assert one.endswith("[range x0 >= n]")


def plant_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each symbol that an assertion is about becomes 3."""
    env = torch.fx.experimental.symbolic_shapes.ShapeEnv
    original = env._maybe_guard_rel

    def planted(self: Any, expression: Any) -> None:
        original(self, expression)
        for symbol in expression.free_symbols:
            self._set_replacement(symbol, sympy.Integer(3), "planted")

    monkeypatch.setattr(env, "_maybe_guard_rel", planted)


def test_a_symbol_that_becomes_a_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_a_number(monkeypatch)
    (one,) = found(CHECKED, "compile")
    assert one.startswith("specialized at torch/fx/experimental/symbolic_shapes.py:")
    assert one.endswith(" [replacement self._maybe_guard_rel(expr)]")


BRANCHES = """\
# ddefuzz program v1
# inputs: x = normal; mask = trues(0)
def program(x: Float32[Tensor, "u0=3 1"], mask: Bool[Tensor, ""]):
    return torch.cond(mask, lambda p: p[p > 0], lambda p: p.clone(), (x.sum(0),))
"""


def test_a_range_of_a_branch_is_none_of_the_graph() -> None:
    """Torch captures a branch of `torch.cond` with symbols of the same names in another ShapeEnv."""
    assert found(BRANCHES, "export") == []


OVER_ROWS = """\
# ddefuzz program v1
# inputs: mask = trues(5); x = normal; y = normal
def program(mask: Bool[Tensor, "8"], x: Float32[Tensor, "2 4 6"], y: Float32[Tensor, "1 4 u0=4"]):
    a = torch.nonzero(mask)
    d = y.new_zeros((torch.sym_max(a.shape[0], 1) // 2,))
    return torch._higher_order_ops.map(lambda p, q: p.clone(), x, d)
"""


def test_an_assertion_on_a_symbol_of_another_capture_is_none_of_the_graph() -> None:
    assert found(OVER_ROWS, "export") == []
