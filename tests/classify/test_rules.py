"""Alias and split rules of a repository: strict reading, and what they make of signatures."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ddefuzz.classify.rules import Rules, read_rules, use_rules_of_this_folder
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.merge import reclassified
from ddefuzz.oracles.capture import classify
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, failure_of, sighting, with_failure
from tests.typed import typed

ALIAS = """\
[[alias]]
kind = "dde"
site = "at::native::chunk"
anchor = "guard_int operator=="
to_site = "at::native::tensor_split"
reason = "one decision"
source = "aten/src/ATen/native/TensorShape.cpp"
"""

SPLIT = """\
[[split]]
kind = "dde"
site = "torch/_refs/__init__.py:roll"
anchor = "a.numel() == 0"
pattern = "2[*]u0"
name = "twice"
reason = "the second caller"
source = "torch/_refs/__init__.py"
"""


def rules(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return read_rules(path)


def test_an_alias_gives_another_site_or_anchor(tmp_path: Path) -> None:
    failure = failure_of(CHUNK)
    found = rules(tmp_path, ALIAS).applied(CHUNK, failure)
    assert found == Signature("dde", Site("C++", None, "at::native::tensor_split"), "guard_int operator==")
    other = Signature("dde", CHUNK.site, "another anchor")
    assert rules(tmp_path, ALIAS).applied(other, failure) == other
    to_python = ALIAS.replace('"at::native::tensor_split"', '"torch/a.py:f"\nto_language = "Python"\nto_anchor = "x"')
    assert rules(tmp_path, to_python).applied(CHUNK, failure) == Signature(
        "dde", Site("Python", "torch/a.py", "f"), "x"
    )


def test_a_split_is_by_what_the_failure_says(tmp_path: Path) -> None:
    read = rules(tmp_path, SPLIT)
    assert read.applied(ROLL, failure_of(ROLL)) == ROLL
    twice = read.applied(ROLL, failure_of(ROLL, "Eq(2*u0, 0)"))
    assert (twice.site, twice.anchor) == (ROLL.site, "a.numel() == 0 (twice)")


def test_a_pattern_takes_time_that_grows_with_the_text(tmp_path: Path) -> None:
    """Python's `re` needs years for this."""
    read = rules(tmp_path, SPLIT.replace("2[*]u0", "(a+)+$"))
    assert read.applied(ROLL, failure_of(ROLL, "a" * 60 + "\ud800")) == ROLL
    assert read.applied(ROLL, failure_of(ROLL, "a" * 60)) != ROLL


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ALIAS.replace('reason = "one decision"\n', ""), "found no reason, expected the keys kind, site, "),
        (ALIAS.replace("one decision", " "), "alias 1: found no reason or no source"),
        (ALIAS + ALIAS, "alias 1: found two aliases of dde at at::native::chunk"),
        (ALIAS.replace("at::native::tensor_split", "at::native::chunk"), "found no other site or anchor"),
        (ALIAS + ALIAS.replace("::chunk", "::a").replace("::tensor_split", "::chunk"), "as its target"),
        (ALIAS + "extra = 1\n", "found the unknown key 'extra', expected the keys kind, site, "),
        (SPLIT.replace("2[*]u0", "("), "split 1: found the pattern '('.*expected a regular expression"),
        (SPLIT.replace("2[*]u0", "a{99999999999}"), "split 1: found the pattern .*expected a regular expression"),
        (SPLIT.replace("2[*]u0", "(" * 3000), "split 1: found the pattern .*expected a regular expression"),
        (
            SPLIT.replace("2[*]u0", "(?=u0)"),
            "split 1: found the pattern .*is not supported",
        ),
        (SPLIT.replace('"twice"', '""'), "empty pattern or name"),
        ("alias = 1\n", "alias: found an integer, expected a list"),
        ("[[alias]\n", "rules.toml"),
    ],
)
def test_what_is_no_rule_is_said_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.sub(r"[()?]", r"\\\g<0>", message)):
        rules(tmp_path, text)


def test_stored_findings_are_classified_by_the_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding whose failures have two expressions becomes two."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_DDEFUZZ_RULES", "")
    now = datetime.now(UTC)
    plain, other = failure_of(ROLL), failure_of(ROLL, "Eq(2*u0, 0)")
    signature = classify(plain).signature
    with Database.open(f"sqlite:///{tmp_path / 'f.db'}") as database:
        for failure, op in ((plain, "torch.roll"), (other, "torch.flip")):
            seen = with_failure(sighting(signature, ops=(op,)), failure)
            database.record(seen, now)
        before = database.findings()
    assert len(before) == 1
    (tmp_path / "findings").mkdir()
    text = SPLIT.replace("torch/_refs/__init__.py:roll", str(signature.site)).replace(
        "a.numel() == 0", signature.anchor
    )
    (tmp_path / "findings" / "rules.toml").write_text(text)
    use_rules_of_this_folder()
    after = reclassified(before, classify, now).findings
    assert sorted(one.anchor for one in after) == [signature.anchor, f"{signature.anchor} (twice)"]
    (tmp_path / "findings" / "rules.toml").unlink()
    use_rules_of_this_folder()
    assert len(reclassified(after, classify, now).findings) == 1


@pytest.mark.slow
def test_workers_apply_the_rules_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    text = ALIAS.replace("guard_int operator==", "guard_bool operator==")
    (tmp_path / "findings" / "rules.toml").write_text(text)
    (tmp_path / "chunk.py").write_text(PROGRAM)
    ran = typed("corpus", "add", "corpus", "chunk.py", "--stage", "export", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    case = (tmp_path / "corpus" / "chunk.py").read_text()
    assert "# expect: export/explicit dde at at::native::tensor_split\n" in case, case
    (tmp_path / "findings" / "rules.toml").write_text("[[alias]]\n")
    wrong = typed("corpus", "list", folder=tmp_path)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1), wrong.stderr
