"""What is kept for the sake of a guard site, a case or a row of the tables, gets there with nothing to decide it by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Run, Stage, Subject
from ddefuzz.execute.subject import load_module
from ddefuzz.findings.guard_sites import guard_sites
from ddefuzz.findings.inventory import Inventory, installed
from ddefuzz.findings.ledger import Ledger, reached
from ddefuzz.findings.unreached_sites import KEPT, reason_for

CORPORA = Path(__file__).parents[2] / "corpora"
MODULE = str(CORPORA / "sites" / "cases.py")

EXPECTED: dict[str, dict[Stage, object]] = json.loads((CORPORA / "sites" / "expected.json").read_text())
"""The stages in which a case of the module is replayed."""

Call: TypeAlias = tuple[str, str]
"""A file of torch and the source of a call in it."""

HEADER = "# ddefuzz program v1\n# inputs: "

DRAWN: tuple[tuple[str, tuple[Call, ...]], ...] = (
    (
        'x = normal\ndef program(x: Float32[Tensor, "u0 4"]):\n'
        "    y = torch._refs.flatten(torch.cat((x, x)), 0, 1)\n    return y\n",
        (("torch/_prims/__init__.py", "guard_or_false(shape[idx] == 0)"),),
    ),
    (
        'x = normal\ndef program(x: Float32[Tensor, "3 u0=6"]):\n'
        "    y = torch._refs.flatten(x.narrow(1, 0, 4), 0, 1)\n    return y\n",
        (("torch/_prims/__init__.py", "guard_or_false(valid_op)"),),
    ),
    (
        "x = normal; scale = normal; weight = normal\n"
        'def program(x: Float32[Tensor, "u0=3 u1=4"], scale: Float32[Tensor, "u0=3 1"], '
        'weight: Float32[Tensor, "u1=4"]):\n'
        "    a, b = torch._decomp.decompositions._fused_rms_norm_backward(x, x, [4], scale, weight, [True, True])\n"
        "    return a, b\n",
        (
            ("torch/_decomp/decompositions.py", "guard_or_false(M == 0)"),
            ("torch/_decomp/decompositions.py", "guard_or_false(N == 0)"),
        ),
    ),
    (
        'x = normal\ndef program(x: Float32[Tensor, "u0"]):\n'
        "    y = torch._decomp.decompositions.isin(x, x)\n    return y\n",
        (
            (
                "torch/_decomp/decompositions.py",
                "guard_or_false(test_elements.numel() < 10.0 * pow(elements.numel(), 0.145))",
            ),
        ),
    ),
)
"""Programs as rows of `ops/references.py` are filled, and the calls for which the rows are there."""


COMPILED: tuple[tuple[str, tuple[Call, ...]], ...] = (
    (
        "sum_of_transposed",
        (
            (
                "torch/_functorch/_aot_autograd/graph_compile.py",
                "guard_or_true(ph_arg.stride()[k] != int(real_stride[k]))",
            ),
        ),
    ),
    (
        "pool_rounding_up",
        (
            (
                "torch/_inductor/lowering.py",
                "V.graph.sizevars.guard_or_false(sympy.Ge((x_alt - 1) * stride[i] - x - padding[i], 0))",
            ),
            ("torch/_inductor/lowering.py", "V.graph.sizevars.guard_or_false(sympy.Eq(x_out, x_alt))"),
        ),
    ),
    ("view_by_difference", (("torch/_inductor/fx_passes/joint_graph.py", "guard_or_true(rhs_item != -1)"),)),
)
"""Programs of `corpora/inductor` and the calls for which they are there."""


@pytest.fixture(scope="module")
def torch_calls() -> Inventory:
    return installed()


def calls_reached(calls: Inventory, subject: Subject, stage: Stage) -> set[Call]:
    ledger = Ledger()
    ledger.add([(stage, reached(observe(Run(subject, stage))))], "")
    return {(site.file, site.text) for site in guard_sites(calls.calls, ledger.drain()) if site.listed and site.reached}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "calls"), DRAWN)
@pytest.mark.parametrize("stage", ["fake", "export"])
def test_a_row_of_references_reaches_its_sites(
    text: str, calls: tuple[Call, ...], stage: Stage, torch_calls: Inventory
) -> None:
    assert set(calls) <= calls_reached(torch_calls, ProgramSubject(HEADER + text), stage)


@pytest.mark.parametrize(("case", "stage"), [(case, stage) for case, stages in EXPECTED.items() for stage in stages])
def test_a_kept_case_reaches_its_sites(case: str, stage: Stage, torch_calls: Inventory) -> None:
    (wanted,) = [entry["reaches"] for entry in load_module(MODULE).CASES if entry["id"] == case]
    assert set(wanted) <= calls_reached(torch_calls, CallableSubject(MODULE, case=case), stage)


@pytest.mark.slow
@pytest.mark.parametrize("case", EXPECTED)
def test_eager_accepts_a_kept_case(case: str) -> None:
    assert observe(Run(CallableSubject(MODULE, case=case), "eager")).outcome == "ok"


def test_no_case_is_left_out() -> None:
    assert [entry["id"] for entry in load_module(MODULE).CASES if entry["id"] not in EXPECTED] == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "calls"), COMPILED)
def test_a_program_kept_for_inductor_reaches_its_sites(
    name: str, calls: tuple[Call, ...], torch_calls: Inventory
) -> None:
    program = ProgramSubject((CORPORA / "inductor" / f"{name}.py").read_text())
    assert set(calls) <= calls_reached(torch_calls, program, "inductor")


def test_the_reasons_name_the_corpus_where_it_gets(torch_calls: Inventory) -> None:
    named = {(call.file, call.text) for call in torch_calls.calls if KEPT in reason_for(call)}
    assert named == {call for entry in load_module(MODULE).CASES for call in entry["reaches"]}
