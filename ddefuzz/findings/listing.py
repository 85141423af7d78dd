"""Queries over findings (filters, orders and counts in SQL), and over what campaigns, sweeps and `ddefuzz matrix` have
done. Each function is for `Database.read`.

They read the columns of `schema.FINDINGS` and of occurrences, and what lists show of findings. No document is read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Text,
    and_,
    case,
    cast,
    distinct,
    exists,
    false,
    func,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session

from ddefuzz.findings.ledger import SiteKey
from ddefuzz.findings.lifecycle import STATES, State, is_open
from ddefuzz.findings.model import Campaign, Finding, FindingSummary, Progress, Result, checked_time
from ddefuzz.findings.schema import (
    CAMPAIGNS,
    FINDINGS,
    LATEST,
    MET,
    OCCURRENCES,
    PROGRESS,
    REACHED,
    RESULTS,
    SEEN,
    SITES,
    SWEPT,
    readable,
    summaries,
    to_record,
    whole_findings,
)
from ddefuzz.oracles.oracle import SEVERITIES
from ddefuzz.oracles.table import kinds, severity_rank

Sort: TypeAlias = Literal["severity", "id", "kind", "cause", "site", "state", "steps", "count", "first", "last"]
"""`count`, `first` and `last` are those of the sightings."""

AboutData: TypeAlias = Literal["yes", "no", "all"]
"""`no`: the smallest program fails in the same way with static or backed sizes. `yes`: all others."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which findings. An empty field selects all. Values of one field are alternatives.

    `words` must all occur in the id, site, code there, title that a person gave, owner, labels, ops, notes or links.
    `site` and `op` are names, in which `*` stands for anything. `returned`: the same signature as an older
    finding that was fixed. `campaign` is the number of one that has seen them, 0 for any.
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
    campaign: int = 0
    about_data: AboutData = "all"


class FindingsOfPage(msgspec.Struct, frozen=True):
    """One page of the findings that a query selects.

    `total` are all that it selects. `left_out` are those that it would select if it did not ask `about_data`, and
    `closed` those if it did not ask for open ones.
    """

    total: int
    left_out: int
    closed: int
    findings: tuple[FindingSummary, ...]


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
    rows = session.scalars(select(SEEN.c.torch).distinct())
    return tuple(sorted(readable("version of torch", rows, lambda torch: msgspec.convert(torch, str))))


def page(session: Session, query: Query, sort: Sort, *, descending: bool, most: int, first: int = 0) -> FindingsOfPage:
    """`most` of the findings that the query selects, from the `first` (from 0) on, and how many there are."""
    order = [(key.desc() if descending else key.asc()).nulls_last() for key in _KEYS[sort]]
    wanted = _condition(session, msgspec.structs.replace(query, open_only=False))
    about_data = _ABOUT_DATA[query.about_data]
    is_left = _is_open(session) if query.open_only else true()
    ids = select(FINDINGS.c.id).where(wanted, is_left, about_data).order_by(*order, FINDINGS.c.id)
    names = session.scalars(ids.offset(first).limit(most)).all()
    of_data, of_states, of_both = (func.count().filter(one) for one in (is_left, about_data, and_(is_left, about_data)))
    numbers = select(of_data, of_states, of_both).select_from(FINDINGS).where(wanted)
    left, about, total = session.execute(numbers).one()
    return FindingsOfPage(total, left - total, about - total, by_ids(session, names))


def selected(session: Session, query: Query) -> tuple[FindingSummary, ...]:
    """What lists show of all findings that the query selects, by id."""
    return tuple(summaries(session, and_(_condition(session, query), _ABOUT_DATA[query.about_data])))


def whole(session: Session, query: Query) -> dict[str, Finding]:
    """The findings that the query selects, by id, with all that is known of them. Reading them takes much longer."""
    condition = and_(_condition(session, query), _ABOUT_DATA[query.about_data])
    return {finding.id: finding for finding in whole_findings(session, condition)}


def by_ids(session: Session, names: Sequence[str]) -> tuple[FindingSummary, ...]:
    """What lists show of these findings, in this order. Ids that do not exist are left out."""
    known = {summary.id: summary for summary in summaries(session, FINDINGS.c.id.in_(names))}
    return tuple(known[name] for name in names if name in known)


