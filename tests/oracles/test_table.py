"""The rows of the oracles: what goes with each, and that a new one is a row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from ddefuzz.classify.chain import Located
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.execute.calls import Call, Ended
from ddefuzz.execute.protocol import EXPLICIT, Observation, Run, Runner
from ddefuzz.oracles import table
from ddefuzz.oracles.program import Suspect, judge_program, kept, shows, suspect_of
from ddefuzz.oracles.seen import Seen
from ddefuzz.oracles.table import ORACLES, Oracle

ROOT = Path(__file__).parents[2]
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", (ROOT / "docs/oracles.md").read_text(), re.M | re.S))
TEXT = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.relu(x)
"""


def test_every_kind_belongs_to_an_oracle() -> None:
    assert sorted(kind for oracle in ORACLES for kind in oracle.kinds) == sorted(get_args(Kind))


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_every_kind_has_a_meaning_a_title_a_section_and_a_test(oracle: Oracle) -> None:
    section = SECTIONS[oracle.name]
    assert "It cannot see" in section
    assert "Not an alarm" in section
    for kind, meaning in oracle.kinds.items():
        assert meaning
        assert f"| `{kind}` |" in section
        assert oracle.locate is None or "{site}" in oracle.titles[kind]
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", section)
    assert tests
    for file, name in tests:
        assert f"def {name}" in (ROOT / file).read_text()


def judge_slow(seen: Seen) -> tuple[Failure, ...]:
    slow = [call for call in seen.observation.calls if call.recompiled]
    return (Failure("wrong-result", seen.observation, f"at size {slow[0].size}"),) if slow else ()


def locate_slow(failure: Failure, seen: Seen, runner: Runner) -> Located:
    return Located(Site("op", None, "aten::relu"), None, "captured again")


def runner(run: Run) -> Observation:
    calls = tuple(Call(size, Ended(), Ended("" if size != "2" else "no"), recompiled=size == "2") for size in run.calls)
    return Observation(run.stage, run.semantics, "ok", calls=calls)


def test_a_new_oracle_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Oracle("toy", {"wrong-result": "captured again"}, judge_slow, locate_slow, ("1", "2"))
    monkeypatch.setattr(table, "ORACLES", (ORACLES[0], toy))
    (judged,) = judge_program(TEXT, ("aot",), (EXPLICIT,), runner, oracles=("capture", "toy"))
    (found,) = judged.failures
    assert str(found.signature) == "wrong-result at aten::relu [captured again]"
    assert [call.size for call in judged.observation.calls] == ["1", "2"]
    suspect = suspect_of(TEXT, found.signature, kept(found.failure))
    assert suspect == Suspect(TEXT, found.signature, "aot", EXPLICIT, ("2",))
    assert shows(suspect, TEXT, runner) is not None
    assert shows(suspect, TEXT, lambda run: Observation(run.stage, run.semantics, "ok")) is None
