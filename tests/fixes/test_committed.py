"""Tests of the fixes in `findings/fixes`: read, of known findings, each in one group, and applicable to this torch."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from ddefuzz import syntax
from ddefuzz.findings.textform import FINDING
from ddefuzz.fixes.model import Fix, read_fixes
from ddefuzz.fixes.verify import apply_fault

FINDINGS = Path(__file__).parents[2] / "findings"
FIXES = read_fixes(FINDINGS / "fixes")


def test_every_finding_is_known_and_in_one_group() -> None:
    named = Counter(one for fix in FIXES for one in fix.findings)
    assert FIXES
    assert not [one for one, number in named.items() if number > 1 or not (FINDINGS / one / FINDING).is_file()]


def test_a_verified_fix_has_a_patch_a_test_and_evidence_and_no_doubts() -> None:
    for fix in FIXES:
        whole = bool(fix.patch and fix.test and fix.pull_request and fix.evidence and not fix.doubts)
        assert whole == (fix.label == "verified"), fix.id
        assert set(fix.later) <= set(fix.findings), fix.id


@pytest.mark.parametrize("fix", [fix for fix in FIXES if fix.patch], ids=lambda fix: fix.id)
def test_a_patch_applies_to_the_torch_that_it_is_for(fix: Fix) -> None:
    syntax.parse(fix.test)
    if fix.torch == version("torch"):
        assert apply_fault(fix.patch, fix.file.split(", ")) == ""
