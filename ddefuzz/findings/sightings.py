"""Save sightings of campaigns: a known one is counted, and writes no document.

A sighting is kept as a number in the occurrence of its place. The first `MOST_OBSERVED` occurrences of a finding keep
the failure by which they were seen. So a database grows by what is new, and not by how long campaigns run.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace
from sqlalchemy import BindParameter, ColumnElement, Table, bindparam, case, exists, func, insert, select, update
from sqlalchemy.orm import Session

from ddefuzz.findings.lifecycle import State, recurs
from ddefuzz.findings.model import MOST_OBSERVED, Finding, Occurrence, Sighting, id_of, slim
from ddefuzz.findings.schema import (
    FINDINGS,
    MET,
    OCCURRENCES,
    SEEN,
    add_finding,
    add_occurrences,
    only,
    programs,
    readable,
    save_finding,
    to_record,
    whole_findings,
)


class RecordResult(msgspec.Struct, frozen=True):
    """The finding to which a sighting was added, and whether that finding is new."""

    finding_id: str
    is_new: bool


def _latest(table: Table) -> ColumnElement[str]:
    """The time of the latest sighting, of which one is `now`."""
    return case((table.c.last_seen < bindparam("now"), bindparam("now")), else_=table.c.last_seen)


class Newest(msgspec.Struct, frozen=True):
    """The last finding of a signature, as its columns have it."""

    id: str
    sequence: int
    state: State
    fixed_in: tuple[str, ...]
    steps: int | None


_OF: Final[BindParameter[Any]] = bindparam("of")
_NEWEST: Final = (
    select(*(FINDINGS.c[name] for name in Newest.__struct_fields__))
    .where(FINDINGS.c.key == _OF)
    .order_by(FINDINGS.c.sequence.desc())
    .limit(1)
)
_PLACE: Final = ("torch", "stage", "semantics", "op")
_COUNT_AGAIN: Final = (
    update(OCCURRENCES)
    .where(OCCURRENCES.c.finding_id == _OF)
    .where(*(OCCURRENCES.c[name] == bindparam(f"in_{name}") for name in _PLACE))
    .values(count=OCCURRENCES.c.count + 1, verdict=bindparam("judged"), last_seen=_latest(OCCURRENCES))
)
_SEEN_AGAIN: Final = (
    update(FINDINGS)
    .where(FINDINGS.c.id == _OF)
    .values(count=FINDINGS.c.count + bindparam("more"), last_seen=_latest(FINDINGS))
)
_ADD: Final = (
    update(SEEN)
    .where(SEEN.c.finding_id == _OF, SEEN.c.torch == bindparam("in_torch"), SEEN.c.stage == bindparam("in_stage"))
    .values(count=SEEN.c.count + bindparam("more"), last_seen=_latest(SEEN))
)
_IS_MET: Final = select(exists().where(MET.c.campaign_id == _OF, MET.c.finding_id == bindparam("met")))
"""What a sighting of a known finding runs. Making a statement takes longer than running it, so they are made once."""


def save_sighting(session: Session, sighting: Sighting, now: str, campaign: int | None) -> RecordResult:
    """Save a sighting at a time, in its finding or in a new one, and as met by a campaign."""
    key = sighting.signature.key
    newest = only(readable("finding", session.execute(_NEWEST, {"of": key}), lambda row: to_record(row, Newest)))
    known = newest if newest and not recurs(newest.state, newest.fixed_in, sighting.torch) else None
    name = known.id if known else id_of(key, newest.sequence + 1 if newest else 1)
    if known is None:
        finding = Finding(id=name, signature=sighting.signature, cause=sighting.cause)
        add_finding(session, _begun(finding, sighting))
    is_elsewhere, more = _count(session, name, sighting, now), len(sighting.ops or ("",))
    of = {"torch": sighting.torch, "stage": sighting.failure.observation.stage}
    values = {"of": name, "more": more, "now": now, "in_torch": of["torch"], "in_stage": of["stage"]}
    if not session.connection().execute(_ADD, values).rowcount:
        session.execute(insert(SEEN).values(finding_id=name, **of, count=more, first_seen=now, last_seen=now))
    lacks_steps = known is not None and known.steps is None and sighting.program is not None
    is_first = lacks_steps and not programs(session, FINDINGS.c.id == name)
    if is_elsewhere or is_first:
        stored = only(whole_findings(session, FINDINGS.c.id == name, observed=False))
        assert stored is not None
        save_finding(session, _begun(stored, sighting) if is_first else stored)
    else:
        session.execute(_SEEN_AGAIN, {"of": name, "more": more, "now": now})
    if campaign is not None and not session.scalar(_IS_MET, {"of": campaign, "met": name}):
        session.execute(insert(MET).values(campaign_id=campaign, finding_id=name))
    return RecordResult(name, is_new=known is None)


def _begun(finding: Finding, sighting: Sighting) -> Finding:
    """The finding with the program and the failure with which it was first seen."""
    return replace(finding, original=sighting.program, failure=slim(sighting.failure))


def _count(session: Session, finding_id: str, sighting: Sighting, now: str) -> bool:
    """Count a sighting in the occurrences of a finding. Returns whether one of them is new."""
    run, seen, is_new = sighting.failure.observation, OCCURRENCES.c, False
    for op in sighting.ops or ("",):
        place = {"torch": sighting.torch, "stage": run.stage, "semantics": str(run.semantics), "op": op}
        given = {f"in_{name}": place[name] for name in _PLACE}
        given |= {"of": finding_id, "judged": sighting.verdict, "now": now}
        if session.connection().execute(_COUNT_AGAIN, given).rowcount:
            continue
        is_new = True
        observed = session.scalar(select(func.count(seen.observed)).where(seen.finding_id == finding_id)) or 0
        failure = slim(sighting.failure) if observed < MOST_OBSERVED else None
        times = {"first_seen": now, "last_seen": now}
        added = Occurrence(**place, verdict=sighting.verdict, count=1, **times, observed=failure)
        add_occurrences(session, finding_id, [added])
    return is_new
