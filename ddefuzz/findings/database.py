"""The findings database. Campaigns record failures in it, people record decisions, and both read it.

Every method is one transaction. Inside `with database.transaction():` all calls share that transaction. Times and the
names of people are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from threading import local
from typing import TypeVar

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy import Table, delete, exists, insert, select, true, tuple_, update
from sqlalchemy.orm import Session

from ddefuzz.answers.model import Answers, Control
from ddefuzz.classify.failure import Failure
from ddefuzz.errors import DatabaseError, InputError, RowError, refuse
from ddefuzz.files import is_there
from ddefuzz.findings.connection import errors_of, open_engine
from ddefuzz.findings.decisions import FINDING, By, Decision, check_original, check_together
from ddefuzz.findings.ledger import SiteRecord, together
from ddefuzz.findings.merge import joined_duplicates, merged
from ddefuzz.findings.model import (
    Campaign,
    Confirmation,
    Finding,
    Progress,
    Result,
    Sighting,
    named,
    normalized,
    slim,
    stamp,
)
from ddefuzz.findings.schema import (
    CAMPAIGNS,
    FINDINGS,
    KEPT_POINTS,
    LATEST,
    LESSONS,
    MET,
    PROGRESS,
    REACHED,
    RESULTS,
    SITES,
    STEPS,
    SWEPT,
    add_finding,
    only,
    readable,
    save_finding,
    to_record,
    whole_findings,
)
from ddefuzz.findings.sightings import RecordResult, save_sighting
from ddefuzz.findings.textform import check_size, write_findings
from ddefuzz.findings.url import DatabaseUrl, parse_url

Answer = TypeVar("Answer")
Record = TypeVar("Record")
JoinSites = Callable[[SiteRecord, SiteRecord], SiteRecord]

RESUMABLE = timedelta(days=30)
"""How long after its last result a campaign can be resumed."""

AT_A_TIME = 200
"""The number of sites whose keys are parameters of one statement. Older SQLite takes at most 999 parameters."""


class Database:
    """An open findings database. Open it with `Database.open`, and `close` it or use it in a `with` block."""

    def __init__(self, url: DatabaseUrl, *, create: bool = True) -> None:
        self._engine = open_engine(url, create=create)
        self._open = local()  # .session: the transaction of this thread
        self._was_written = False
        path = url.path()
        self._path = None if path is None else path.absolute()
        self._file = _identity(self._path)
        self.url = url

    @classmethod
    def open(cls, url: DatabaseUrl | str, *, create: bool = True) -> Database:
        """Open the database. Creates and migrates it if needed. Raises `DatabaseError`, or `InputError` for the URL."""
        return cls(parse_url(url) if isinstance(url, str) else url, create=create)

    def close(self) -> None:
        """Close all connections. Raises `DatabaseError` if the file that was written is gone."""
        try:
            if self._was_written:
                with self._rescued():
                    pass
        finally:
            self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def transaction(self) -> AbstractContextManager[object]:
        """Save everything in the block together or not at all. Other threads are not affected."""
        return self._writing()

    # What campaigns record

    def record(self, sighting: Sighting, when: datetime, campaign: int | None = None) -> RecordResult:
        """Save a sighting, in its finding or in a new one. It then survives a kill of the process."""
        with self._writing() as session:
            return save_sighting(session, sighting, stamp(when), campaign)

    def set_minimal(self, finding_id: str, program: str, *, steps: int, attempts: int) -> None:
        """Save the smallest program so far, its number of operations, and the number of captures.

        Replays, control runs and the experiment of an earlier smallest program are dropped, because they do not
        describe this one.
        """

        def smaller(finding: Finding) -> Finding:
            if finding.minimal != program:
                finding = replace(finding, confirmed=None, shown=None, control=None, answers=None)
            return replace(finding, minimal=program, steps=steps, attempts=attempts)

        self.decide(finding_id, smaller)

    def set_confirmed(self, finding_id: str, k: int, n: int, shown: Failure | None = None) -> None:
        """Save that `k` of `n` cold replays showed the signature, and one of their failures."""
        stored = None if shown is None else slim(shown)
        self.decide(finding_id, lambda finding: replace(finding, confirmed=Confirmation(k, n), shown=stored))

    def set_control(self, finding_id: str, control: Control) -> None:
        """Save the results of the control runs of the smallest program."""
        self.decide(finding_id, lambda finding: replace(finding, control=control))

    def set_answers(self, finding_id: str, answers: Answers, decision: Callable[[Finding], Finding]) -> Finding:
        """Save the experiment on the guard, and the cause that `decision` (`merge.with_cause`) gives it."""
        return self.decide(finding_id, lambda finding: decision(replace(finding, answers=answers)))

    # What people decide

    def decide(self, finding_id: str, decision: Callable[[Finding], Finding]) -> Finding:
        """Change a finding by a function, such as those of `findings.decisions`. Returns the result."""
        with self._writing() as session:
            before = _whole(session, finding_id)
            after = normalized(decision(before))
            _check_duplicate(session, before, after)
            save_finding(session, after)
            return after

    def apply(self, finding_id: str, typed: Iterable[tuple[Decision, str | None]], by: By) -> Finding:
        """Make decisions with what was typed for each, None if nothing was; all or none. Returns the result.

        The state that the finding has already is no decision beside others.
        """
        decisions = list(typed)
        with self._writing() as session:
            finding = _whole(session, finding_id)
            for decision, text in decisions:
                if len(decisions) > 1 and not text and (decision.group, decision.name) == ("state", finding.state):
                    continue
                checked = "" if decision.value is None or text is None else decision.value.checked(text)
                if decision.value is FINDING:
                    checked = self.resolve(checked).id
                before, finding = finding, decision.change(finding, checked, by)
                _check_duplicate(session, before, finding)
            check_size(finding)
            save_finding(session, finding)
            return finding

    # What both read

    def get(self, finding_id: str) -> Finding:
        """The finding with exactly this id. Raises `InputError`."""
        with self._reading() as session:
            return _whole(session, finding_id)

    def resolve(self, prefix: str) -> Finding:
        """The one finding whose id, with or without its kind, begins so. Raises `InputError` with suggestions.

        If no current id matches, ids that findings had before the rules of classification changed are searched.
        """
        with self._reading() as session:
            if session.scalar(select(exists().where(FINDINGS.c.id == prefix))):
                return _whole(session, prefix)
            rows = session.execute(select(FINDINGS.c.id, FINDINGS.c.former).order_by(FINDINGS.c.id)).all()
            ids = readable("finding", rows, lambda row: msgspec.convert(tuple(row), tuple[str, tuple[str, ...]]))
            return _whole(session, named(prefix, dict(ids)))

    def findings(self) -> tuple[Finding, ...]:
        """All findings, ordered by id."""
        with self._reading() as session:
            return tuple(whole_findings(session, true()))

    def transferable(self, others: Iterable[str] = ()) -> tuple[Finding, ...]:
        """All findings but duplicates of one that cannot be read, or is not there, nor in `others`: left out as well.

        No import takes a duplicate of a finding that is neither with it nor there.
        """
        findings = self.findings()
        while True:
            known = {None, *others, *(finding.id for finding in findings)}
            cut = {finding.id: finding.duplicate_of for finding in findings if finding.duplicate_of not in known}
            if not cut:
                return findings
            for name, original in cut.items():
                refuse(RowError(f"finding {name!r} in the database: a duplicate of {original!r}, which cannot be read"))
            findings = tuple(finding for finding in findings if finding.id not in cut)

    def read(self, question: Callable[[Session], Answer]) -> Answer:
        """What a function of `findings.listing` reads, in one transaction."""
        with self._reading() as session:
            return question(session)

    def write(self, change: Callable[[Session], Answer]) -> Answer:
        """What a function of `findings.tokens` changes, in one transaction."""
        with self._writing() as session:
            return change(session)

    # Bringing in what another database knows

    def put(self, findings: Iterable[Finding], gone: Iterable[str] = ()) -> None:
        """Save whole findings as they are, in place of those with the same ids and of those with ids that are gone."""
        stored = tuple(findings)
        with self._writing() as session:
            for name in sorted({*gone, *(finding.id for finding in stored)}):
                session.execute(delete(FINDINGS).where(FINDINGS.c.id == name))
            for finding in stored:
                add_finding(session, finding)

    def merge(self, findings: Iterable[Finding]) -> None:
        """Merge these findings into the stored ones (`merge.merged`)."""
        with self._writing() as session:
            for finding in list(findings):
                stored = _stored(session, finding.id)
                together = normalized(finding) if stored is None else merged(stored, finding)
                if together != stored:
                    self.put([together])
            duplicates = select(FINDINGS.c.id, FINDINGS.c.duplicate_of).where(FINDINGS.c.duplicate_of.is_not(None))
            originals = {str(row[0]): str(row[1]) for row in session.execute(duplicates)}
            chained = {name for name, original in originals.items() if original in originals}
            if chained:
                ends = {originals[original] for original in map(originals.__getitem__, chained)}
                names = {*chained, *map(originals.__getitem__, chained), *ends}
                self.put(joined_duplicates(_whole(session, name) for name in sorted(names)))

    # Campaigns, so that they can be resumed

    def start_campaign(
        self, *, profile: str, seed: int, generator: str, options: dict[str, object], when: datetime
    ) -> int:
        """Save what a campaign's cases depend on, before the first is drawn. Returns the campaign's id.

        Campaigns that nobody has resumed for `RESUMABLE` end: what they would be resumed with is deleted.
        """
        with self._writing() as session:
            silent = CAMPAIGNS.c.finished.is_(False) & (CAMPAIGNS.c.updated < stamp(when - RESUMABLE))
            for old in session.scalars(select(CAMPAIGNS.c.id).where(silent)).all():
                _end(session, old)
            same = {"profile": profile, "seed": seed, "generator": generator, "options": options}
            times = {"started": stamp(when), "updated": stamp(when)}
            added = insert(CAMPAIGNS).values(**same, **times, next_index=0, ahead=[], finished=False)
            (campaign,) = session.execute(added.returning(CAMPAIGNS.c.id)).one()
            return int(campaign)

    def advance(self, campaign: int, next_index: int, when: datetime, ahead: Iterable[int] = ()) -> None:
        """Save that all cases before `next_index`, and those in `ahead`, are done and their results recorded."""
        with self._writing() as session:
            this = CAMPAIGNS.c.id == campaign
            first = max(session.scalars(select(CAMPAIGNS.c.next_index).where(this)).one(), next_index)
            later = sorted(index for index in ahead if index >= first)
            session.execute(update(CAMPAIGNS).where(this).values(next_index=first, ahead=later, updated=stamp(when)))

    def add_progress(self, campaign: int, progress: Progress) -> None:
        """Save the counts of a campaign at one time."""
        with self._writing() as session:
            _replace_row(session, PROGRESS, {"campaign_id": campaign, "when": progress.when}, asdict(progress))

    def add_step(self, campaign: int, counted: bytes) -> None:
        """Save what a campaign has counted since its last step. It is kept until the campaign has ended."""
        with self._writing() as session:
            session.execute(insert(STEPS).values(campaign_id=campaign, counted=counted))

    def steps(self, campaign: int) -> tuple[bytes, ...]:
        """What an unfinished campaign has counted, in order."""
        with self._reading() as session:
            rows = select(STEPS.c.counted).where(STEPS.c.campaign_id == campaign).order_by(STEPS.c.id)
            return tuple(session.scalars(rows))

    def finish_campaign(self, campaign: int, when: datetime) -> None:
        """Save that a campaign has ended and cannot be resumed. Of its counts over time about `KEPT_POINTS` stay."""
        with self._writing() as session:
            session.execute(update(CAMPAIGNS).where(CAMPAIGNS.c.id == campaign).values(updated=stamp(when)))
            _end(session, campaign)

    def unfinished(self) -> tuple[Campaign, ...]:
        """The campaigns that can be resumed, the latest first."""
        with self._reading() as session:
            columns = CAMPAIGNS.c
            rows = session.execute(select(CAMPAIGNS).where(columns.finished.is_(False)).order_by(columns.id.desc()))
            return tuple(readable("campaign", rows, lambda row: to_record(row, Campaign)))

    # Campaigns of one key, which tell each other what they learn

    def met_by_others(self, finding_id: str, campaign: int) -> tuple[Campaign, ...]:
        """The unfinished campaigns, but this one, that have seen a finding."""
        met = select(MET.c.campaign_id).where(MET.c.finding_id == finding_id, MET.c.campaign_id != campaign)
        with self._reading() as session:
            ids = set(session.scalars(met))
            return tuple(entry for entry in self.unfinished() if entry.id in ids) if ids else ()

    def add_lesson(self, campaign: int, key: str, heard: int, learned: bytes) -> None:
        """Save what a round has taught, and the latest lesson of others that was taken in after it."""
        with self._writing() as session:
            session.execute(insert(LESSONS).values(campaign_id=campaign, key=key, heard=heard, learned=learned))

    def lessons(self, campaign: int, key: str, after: int, until: int | None = None) -> tuple[tuple[int, bytes], ...]:
        """The lessons of other campaigns of this key, by number: those after one, until one if that is given."""
        column = LESSONS.c
        fitting = (column.key == key, column.campaign_id != campaign, column.id > after)
        rows = select(column.id, column.learned).where(*fitting, *(() if until is None else (column.id <= until,)))
        with self._reading() as session:
            return tuple((int(number), bytes(learned)) for number, learned in session.execute(rows.order_by(column.id)))

    def heard(self, campaign: int) -> tuple[int, ...]:
        """The latest lesson of others that a campaign had taken in after each of its rounds."""
        column = LESSONS.c
        with self._reading() as session:
            rows = select(column.heard).where(column.campaign_id == campaign).order_by(column.id)
            return tuple(session.scalars(rows))

    def forget_lessons(self, key: str) -> None:
        """Delete the lessons of all campaigns of this key, which have ended."""
        with self._writing() as session:
            session.execute(delete(LESSONS).where(LESSONS.c.key == key))

    # What `ddefuzz matrix` has run

    def save_results(self, results: Iterable[Result]) -> None:
        """Save what findings and cases did under versions of torch. They replace what is stored for the same."""
        with self._writing() as session:
            for result in results:
                _replace_row(session, RESULTS, {"case": result.case, "torch": result.torch}, asdict(result))

    # Guard sites, and what sweeps have done

    def add_sites(
        self, torch: str, records: Iterable[SiteRecord], both: JoinSites = together, campaign: int | None = None
    ) -> None:
        """Add the guard sites reached under a version of torch to the stored ones, and to those of a campaign. `both`
        makes one record of two.
        """
        keys = [SITES.c[name] for name in ("language", "file", "line", "function")]
        given = tuple(records)
        with self._writing() as session:
            for first in range(0, len(given), AT_A_TIME):
                some = {record.key: record for record in given[first : first + AT_A_TIME]}
                same = (SITES.c.torch == torch, tuple_(*keys).in_(list(some)))
                stored = [to_record(row, SiteRecord) for row in session.execute(select(SITES).where(*same))]
                session.execute(delete(SITES).where(*same))
                some |= {record.key: both(record, some[record.key]) for record in stored}
                rows = [{"torch": torch, **msgspec.to_builtins(record)} for record in some.values()]
                session.execute(insert(SITES), rows)
                if campaign is not None:
                    _add_missing(session, REACHED, campaign, some)

    def sites(self, torch: str) -> tuple[SiteRecord, ...]:
        """The guard sites reached under a version of torch, ordered by place."""
        with self._reading() as session:
            rows = session.execute(select(SITES).where(SITES.c.torch == torch))
            records = readable("guard site", rows, lambda row: to_record(row, SiteRecord))
            return tuple(sorted(records, key=lambda record: record.key))

    def torch_versions(self) -> tuple[str, ...]:
        """The versions of torch for which guard sites are stored."""
        with self._reading() as session:
            versions = session.scalars(select(SITES.c.torch).distinct())
            return tuple(sorted(readable("version of torch", versions, lambda torch: msgspec.convert(torch, str))))

    def save_swept(self, key: str, op: str, result: str) -> None:
        """Save the result of a sweep of one op, as JSON. `key` has everything that decides the result."""
        with self._writing() as session:
            _replace_row(session, SWEPT, {"key": key, "op": op}, {"result": result})

    def swept(self, key: str, result: type[Record]) -> dict[str, Record]:
        """The stored results of sweeps with this key, by op."""
        with self._reading() as session:
            rows = session.execute(select(SWEPT.c.op, SWEPT.c.result).where(SWEPT.c.key == key).order_by(SWEPT.c.op))
            decoded = readable(
                "op of the sweep", rows, lambda row: (str(row.op), msgspec.json.decode(row.result, type=result))
            )
            return dict(decoded)

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        outer: Session | None = getattr(self._open, "session", None)
        if outer is not None:
            with errors_of(self.url), outer.connection().begin_nested():  # what fails in it leaves nothing half-written
                yield outer
            return
        with self._rescued(), errors_of(self.url), Session(self._engine) as session:
            self._was_written = True
            self._open.session = session
            try:
                with session.begin():
                    yield session
            finally:
                self._open.session = None

    @contextmanager
    def _reading(self) -> Iterator[Session]:
        outer: Session | None = getattr(self._open, "session", None)
        if outer is not None:
            with errors_of(self.url):
                yield outer
            return
        with errors_of(self.url), Session(self._engine.execution_options(reads=True)) as session:
            yield session

    @contextmanager
    def _rescued(self) -> Iterator[None]:
        """Wrap a transaction. If the file is gone afterwards, save the findings as text and raise `DatabaseError`."""
        try:
            yield
        except DatabaseError:
            if _identity(self._path) == self._file:
                raise
        if _identity(self._path) == self._file:
            return
        self._was_written = False  # the rescue is made once
        findings = self.findings()
        names = (Path(f"{self._path}-rescued{number or ''}") for number in count())
        folder = next(name for name in names if not is_there(name))
        try:
            number = write_findings(findings, folder)
            rescue = f"its findings ({number}) are in {folder}: `ddefuzz findings import {folder}` reads them"
        except (InputError, OSError) as error:
            rescue = f"its findings ({len(findings)}) are lost: {error}"
        raise DatabaseError(
            f"findings database {self.url}: the file was deleted, moved or replaced while it was open, expected it to "
            f"stay; {rescue}"
        )


def _stored(session: Session, finding_id: str, *, observed: bool = True) -> Finding | None:
    return only(whole_findings(session, FINDINGS.c.id == finding_id, observed=observed))


def _whole(session: Session, finding_id: str, *, observed: bool = True) -> Finding:
    finding = _stored(session, finding_id, observed=observed)
    if finding is None:
        raise InputError(f"{finding_id!r}: found no such finding, expected an id that `findings list` shows")
    return finding


def _check_duplicate(session: Session, before: Finding, after: Finding) -> None:
    """Raise `InputError` if a decision makes half of a duplicate, or one of no original, as an undo may."""
    if (after.state, after.duplicate_of) == (before.state, before.duplicate_of):
        return
    check_together(after, f"{after.id}: ")
    if after.duplicate_of not in (None, before.duplicate_of):
        original = _stored(session, after.duplicate_of)
        if original is None:
            raise InputError(
                f"{after.id}: found a duplicate of {after.duplicate_of[:80]!r}, which is not there, expected the id of "
                "another finding"
            )
        repeats = session.scalars(select(FINDINGS.c.id).where(FINDINGS.c.duplicate_of == after.id))
        check_original(after, original, repeats)


def _end(session: Session, campaign: int) -> None:
    """End a campaign: what is kept of it from then on does not grow with its length."""
    session.execute(update(CAMPAIGNS).where(CAMPAIGNS.c.id == campaign).values(finished=True))
    session.execute(delete(STEPS).where(STEPS.c.campaign_id == campaign))
    of_campaign = PROGRESS.c.campaign_id == campaign
    times = session.scalars(select(PROGRESS.c.when).where(of_campaign).order_by(PROGRESS.c.when)).all()
    kept = {*times[:: len(times) // KEPT_POINTS + 1], *times[-LATEST:]}
    if len(kept) < len(times):
        session.execute(delete(PROGRESS).where(of_campaign, PROGRESS.c.when.not_in(sorted(kept))))


def _replace_row(session: Session, table: Table, key: Mapping[str, object], values: Mapping[str, object]) -> None:
    session.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))
    session.execute(insert(table).values({**key, **values}))


def _add_missing(session: Session, table: Table, campaign: int, keys: Iterable[tuple[object, ...]]) -> None:
    """Add the rows of a campaign that are not there yet. The columns after the campaign's are the key."""
    _, *columns = table.columns
    wanted, key = dict.fromkeys(map(tuple, keys)), tuple_(*columns)
    there = session.execute(select(*columns).where(table.c.campaign_id == campaign, key.in_(list(wanted))))
    names = [column.name for column in columns]
    left = wanted.keys() - set(map(tuple, there))
    rows = [{"campaign_id": campaign, **dict(zip(names, one, strict=True))} for one in wanted if one in left]
    if rows:
        session.execute(insert(table), rows)


def _identity(path: Path | None) -> tuple[int, int] | None:
    """What tells a file from another at the same path."""
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
