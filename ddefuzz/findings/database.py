"""The findings database. Campaigns record failures in it, people record decisions, and both read it.

Every method is one transaction. Inside `with database.transaction():` all calls share that transaction. Times and the
names of people are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import local
from typing import TypeVar

import msgspec
from msgspec.structs import asdict
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from ddefuzz.answers.model import Answers, Control
from ddefuzz.classify.failure import Failure
from ddefuzz.coverage.ledger import SiteRecord, together
from ddefuzz.errors import InputError
from ddefuzz.findings.connection import errors_of, open_engine
from ddefuzz.findings.decisions import By, dup
from ddefuzz.findings.lifecycle import State, recurs
from ddefuzz.findings.lookup import named
from ddefuzz.findings.merge import DECIDED, merged, merged_site
from ddefuzz.findings.model import (
    MOST_OBSERVED,
    Campaign,
    Finding,
    Occurrence,
    Progress,
    Sighting,
    normalized,
    slim,
    stamp,
)
from ddefuzz.findings.rescue import OpenFile, rescued
from ddefuzz.findings.results import Result
from ddefuzz.findings.rows import id_of, readable, to_finding, to_json, to_occurrence_row, to_record, to_row
from ddefuzz.findings.schema import (
    CampaignRow,
    FindingRow,
    HistoryRow,
    LinkRow,
    NoteRow,
    ProgressRow,
    ResultRow,
    SiteRow,
    StepRow,
    SweptRow,
)
from ddefuzz.findings.sites import save_sites
from ddefuzz.findings.url import DatabaseUrl, parse_url

Answer = TypeVar("Answer")


class RecordResult(msgspec.Struct, frozen=True):
    """The finding to which a sighting was added, and whether that finding is new."""

    finding_id: str
    is_new: bool


class Database:
    """An open findings database. Open it with `Database.open`, and `close` it or use it in a `with` block."""

    def __init__(self, url: DatabaseUrl, *, create: bool = True) -> None:
        self._engine = open_engine(url, create=create)
        self._open = local()  # .session: the transaction of this thread
        self._file = OpenFile(url)
        self.url = url

    @classmethod
    def open(cls, url: DatabaseUrl | str, *, create: bool = True) -> Database:
        """Open the database. Creates and migrates it if needed. Raises `DatabaseError`, or `InputError` for the URL."""
        return cls(parse_url(url) if isinstance(url, str) else url, create=create)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Save everything in the block together or not at all. Other threads are not affected."""
        with self._writing():
            yield

    # What campaigns record

    def record(self, sighting: Sighting, when: datetime) -> RecordResult:
        """Save a sighting, in its finding or in a new one. It then survives a kill of the process."""
        signature, now = sighting.signature, stamp(when)
        with self._writing() as session:
            newest = session.scalars(
                select(FindingRow).where(FindingRow.key == signature.key).order_by(FindingRow.sequence.desc()).limit(1)
            ).first()
            row = newest
            if newest is None or recurs(_state(newest), tuple(newest.fixed_in), sighting.torch):
                row = to_row(
                    Finding(
                        id=id_of(signature.key, newest.sequence + 1 if newest else 1),
                        kind=signature.kind,
                        cause=sighting.cause,
                        site=signature.site,
                        anchor=signature.anchor,
                        original=sighting.program,
                        failure=slim(sighting.failure),
                    )
                )
                session.add(row)
            assert row is not None
            if row.original is None and row.minimal is None and sighting.program is not None:
                row.original, row.failure = sighting.program, to_json(slim(sighting.failure))
            _add_occurrences(row, sighting, now)
            return RecordResult(row.id, is_new=row is not newest)

    def set_minimal(self, finding_id: str, program: str, *, steps: int, attempts: int) -> None:
        """Save the smallest program so far, its number of operations, and the number of captures.

        Replays, control runs and the experiment of an earlier smallest program are dropped, because they do not
        describe this one.
        """
        with self._writing() as session:
            row = _row(session, finding_id)
            if row.minimal != program:
                row.confirmed_k = row.confirmed_n = row.shown = row.control_static = row.control_backed = None
                row.answers = None
            row.minimal, row.steps, row.attempts = program, steps, attempts

    def set_confirmed(self, finding_id: str, k: int, n: int, shown: Failure | None = None) -> None:
        """Save that `k` of `n` cold replays showed the signature, and one of their failures."""
        with self._writing() as session:
            row = _row(session, finding_id)
            row.confirmed_k, row.confirmed_n = k, n
            row.shown = to_json(None if shown is None else slim(shown))

    def set_control(self, finding_id: str, control: Control) -> None:
        """Save the results of the control runs of the smallest program."""
        with self._writing() as session:
            row = _row(session, finding_id)
            row.control_static, row.control_backed = control.static, control.backed

    def set_answers(self, finding_id: str, answers: Answers, decision: Callable[[Finding], Finding]) -> Finding:
        """Save the experiment on the guard, and the cause that `decision` (`reclassify.with_cause`) gives it."""
        with self._writing() as session:
            _row(session, finding_id).answers = to_json(answers)
            return self.decide(finding_id, decision)

    # What people decide

    def decide(self, finding_id: str, decision: Callable[[Finding], Finding]) -> Finding:
        """Change what people decide about a finding, by a function of `findings.decisions`. Returns the result."""
        with self._writing() as session:
            row = _row(session, finding_id)
            before = to_finding(row)
            after = decision(before)
            for name in DECIDED:
                value = getattr(after, name)
                setattr(row, name, list(value) if isinstance(value, tuple) else value)
            row.history += [HistoryRow(**asdict(entry)) for entry in after.history if entry not in before.history]
            row.notes += [NoteRow(**asdict(note)) for note in after.notes if note not in before.notes]
            row.links = [link for link in row.links if link.url in after.links]
            row.links += [LinkRow(url=url) for url in after.links if url not in before.links]
            return after

    def dup(self, finding_id: str, of: str, by: By) -> Finding:
        """Mark `id` as a duplicate of `of`, which must not be a duplicate itself."""
        with self._writing() as session:
            repeats = session.scalars(select(FindingRow.id).where(FindingRow.duplicate_of == finding_id)).all()
            original = self.get(of)
            return self.decide(finding_id, lambda finding: dup(finding, original, repeats, by))

    # What both read

    def get(self, finding_id: str) -> Finding:
        """The finding with exactly this id. Raises `InputError`."""
        with self._reading() as session:
            return to_finding(_row(session, finding_id))

    def resolve(self, prefix: str) -> Finding:
        """The one finding whose id, with or without its kind, begins so. Raises `InputError` with suggestions.

        If no current id matches, ids that findings had before the rules of classification changed are searched.
        """
        with self._reading() as session:
            row = session.get(FindingRow, prefix)
            if row is not None:
                return to_finding(row)
            rows = session.execute(select(FindingRow.id, FindingRow.former).order_by(FindingRow.id)).all()
            ids = readable("finding", rows, lambda row: msgspec.convert(tuple(row), tuple[str, tuple[str, ...]]))
            return to_finding(_row(session, named(prefix, dict(ids))))

    def findings(self) -> tuple[Finding, ...]:
        """All findings, ordered by id."""
        with self._reading() as session:
            return tuple(readable("finding", session.scalars(select(FindingRow).order_by(FindingRow.id)), to_finding))

    def read(self, question: Callable[[Session], Answer]) -> Answer:
        """What a function of `findings.listing` reads, in one transaction."""
        with self._reading() as session:
            return question(session)

    def write(self, change: Callable[[Session], Answer]) -> Answer:
        """What a function of `findings.tokens` changes, in one transaction."""
        with self._writing() as session:
            return change(session)

    # Bringing in what another database knows

    def put(self, findings: Iterable[Finding]) -> None:
        """Save whole findings as they are. They replace the stored findings with the same ids."""
        with self._writing() as session:
            for finding in findings:
                session.execute(delete(FindingRow).where(FindingRow.id == finding.id))
                session.expunge_all()
                session.add(to_row(finding))
                session.flush()

    def replace(self, findings: Iterable[Finding], gone: Iterable[str]) -> None:
        """Make these the only findings: save them as they are and delete all others with ids that are gone."""
        with self._writing() as session:
            for name in sorted(gone):
                session.execute(delete(FindingRow).where(FindingRow.id == name))
            self.put(findings)

    def merge(self, findings: Iterable[Finding]) -> None:
        """Merge these findings into the stored ones (`merge.merged`)."""
        with self._writing() as session:
            incoming = list(findings)
            rows = {finding.id: session.get(FindingRow, finding.id) for finding in incoming}
            known = {name: to_finding(row) for name, row in rows.items() if row is not None}
            together = [merged(known[f.id], f) if f.id in known else normalized(f) for f in incoming]
            self.put(finding for finding in together if known.get(finding.id) != finding)

    # Campaigns, so that they can be resumed

    def start_campaign(
        self, *, profile: str, seed: int, generator: str, options: dict[str, object], when: datetime
    ) -> int:
        """Save what a campaign's cases depend on, before the first is drawn. Returns the campaign's id."""
        with self._writing() as session:
            row = CampaignRow(
                profile=profile,
                seed=seed,
                generator=generator,
                options=options,
                next_index=0,
                ahead=[],
                finished=False,
                started=stamp(when),
                updated=stamp(when),
            )
            session.add(row)
            session.flush()
            return row.id

    def advance(self, campaign: int, next_index: int, when: datetime, ahead: Iterable[int] = ()) -> None:
        """Save that all cases before `next_index`, and those in `ahead`, are done and their results recorded."""
        with self._writing() as session:
            row = session.get_one(CampaignRow, campaign)
            row.next_index, row.updated = max(row.next_index, next_index), stamp(when)
            row.ahead = sorted(index for index in ahead if index >= row.next_index)

    def add_progress(self, campaign: int, progress: Progress) -> None:
        """Save the counts of a campaign at one time."""
        with self._writing() as session:
            session.merge(ProgressRow(campaign_id=campaign, **asdict(progress)))

    def add_step(self, campaign: int, counted: bytes) -> None:
        """Save what a campaign has counted since its last step. It is kept until the campaign has ended."""
        with self._writing() as session:
            session.add(StepRow(campaign_id=campaign, counted=counted))

    def steps(self, campaign: int) -> tuple[bytes, ...]:
        """What an unfinished campaign has counted, in order."""
        with self._reading() as session:
            rows = select(StepRow.counted).where(StepRow.campaign_id == campaign).order_by(StepRow.id)
            return tuple(session.scalars(rows))

    def finish_campaign(self, campaign: int, when: datetime) -> None:
        """Save that a campaign has ended and cannot be resumed."""
        with self._writing() as session:
            row = session.get_one(CampaignRow, campaign)
            row.finished, row.updated = True, stamp(when)
            session.execute(delete(StepRow).where(StepRow.campaign_id == campaign))

    def unfinished(self) -> tuple[Campaign, ...]:
        """The campaigns that can be resumed, the latest first."""
        with self._reading() as session:
            rows = session.scalars(
                select(CampaignRow).where(CampaignRow.finished.is_(False)).order_by(CampaignRow.id.desc())
            )
            return tuple(readable("campaign", rows, lambda row: to_record(row, Campaign)))

    # What `ddefuzz matrix` has run

    def save_results(self, results: Iterable[Result]) -> None:
        """Save what findings and cases did under versions of torch. They replace what is stored for the same."""
        with self._writing() as session:
            for result in results:
                session.merge(ResultRow(**asdict(result)))

    # Guard sites, and what sweeps have done

    def add_sites(self, torch: str, records: Iterable[SiteRecord]) -> None:
        """Add the guard sites reached under a version of torch to the stored ones."""
        with self._writing() as session:
            save_sites(session, torch, tuple(records), together)

    def merge_sites(self, torch: str, records: Iterable[SiteRecord]) -> None:
        """Merge guard sites from another database into the stored ones (`merge.merged_site`)."""
        with self._writing() as session:
            save_sites(session, torch, tuple(records), merged_site)

    def sites(self, torch: str) -> tuple[SiteRecord, ...]:
        """The guard sites reached under a version of torch, ordered by place."""
        with self._reading() as session:
            rows = session.execute(select(*SiteRow.__table__.columns).where(SiteRow.torch == torch))
            records = readable("guard site", rows, lambda row: to_record(row, SiteRecord))
            return tuple(sorted(records, key=lambda record: record.key))

    def torch_versions(self) -> tuple[str, ...]:
        """The versions of torch for which guard sites are stored."""
        with self._reading() as session:
            found = session.scalars(select(SiteRow.torch).distinct())
            return tuple(sorted(readable("version of torch", found, lambda torch: msgspec.convert(torch, str))))

    def save_swept(self, key: str, op: str, result: str) -> None:
        """Save the result of a sweep of one op, as JSON. `key` has everything that decides the result."""
        with self._writing() as session:
            session.merge(SweptRow(key=key, op=op, result=result))

    def swept(self, key: str) -> dict[str, str]:
        """The stored results of sweeps with this key, by op."""
        with self._reading() as session:
            rows = session.scalars(select(SweptRow).where(SweptRow.key == key).order_by(SweptRow.op))
            return {row.op: row.result for row in rows}

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        outer: Session | None = getattr(self._open, "session", None)
        if outer is not None:
            with outer.begin_nested():  # what fails in it leaves nothing half-written
                yield outer
            return
        with rescued(self._file, self.url, self.findings), errors_of(self.url), Session(self._engine) as session:
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
            yield outer
            return
        with errors_of(self.url), Session(self._engine.execution_options(reads=True)) as session:
            yield session


def _row(session: Session, finding_id: str) -> FindingRow:
    row = session.get(FindingRow, finding_id)
    if row is None:
        raise InputError(f"{finding_id!r}: found no such finding, expected an id that `findings list` shows")
    return row


def _state(row: FindingRow) -> State:
    state: State = msgspec.convert(row.state, State)
    return state


def _add_occurrences(row: FindingRow, sighting: Sighting, now: str) -> None:
    observation = sighting.failure.observation
    for op in sighting.ops or ("",):
        place = (sighting.torch, observation.stage, str(observation.semantics), op)
        known = next((o for o in row.occurrences if (o.torch, o.stage, o.semantics, o.op) == place), None)
        if known is None:
            kept = sum(seen.observed is not None for seen in row.occurrences)
            observed = slim(sighting.failure) if kept < MOST_OBSERVED else None
            torch, _, semantics, _ = place
            seen = Occurrence(torch, observation.stage, semantics, op, sighting.verdict, 1, now, now, observed)
            row.occurrences.append(to_occurrence_row(seen))
        else:
            known.count += 1
            known.verdict, known.last_seen = sighting.verdict, now
