"""Tests that the table of causes is complete and documented, and that each row is used."""

from __future__ import annotations

from typing import get_args

import pytest

from ddefuzz.classify.cause import CAUSES, FRAMEWORK_CAUSES, MEANINGS, PROOFS, RULES, Meaning, Proof, by_experiment
from ddefuzz.classify.evidence import OUTPUTS_BY_ARGUMENT
from ddefuzz.classify.reviews import REVIEWED, reviewed
from ddefuzz.classify.signature import Cause, Site
from tests.classify import causes_page
from tests.classify.test_golden import cases

WITHOUT_RULES = {"wrong-capture", "wrong-key", "symbolic-form"}
"""The cause of wrong captures, which other oracles report, and that which only an experiment shows."""


def test_the_table_has_each_cause_once_and_each_has_a_rule() -> None:
    assert [row.cause for row in CAUSES] == list(get_args(Cause))
    assert {rule.cause for rule in RULES} == set(MEANINGS) - WITHOUT_RULES


@pytest.mark.parametrize("row", [row for row in CAUSES if row.cause not in WITHOUT_RULES], ids=lambda row: row.cause)
def test_the_example_of_a_cause_is_an_example_of_one_of_its_rules(row: Meaning) -> None:
    assert row.example in {rule.example for rule in RULES if rule.cause == row.cause}


def test_the_programs_own_causes_are_not_about_pytorch() -> None:
    of_pytorch = {
        "avoidable",
        "symbolic-form",
        "int-required",
        "no-kernel",
        "wrong-capture",
        "wrong-key",
        "unclassified",
    }
    assert of_pytorch == FRAMEWORK_CAUSES


def test_only_the_last_rule_applies_to_everything() -> None:
    assert [rule.name for rule in RULES if rule.cause == "unclassified"] == [RULES[-1].name]


@pytest.mark.parametrize("row", REVIEWED, ids=lambda row: f"{row.site}-{row.anchor}")
def test_every_reviewed_row_decides_a_golden_file(row: object) -> None:
    expected = [case.expected for case in cases()]
    decided = [one for one in expected if reviewed(one.signature.site, one.signature.anchor) is row]
    assert decided
    assert {one.rule.partition("-")[0] for one in decided} == {"reviewed"}


@pytest.mark.parametrize("op", sorted(OUTPUTS_BY_ARGUMENT))
def test_every_op_whose_outputs_an_argument_counts_decides_a_golden_file(op: str) -> None:
    decided = [case.expected.signature for case in cases() if case.expected.rule == "outputs-by-argument"]
    assert any(op in (one.anchor, str(one.site).removeprefix("aten::")) for one in decided)


def test_a_reviewed_row_applies_to_its_anchor_only() -> None:
    squeeze = Site("Python", "torch/_refs/__init__.py", "squeeze")
    assert reviewed(squeeze, "size == 1") is not None
    assert reviewed(squeeze, "n_frames > 1") is None


def test_the_page_of_causes_is_made_from_the_table() -> None:
    assert causes_page.PAGE.read_text(encoding="utf-8") == causes_page.page()


@pytest.mark.parametrize("row", PROOFS, ids=lambda row: row.verdict)
def test_a_verdict_overrules_the_causes_that_an_experiment_can_decide_and_no_other(row: Proof) -> None:
    assert by_experiment("avoidable", row.verdict) == by_experiment("unclassified", row.verdict) == row.cause
    assert by_experiment("result-depends-on-data", row.verdict) == "result-depends-on-data"
    assert by_experiment("user", row.verdict) == "user"


def test_without_a_telling_experiment_the_cause_stays() -> None:
    assert by_experiment("avoidable", None) == by_experiment("avoidable", "another guard decides") == "avoidable"
