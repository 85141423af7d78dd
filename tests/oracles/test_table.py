"""The rows of the oracles: what goes with each, and that a new one is a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from ddefuzz.classify.failure import KINDS as BY_EXCEPTION
from ddefuzz.classify.signature import Cause
from ddefuzz.errors import InputError
from ddefuzz.oracles.oracle import SEVERITIES, Oracle
from ddefuzz.oracles.table import ORACLES, kinds, oracle_of, severity_rank

ROOT = Path(__file__).parents[2]
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/oracles.md").read_text(), re.M | re.S))


def test_the_kinds_are_documented_by_severity() -> None:
    page = (ROOT / "docs/oracles.md").read_text()
    for severity in SEVERITIES:
        names = ", ".join(f"`{kind}`" for kind, row in kinds().items() if row.severity == severity)
        assert f"| {severity} | {names} |" in page
    ranks = [
        severity_rank(kind) for kind in ("wrong-result", "wrong-layout", "over-strict", "dde", "recompiles", "gone")
    ]
    assert ranks == sorted(ranks)


def test_every_kind_belongs_to_one_oracle() -> None:
    listed = [kind for oracle in ORACLES for kind in oracle.kinds]
    assert listed == list(kinds())
    assert {kind for _, kind in BY_EXCEPTION} <= set(kinds())
    assert oracle_of("dde").name == "capture"
    with pytest.raises(InputError, match="found the kind 'ddd', expected one of dde, "):
        oracle_of("ddd")


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_every_kind_has_a_meaning_a_title_a_section_and_a_test(oracle: Oracle) -> None:
    section = SECTIONS[oracle.name]
    assert "It cannot see" in section
    assert "Not an alarm" in section
    for kind, row in oracle.kinds.items():
        assert row.meaning
        assert row.cause is None or callable(row.cause) or row.cause in get_args(Cause)
        assert callable(row.locate)
        assert callable(row.expected)
        assert f"| `{kind}` |" in section
        assert row.deadly or callable(row.title) or "{site}" in row.title
        if oracle.stages:  # neither the scripts nor the snippets of captures show it
            assert row.script is not None, kind
            assert row.snippet is not None or all(stage.shown_by for stage in oracle.stages), kind
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", section)
    assert tests
    for file, name in tests:
        assert f"def {name}" in (ROOT / file).read_text()
