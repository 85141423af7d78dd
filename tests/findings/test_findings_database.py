"""The findings database: plain use, random use against a model, and merging."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from sqlalchemy import event
from sqlalchemy.orm import Session

from ddefuzz.answers.model import Answers, Control, Tally
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import DatabaseError, InputError, RowError, refusals
from ddefuzz.findings import listing
from ddefuzz.findings.database import RESUMABLE, Database
from ddefuzz.findings.decisions import DECISIONS, By, changed, dup, link, note, set_state, undo, undup
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.merge import merged, merged_site
from ddefuzz.findings.model import (
    MOST_OBSERVED,
    Confirmation,
    Finding,
    HistoryEntry,
    Progress,
    as_document,
    id_of,
    sequence_of,
    stamp,
    summary_of,
)
from ddefuzz.findings.schema import KEPT_POINTS, LATEST
from tests.findings.arbitrary_findings import (
    CHUNK,
    OTHER_PROGRAM,
    PROGRAM,
    ROLL,
    START,
    databases,
    failure_of,
    findings,
    sighting,
)
from tests.findings.servers import new_database

PROPERTY = settings(database=None, deadline=None, derandomize=True)
WHO = "ada"
SITES = {"fallback_sites": 3, "dde_sites": 4, "findings": 5}


def url_in(folder: Path | str, name: str = "ddefuzz.db") -> str:
    return f"sqlite:///{folder}/{name}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    sqlite = request.param == "sqlite"
    with Database.open(url_in(tmp_path) if sqlite else new_database(request.getfixturevalue("postgres"))) as opened:
        yield opened


def test_a_sighting_is_a_new_finding_once(database: Database) -> None:
    first = database.record(sighting(), START)
    again = database.record(sighting(ops=("torch.split",)), START + timedelta(hours=1))
    assert (first.finding_id, first.is_new) == (CHUNK.key, True)
    assert (again.finding_id, again.is_new) == (CHUNK.key, False)
    (found,) = database.findings()
    assert found.signature == CHUNK
    assert found.ops == ("torch.chunk", "torch.split")
    assert (found.first_seen, found.last_seen) == (stamp(START), stamp(START + timedelta(hours=1)))
    assert found.count == 2
    assert found.verdicts == {"export": "fails"}
    assert found.original == PROGRAM
    assert found.expression == "Eq(u0, 0)"
    assert found.failure is not None
    assert found.failure.observation.raised is not None


def test_a_known_sighting_is_counted_and_writes_no_document(database: Database) -> None:
    """Also one that comes late, and one by another op of the same run."""
    database.record(sighting(ops=("torch.chunk", "torch.split")), START + timedelta(hours=1))
    written: list[str] = []

    def again(session: Session) -> None:
        statements = partial(event.listen, session.connection(), "before_cursor_execute")
        statements(lambda _connection, _cursor, statement, *_: written.append(statement))
        database.record(sighting(ops=("torch.split", "torch.chunk")), START + timedelta(hours=2))
        database.record(sighting(), START)

    database.write(again)
    changes = [statement.split()[1] for statement in written if statement.startswith(("UPDATE", "INSERT", "DELETE"))]
    assert changes == ["occurrences", "occurrences", "seen", "findings", "occurrences", "seen", "findings"]
    (found,) = database.findings()
    hours = {seen.op: (seen.count, seen.last_seen) for seen in found.occurrences}
    last = stamp(START + timedelta(hours=2))
    assert (found.count, hours) == (5, {"torch.chunk": (3, last), "torch.split": (2, last)})
    assert database.read(lambda session: listing.selected(session, listing.Query())) == (summary_of(found),)


def test_a_finding_of_user_code_gets_the_first_program_that_shows_it(database: Database) -> None:
    of_user_code = msgspec.structs.replace(sighting(), program=None)
    for seen, program in ((of_user_code, None), (sighting(), PROGRAM), (of_user_code, PROGRAM)):
        name = database.record(seen, START).finding_id
        assert database.get(name).original == program
    assert database.get(name).count == 3


def test_what_comes_back_after_its_fix_is_a_new_finding(database: Database) -> None:
    first = database.record(sighting(), START).finding_id
    decide(database, first, "fixed", fixed_in=["2.15.0"])
    assert database.record(sighting(torch="2.13.0"), START).finding_id == first
    again = database.record(sighting(torch="2.15.0"), START)
    assert (again.finding_id, again.is_new) == (f"{CHUNK.key}-2", True)
    assert database.record(sighting(torch="2.15.0"), START).finding_id == f"{CHUNK.key}-2"


ANSWERS = Answers("no answer is right for all sizes", "aot", "2.13.0+cpu", 1, (Tally("False", 1, 1, differs=("0",)),))


def test_an_experiment_is_saved_with_the_cause_that_it_shows(database: Database) -> None:
    found = database.record(sighting(), START).finding_id
    after = database.set_answers(
        found, ANSWERS, lambda finding: msgspec.structs.replace(finding, cause="symbolic-form")
    )
    assert database.get(found) == after
    assert (after.cause, after.answers) == ("symbolic-form", ANSWERS)


def test_minimal_program_and_confirmation(database: Database) -> None:
    found = database.record(sighting(), START).finding_id
    assert database.get(found).minimal is None
    database.set_minimal(found, PROGRAM, steps=1, attempts=11)
    shown = failure_of(CHUNK, "Eq(u1, 0)")
    database.set_confirmed(found, 3, 3, shown)
    database.set_control(found, Control("passes", "passes"))
    confirmed = database.get(found)
    assert (confirmed.steps, confirmed.confirmed, confirmed.shown) == (1, Confirmation(3, 3), shown)
    assert (confirmed.expression, confirmed.stage, confirmed.data_dependent) == ("Eq(u1, 0)", "export", True)
    assert confirmed.failure == failure_of(CHUNK)


def test_what_is_known_of_a_program_is_not_of_a_smaller_one(database: Database) -> None:
    found = database.record(sighting(), START).finding_id
    database.set_minimal(found, PROGRAM, steps=1, attempts=11)
    database.set_confirmed(found, 3, 3, failure_of(CHUNK))
    database.set_control(found, Control("passes", "passes"))
    database.set_answers(found, ANSWERS, lambda finding: finding)
    known = database.get(found)
    assert known.answers == ANSWERS
    database.set_minimal(found, PROGRAM, steps=1, attempts=12)
    assert database.get(found) == msgspec.structs.replace(known, attempts=12)
    database.set_minimal(found, OTHER_PROGRAM, steps=1, attempts=13)
    other = database.get(found)
    assert (other.confirmed, other.shown, other.control, other.answers) == (None, None, None, None)


def test_each_occurrence_keeps_what_it_was_seen_by_and_not_without_bound(database: Database) -> None:
    ops = tuple(f"torch.f{number}" for number in range(MOST_OBSERVED + 3))
    database.record(sighting(ops=ops), START)
    (found,) = database.findings()
    kept = [seen.observed for seen in found.occurrences if seen.observed is not None]
    assert (len(found.occurrences), len(kept), set(map(str, kept))) == (
        len(ops),
        MOST_OBSERVED,
        {str(failure_of(CHUNK))},
    )
    assert "observed" not in str(as_document(found)["occurrences"])


def test_every_decision_is_logged(database: Database) -> None:
    found = database.record(sighting(), START).finding_id
    by = By(WHO, START, "seen in a model")
    fields = {"cause": "result-depends-on-data", "given_title": "chunk asks for its size", "labels": ("cpu",)}
    decide(database, found, "triaged")
    database.decide(found, lambda finding: changed(finding, by, **fields))
    database.decide(found, lambda finding: link(finding, "https://github.com/pytorch/pytorch/issues/1", by))
    database.decide(found, lambda finding: note(finding, "as seen in a model", by))
    history = database.get(found).history
    assert {(entry.field, entry.before, entry.after) for entry in history} == {
        ("state", "new", "triaged"),
        ("cause", "avoidable", "result-depends-on-data"),
        ("given_title", "", "chunk asks for its size"),
        ("labels", "", "cpu"),
        ("links", "", "https://github.com/pytorch/pytorch/issues/1"),
    }
    assert {(entry.who, entry.why) for entry in history if entry.field != "state"} == {(WHO, "seen in a model")}
    assert [note.text for note in database.get(found).notes] == ["as seen in a model"]


@pytest.mark.parametrize("state", ["new", "triaged", "reported"])
def test_undup_goes_back_to_where_it_was(database: Database, state: State) -> None:
    one, other = (database.record(sighting(of), START).finding_id for of in (CHUNK, ROLL))
    if state != "new":
        decide(database, one, state)
    before = database.get(one).state
    mark(database, one, other, By(WHO, START + timedelta(seconds=1)))
    assert (database.get(one).state, database.get(one).duplicate_of) == ("duplicate", other)
    database.decide(one, lambda finding: undup(finding, By(WHO, START + timedelta(seconds=2))))
    assert (database.get(one).state, database.get(one).duplicate_of) == (before, None)


def test_duplicates_make_no_chains(database: Database) -> None:
    one, other = (database.record(sighting(of), START).finding_id for of in (CHUNK, ROLL))
    with pytest.raises(InputError, match="found the same finding twice"):
        mark(database, one, one, By(WHO, START))
    mark(database, one, other, By(WHO, START))
    with pytest.raises(InputError, match=f"{one}: found a duplicate, expected its original {other}"):
        mark(database, other, one, By(WHO, START))
    with pytest.raises(InputError, match="found the state 'duplicate'"):
        decide(database, other, "duplicate")


@pytest.mark.parametrize(
    ("field", "before", "now", "found"),
    [
        ("state", "duplicate", "new", "found state 'duplicate' and duplicate_of None, expected both or neither"),
        ("duplicate_of", "dde-0000000000", "", "found state 'new' and duplicate_of 'dde-0000000000', expected both"),
        ("both", "dde-0000000000", "", "found a duplicate of 'dde-0000000000', which is not there, expected the id"),
    ],
)
def test_an_undo_makes_no_half_of_a_duplicate(
    database: Database, field: str, before: str, now: str, found: str
) -> None:
    one = database.record(sighting(CHUNK), START).finding_id
    rows = [("duplicate_of", before, ""), ("state", "duplicate", "new")] if field == "both" else [(field, before, now)]
    history = tuple(HistoryEntry(stamp(START), "ada", *row) for row in rows)
    database.put([stored := msgspec.structs.replace(database.get(one), history=history)])
    with pytest.raises(InputError, match=f"{one}: {found}"):
        database.apply(one, [(row, None) for row in DECISIONS if row.name == "undo"], By("ada", START))
    with pytest.raises(InputError, match=f"{one}: {found}"):
        database.decide(one, lambda finding: undo(finding, By("ada", START)))
    assert database.get(one) == stored


def test_undup_gives_a_state_that_there_is(database: Database) -> None:
    one = database.record(sighting(CHUNK), START).finding_id
    history = tuple(HistoryEntry(stamp(START), "ada", "state", before, "duplicate") for before in ("odd", "duplicate"))
    database.put([msgspec.structs.replace(database.get(one), state="duplicate", duplicate_of=one, history=history)])
    database.decide(one, lambda finding: undup(finding, By("ada", START)))
    assert database.get(one).state == "new"


def test_an_undo_makes_no_duplicates_of_each_other(database: Database) -> None:
    one, other = (database.record(sighting(of), START).finding_id for of in (CHUNK, ROLL))
    by = [By(WHO, START + timedelta(seconds=second)) for second in range(5)]
    mark(database, one, other, by[0])
    database.decide(one, lambda finding: undup(finding, by[1]))
    mark(database, other, one, by[2])
    with pytest.raises(InputError, match=f"{other}: found a duplicate, expected its original {one}"):
        database.decide(one, lambda finding: undo(finding, by[3]))
    with pytest.raises(InputError, match=f"{other}: found a duplicate, expected its original {one}"):
        database.apply(one, [(row, None) for row in DECISIONS if row.name == "undo"], by[4])
    assert (database.get(one).duplicate_of, database.get(other).duplicate_of) == (None, one)


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    with pytest.raises(InputError), database.transaction():
        database.record(sighting(), START)
        database.get("dde-none")
    assert database.findings() == ()


@pytest.mark.parametrize("prefix", [CHUNK.key, CHUNK.key[:7], CHUNK.key.removeprefix("dde-")[:4]])
def test_a_unique_beginning_of_the_id_is_enough(database: Database, prefix: str) -> None:
    for signature in (CHUNK, ROLL):
        database.record(sighting(signature), START)
    assert database.resolve(prefix).id == CHUNK.key


def test_an_unknown_or_ambiguous_id_says_which_there_are(database: Database) -> None:
    for signature in (CHUNK, ROLL):
        database.record(sighting(signature), START)
    with pytest.raises(InputError, match=f"found 2 such findings, expected one of .*{CHUNK.key}"):
        database.resolve("dde-")
    with pytest.raises(InputError, match=f"did you mean .*{CHUNK.key}"):
        database.resolve(CHUNK.key[:-1] + "x")


def test_campaigns_can_be_resumed_until_they_are_finished(database: Database) -> None:
    options: dict[str, object] = {"stages": ["export"], "shard": None}
    seed = 2**63 - 1
    campaign = database.start_campaign(profile="default", seed=seed, generator="1", options=options, when=START)
    database.advance(campaign, 40, START)
    database.advance(campaign, 30, START, ahead=(31, 45, 42))
    (unfinished,) = database.unfinished()
    assert unfinished.ahead == (42, 45)
    assert (unfinished.next_index, unfinished.seed, unfinished.options) == (40, seed, options)
    database.finish_campaign(campaign, START)
    assert database.unfinished() == ()


def begun(database: Database, when: datetime) -> int:
    """A campaign that begins at this time."""
    return database.start_campaign(profile="captures", seed=7, generator="1", options={}, when=when)


@pytest.mark.slow
def test_what_is_kept_of_a_campaign_that_has_ended_does_not_grow(database: Database) -> None:
    """Its counts and sightings stay. Those over time are thinned, and the results of its cases are deleted."""
    with database.transaction():
        campaign = begun(database, START)
        for at in range(1_000):
            point = Progress(when=stamp(START + timedelta(seconds=at)), cases=at, seconds=at, cpu_seconds=at, **SITES)
            database.add_progress(campaign, point)
            database.add_step(campaign, b"counted")
        database.record(sighting(), START, campaign)
        database.advance(campaign, 1_000, START)
    points = partial(listing.progress, campaigns_=[campaign], most=10_000)
    assert len(database.read(points)[campaign]) == 1_000
    database.finish_campaign(campaign, START + timedelta(hours=1))
    cases = [point.cases for point in database.read(points)[campaign]]
    assert (cases[0], cases[-LATEST:]) == (0, list(range(1_000 - LATEST, 1_000)))
    assert KEPT_POINTS / 2 < len(cases) <= KEPT_POINTS + LATEST
    assert database.steps(campaign) == ()
    kept = database.read(partial(listing.campaign, number=campaign))
    assert kept is not None
    assert (kept.next_index, kept.updated) == (1_000, stamp(START + timedelta(hours=1)))
    assert (database.findings()[0].count, database.read(partial(listing.met_by, number=campaign))) == (1, (CHUNK.key,))


def test_a_campaign_that_nobody_resumes_ends(database: Database) -> None:
    old, new = (begun(database, START + timedelta(days=day)) for day in (0, 2))
    for campaign in (old, new):
        database.add_step(campaign, b"counted")
    latest = begun(database, START + RESUMABLE + timedelta(days=1))
    assert [one.id for one in database.unfinished()] == [latest, new]
    assert (database.steps(old), database.steps(new)) == ((), (b"counted",))
    ended = database.read(partial(listing.campaign, number=old))
    assert ended is not None
    assert (ended.finished, ended.updated) == (True, stamp(START))


def test_campaigns_of_one_key_read_each_others_lessons_in_order(database: Database) -> None:
    here, there, other = (
        database.start_campaign(profile="default", seed=seed, generator="1", options={}, when=START)
        for seed in (1, 1, 2)
    )
    database.add_lesson(there, "a", 0, b"first")
    database.add_lesson(here, "a", 1, b"mine")
    database.add_lesson(other, "b", 0, b"of another campaign")
    database.add_lesson(there, "a", 1, bytes(range(256)))
    (first, one), (last, two) = database.lessons(here, "a", 0)
    assert (first < last, one, two) == (True, b"first", bytes(range(256)))
    assert database.lessons(here, "a", first) == ((last, two),)
    assert database.lessons(here, "a", 0, until=first) == ((first, one),)
    assert (database.heard(here), database.heard(there)) == ((1,), (0, 1))
    database.forget_lessons("a")
    assert (database.heard(here), database.heard(other)) == ((), (0,))


def test_who_else_has_seen_a_finding_is_known_until_it_has_ended(database: Database) -> None:
    here, there = (
        database.start_campaign(profile="default", seed=1, generator="1", options={}, when=START) for _ in range(2)
    )
    finding = database.record(sighting(), START, there).finding_id
    database.record(sighting(), START, here)
    assert [entry.id for entry in database.met_by_others(finding, here)] == [there]
    database.finish_campaign(there, START)
    assert database.met_by_others(finding, here) == ()


@pytest.mark.slow
@settings(PROPERTY, max_examples=25)
@given(databases())
def test_what_is_put_is_what_is_got(found: tuple[Finding, ...]) -> None:
    with TemporaryDirectory() as folder, Database.open(url_in(folder)) as database:
        database.put(found)
        assert database.findings() == found
        database.put(found)
        database.merge(found)
        assert database.findings() == found


one_id = findings((CHUNK,), sequences=1)


@pytest.mark.slow
@PROPERTY
@given(one_id, one_id, one_id)
def test_merging_does_not_depend_on_order(a: Finding, b: Finding, c: Finding) -> None:
    assert merged(a, a) == a
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))


def counted(*names: str) -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(st.sampled_from(names), st.integers(1, 9))


one_site = st.builds(
    SiteRecord,
    *map(st.just, ("Python", "torch/_refs/__init__.py", 4, "squeeze")),
    call=st.sampled_from(("guard_bool", "guard_or_false")),
    fallbacks=counted("False", "True"),
    old=counted("same", "other", "undecided"),
    raised=st.integers(0, 9),
    cases=st.integers(1, 9),
    blamed=st.sets(st.sampled_from(("f", "g", "h"))).map(lambda names: tuple(sorted(names))),
    example=st.sampled_from(("", "one", "two")),
    stage=st.sampled_from(("fake", "export")),
)


@PROPERTY
@given(one_site, one_site, one_site)
def test_merging_sites_does_not_depend_on_order(a: SiteRecord, b: SiteRecord, c: SiteRecord) -> None:
    assert merged_site(a, a) == a
    assert merged_site(a, b) == merged_site(b, a)
    assert merged_site(merged_site(a, b), c) == merged_site(a, merged_site(b, c))


@PROPERTY
@given(findings())
def test_documents_are_json(finding: Finding) -> None:
    document = as_document(finding)
    assert document["schema"] == "ddefuzz.finding/3"
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def mark(database: Database, finding: str, of: str, by: By) -> None:
    """Mark a finding as a duplicate."""
    database.apply(finding, [(row, of) for row in DECISIONS if row.name == "dup"], by)


def decide(
    database: Database, finding: str, state: State, when: datetime = START, fixed_in: Iterable[str] = ()
) -> None:
    """Set the state of a finding."""
    database.decide(finding, lambda one: set_state(one, state, By(WHO, when), fixed_in))


class DatabaseMachine(RuleBasedStateMachine):
    """The database against the simplest model of it: counts, states and duplicates in dictionaries."""

    known = Bundle("known")

    @initialize()
    def open(self) -> None:
        self.folder = TemporaryDirectory()
        self.database = Database.open(url_in(self.folder.name))
        self.counts: dict[str, int] = {}
        self.states: dict[str, State] = {}
        self.seconds = 0

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    def now(self) -> timedelta:
        self.seconds += 1
        return timedelta(seconds=self.seconds)

    @rule(target=known, signature=st.sampled_from([CHUNK, ROLL]), torch=st.sampled_from(["2.13.0", "2.15.0"]))
    def record(self, signature: Signature, torch: str) -> str:
        result = self.database.record(sighting(signature, torch=torch), START + self.now())
        assert result.is_new == (result.finding_id not in self.counts)
        self.counts[result.finding_id] = self.counts.get(result.finding_id, 0) + 1
        self.states.setdefault(result.finding_id, "new")
        return result.finding_id

    @rule(finding=known, state=st.sampled_from(["new", "triaged", "fixed", "wont-fix"]))
    def set_state(self, finding: str, state: State) -> None:
        try:
            decide(self.database, finding, state, START + self.now())
        except InputError:
            return
        self.states[finding] = state

    @rule(finding=known, of=known)
    def dup(self, finding: str, of: str) -> None:
        try:
            mark(self.database, finding, of, By(WHO, START + self.now()))
        except InputError:
            return
        self.states[finding] = "duplicate"

    @rule(finding=consumes(known))
    def undup(self, finding: str) -> None:
        if self.states[finding] == "duplicate":
            self.database.decide(finding, lambda one: undup(one, By(WHO, START + self.now())))
            self.states[finding] = self.database.get(finding).state
            assert self.states[finding] != "duplicate"

    @rule()
    def open_again(self) -> None:
        self.database.close()
        self.database = Database.open(self.database.url, create=False)

    @invariant()
    def agrees(self) -> None:
        found = self.database.findings()
        assert {one.id: one.count for one in found} == self.counts
        assert {one.id: one.state for one in found} == self.states
        assert all((one.state == "duplicate") == (one.duplicate_of is not None) for one in found)
        listed = self.database.read(lambda session: listing.selected(session, listing.Query()))
        assert listed == tuple(map(summary_of, found))


TestDatabaseMachine = DatabaseMachine.TestCase
TestDatabaseMachine.settings = settings(PROPERTY, max_examples=15, stateful_step_count=12)


def test_an_id_is_its_signatures_and_nothing_else() -> None:
    assert [sequence_of(id_of(CHUNK.key, number), CHUNK) for number in (1, 2, 10)] == [1, 2, 10]
    for wrong in ("-2", f"{CHUNK.key}-1", f"{CHUNK.key}-02", f"../{CHUNK.key}", f"{CHUNK.key}/../x", ROLL.key):
        assert sequence_of(wrong, CHUNK) is None


def test_each_return_takes_the_next_number(database: Database) -> None:
    ids = []
    for number in range(3):
        ids.append(database.record(sighting(), START + timedelta(hours=number)).finding_id)
        database.decide(ids[-1], lambda one: set_state(one, "fixed", By(WHO, START)))
    assert ids == [CHUNK.key, f"{CHUNK.key}-2", f"{CHUNK.key}-3"]


def test_rows_that_a_deletion_without_foreign_keys_left_are_replaced(tmp_path: Path) -> None:
    with Database.open(url_in(tmp_path)) as database:
        database.record(sighting(CHUNK), START)
        (before,) = database.findings()
        for bring in (lambda: database.merge([before]), lambda: database.record(sighting(CHUNK), START)):
            with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
                connection.execute("DELETE FROM findings")
            assert database.findings() == ()
            bring()
            assert database.findings() == (before,)


def test_a_row_with_nul_is_left_out(tmp_path: Path) -> None:
    """PostgreSQL cannot store it, and would refuse all that is merged with it."""
    with Database.open(url_in(tmp_path)) as database:
        database.record(sighting(CHUNK), START)
        database.record(sighting(ROLL), START)
        noted = msgspec.structs.replace(database.get(CHUNK.key), owner="a\0b")
        database.put([noted])
        with refusals() as left_out:
            assert [one.id for one in database.findings()] == [ROLL.key]
        assert [*left_out] == [
            f"finding {CHUNK.key!r} in the database: owner: found 'a\\x00b', expected text in UTF-8 without NUL"
        ]


def test_a_duplicate_of_what_was_deleted_is_not_exported(tmp_path: Path) -> None:
    with Database.open(url_in(tmp_path)) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
        database.decide(CHUNK.key, lambda one: dup(one, ROLL.key, By(WHO, START)))
        with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
            connection.execute(f"DELETE FROM findings WHERE id = '{ROLL.key}'")
        with refusals() as left_out:
            assert database.transferable() == ()
        assert len(left_out) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE occurrences SET torch = 'new'", "found 'new', expected a version of torch"),
        ("UPDATE documents SET document = replace(document, '\"export\"', '\"grow\"')", "found the stage 'grow'"),
        ("DELETE FROM documents", "found no document"),
    ],
)
def test_a_damaged_row_is_left_out_where_an_import_would_refuse_it(tmp_path: Path, change: str, message: str) -> None:
    with Database.open(url_in(tmp_path)) as database:
        database.record(sighting(), START)
        with closing(sqlite3.connect(tmp_path / "ddefuzz.db")) as connection, connection:
            connection.execute(change)
        with pytest.raises(RowError, match=f"finding '{CHUNK.key}' in the database: {message}"):
            database.findings()


def test_rows_that_contradict_each_other_are_one_line(tmp_path: Path) -> None:
    with Database.open(url_in(tmp_path)) as database:
        database.record(sighting(), START)
        (stored,) = database.findings()
        with pytest.raises(DatabaseError, match="its rows contradict each other, expected a database that"):
            database.put([stored, stored])
