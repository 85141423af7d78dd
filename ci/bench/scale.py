"""What more CPU brings: guard sites that a longer campaign would reach, and how many workers drivers keep busy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from ci.bench.command import Result, Session
from ddefuzz.errors import InputError
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.guard_sites import Estimate, estimate
from ddefuzz.findings.ledger import SiteRecord
from ddefuzz.findings.model import Progress
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.blocks import Block, counted, prose, table

KINDS = ("fallback sites", "call sites of errors")
SHARE = 0.9  # of the estimated number of sites
DRIVERS = (1, 2, 4, 8)
SEEN, EXPECTED = "this campaign", "expected"  # where the numbers of a line come from
FIRST, MOST = 10, 4  # an expected curve begins after so many cases, and ends after so many times those of the campaign
COSTLIEST = 1e5  # CPU seconds of one more site, in the chart
POINTS = 60  # of a curve
MOST_CASES = 10**12
POINTS_KEPT = 500  # of a campaign's saved counts


class Counts(NamedTuple):
    """The number of cases that reached each site, of `cases`, and the CPU seconds of a case."""

    kind: str
    numbers: tuple[int, ...]
    cases: int
    cpu_seconds: float

    @property
    def estimated(self) -> Estimate:
        """What these numbers say of the sites that no case has reached."""
        return estimate(self.numbers)

    def reached(self, cases: int) -> float:
        """The expected number of sites that so many cases reach, drawn like these.

        Up to the cases that were run: Σ 1 - C(n-Yᵢ, t)/C(n, t) (Coleman's curve). Beyond: with f₀ estimated sites
        unseen, S + f₀(1 - (1 - f₁/(n f₀ + f₁))^m) (A. Chao et al., Rarefaction and extrapolation with Hill numbers,
        Ecological Monographs 84, 2014).
        """
        if cases <= self.cases:
            return sum(1 - _missed(self.cases, number, cases) for number in self.numbers)
        known = self.estimated
        unseen = known.total - known.seen
        if not unseen:
            return known.seen
        each = known.once / (self.cases * unseen + known.once)
        more: float = (1 - each) ** (cases - self.cases)
        return known.seen + unseen * (1 - more)

    def cost(self, cases: int) -> float:
        """The CPU seconds of one more site after so many cases; infinite where none is expected."""
        gain = self.reached(cases + 1) - self.reached(cases)
        return self.cpu_seconds / gain if gain > 0 else math.inf

    def cpu_for(self, share: float) -> float:
        """The CPU seconds after which this share of the estimated sites is reached; infinite if it never is."""
        wanted = share * self.estimated.total
        low, high = 0, 1
        while self.reached(high) < wanted:
            if high > MOST_CASES:
                return math.inf
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.reached(middle) < wanted else (low, middle)
        return high * self.cpu_seconds


def _missed(cases: int, number: int, drawn: int) -> float:
    """The probability that `drawn` of `cases` cases have none of the `number` ones that reach a site."""
    if drawn > cases - number:
        return 0.0
    logs = (math.lgamma(cases - number + 1), math.lgamma(cases - drawn + 1))
    return math.exp(sum(logs) - math.lgamma(cases - number - drawn + 1) - math.lgamma(cases + 1))


class SiteEstimate(msgspec.Struct, frozen=True):
    """Of one kind of sites: seen, estimated with its 95% interval, the CPU seconds to see `SHARE` of the estimate,
    those of one more site at the end of the campaign, and how many sites the cores would reach.
    """

    kind: str
    seen: int
    total: float
    low: float
    high: float
    cpu_to_share: float
    cost: float
    cores_reach: float


class Limit(msgspec.Struct, frozen=True):
    """How many workers `drivers` keep busy, and what limits them: the drivers, or the database."""

    drivers: int
    workers: float
    limit: str


class Record(msgspec.Struct, frozen=True):
    """A campaign of so many cases and CPU seconds, and what more CPU would bring."""

    torch: str
    cases: int
    cpu_seconds: float
    sites: tuple[SiteEstimate, ...]
    limits: tuple[Limit, ...]
    schema: str = "ddefuzz.bench.scale/1"


class Service(NamedTuple):
    """Milliseconds: of a worker for a case, of a driver, and of writing it. `follow_up` are seconds of a finding."""

    case: float
    driver: float
    store: float
    follow_up: float

    def rate(self, workers: float, drivers: int) -> float:
        """Cases a second."""
        return 1000 * min(workers / self.case, drivers / self.driver, 1 / self.store)

    def limit(self, drivers: int) -> Limit:
        """Where more workers bring nothing."""
        by_drivers, by_store = drivers / self.driver, 1 / self.store
        what = "drivers" if by_drivers < by_store else "database"
        return Limit(drivers, self.case * min(by_drivers, by_store), what)


def run(
    session: Session,
    db: DatabaseUrl,
    cores: int,
    hours: int,
    case_ms: float,
    driver_ms: float,
    store_ms: float,
    follow_up: float,
) -> Result:
    """Read the one campaign of a database. Raises InputError if it has another number of them."""
    session.live.say("reading the campaign")
    with Database.open(db, create=False) as database:
        campaigns, versions = database.read(partial(listing.campaigns, most=2)), database.torch_versions()
        if len(campaigns) != 1 or len(versions) != 1:
            raise InputError(
                f"{db}: found {database.read(listing.campaign_number)} campaigns, and sites of {len(versions)} "
                "versions of torch, expected one of each: run a campaign into a database of its own"
            )
        number, torch = campaigns[0].id, versions[0]
        points = database.read(lambda session: listing.progress(session, [number], POINTS_KEPT))[number]
        records = database.sites(torch)
    if len(points) < 2 or not records:
        raise InputError(f"{db}: found {len(points)} saved counts of its campaign, expected a campaign of some minutes")
    last = points[-1]
    counts = list(_counts(records, last))
    night = cores * hours * 3600.0
    sites = tuple(_site_estimate(one, night) for one in counts)
    service = Service(case_ms, driver_ms, store_ms, follow_up)
    limits = tuple(service.limit(drivers) for drivers in DRIVERS)
    record = Record(torch, last.cases, last.cpu_seconds, sites, limits)
    return Result(record, _view(record, cores, hours), _chart(counts, points, service))


def _counts(records: Iterable[SiteRecord], last: Progress) -> Iterator[Counts]:
    each = last.cpu_seconds / last.cases
    fallbacks = dict[tuple[object, ...], int]()
    errors = dict[str, int]()
    for site in records:
        if site.fallbacks:
            fallbacks[site.key[:3]] = fallbacks.get(site.key[:3], 0) + site.cases
        for blamed in site.blamed:
            errors[blamed] = errors.get(blamed, 0) + site.raised
    for kind, numbers in zip(KINDS, ([*fallbacks.values()], [*errors.values()]), strict=True):
        yield Counts(kind, tuple(min(number, last.cases) for number in numbers), last.cases, each)


def _site_estimate(counts: Counts, night: float) -> SiteEstimate:
    known = counts.estimated
    cost, reach = counts.cost(counts.cases), counts.reached(round(night / counts.cpu_seconds))
    return SiteEstimate(counts.kind, known.seen, known.total, known.low, known.high, counts.cpu_for(SHARE), cost, reach)


def _view(record: Record, cores: int, hours: int) -> Iterable[Block]:
    yield prose(
        "A campaign of {} cases, {} CPU seconds, torch {}. Estimates take cases as drawn independently, and are lower "
        "bounds: a guided campaign looks for what is new, and programs that are never drawn do not count.",
        record.cases, round(record.cpu_seconds), record.torch,
    )  # fmt: skip
    night = f"{cores:,} cores, {hours} h"
    titles = ("sites", "seen", "estimated", f"CPU s for {SHARE:.0%}", "CPU s for one more", night)
    rows = [
        (
            one.kind, str(one.seen), f"{one.total:.0f} ({one.low:.0f} to {one.high:.0f})", f"{one.cpu_to_share:,.0f}",
            f"{one.cost:,.0f}", f"{one.cores_reach:.0f}",
        )
        for one in record.sites
    ]  # fmt: skip
    yield table(titles, rows, right=titles[1:])
    busy = [(str(one.drivers), f"{one.workers:,.0f}", one.limit) for one in record.limits]
    yield table(
        ("drivers", "workers that they keep busy", "limit"), busy, right=("drivers", "workers that they keep busy")
    )


def _chart(counts: Sequence[Counts], points: Sequence[Progress], service: Service) -> dict[str, Any]:
    """Three panels: sites over CPU seconds, the cost of one more beside that of follow-ups, and cases over workers."""
    cases = sorted(set(map(round, _steps(FIRST, MOST * points[-1].cases))))
    sites = [_point(one.cpu_seconds * many, one.reached(many), one.kind, EXPECTED) for one in counts for many in cases]
    sites += [
        _point(point.cpu_seconds, number, kind, SEEN)
        for point in points
        for kind, number in zip(KINDS, (point.fallback_sites, point.dde_sites), strict=True)
    ]
    costs = [
        _point(many * one.cpu_seconds, cost, f"one more of {one.kind}", EXPECTED)
        for one in counts
        for many in cases
        if (cost := one.cost(many)) < COSTLIEST
    ]
    for before, after in pairwise(points[:: max(1, len(points) // 12)]):
        spent, fresh = after.cpu_seconds - before.cpu_seconds, after.findings - before.findings
        if spent > 0 and fresh > 0:
            costs.append(_point(after.cpu_seconds, spent / fresh, "one more finding", SEEN))
    ends = (points[0].cpu_seconds, MOST * points[-1].cpu_seconds)
    costs += [_point(end, service.follow_up, "minimizing and confirming a finding", SEEN) for end in ends]
    rates = [
        _point(workers, service.rate(workers, drivers), counted(drivers, "driver"), SEEN)
        for drivers in DRIVERS
        for workers in _steps(16, 8192)
    ]
    return {
        "hconcat": [
            _panel(sites, "CPU seconds", "distinct sites", "linear"),
            _panel(costs, "CPU seconds of the campaign", "CPU seconds", "log"),
            _panel(rates, "workers", "cases a second", "log"),
        ],
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
    }


def _point(x: float, y: float, line: str, source: str) -> dict[str, Any]:
    return {"x": x, "y": y, "line": line, "source": source}


def _steps(low: float, high: float) -> list[float]:
    return [low * (high / low) ** (number / (POINTS - 1)) for number in range(POINTS)]


def _panel(values: list[dict[str, Any]], x: str, y: str, scale: str) -> dict[str, Any]:
    legend = {"orient": "bottom", "columns": 1, "labelLimit": 300}
    dashes: dict[str, Any] = {"scale": {"domain": [SEEN, EXPECTED], "range": [[1, 0], [4, 3]]}}
    if len({value["source"] for value in values}) == 1:
        dashes["legend"] = None
    return {
        "width": 300,
        "height": 260,
        "data": {"values": values},
        "mark": "line",
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "title": x, "scale": {"type": "log"}},
            "y": {"field": "y", "type": "quantitative", "title": y, "scale": {"type": scale}},
            "color": {"field": "line", "type": "nominal", "title": None, "legend": legend},
            "strokeDash": {"field": "source", "type": "nominal", "title": None, "legend": legend, **dashes},
        },
    }
