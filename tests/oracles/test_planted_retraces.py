"""Faults in what follows an export, planted in torch: the program is exported and called right, and then is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.export import ExportedProgram

from ddefuzz.classify.failure import Kind
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.findings.model import title_of
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.oracles.table import NAMES
from ddefuzz.program.sizes import CALL_SIZES
from tests.parameters import one_in

PROGRAM = """\
# ddefuzz program v1
# inputs: x = normal(); y = normal(); n = sizes(2, 4)
def program(x: Float32[Tensor, "u0 3"], y: Float32[Tensor, "3"], n: Int64[Tensor, "2"]):
    a = n[0].item()
    torch._check(a <= 3)
    scaled = torch.nn.functional.hardsigmoid(x)
    return scaled + y, torch.zeros(a)
"""

Patch = pytest.MonkeyPatch


def wrong_at_two(patch: Patch) -> None:
    """A decomposition is wrong if a dim has the size 2."""
    tables = torch.export.exported_program.default_decompositions
    hardsigmoid = torch.ops.aten.hardsigmoid.default

    def wrong(x: torch.Tensor) -> torch.Tensor:
        extra: int = torch.sym_ite(x.shape[0] == 2, 1, 0)  # type: ignore[no-untyped-call]
        return torch.clamp(torch.clamp(x + 3, min=0), max=6) / 6 + extra

    patch.setattr(torch.export.exported_program, "default_decompositions", lambda: {**tables(), hardsigmoid: wrong})


def loaded_without_assertions(patch: Patch) -> None:
    """The serializer drops the run-time assertions of a graph."""
    load = torch.export.load

    def without(file: Any) -> ExportedProgram:
        program = load(file)
        graph = program.graph_module.graph
        for node in [one for one in graph.nodes if one.target is torch_api.ASSERT_SCALAR.get()]:
            graph.erase_node(node)
        program.graph_module.recompile()
        return program

    patch.setattr(torch.export, "load", without)


def loaded_with_another_constant(patch: Patch) -> None:
    """The serializer stores another scalar."""
    load = torch.export.load

    def changed(file: Any) -> ExportedProgram:
        program = load(file)
        for node in program.graph_module.graph.nodes:
            if node.target is torch.ops.aten.zeros.default:
                node.target = torch.ops.aten.ones.default
        program.graph_module.recompile()
        return program

    patch.setattr(torch.export, "load", changed)


def unflattened_without_an_input(patch: Patch) -> None:
    """An input of an unflattened module is always that of its first call."""
    unflatten = torch.export.unflatten

    def losing(program: ExportedProgram) -> Callable[..., Any]:
        module, first = unflatten(program), list[torch.Tensor]()

        def call(x: torch.Tensor, y: torch.Tensor, *others: torch.Tensor) -> Any:
            first.append(torch.zeros_like(y))
            return module(x, first[0], *others)

        return call

    patch.setattr(torch.export, "unflatten", losing)


def unflattened_without_a_symbol(patch: Patch) -> None:
    """The binding of a symbol is lost on the way."""

    def losing(_program: ExportedProgram) -> Any:
        raise KeyError("u1")

    patch.setattr(torch.export, "unflatten", losing)


def exported_again_as_the_example(patch: Patch) -> None:
    """The second export makes a size that data decide the one of the example."""
    export = torch.export.export

    def fixing(module: torch.nn.Module, args: Any, *rest: Any, **how: Any) -> ExportedProgram:
        if not isinstance(module, torch.fx.GraphModule):
            return export(module, args, *rest, **how)

        class Fixed(torch.nn.Module):
            def forward(self, x: Any, y: Any, n: Any, mask: Any) -> Any:
                return module(x, y, n, torch.ones(mask.shape, dtype=torch.bool))

        return export(Fixed(), args, *rest, **how)

    patch.setattr(torch.export, "export", fixing)


class Fault(NamedTuple):
    plant: Callable[[Patch], None]
    stage: Stage
    kind: Kind
    says: str
    site: str


FAULTS = (
    Fault(wrong_at_two, "decompose", "wrong-result", "wrong after run_decompositions()", "hardsigmoid"),
    Fault(loaded_without_assertions, "saved", "missing-assertion", "wrong after torch.export.save and load", "_check"),
    Fault(loaded_with_another_constant, "saved", "wrong-result", "wrong after torch.export.save and load", "zeros"),
    Fault(unflattened_without_an_input, "unflatten", "wrong-result", "wrong after torch.export.unflatten", "add"),
    Fault(unflattened_without_a_symbol, "unflatten", "internal-error", "torch.export.unflatten raises", "KeyError"),
    Fault(exported_again_as_the_example, "reexport", "wrong-result", "wrong after export of the", "hardsigmoid"),
)


@pytest.mark.slow
@pytest.mark.parametrize("fault", one_in(2, FAULTS), ids=lambda fault: fault.plant.__name__)
def test_a_fault_after_export_is_found_and_named(fault: Fault, monkeypatch: Patch) -> None:
    run = Run(ProgramSubject(PROGRAM), fault.stage, calls=CALL_SIZES)
    healthy = judge_run(Trial(run, NAMES))
    assert (healthy.observation.stage, healthy.observation.outcome, healthy.failures) == (fault.stage, "ok", ())
    fault.plant(monkeypatch)
    (found,) = judge_run(Trial(run, NAMES)).failures
    assert found.failure.kind == fault.kind
    title = title_of(found.signature, found.cause, found.failure)
    assert title.startswith(f"exported, but {fault.says}"), title
    assert fault.site in title, title
    assert not judge_run(Trial(Run(ProgramSubject(PROGRAM), "export", calls=CALL_SIZES), NAMES)).failures
