"""New rules move, merge and split findings without losing data of people or campaigns."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings

from ddefuzz.answers.model import Answers
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site, Verdict
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.merge import WHO, Reclassification, reclassified
from ddefuzz.findings.model import Confirmation, Finding, HistoryEntry, Note, Occurrence, normalized, slim, stamp
from ddefuzz.findings.textform import read_finding
from tests.findings.arbitrary_findings import CHUNK, PROGRAM, ROLL, START, databases, failure_of, sighting

DIFF = Signature("dde", Site("C++", None, "at::native::diff_helper"), "guard_bool operator<")
LATER = START + timedelta(hours=9)


def rules(of: Callable[[str], Signature], cause: Cause = "avoidable") -> Callable[[Failure], Classification]:
    """Rules that go by the expression alone."""

    def classify(failure: Failure) -> Classification:
        assert failure.observation.raised is not None
        return Classification(failure, of(failure.observation.raised.expression), cause, "rule")

    return classify


by_length = rules(lambda expression: (CHUNK, ROLL, DIFF)[len(expression) % 3])


def finding(signature: Signature, expression: str, **fields: object) -> Finding:
    """A finding seen twice, whose only failure asked for `expression`."""
    failure = slim(failure_of(signature, expression))
    seen = Occurrence("2.13.0", "export", "explicit", "torch.f", "fails", 2, stamp(START), stamp(START), failure)
    one = Finding(
        id=signature.key,
        signature=signature,
        cause="avoidable",
        original=PROGRAM,
        failure=failure,
        occurrences=(seen,),
    )
    return normalized(msgspec.structs.replace(one, **fields))


@pytest.mark.slow
@settings(database=None, deadline=None, derandomize=True, max_examples=200)
@given(databases())
def test_nothing_is_lost_and_once_is_enough(before: tuple[Finding, ...]) -> None:
    result = reclassified(before, by_length, LATER)
    after = {found.id: found for found in result.findings}
    assert sum(found.count for found in after.values()) == sum(found.count for found in before)
    for union in ("links", "notes"):
        united = {entry for found in after.values() for entry in getattr(found, union)}
        assert united == {entry for found in before for entry in getattr(found, union)}
    kept = {entry for found in after.values() for entry in found.history}
    assert kept >= {entry for found in before for entry in found.history}
    assert {found.id for found in before} <= set(after) | {name for found in after.values() for name in found.former}
    assert result.gone == {found.id for found in before} - set(after)
    for found in after.values():
        assert found.duplicate_of is None or after[found.duplicate_of].duplicate_of is None
        assert (found.state == "duplicate") == (found.duplicate_of is not None)
        failures = [found.failure, found.shown, *(seen.observed for seen in found.occurrences)]
        assert {by_length(one).signature for one in failures if one} <= {found.signature}
    again = reclassified(result.findings, by_length, LATER + timedelta(hours=1))
    assert again.findings == result.findings
    assert (again.changes, again.gone, again.counts.split_off) == ((), frozenset(), 0)


def only(result: Reclassification) -> Finding:
    (found,) = result.findings
    return found


def test_a_finding_moves_with_its_decisions_and_its_old_id_is_kept() -> None:
    entry = HistoryEntry(stamp(START), "ada", "title", "dde at at::native::chunk", "ours")
    before = finding(
        CHUNK,
        "u0",
        state="triaged",
        given_title="ours",
        links=("https://x",),
        history=(entry,),
        confirmed=Confirmation(1, 1),
    )
    result = reclassified([before], rules(lambda _: ROLL), LATER)
    moved = only(result)
    assert (moved.id, moved.signature, moved.former) == (ROLL.key, ROLL, (CHUNK.key,))
    assert (moved.state, moved.title, moved.links, moved.confirmed) == ("triaged", "ours", ("https://x",), None)
    assert moved.history == (entry, HistoryEntry(stamp(LATER), WHO, "id", CHUNK.key, ROLL.key))
    changes = [(one.change, one.finding, one.becomes) for one in result.changes if one.change != "cause"]
    assert changes == [("moved", CHUNK.key, ROLL.key)]


def test_findings_become_one_and_a_persons_decision_stays() -> None:
    decided = HistoryEntry(stamp(START), "ada", "state", "new", "triaged")
    note = Note(stamp(START), "bob", "as in a model")
    pair = (
        finding(CHUNK, "u0", notes=(note,)),
        finding(ROLL, "u1", state="triaged", history=(decided,), links=("https://x",), minimal=PROGRAM, steps=1),
    )
    one = only(reclassified(pair, rules(lambda _: CHUNK), LATER))
    assert (one.id, one.former, one.state, one.count) == (CHUNK.key, (ROLL.key,), "triaged", 4)
    assert (one.notes, one.links, one.minimal) == ((note,), ("https://x",), PROGRAM)
    assert decided in one.history


def test_a_duplicate_of_what_it_is_merged_with_is_none_any_more() -> None:
    entry = HistoryEntry(stamp(LATER), "ada", "state", "new", "duplicate")
    pair = (finding(CHUNK, "u0"), finding(ROLL, "u1", state="duplicate", duplicate_of=CHUNK.key, history=(entry,)))
    one = only(reclassified(pair, rules(lambda _: ROLL), LATER))
    assert (one.id, one.former, one.state, one.duplicate_of) == (ROLL.key, (CHUNK.key,), "new", None)


def test_a_duplicate_follows_what_it_repeats() -> None:
    pair = (finding(CHUNK, "u0"), finding(ROLL, "u1", state="duplicate", duplicate_of=CHUNK.key))
    after = reclassified(pair, rules(lambda expression: DIFF if expression == "u0" else ROLL), LATER).findings
    assert {found.id: found.duplicate_of for found in after} == {DIFF.key: None, ROLL.key: DIFF.key}


def test_occurrences_follow_what_they_were_seen_by() -> None:
    cov = Occurrence("2.13.0", "export", "explicit", "torch.cov", "fails", 3, stamp(START), stamp(START))
    observed = slim(failure_of(CHUNK, "cov"))
    whole = finding(CHUNK, "u0")
    before = msgspec.structs.replace(
        whole,
        occurrences=(
            *whole.occurrences,
            msgspec.structs.replace(cov, observed=observed),
            msgspec.structs.replace(cov, op="torch.old"),
        ),
    )
    result = reclassified([before], rules(lambda expression: DIFF if expression == "cov" else CHUNK), LATER)
    after = {found.id: found for found in result.findings}
    assert after[CHUNK.key].ops == ("torch.f", "torch.old")
    assert (after[DIFF.key].ops, after[DIFF.key].count, after[DIFF.key].failure) == (("torch.cov",), 3, observed)
    assert after[DIFF.key].history == (HistoryEntry(stamp(LATER), WHO, "split", CHUNK.key, DIFF.key),)
    assert (result.counts.split_off, result.counts.occurrences_unobserved) == (1, 1)
    assert [(one.becomes, one.sightings) for one in result.changes if one.change == "split"] == [(DIFF.key, 3)]


@pytest.mark.parametrize(("who", "expected"), [("ada", "user"), (WHO, "no-kernel")])
def test_a_cause_that_a_person_said_stays(who: str, expected: Cause) -> None:
    entry = HistoryEntry(stamp(START), who, "cause", "avoidable", "user")
    before = finding(CHUNK, "u0", cause="user", history=(entry,))
    result = reclassified([before], rules(lambda _: CHUNK, "no-kernel"), LATER)
    assert only(result).cause == expected
    assert result.findings[0].cause == expected


def test_an_id_that_is_gone_is_found_in_the_database(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path}/ddefuzz.db") as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        result = reclassified(database.findings(), rules(lambda _: DIFF), LATER)
        database.put(result.findings, result.gone)
        assert database.findings() == result.findings
        assert only(result).count == 2
        for old in (CHUNK.key, ROLL.key, CHUNK.key[:9]):
            assert database.resolve(old).id == DIFF.key
        with pytest.raises(InputError, match="'dde-none': found no such finding"):
            database.resolve("dde-none")


def test_a_finding_that_lost_its_program_takes_the_next_one(tmp_path: Path) -> None:
    with Database.open(f"sqlite:///{tmp_path}/ddefuzz.db") as database:
        database.put([finding(CHUNK, "u0", original=None)])
        database.record(sighting(), START)
        found = database.get(CHUNK.key)
        assert (found.original, found.expression) == (PROGRAM, "Eq(u0, 0)")


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [
        ("guard_or_false here", "avoidable"),
        ("no answer is right for all sizes", "symbolic-form"),
        ("another guard decides", "unclassified"),
    ],
)
def test_an_experiment_replaces_the_cause_of_the_rules(verdict: Verdict, cause: Cause) -> None:
    before = finding(CHUNK, "u0", answers=Answers(verdict, "aot", "2.13.0", 1))
    unclassified = rules(lambda _: CHUNK, "unclassified")
    (after,) = reclassified([before], unclassified, LATER).findings
    assert (after.cause, after.answers) == (cause, before.answers)
    by_person = msgspec.structs.replace(
        before, cause="user", history=(HistoryEntry(stamp(START), "ana", "cause", "avoidable", "user"),)
    )
    assert reclassified([by_person], unclassified, LATER).findings[0].cause == "user"


def test_an_experiment_on_another_guard_is_dropped() -> None:
    before = finding(CHUNK, "u0", answers=Answers("guard_or_false here", "aot", "2.13.0", 1))
    (after,) = reclassified([before], rules(lambda _: ROLL), LATER).findings
    assert after.answers is None


def test_the_cause_of_what_a_captured_program_does_is_that_of_its_oracle() -> None:
    folder = Path(__file__).parents[2] / "findings" / "regressed-1ba33dd624"
    known = msgspec.structs.replace(read_finding(folder), history=())
    (now,) = reclassified([msgspec.structs.replace(known, cause="unclassified")], by_length, LATER).findings
    assert (now.cause, [entry.field for entry in now.history]) == ("avoidable", ["cause"])
    assert reclassified([now], by_length, LATER).findings == (now,)
