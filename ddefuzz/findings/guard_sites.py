"""The guard sites of one torch version: those in its source, joined with those that runs reached.

C++ sites, errors at plain comparisons, and guards called under another name are known only after a run reached
them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from typing import Any, get_args

import msgspec
from msgspec.structs import asdict

from ddefuzz.findings.inventory import CALLS, GuardCall, Part, part_of
from ddefuzz.findings.ledger import Answer, SiteRecord, together
from ddefuzz.findings.unreached_sites import reason_for
from ddefuzz.instrument.events import Counterfactual, Language

SITE_SCHEMA = "ddefuzz.site/1"
TOTALS_SCHEMA = "ddefuzz.sites/1"


class GuardSite(msgspec.Struct, frozen=True):
    """One site. `listed` says that it is in the inventory, which has one site for each call in the source.

    The numbers are those of `ledger.SiteRecord`; they count cases. A frame has a line but no column, so the
    calls of the same name on one line (`on_line` of them) share one record. `text` is the call's source; empty
    if only the place is known. `reason` says why the site is not reached, if known.
    """

    language: Language
    part: Part
    file: str
    line: int
    last_line: int
    function: str
    call: str
    text: str = ""
    listed: bool = False
    on_line: int = 1
    fallbacks: dict[Answer, int] = {}
    old: dict[Counterfactual, int] = {}
    raised: int = 0
    cases: int = 0
    blamed: tuple[str, ...] = ()
    example: str = ""
    stage: str = ""
    reason: str = ""

    @property
    def reached(self) -> bool:
        """Whether a run reached this site with an undecided guard."""
        return bool(self.fallbacks or self.raised)

    @property
    def place(self) -> tuple[str, str, int]:
        """The place. Several sites may share it."""
        return self.language, self.file, self.line


class PartCount(msgspec.Struct, frozen=True):
    """Of one part of torch: calls in its source (`listed`), those of them that were reached, and other sites reached.

    Where nothing is listed, as in C++, only `unlisted` counts. `fell_back` counts places, as do the estimates.
    """

    part: Part
    listed: int
    reached: int
    unlisted: int
    fell_back: int


class FileCount(msgspec.Struct, frozen=True):
    """Of one file: calls in its source (`listed`), those of them that were reached, other sites reached (`unlisted`),
    and sites that raised.
    """

    file: str
    part: Part
    listed: int
    reached: int
    unlisted: int
    raised: int


class Totals(msgspec.Struct, frozen=True):
    """The totals of all sites: `call_sites` blamed for errors; of the listed calls reached, those that are not alone on
    their line (`shared`); estimates of fallback sites, of those in C++, and of call sites of errors.
    """

    torch: str
    parts: tuple[PartCount, ...]
    call_sites: int
    shared: int
    estimates: dict[str, Estimate]


def guard_sites(calls: Sequence[GuardCall], records: Iterable[SiteRecord]) -> tuple[GuardSite, ...]:
    """One row for each call, and one for each place that is no call of the inventory, in order of place."""
    by_file: dict[str, list[GuardCall]] = {}
    for call in calls:
        by_file.setdefault(call.file, []).append(call)
    records_at: dict[tuple[str, int, str], list[SiteRecord]] = {}
    sites: list[GuardSite] = []
    for record in records:
        places = _calls_of(record, by_file.get(record.file, ()))
        for place in places:
            records_at.setdefault(place, []).append(record)
        if not places:
            part = "c++" if record.language == "C++" else part_of(record.file)
            sites.append(GuardSite(**asdict(record), part=part, last_line=record.line))
    on_line = Counter(map(_place_of, calls))
    for call in calls:
        there = records_at.get(_place_of(call), ())
        identity = {"file": call.file, "line": call.line, "function": call.function, "call": call.call}
        record = (
            reduce(together, there) if there else SiteRecord("Python", call.file, call.line, call.function, call.call)
        )
        sites.append(
            GuardSite(
                **{**asdict(record), **identity},
                part=call.part,
                last_line=call.last_line,
                text=call.text,
                listed=True,
                on_line=on_line[_place_of(call)],
                reason="" if there else reason_for(call),
            )
        )
    return tuple(sorted(sites, key=lambda site: (*site.place, not site.listed, site.function, site.text)))


def _place_of(call: GuardCall) -> tuple[str, int, str]:
    """The properties of a call that a record can match."""
    return call.file, call.line, call.call


def _calls_of(record: SiteRecord, calls: Sequence[GuardCall]) -> tuple[tuple[str, int, str], ...]:
    """The calls of the inventory that a record belongs to. If the line has two names, it may belong to both.

    The candidates are the calls on the record's line, else the smallest call around it. A record has the name
    of the first method called on its line, which may have been a plain comparison. The answers taken decide.
    """
    if record.language != "Python":
        return ()
    around = [call for call in calls if call.first_line <= record.line <= call.last_line]
    matching = []
    for name, answer in CALLS.items():
        if record.call == name or answer in record.fallbacks:
            fitting = [call for call in around if call.call == name]
            matching += sorted(fitting, key=lambda call: (call.line != record.line, call.last_line - call.first_line))[
                :1
            ]
    return tuple(map(_place_of, matching))


def totals(torch: str, sites: Sequence[GuardSite]) -> Totals:
    """The totals over sites."""
    falling = Counter[tuple[str, str, int]]()
    for place, cases in {(site.place, site.function): site.cases for site in sites if site.fallbacks}.items():
        falling[place[0]] += cases
    errors = Counter[str]()
    for site in {(site.place, site.function): site for site in sites}.values():
        errors.update(dict.fromkeys(site.blamed, site.raised))
    parts = [_part_count(part, [site for site in sites if site.part == part]) for part in get_args(Part)]
    return Totals(
        torch,
        tuple(count for count in parts if count.listed or count.unlisted),
        len(errors),
        sum(site.reached and site.on_line > 1 for site in sites),
        {
            "fallback sites": estimate(falling.values()),
            "fallback sites in C++": estimate(n for (language, _, _), n in falling.items() if language == "C++"),
            "call sites of errors": estimate(errors.values()),
        },
    )


def _part_count(part: Part, sites: Sequence[GuardSite]) -> PartCount:
    listed = [site for site in sites if site.listed]
    fell_back = {site.place for site in sites if site.fallbacks}
    return PartCount(part, len(listed), sum(site.reached for site in listed), len(sites) - len(listed), len(fell_back))


def counts_of_files(sites: Iterable[GuardSite]) -> Iterator[FileCount]:
    """The counts of each file, by name."""
    for file, group in groupby(sorted(sites, key=lambda site: site.file), lambda site: site.file):
        sites_of_file = list(group)
        part, raised = sites_of_file[0].part, sum(site.raised > 0 for site in sites_of_file)
        count = _part_count(part, sites_of_file)
        yield FileCount(file, part, count.listed, count.reached, count.unlisted, raised)


def site_document(site: GuardSite) -> dict[str, Any]:
    """The machine-readable form of a site."""
    return {"schema": SITE_SCHEMA, **msgspec.to_builtins(site), "reached": site.reached}


def totals_document(of: Totals) -> dict[str, Any]:
    """The machine-readable form of the totals."""
    return {"schema": TOTALS_SCHEMA, **msgspec.to_builtins(of)}


Z_95 = 1.959963984540054
"""The two-sided 95% quantile of the standard normal distribution."""


class Estimate(msgspec.Struct, frozen=True):
    """For a set of sites: `seen`, seen in exactly one case (`once`), in two (`twice`), and the estimates.

    `next_new` is the probability that the next site reached is a new one; None if none was reached. `total` is
    the estimated number of sites, with its 95% interval from `low` to `high`.
    """

    seen: int
    once: int
    twice: int
    next_new: float | None
    total: float
    low: float
    high: float


def estimate(cases: Iterable[int]) -> Estimate:
    """Estimate from the number of cases that reached each site. Sites that no case reached do not count."""
    counts = [number for number in cases if number > 0]
    seen, once, twice = len(counts), counts.count(1), counts.count(2)
    reached = sum(counts)
    low, high = chao1_interval(seen, once, twice, reached)
    return Estimate(seen, once, twice, good_turing(once, reached), chao1(seen, once, twice), low, high)


def good_turing(once: int, reached: int) -> float | None:
    """f₁ / n, with n all the times that sites were reached: the chance that the next time is at a new site.

    I. J. Good, The population frequencies of species and the estimation of population parameters, Biometrika 40 (1953).
    """
    return once / reached if reached else None


def chao1(seen: int, once: int, twice: int) -> float:
    """S + f₁(f₁ - 1) / (2(f₂ + 1)), the bias-corrected lower bound of the number of species.

    A. Chao, Estimating species richness (in: Encyclopedia of Statistical Sciences, 2005). Counted in cases this is
    Chao2 (Chao 1987) but for the factor (m - 1)/m, m the number of cases, which is 1 within the width of the interval.
    """
    return seen + once * (once - 1) / (2 * (twice + 1))


def chao1_variance(seen: int, once: int, twice: int) -> float:
    """The variance of `chao1`, as EstimateS gives it (R. Colwell, EstimateS user's guide, appendix B).

    With f₂ > 0: f₁(f₁-1)/(2(f₂+1)) + f₁(2f₁-1)²/(4(f₂+1)²) + f₁²f₂(f₁-1)²/(4(f₂+1)⁴); without, with Ŝ the estimate:
    f₁(f₁-1)/2 + f₁(2f₁-1)²/4 - f₁⁴/(4Ŝ).
    """
    if not once:
        return 0.0
    more = twice + 1
    variance = once * (once - 1) / (2 * more) + once * (2 * once - 1) ** 2 / (4 * more**2)
    if twice:
        return variance + once**2 * twice * (once - 1) ** 2 / (4 * more**4)
    return variance - once**4 / (4 * chao1(seen, once, twice))


def chao1_interval(seen: int, once: int, twice: int, reached: int) -> tuple[float, float]:
    """The 95% interval of `chao1`, by the number unseen, T = Ŝ - S, taken as log-normal; n is `reached`.

    From S + T/K to S + TK, with K = exp(1.96 √log(1 + var/T²)). A. Chao, Estimating the population size for
    capture-recapture data with unequal catchability, Biometrics 43 (1987). Where no site was seen once, from S on:
    S/(1-P) ± 1.96 √(SP/(1-P)), with P = exp(-n/S) (EstimateS, equation 14).
    """
    if not seen:
        return 0.0, 0.0
    if not once:
        missed = math.exp(-reached / seen)
        middle, spread = seen / (1 - missed), Z_95 * math.sqrt(seen * missed / (1 - missed))
        return max(float(seen), middle - spread), middle + spread
    unseen = chao1(seen, once, twice) - seen
    if not unseen:
        return float(seen), float(seen)
    factor = math.exp(Z_95 * math.sqrt(math.log1p(max(chao1_variance(seen, once, twice), 0.0) / unseen**2)))
    return seen + unseen / factor, seen + unseen * factor