def near(session: Session, finding: Finding, most: int) -> tuple[FindingSummary, ...]:
    """Other findings at the same function, or with the same code in the same file."""
    site, columns = finding.site, FINDINGS.c
    same_code = columns.anchor == finding.anchor if site.module is not None else false()
    same_file = and_(columns.language == site.language, columns.module == site.module)
    same = and_(same_file, or_(columns.function == site.function, same_code))
    names = session.scalars(select(columns.id).where(same, columns.id != finding.id).order_by(columns.id).limit(most))
    return by_ids(session, names.all())


MOST_ALIKE = 100  # findings that are compared: the page of one may not read all


def of_same_program(session: Session, finding: Finding) -> tuple[FindingSummary, ...]:
    """Other findings near it (`near`) with the same smallest program, by id."""
    digest = finding.program_digest
    listed = near(session, finding, MOST_ALIKE) if digest else ()
    return tuple(one for one in listed if one.program_digest == digest)


def counts(session: Session) -> Counts:
    """The numbers of findings in each state, of each kind and of each cause."""
    by_state = _grouped(session, FINDINGS.c.state)
    number = select(func.count()).select_from(FINDINGS)
    regressed = select(func.count(distinct(OCCURRENCES.c.finding_id))).where(OCCURRENCES.c.verdict == "regressed")
    return Counts(
        total=sum(by_state.values()),
        open=session.scalar(number.where(_is_open(session))) or 0,
        returned=session.scalar(number.where(FINDINGS.c.sequence > 1)) or 0,
        regressed=session.scalar(regressed) or 0,
        states={state: by_state[state] for state in STATES if state in by_state},
        kinds=_grouped(session, FINDINGS.c.kind),
        causes=_grouped(session, FINDINGS.c.cause),
    )


def first_sightings(session: Session) -> tuple[str, ...]:
    """The time of the first sighting of each finding, oldest first."""
    first = FINDINGS.c.first_seen
    rows = session.execute(select(FINDINGS.c.id, first).where(first.is_not(None)).order_by(first))
    return tuple(readable("sighting of", rows, lambda row: checked_time(row.first_seen)))


def versions(session: Session) -> tuple[VersionCount, ...]:
    """What was seen under each version of torch."""
    rows = session.execute(
        select(
            SEEN.c.torch,
            func.count(distinct(SEEN.c.finding_id)).label("findings"),
            cast(func.sum(SEEN.c.count), BigInteger).label("sightings"),
            func.min(SEEN.c.first_seen).label("first_seen"),
            func.max(SEEN.c.last_seen).label("last_seen"),
        )
        .group_by(SEEN.c.torch)
        .order_by(SEEN.c.torch)
    )
    return tuple(readable("sightings under torch", rows, lambda row: to_record(row, VersionCount)))


def fixed_in(session: Session) -> dict[str, int]:
    """The number of fixed findings by the version of torch in which they are fixed. Empty: fixed in all versions."""
    counts = Counter(version for _, fixed in _fixed(session) for version in fixed or ("",))
    return dict(sorted(counts.items()))


def _grouped(session: Session, column: Any) -> dict[str, int]:
    rows = session.execute(select(column, func.count()).group_by(column).order_by(column))
    return {str(name): many for name, many in rows}


_KEYS: dict[Sort, tuple[ColumnElement[Any], ...]] = {
    "severity": (case({kind: severity_rank(kind) for kind in kinds()}, value=FINDINGS.c.kind, else_=len(SEVERITIES)),),
    "id": (FINDINGS.c.id,),
    "kind": (FINDINGS.c.kind, FINDINGS.c.cause),
    "cause": (FINDINGS.c.cause, FINDINGS.c.kind),
    "site": (FINDINGS.c.language, FINDINGS.c.module, FINDINGS.c.function),
    "state": (FINDINGS.c.state, FINDINGS.c.kind),
    "steps": (FINDINGS.c.steps,),
    "count": (func.nullif(FINDINGS.c.count, 0),),
    "first": (FINDINGS.c.first_seen,),
    "last": (FINDINGS.c.last_seen,),
}
"""What each order compares."""

