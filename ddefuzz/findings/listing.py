"""Queries over many findings: which ones, in which order, one page of them, and counts. SQL answers them.

Each function is for `Database.read`. A finding on a page has no failures but the one to show, no answers, links, notes
and history: lists do not show them, and they are long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    RowMapping,
    Text,
    and_,
    case,
    cast,
    distinct,
    false,
    func,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session

from ddefuzz.findings.lifecycle import STATES, State, is_open
from ddefuzz.findings.model import Finding
from ddefuzz.findings.rows import LISTED, readable, to_finding, to_listed, to_record
from ddefuzz.findings.schema import (
    FindingRow,
    LinkRow,
    NoteRow,
    OccurrenceRow,
    SiteRow,
    SweptRow,
)
from ddefuzz.findings.typed import checked_time
from ddefuzz.oracles.table import kinds

Sort: TypeAlias = Literal["id", "kind", "cause", "site", "state", "steps", "count", "first", "last"]
"""`count`, `first` and `last` are those of the sightings."""

AboutData: TypeAlias = Literal["yes", "no", "all"]
"""`no`: the smallest program fails in the same way with static or backed sizes. `yes`: all others."""

_TORCH_SAYS_SO = tuple(kind for kind, row in kinds().items() if row.about_data)

_EITHER = "unsupported"
"""The kind in which the message decides whether it is about data (`control.model`). SQL does not read messages, so
these findings are on both lists.
"""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which findings. An empty field selects all. Values of one field are alternatives.

    `words` must all occur in the id, site, code there, title that a person gave, owner, labels, ops, notes or links.
    `site` and `op` are names, in which `*` stands for anything. `returned`: the same signature as an older
    finding that was fixed.
    """

    words: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    open_only: bool = False
    kinds: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    verdict: str = ""
    returned: bool = False
    torch: str = ""
    site: str = ""
    op: str = ""
    priority: str = ""
    owner: str = ""
    label: str = ""
    about_data: AboutData = "all"


class Listed(msgspec.Struct, frozen=True):
    """One page of the findings that a query selects.

    `total` are all that it selects. `left_out` are those that it would select if it did not ask `about_data`.
    """

    total: int
    left_out: int
    findings: tuple[Finding, ...]


class Counts(msgspec.Struct, frozen=True):
    """Numbers of findings. `returned` have the signature of an older finding that was fixed. `regressed` were captured
    with size-oblivious semantics.
    """

    total: int
    open: int
    returned: int
    regressed: int
    states: dict[str, int]
    kinds: dict[str, int]
    causes: dict[str, int]


class VersionCount(msgspec.Struct, frozen=True):
    """The findings seen under one version of torch, and the times of the first and the last sighting."""

    torch: str
    findings: int
    sightings: int
    first_seen: str
    last_seen: str


def torch_versions(session: Session) -> tuple[str, ...]:
    """The versions of torch under which findings were seen."""
    found = session.scalars(select(OccurrenceRow.torch).distinct())
    return tuple(sorted(readable("version of torch", found, lambda torch: msgspec.convert(torch, str))))


def page(session: Session, query: Query, sort: Sort, *, descending: bool, first: int, most: int) -> Listed:
    """`most` of the findings that the query selects, from the `first` (from 0) on, and how many there are."""
    seen = _seen()
    keys = _keys(seen)[sort]
    order = [key.desc().nulls_last() if descending else key.asc().nulls_last() for key in keys]
    condition, about_data = _condition(session, query), _about_data(query.about_data)
    ids = select(FindingRow.id).where(condition, about_data)
    if sort in ("count", "first", "last"):
        ids = ids.outerjoin(seen, seen.c.finding_id == FindingRow.id)
    names = session.scalars(ids.order_by(*order, FindingRow.id).offset(first).limit(most)).all()
    numbers = select(func.count(), func.coalesce(func.sum(case((about_data, 1), else_=0)), 0)).where(condition)
    everything, total = session.execute(numbers.select_from(FindingRow)).one()
    return Listed(total, everything - total, by_ids(session, names))


def selected(session: Session, query: Query, *, whole: bool) -> tuple[Finding, ...]:
    """All findings that the query selects, by id. Unless `whole`, as they are on a page, which is much faster."""
    condition = and_(_condition(session, query), _about_data(query.about_data))
    if not whole:
        return tuple(_shown(session, condition))
    rows = session.scalars(select(FindingRow).where(condition).order_by(FindingRow.id))
    return tuple(readable("finding", rows, to_finding))


