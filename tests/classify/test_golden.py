"""Tests the classification of every golden file, and that every row of the tables is used by one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ddefuzz.classify import aliases, plumbing
from ddefuzz.classify.cause import RULES, Classification
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.classify.site import function_name, native_call
from ddefuzz.execute.protocol import Observation, Stage
from ddefuzz.oracles.capture import classify, judge

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))

STAGES_DIFFER = {
    "branch-on-a-tensor": "dynamo breaks the graph before the truth of the tensor is evaluated",
    "iterate": "dynamo reads the length before it would call unbind",
    "one-hot": "dynamo refuses one_hot without num_classes",
    "skipped-function": "dynamo does not enter torch.ao",
}
"""Golden cases that are different failures in different stages."""

ONE_BUG = (
    ("feature-dropout", "alpha-dropout"),
    ("sizes-as-ints", "argmin-out"),
    ("scatter-out", "scatter-add-out"),
    ("refs-skipped", "refs-made"),
    ("resize-method", "resize-function"),
)
"""Golden cases of several programs that show one bug."""


UNSEEN = {
    "torch::autograd::utils::": "sites of findings; it takes a leaf of unbacked sizes, which no golden case can make",
    "std::": "in many stacks, and innermost in none so far",
}
"""Rows for C++ that no golden file needs."""


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


def reclassified(observation: Observation) -> Classification:
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
    assert (len(signatures) > 1) == (path.stem.partition("@")[0] in STAGES_DIFFER)


@pytest.mark.parametrize("rule", [rule.name for rule in RULES])
def test_every_cause_rule_has_a_golden_file(rule: str) -> None:
    assert rule in {case.expected.rule for case in cases()}


def cxx_names(observation: Observation) -> set[str]:
    """The C++ functions of the native call that guards, and of an op that raised."""
    frames = list(native_call(observation.raised.native)) if observation.raised is not None else []
    frames += [frame for error in observation.exceptions for frame in error.native]
    return {function_name(frame.function) for frame in frames}


@pytest.mark.parametrize("row", [*plumbing.CXX, *plumbing.CXX_SITES], ids=lambda row: row.prefix)
def test_every_row_for_cxx_is_used_by_a_golden_file(row: plumbing.Prefix) -> None:
    seen = any(name.startswith(row.prefix) for case in cases() for name in cxx_names(case.expected.observation))
    assert seen != (row.prefix in UNSEEN)


@pytest.mark.parametrize("row", aliases.INLINED, ids=lambda row: row.caller)
def test_every_inlined_function_is_the_site_of_a_golden_file(row: aliases.InlinedFunction) -> None:
    found = {case.expected.signature for case in cases() if case.expected.signature.site.function == row.function}
    assert any(signature.anchor.startswith(row.guard) for signature in found)


def test_a_decision_under_another_name_is_one_of_a_golden_file() -> None:
    for row in aliases.SAME_DECISIONS:
        site = Site("Python", row.file, row.function)
        assert any(
            (case.expected.signature.site, case.expected.signature.anchor) == (site, row.anchor) for case in cases()
        )


@pytest.mark.parametrize("names", ONE_BUG, ids="=".join)
def test_several_programs_show_one_bug(names: tuple[str, ...]) -> None:
    shown = {case.expected.signature for case in cases() if case.id in names}
    assert len(shown) == 1


@pytest.mark.parametrize("path", [path for path in GOLDEN if "@" in path.stem], ids=lambda path: path.stem)
def test_another_torch_blames_the_same(path: Path) -> None:
    here = {expected.signature for expected in read(path).failures.values()}
    assert here <= {case.expected.signature for case in cases() if case.id == path.stem.partition("@")[0]}