_ABOUT_DATA: dict[AboutData, ColumnElement[bool]] = {
    "yes": func.coalesce(FINDINGS.c.data_dependent, true()),
    "no": FINDINGS.c.data_dependent.is_(False),
    "all": true(),
}


def _condition(session: Session, query: Query) -> ColumnElement[bool]:
    """The query as one condition, without `about_data`."""
    columns, seen, places = FINDINGS.c, SEEN.c, OCCURRENCES.c
    parts: list[ColumnElement[bool]] = [
        columns.searched.contains(word.lower(), autoescape=True) for word in query.words
    ]
    alternatives = ((columns.state, query.states), (columns.kind, query.kinds), (columns.cause, query.causes))
    parts += [column.in_(values) for column, values in alternatives if values]
    if query.open_only:
        parts.append(_is_open(session))
    if query.returned:
        parts.append(columns.sequence > 1)
    if query.site:
        place = func.coalesce(columns.module + ":", "") + func.coalesce(columns.function, "")
        parts.append(_named(place, query.site))
    equal = ((columns.priority, query.priority), (columns.owner, query.owner))
    parts += [column == value for column, value in equal if value]
    of_sightings = (
        (query.stages, seen.finding_id, seen.stage.in_(query.stages)),
        (query.torch, seen.finding_id, seen.torch == query.torch),
        (query.verdict, places.finding_id, places.verdict == query.verdict),
        (query.op, places.finding_id, _named(places.op, query.op)),
    )
    if query.op:  # what is searched has the ops: one text for each finding, read before its occurrences
        parts.append(_named(columns.searched, f"*{query.op.lower()}*"))
    parts += [exists().where(of == columns.id, condition) for asked, of, condition in of_sightings if asked]
    if query.campaign:
        parts.append(columns.id.in_(select(MET.c.finding_id).where(MET.c.campaign_id == query.campaign)))
    if query.label:
        parts.append(cast(columns.labels, Text).contains(json.dumps(query.label), autoescape=True))
    return and_(true(), *parts)


def _named(column: Any, name: str) -> ColumnElement[bool]:
    """Whether a name is this one. `*` stands for anything."""
    escaped = name.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
    same: ColumnElement[bool] = column.like(escaped, escape="\\") if "*" in name else column == name
    return same


def _is_open(session: Session) -> ColumnElement[bool]:
    """Whether there is something left to do (`lifecycle.is_open`)."""
    states = [state for state in STATES if state != "fixed" and is_open(state, (), ())]
    tracked = torch_versions(session)
    left = [name for name, versions_ in _fixed(session) if is_open("fixed", versions_, tracked)]
    return or_(FINDINGS.c.state.in_(states), FINDINGS.c.id.in_(left) if left else false())


