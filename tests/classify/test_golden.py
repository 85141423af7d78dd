"""Raw failure in, signature out: every golden file, and every row of every table used by one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ddefuzz.classify import machinery
from ddefuzz.classify.cause import RULES
from ddefuzz.classify.classify import Classified, classify
from ddefuzz.classify.cxx import asking, function_name
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.execute.protocol import Observation, Stage
from ddefuzz.oracles.capture import judge

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))

STAGES_DIFFER = {
    "branch-on-a-tensor": "dynamo breaks the graph before anybody asks for the truth of the tensor",
    "iterate": "dynamo asks for the length before it would call unbind",
    "one-hot": "dynamo refuses one_hot without num_classes",
    "skipped-function": "dynamo does not enter torch.ao",
}
"""Golden cases that are different failures in different stages."""


UNSEEN = {"c10::SymInt": "c10::SymInt::guard_int, as SymFloat's; no op of torch 2.13 was found that calls it itself"}
"""Rows of C++ machinery that no golden file needs."""


class Expected(msgspec.Struct, frozen=True):
    signature: Signature
    cause: Cause
    rule: str
    observation: Observation


class Golden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: str
    torch: str
    why: str
    failures: dict[Stage, Expected]


class Case(NamedTuple):
    id: str
    stage: Stage
    expected: Expected


@cache
def read(path: Path) -> Golden:
    return msgspec.json.decode(path.read_bytes(), type=Golden)


def cases() -> list[Case]:
    return [Case(path.stem, stage, expected) for path in GOLDEN for stage, expected in read(path).failures.items()]


def reclassified(observation: Observation) -> Classified:
    (failure,) = judge([observation])
    return classify(failure)


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.id}-{case.stage}")
def test_a_raw_failure_gets_its_signature_and_cause(case: Case) -> None:
    found = reclassified(case.expected.observation)
    assert found.signature == case.expected.signature
    assert (found.cause, found.rule) == (case.expected.cause, case.expected.rule)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_stage_gives_one_signature(path: Path) -> None:
    failures = read(path).failures
    assert failures, "this golden case fails no more: it shows nothing"
    signatures = {expected.signature for expected in failures.values()}
    assert (len(signatures) > 1) == (path.stem in STAGES_DIFFER)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_every_cause_rule_has_a_golden_file(rule: str) -> None:
    assert rule in {case.expected.rule for case in cases()}


@pytest.mark.parametrize("row", [row for row in machinery.CXX if row.prefix not in UNSEEN], ids=lambda row: row.prefix)
def test_every_row_of_cxx_machinery_is_used_by_a_golden_file(row: machinery.Row) -> None:
    seen = [case.expected.observation for case in cases()]
    asked = [asking(one.raised.native) for one in seen if one.raised is not None]
    refused = [error.native for one in seen for error in one.exceptions]
    names = {function_name(frame.function) for frames in (*asked, *refused) for frame in frames}
    assert any(name.startswith(row.prefix) for name in names)
