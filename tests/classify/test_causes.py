"""Tests that the table of causes is complete and documented, and that each row is used."""

from __future__ import annotations

from typing import get_args

import pytest

from ddefuzz.classify.cause import CAUSES, FRAMEWORK_CAUSES, MEANINGS, RULES, Meaning
from ddefuzz.classify.evidence import OUTPUTS_BY_ARGUMENT
from ddefuzz.classify.reviewed import REVIEWED, reviewed
from ddefuzz.classify.signature import Cause, Site
from tests.classify import causes_page
from tests.classify.test_golden import cases

OF_OTHER_ORACLES = {"wrong-capture"}
"""The cause of wrong captures, which has no rule: the rules are for captures that fail."""


def test_the_table_has_each_cause_once_and_each_has_a_rule() -> None:
    assert [row.cause for row in CAUSES] == list(get_args(Cause))
    assert {rule.cause for rule in RULES} == set(MEANINGS) - OF_OTHER_ORACLES


@pytest.mark.parametrize("row", [row for row in CAUSES if row.cause not in OF_OTHER_ORACLES], ids=lambda row: row.cause)
def test_the_example_of_a_cause_is_an_example_of_one_of_its_rules(row: Meaning) -> None:
    assert row.example in {rule.example for rule in RULES if rule.cause == row.cause}


def test_the_programs_own_causes_are_not_about_pytorch() -> None:
    assert {"avoidable", "int-required", "no-kernel", "wrong-capture", "unclassified"} == FRAMEWORK_CAUSES


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
    decided = {case.expected.signature.anchor for case in cases() if case.expected.rule == "outputs-by-argument"}
    assert any(op in anchor for anchor in decided)


def test_a_reviewed_row_applies_to_its_anchor_only() -> None:
    istft = Site("Python", "torch/_refs/__init__.py", "istft")
    assert reviewed(istft, "onesided_") is not None
    assert reviewed(istft, "n_frames > 1") is None


def test_the_page_of_causes_is_made_from_the_table() -> None:
    assert causes_page.PAGE.read_text(encoding="utf-8") == causes_page.page()


def test_the_readme_has_the_table_of_causes() -> None:
    text = causes_page.README.read_text(encoding="utf-8")
    assert causes_page.BEGIN in text
    assert text == causes_page.readme(text)
