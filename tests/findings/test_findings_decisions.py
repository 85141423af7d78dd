"""What people decide, and how it is undone."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddefuzz.errors import InputError
from ddefuzz.findings.decisions import By, changed, link, note, set_state, undo
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.merge import merged
from ddefuzz.findings.model import Finding, HistoryEntry, normalized, stamp
from ddefuzz.findings.textform import KnownDecision, known_now, read_known
from tests.findings.arbitrary_findings import CHUNK, START, findings, text

DECIDED = st.fixed_dictionaries(
    {},
    optional={
        "given_title": text,
        "owner": text,
        "priority": st.sampled_from(["", "high", "low"]),
        "labels": st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(lambda some: tuple(sorted(some))),
        "expires": st.sampled_from(["", "2027-01-31"]),
        "known_in": st.lists(st.sampled_from(["2.13.0", "2.15.0"]), unique=True).map(lambda one: tuple(sorted(one))),
        "links": st.lists(st.sampled_from(["https://a", "https://b"]), unique=True).map(lambda one: tuple(sorted(one))),
    },
)


def without_history(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, history=())


def by(seconds: int) -> By:
    return By("ada", START + timedelta(days=1, seconds=seconds))


@given(findings(), st.lists(DECIDED, min_size=1, max_size=4))
def test_undo_goes_back_one_decision_at_a_time(finding: Finding, decisions: list[dict[str, object]]) -> None:
    before = [finding := normalized(msgspec.structs.replace(finding, history=(), links=()))]
    for at, fields in enumerate(decisions):
        after = changed(before[-1], by(at), **fields)
        if after != before[-1]:
            before.append(after)
    now = before.pop()
    for at, expected in enumerate(reversed(before)):
        now = undo(now, by(10 + at))
        assert without_history(now) == without_history(expected)
    with pytest.raises(InputError, match="found no decision in its history"):
        undo(now, by(100))


@given(findings())
def test_every_change_of_state_can_be_undone(finding: Finding) -> None:
    finding = msgspec.structs.replace(finding, history=())
    for state in ROWS[finding.state].to:
        if state != "duplicate":
            decided = set_state(finding, state, by(0), ["2.15.0"] if state == "fixed" else [])
            assert without_history(undo(decided, by(1))) == without_history(finding)


def test_a_value_that_is_none_does_not_come_back() -> None:
    for field, before, message in (
        ("state", "unheard-of", "Invalid enum value 'unheard-of'"),
        ("known_in", "2.13.0 nightly", "found 'nightly', expected a version of torch"),
    ):
        entry = HistoryEntry(stamp(START), "ada", field, before, "")
        finding = Finding(id=CHUNK.key, signature=CHUNK, cause="avoidable", history=(entry,))
        with pytest.raises(InputError, match=message):
            undo(finding, by(0))


def test_undo_takes_back_what_is_left_after_a_merge() -> None:
    """The undo in another database took back an older decision than the last one here."""
    start = Finding(id=CHUNK.key, signature=CHUNK, cause="avoidable", state="triaged")
    owned = changed(start, by(1), owner="O1")
    here, there = changed(owned, by(2), priority="high"), undo(owned, by(3))
    joined = merged(here, there)
    assert (joined.owner, joined.priority) == ("", "high")
    assert undo(joined, by(4)).priority == ""
    with pytest.raises(InputError, match="found no decision"):
        undo(undo(joined, by(4)), by(5))


def test_a_decision_that_two_undid_is_undone_once() -> None:
    start = Finding(id=CHUNK.key, signature=CHUNK, cause="avoidable", state="triaged")
    owned = changed(changed(start, by(1), owner="O1"), by(2), owner="O2")
    joined = merged(undo(owned, by(3)), undo(owned, by(4)))
    assert joined.owner == "O1"
    assert undo(joined, by(5)).owner == ""


def test_a_link_that_was_removed_later_stays_removed() -> None:
    start = Finding(id=CHUNK.key, signature=CHUNK, cause="avoidable")
    linked = link(start, "https://a", by(1))
    removed = undo(linked, by(2))
    assert merged(linked, removed).links == merged(removed, linked).links == ()
    again = link(removed, "https://a", by(3))
    assert merged(again, removed).links == merged(linked, again).links == ("https://a",)


@given(findings())
def test_a_decision_after_an_undo_is_undone_before_older_ones(finding: Finding) -> None:
    finding = msgspec.structs.replace(finding, history=(), links=(), owner="")
    first = changed(finding, by(0), owner="bob")
    again = link(undo(link(first, "https://a", by(1)), by(2)), "https://b", by(3))
    assert without_history(undo(again, by(4))) == without_history(first)
    assert without_history(undo(undo(again, by(4)), by(5))) == without_history(finding)


FILE = """\
[dde-1]
state = "reported"
reason = "no meta kernel"
url = "https://x"
expires = 2027-01-31
versions = ["2.13.0"]

[dde-2]
state = "by-design"

[dde-3]
state = "fixed"
fixed_in = ["2.15.0"]

[dde-4]
state = "new"
"""


@pytest.mark.parametrize(
    ("torch", "today", "known", "expired"),
    [
        ("2.13.0+cpu", date(2027, 1, 31), {"dde-1", "dde-2", "dde-3"}, set()),
        ("2.13.0+cpu", date(2027, 2, 1), {"dde-2", "dde-3"}, {"dde-1"}),
        ("2.15.0", date(2027, 2, 1), {"dde-2"}, set()),  # dde-1 is known for 2.13.0, and dde-3 is fixed
    ],
)
def test_what_is_known_depends_on_torch_and_on_the_day(
    tmp_path: Path, torch: str, today: date, known: set[str], expired: set[str]
) -> None:
    (tmp_path / "known.toml").write_text(FILE)
    now = known_now(read_known(tmp_path / "known.toml"), torch, today)
    assert now == (frozenset(known), frozenset(expired))


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        ('state = "open"', r"\[dde-1\]: state: found 'open', expected one of by-design, duplicate, "),
        ('state = "fixed"\nexpires = "soon"', "expires: found 'soon', expected a date such as 2027-01-31"),
        ('reason = "?"', "found no state, expected the keys state, title, "),
    ],
)
def test_a_wrong_list_says_where(tmp_path: Path, damage: str, expected: str) -> None:
    (tmp_path / "known.toml").write_text(f"[dde-1]\n{damage}\n")
    with pytest.raises(InputError, match=f"known.toml: .*{expected}"):
        read_known(tmp_path / "known.toml")


def test_an_empty_decision_is_left_out() -> None:
    assert known_now({"dde-1": KnownDecision("new")}, "2.13.0", date(2027, 1, 1)) == (frozenset(), frozenset())


@given(findings(), st.sampled_from(["\0", "\udcff", "a\ud800b"]))
def test_what_no_database_can_store_is_refused(finding: Finding, word: str) -> None:
    message = r"found '.*', expected text in UTF-8 without NUL"
    with pytest.raises(InputError, match=message):
        changed(finding, by(1), owner=word)
    with pytest.raises(InputError, match=message):
        changed(finding, By(word, START), owner=f"{finding.owner}x")
    with pytest.raises(InputError, match=message):
        note(finding, word, by(1))
