"""Tests the reported cases: outcome, kind and site of every case and stage, against expected.json for torch 2.13.0."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from ddefuzz.classify.failure import Kind
from ddefuzz.classify.signature import Site
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CallableSubject, Run, Stage
from ddefuzz.oracles.capture import classify, judge

FOLDER = Path(__file__).parents[2] / "corpora" / "reported"
SECONDS = 120.0

pytestmark = pytest.mark.skipif(
    not torch.__version__.startswith("2.13.0"), reason=f"expected.json is of torch 2.13.0, this is {torch.__version__}"
)


class Expected(msgspec.Struct, frozen=True):
    outcome: str
    kind: Kind | None = None
    expression: str | None = None
    site: Site | None = None


EXPECTED = msgspec.json.decode((FOLDER / "expected.json").read_bytes(), type=dict[str, dict[Stage, Expected]])


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as pool:
        yield pool


def test_no_case_was_dropped() -> None:
    assert len(EXPECTED) == 66
    assert {len(stages) for stages in EXPECTED.values()} == {3}


PLAIN = """
import importlib.util, json, sys, warnings
import torch, torch._dynamo
from torch._dynamo.decorators import mark_unbacked

class Function(torch.nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call
    def forward(self, *args):
        return self.call(*args)

class Done(BaseException):
    pass

def backend(graph, inputs):
    def compiled(*args):
        raise Done
    return compiled

warnings.simplefilter("ignore")
torch._dynamo.config.capture_scalar_outputs = torch._dynamo.config.capture_dynamic_output_shape_ops = True
spec = importlib.util.spec_from_file_location("cases", sys.argv[1])
cases = importlib.util.module_from_spec(spec)
sys.modules["cases"] = cases
spec.loader.exec_module(cases)
outcomes = {}
for case in cases.CASES[:: int(sys.argv[2])]:
    for stage in ("export", "export-strict", "compile"):
        torch._dynamo.reset()
        torch.manual_seed(0)
        call, args = case["fn"], tuple(case["args"]())
        call = call() if isinstance(call, type) else call
        module = call if isinstance(call, torch.nn.Module) else Function(call)
        shapes = case["dynamic_shapes"]
        shapes = None if shapes is None else tuple(shapes(torch.export.Dim.DYNAMIC))
        if shapes is not None and module is not call:
            shapes = (shapes,)
        if case["unbacked"] and stage == "export":
            continue  # there are no unbacked input dims in non-strict export
        for arg, dims in (case["unbacked"] or {}).items():
            for dim in dims:
                mark_unbacked(args[arg], dim)
        try:
            if stage == "compile":
                torch.compile(call, backend=backend, fullgraph=True)(*args)
            else:
                torch.export.export(module, args, dynamic_shapes=shapes, strict=stage == "export-strict")
            outcome = "ok"
        except Done:
            outcome = "ok"
        except Exception:
            outcome = "fail"
        outcomes[f"{case['id']} {stage}"] = outcome
print(json.dumps(outcomes))
"""
"""Plain calls, as a user would write them, in a process without ddefuzz."""


@pytest.mark.slow
@pytest.mark.long
def test_what_is_expected_is_what_plain_calls_do(request: pytest.FixtureRequest) -> None:
    """A fourth of the cases by default, all with `--all-scripts`."""
    step = 1 if request.config.getoption("--all-scripts") else 4
    command = [sys.executable, "-c", PLAIN, str(FOLDER / "cases.py"), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    plain = json.loads(done.stdout.splitlines()[-1])
    assert len(plain) > 150 / step
    expected = {f"{case} {stage}": one.outcome for case, stages in EXPECTED.items() for stage, one in stages.items()}
    assert plain == {name: expected[name] for name in plain}


@pytest.mark.slow
@pytest.mark.parametrize("case", EXPECTED)
def test_a_reported_case_does_what_is_expected(case: str, pool: Pool) -> None:
    found = {}
    for stage in EXPECTED[case]:
        observation = pool.observe(Run(CallableSubject(str(FOLDER / "cases.py"), case=case), stage), SECONDS)
        assert observation.outcome in ("ok", "fail"), observation.reason
        failures = judge([observation])
        if not failures:
            found[stage] = Expected("ok")
            continue
        raised = observation.raised
        expression = raised.expression if raised is not None else None
        signature = classify(failures[0]).signature
        site = signature.site if signature.kind == "dde" else None
        found[stage] = Expected("fail", signature.kind, expression, site)
    assert found == EXPECTED[case]