def _shown(session: Session, condition: ColumnElement[bool]) -> Iterator[Finding]:
    """Findings without what lists do not show, by id. Only columns are read, because making rows takes longer."""
    occurrences: dict[str, list[RowMapping]] = {}
    seen_of = select(*_OCCURRENCE_COLUMNS).where(OccurrenceRow.finding_id.in_(select(FindingRow.id).where(condition)))
    for seen in session.execute(seen_of).mappings():
        occurrences.setdefault(seen["finding_id"], []).append(seen)
    rows = session.execute(select(*_FINDING_COLUMNS).where(condition).order_by(FindingRow.id))
    yield from readable("finding", rows, lambda row: to_listed(row, occurrences.get(row.id, ())))


_FINDING_COLUMNS = (
    *(column for column in FindingRow.__table__.columns if column.name not in ("failure", "answers")),
    case((FindingRow.shown.is_(None), FindingRow.failure)).label("failure"),
)
_OCCURRENCE_COLUMNS = (OccurrenceRow.finding_id, *(getattr(OccurrenceRow, name) for name in LISTED))


def by_ids(session: Session, names: Sequence[str]) -> tuple[Finding, ...]:
    """These findings, in this order. Ids that do not exist are left out."""
    found = {one.id: one for one in _shown(session, FindingRow.id.in_(names))}
    return tuple(found[name] for name in names if name in found)


def near(session: Session, finding: Finding, most: int) -> tuple[Finding, ...]:
    """Other findings at the same function, or with the same code in the same file."""
    site = finding.site
    same = and_(
        FindingRow.language == site.language,
        FindingRow.module.is_(None) if site.module is None else FindingRow.module == site.module,
        or_(
            FindingRow.function.is_(None) if site.function is None else FindingRow.function == site.function,
            FindingRow.anchor == finding.anchor if site.module is not None else false(),
        ),
    )
    names = session.scalars(
        select(FindingRow.id).where(same, FindingRow.id != finding.id).order_by(FindingRow.id).limit(most)
    )
    return by_ids(session, names.all())


def counts(session: Session) -> Counts:
    """The numbers of findings in each state, of each kind and of each cause."""
    by_state = _grouped(session, FindingRow.state)
    returned = session.scalar(select(func.count(FindingRow.id)).where(FindingRow.sequence > 1))
    regressed = session.scalar(
        select(func.count(distinct(OccurrenceRow.finding_id))).where(OccurrenceRow.verdict == "regressed")
    )
    return Counts(
        total=sum(by_state.values()),
        open=session.scalar(select(func.count(FindingRow.id)).where(_is_open(session))) or 0,
        returned=returned or 0,
        regressed=regressed or 0,
        states={state: by_state[state] for state in STATES if state in by_state},
        kinds=_grouped(session, FindingRow.kind),
        causes=_grouped(session, FindingRow.cause),
    )


def first_sightings(session: Session) -> tuple[str, ...]:
    """The time of the first sighting of each finding, oldest first."""
    seen = _seen()
    rows = session.execute(select(seen.c.finding_id, seen.c.first).order_by(seen.c.first))
    return tuple(readable("sighting of", rows, lambda row: checked_time(row.first)))


def versions(session: Session) -> tuple[VersionCount, ...]:
    """What was seen under each version of torch."""
    rows = session.execute(
        select(
            OccurrenceRow.torch,
            func.count(distinct(OccurrenceRow.finding_id)).label("findings"),
            cast(func.sum(OccurrenceRow.count), BigInteger).label("sightings"),
            func.min(OccurrenceRow.first_seen).label("first_seen"),
            func.max(OccurrenceRow.last_seen).label("last_seen"),
        )
        .group_by(OccurrenceRow.torch)
        .order_by(OccurrenceRow.torch)
    )

    return tuple(readable("sightings under torch", rows, lambda row: to_record(row, VersionCount)))


def fixed_in(session: Session) -> dict[str, int]:
    """The number of fixed findings by the version of torch in which they are fixed. Empty: fixed in all versions."""
    found: dict[str, int] = {}
    for _, versions_ in _fixed(session):
        for version in versions_ or ("",):
            found[version] = found.get(version, 0) + 1
    return dict(sorted(found.items()))


def site_counts(session: Session) -> dict[str, int]:
    """The number of places where guards were reached undecided, by version of torch."""
    place = select(SiteRow.torch, SiteRow.language, SiteRow.file, SiteRow.line).distinct().subquery()
    rows = session.execute(select(place.c.torch, func.count()).group_by(place.c.torch).order_by(place.c.torch))
    return {str(torch): many for torch, many in rows}


def sweeps(session: Session) -> dict[str, int]:
    """The keys of sweeps, and the number of ops that each has."""
    return _grouped(session, SweptRow.key)


def _grouped(session: Session, column: Any) -> dict[str, int]:
    rows = session.execute(select(column, func.count()).group_by(column).order_by(column))
    return {str(name): many for name, many in rows}


