"""Accepted problems: their file, and what they do to a report."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.checking.acceptance import Acceptance, holding, read_accepted, renewed, write_accepted
from ddefuzz.checking.problems import problems_of
from ddefuzz.checking.record import definition, report_record
from ddefuzz.checking.report import Report, acceptable, captures_of, failed
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.show.table import sarif
from tests.checking.test_check_rows import BRANCH, EAGER, FAILED, runs

ONE = Acceptance("model.py:f", "dde-0123456789", "not yet", date(2027, 1, 31), "a branch")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9)


@given(st.lists(st.builds(Acceptance, texts, texts, texts.map(lambda text: f"w{text}"), st.none() | st.dates(), texts)))
def test_a_file_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, accepted: list[Acceptance]) -> None:
    path = tmp_path_factory.mktemp("accepted") / "findings" / "accepted.toml"
    write_accepted(path, accepted)
    assert read_accepted(path) == tuple(sorted(accepted, key=lambda one: (one.target, one.key)))


def test_without_a_file_nothing_is_accepted(tmp_path: Path) -> None:
    assert read_accepted(tmp_path / "accepted.toml") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[problem]]\ntarget = "a"\nkey = "b"\n', "reason"),
        ('[[problem]]\ntarget = "a"\nkey = "b"\nreason = " "\n', "found an empty reason"),
        ('[[problem]]\ntarget = "a"\nkey = "b"\nreason = "c"\nexpires = "soon"\n', "expires"),
        ('[[problem]]\ntarget = "a"\nkey = "b"\nreason = "c"\nuntil = 1\n', "until"),
        ("[problem]\n", "problem"),
        ("problem = 1\n", "problem"),
        ("[[accepted]]\n", "accepted"),
        ("[[problem\n", "unreadable"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "accepted.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_accepted(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_it_holds_until_its_last_day() -> None:
    assert holding([ONE], date(2027, 1, 31)) == (ONE,)
    assert holding([ONE], date(2027, 2, 1)) == ()
    assert holding([msgspec.structs.replace(ONE, expires=None)], date(2099, 1, 1))


def test_what_was_decided_before_stays_as_long_as_it_holds() -> None:
    gone, other = (msgspec.structs.replace(ONE, **{name: "other"}) for name in ("key", "target"))
    again = msgspec.structs.replace(ONE, reason="again", expires=None)
    for today, kept in ((date(2027, 1, 31), ONE), (date(2027, 2, 1), again)):
        assert renewed([ONE, gone, other], [again], {ONE.target}, today) == (other, kept)


def report() -> Report:
    own = Observation("export", EXPLICIT, "fail", exceptions=FAILED.exceptions, raised=BRANCH)
    case = runs(EAGER, own)
    return Report("model.py:c", "2.13.0", False, captures_of(case)[1:], problems_of(case))


def test_accepted_problems_do_not_fail_and_are_known() -> None:
    seen = report()
    [accepted] = acceptable(seen, "not yet", None)
    assert (accepted.target, accepted.reason) == ("c", "not yet")
    assert accepted.key in seen.problems[0].keys
    assert failed(seen.captures)
    assert not failed(seen.captures, [("c", accepted)])
    assert failed(seen.captures, [("other", accepted)])
    told = report_record(msgspec.structs.replace(seen, accepted=(("c", accepted),)), "ddefuzz check")
    assert told.counts == {"known": 1}
    assert ("accepted", "not yet") in told.results[0].facts
    assert json.loads(sarif(told))["runs"][0]["results"] == []


def test_a_capture_with_another_problem_fails() -> None:
    seen = report()
    [accepted] = acceptable(seen, "not yet", None)
    two = msgspec.structs.replace(seen.captures[0], keys=(accepted.key, "dde-ffffffffff"))
    assert failed([two], [("c", accepted)])
    assert failed([msgspec.structs.replace(two, keys=())], [("c", accepted)])  # a failure without a problem


def test_where_a_target_is_defined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "model.py").write_text("import torch\n\n\nclass Net2:\n    pass\n\n\nclass Net:\n    pass\n")
    (tmp_path / "pkg" / "__init__.py").write_text("\nmake: int = 1\n")
    assert definition("pkg/model.py:Net") == ("pkg/model.py", 8)
    assert definition("pkg.model:Net") == ("pkg/model.py", 8)
    assert definition("pkg:make") == ("pkg/__init__.py", 2)
    assert definition("pkg.model:elsewhere") == ("pkg/model.py", 1)
    assert definition("pkg/model.py") == ("pkg/model.py", 1)
    assert definition("other.model:Net") == ("", 0)
    assert definition("../x.py:Net") == ("", 0)
