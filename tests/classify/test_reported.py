"""Tests the reported cases: outcome, kind and site of every case and stage, against expected.json for torch 2.13.0."""

from __future__ import annotations

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