def _seen() -> Any:
    """The sightings of each finding added up."""
    return (
        select(
            OccurrenceRow.finding_id,
            func.sum(OccurrenceRow.count).label("count"),
            func.min(OccurrenceRow.first_seen).label("first"),
            func.max(OccurrenceRow.last_seen).label("last"),
        )
        .group_by(OccurrenceRow.finding_id)
        .subquery()
    )


def _keys(seen: Any) -> dict[Sort, tuple[Any, ...]]:
    """What each order compares."""
    return {
        "id": (FindingRow.id,),
        "kind": (FindingRow.kind, FindingRow.cause),
        "cause": (FindingRow.cause, FindingRow.kind),
        "site": (FindingRow.language, FindingRow.module, FindingRow.function),
        "state": (FindingRow.state, FindingRow.kind),
        "steps": (FindingRow.steps,),
        "count": (seen.c.count,),
        "first": (seen.c.first,),
        "last": (seen.c.last,),
    }


def _condition(session: Session, query: Query) -> ColumnElement[bool]:
    """The query as one condition, without `about_data`."""
    parts: list[ColumnElement[bool]] = [_has(word) for word in query.words]
    chosen = ((FindingRow.state, query.states), (FindingRow.kind, query.kinds), (FindingRow.cause, query.causes))
    parts += [column.in_(values) for column, values in chosen if values]
    if query.open_only:
        parts.append(_is_open(session))
    if query.stages:
        parts.append(FindingRow.occurrences.any(OccurrenceRow.stage.in_(query.stages)))
    if query.verdict:
        parts.append(FindingRow.occurrences.any(OccurrenceRow.verdict == query.verdict))
    if query.returned:
        parts.append(FindingRow.sequence > 1)
    if query.torch:
        parts.append(FindingRow.occurrences.any(OccurrenceRow.torch == query.torch))
    if query.op:
        parts.append(FindingRow.occurrences.any(_named(OccurrenceRow.op, query.op)))
    if query.site:
        place = func.coalesce(FindingRow.module + ":", "") + func.coalesce(FindingRow.function, "")
        parts.append(_named(place, query.site))
    if query.priority:
        parts.append(FindingRow.priority == query.priority)
    if query.owner:
        parts.append(FindingRow.owner == query.owner)
    if query.label:
        parts.append(cast(FindingRow.labels, Text).contains(json.dumps(query.label), autoescape=True))
    return and_(true(), *parts)


def _has(word: str) -> ColumnElement[bool]:
    """Whether a word occurs in one of the searched columns."""
    columns = (
        *(FindingRow.id, FindingRow.module, FindingRow.function, FindingRow.anchor, FindingRow.given_title),
        *(FindingRow.owner, cast(FindingRow.labels, Text)),
    )
    return or_(
        *(column.icontains(word, autoescape=True) for column in columns),
        _among(OccurrenceRow.finding_id, OccurrenceRow.op.icontains(word, autoescape=True)),
        _among(NoteRow.finding_id, NoteRow.text.icontains(word, autoescape=True)),
        _among(LinkRow.finding_id, LinkRow.url.icontains(word, autoescape=True)),
    )


def _among(finding_id: Any, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether some row of another table fits. For a word, which is sought in many places, one pass over that table is
    faster than a look for the rows of each finding.
    """
    return FindingRow.id.in_(select(finding_id).where(condition))


def _named(column: Any, name: str) -> ColumnElement[bool]:
    """Whether a name is this one. `*` stands for anything."""
    if "*" not in name:
        same: ColumnElement[bool] = column == name
        return same
    escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    like: ColumnElement[bool] = column.like(escaped, escape="\\")
    return like


def _about_data(wanted: AboutData) -> ColumnElement[bool]:
    fails = or_(
        func.coalesce(FindingRow.control_static, "") == "fails", func.coalesce(FindingRow.control_backed, "") == "fails"
    )
    no = and_(fails, FindingRow.kind.not_in(_TORCH_SAYS_SO))
    match wanted:
        case "yes":
            return or_(not_(no), FindingRow.kind == _EITHER)
        case "no":
            return no
        case "all":
            return true()


def _is_open(session: Session) -> ColumnElement[bool]:
    """Whether there is something left to do (`lifecycle.is_open`)."""
    states = [state for state in STATES if state != "fixed" and is_open(state, (), ())]
    tracked = torch_versions(session)
    left = [name for name, versions_ in _fixed(session) if is_open("fixed", versions_, tracked)]
    return or_(FindingRow.state.in_(states), FindingRow.id.in_(left) if left else false())


def _fixed(session: Session) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fixed findings with the versions of torch that have the fix."""
    rows = session.execute(select(FindingRow.id, FindingRow.fixed_in).where(FindingRow.state == "fixed"))
    return readable("finding", rows, lambda row: msgspec.convert(tuple(row), tuple[str, tuple[str, ...]]))