def _fixed(session: Session) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fixed findings with the versions of torch that have the fix."""
    rows = session.execute(select(FINDINGS.c.id, FINDINGS.c.fixed_in).where(FINDINGS.c.state == "fixed"))
    return readable("finding", rows, lambda row: msgspec.convert(tuple(row), tuple[str, tuple[str, ...]]))


def campaigns(session: Session, most: int, first: int = 0) -> tuple[Campaign, ...]:
    """`most` of the campaigns from the `first` (from 0) on, the latest first."""
    rows = select(CAMPAIGNS).order_by(CAMPAIGNS.c.id.desc()).offset(first).limit(most)
    return tuple(readable("campaign", session.execute(rows), lambda row: to_record(row, Campaign)))


def campaign(session: Session, number: int) -> Campaign | None:
    """A campaign, None if there is none of this number."""
    row = session.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.id == number)).first()
    return None if row is None else to_record(row, Campaign)


def campaign_number(session: Session) -> int:
    """How many campaigns there are."""
    return session.scalar(select(func.count(CAMPAIGNS.c.id))) or 0


def met(session: Session, campaigns_: Iterable[int]) -> dict[int, int]:
    """How many findings of the database each campaign has seen."""
    seen = select(MET.c.campaign_id, func.count()).join(FINDINGS, FINDINGS.c.id == MET.c.finding_id)
    rows = session.execute(seen.where(MET.c.campaign_id.in_(list(campaigns_))).group_by(MET.c.campaign_id))
    return {int(campaign): many for campaign, many in rows}


def met_by(session: Session, number: int) -> tuple[str, ...]:
    """The ids of the findings that a campaign has seen."""
    seen = select(MET.c.finding_id).where(MET.c.campaign_id == number).order_by(MET.c.finding_id)
    return tuple(readable("finding of a campaign", session.scalars(seen), lambda one: msgspec.convert(one, str)))


def reached_by(session: Session, number: int) -> frozenset[SiteKey]:
    """The guard sites that a campaign has reached."""
    columns = [REACHED.c[name] for name in SiteKey._fields]
    rows = session.execute(select(*columns).where(REACHED.c.campaign_id == number))
    return frozenset(readable("guard site of a campaign", rows, lambda row: msgspec.convert(tuple(row), SiteKey)))


def progress(session: Session, campaigns_: Iterable[int], most: int) -> dict[int, tuple[Progress, ...]]:
    """The saved counts of campaigns, in order of time: about `most` of each, the first and the `LATEST` among them."""
    wanted = list(campaigns_)
    campaign = PROGRESS.c.campaign_id
    numbered = (
        select(
            PROGRESS,
            (func.row_number().over(partition_by=campaign, order_by=PROGRESS.c.when) - 1).label("at"),
            func.count().over(partition_by=campaign).label("many"),
        )
        .where(campaign.in_(wanted))
        .subquery()
    )
    at, many = numbered.c.at, numbered.c.many
    rows = session.execute(
        select(numbered)
        .where(or_(at % (many // most + 1) == 0, at >= many - LATEST))
        .order_by(numbered.c.campaign_id, numbered.c.when)
    )
    points_of: dict[int, list[Progress]] = {one: [] for one in wanted}
    points = readable("counts of campaign", rows, lambda row: (row.campaign_id, to_record(row, Progress)))
    for campaign_id, point in points:
        points_of[campaign_id].append(point)
    return {one: tuple(points) for one, points in points_of.items()}


def results(session: Session, *cases: str) -> tuple[Result, ...]:
    """The results of these findings and cases, or of all. For `Database.read`."""
    chosen = select(RESULTS).order_by(RESULTS.c.case, RESULTS.c.torch)
    rows = session.execute(chosen.where(RESULTS.c.case.in_(cases)) if cases else chosen)
    return tuple(readable("result", rows, lambda row: to_record(row, Result)))


def statuses(session: Session) -> dict[str, dict[str, int]]:
    """The number of results with each status, by version of torch. For `Database.read`."""
    rows = session.execute(
        select(RESULTS.c.torch, RESULTS.c.status, func.count())
        .group_by(RESULTS.c.torch, RESULTS.c.status)
        .order_by(RESULTS.c.torch, RESULTS.c.status)
    )
    by_torch: dict[str, dict[str, int]] = {}
    counts = readable("results of torch", rows, lambda row: msgspec.convert(tuple(row), tuple[str, str, int]))
    for torch, status, number in counts:
        by_torch.setdefault(torch, {})[status] = number
    return by_torch


def result_page(session: Session, *, differing: bool, first: int, most: int) -> tuple[int, tuple[Result, ...]]:
    """The number of findings and cases with results, and the results of `most` of them from the `first` (from 0) on.

    With `differing`, only those whose status is not the same under all versions that judge them. For `Database.read`.
    """
    cases = select(RESULTS.c.case).group_by(RESULTS.c.case)
    if differing:
        cases = cases.where(RESULTS.c.status != "not judged").having(func.count(distinct(RESULTS.c.status)) > 1)
    names = session.scalars(cases.order_by(RESULTS.c.case).offset(first).limit(most)).all()
    total = session.scalar(select(func.count()).select_from(cases.subquery())) or 0
    return total, results(session, *names) if names else ()


def site_counts(session: Session) -> dict[str, int]:
    """The number of places where guards were reached undecided, by version of torch."""
    place = select(SITES.c.torch, SITES.c.language, SITES.c.file, SITES.c.line).distinct().subquery()
    return _grouped(session, place.c.torch)


def sweeps(session: Session) -> dict[str, int]:
    """The keys of sweeps, and the number of ops that each has."""
    return _grouped(session, SWEPT.c.key)
