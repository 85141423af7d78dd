"""The guard sites of one torch version: those in its source, joined with those that runs reached.

C++ sites, errors at plain comparisons, and guards called under another name are known only after a run reached
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, get_args

import msgspec

from ddefuzz.coverage.estimate import Estimate, estimate
from ddefuzz.coverage.inventory import CALLS, GuardCall, Part, part_of
from ddefuzz.coverage.ledger import SiteRecord, together
from ddefuzz.coverage.reach import Answer
from ddefuzz.coverage.unreached import reason_for
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
        """Whether a run reached this site with an undecided guard: it took the fallback or raised."""
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
    found: dict[tuple[str, int, str], list[SiteRecord]] = {}
    others: list[GuardSite] = []
    for record in records:
        places = _calls_of(record, by_file.get(record.file, ()))
        for place in places:
            found.setdefault(place, []).append(record)
        if not places:
            others.append(_seen(record))
    on_line = Counter(map(_place_of, calls))
    listed = [_listed(call, found.get(_place_of(call), ()), on_line[_place_of(call)]) for call in calls]
    return tuple(sorted([*listed, *others], key=lambda site: (*site.place, not site.listed, site.function, site.text)))


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
    found = []
    for name, answer in CALLS.items():
        if record.call == name or answer in record.fallbacks:
            fitting = [call for call in around if call.call == name]
            found += sorted(fitting, key=lambda call: (call.line != record.line, call.last_line - call.first_line))[:1]
    return tuple(map(_place_of, found))


def _listed(call: GuardCall, records: Sequence[SiteRecord], on_line: int) -> GuardSite:
    site = GuardSite(
        language="Python",
        part=call.part,
        file=call.file,
        line=call.line,
        last_line=call.last_line,
        function=call.function,
        call=call.call,
        text=call.text,
        listed=True,
        on_line=on_line,
    )
    if not records:
        return msgspec.structs.replace(site, reason=reason_for(call))
    return _with(site, reduce(together, records))


def _seen(record: SiteRecord) -> GuardSite:
    return _with(
        GuardSite(
            language=record.language,
            part="c++" if record.language == "C++" else part_of(record.file),
            file=record.file,
            line=record.line,
            last_line=record.line,
            function=record.function,
            call=record.call,
        ),
        record,
    )


def _with(site: GuardSite, record: SiteRecord) -> GuardSite:
    return msgspec.structs.replace(
        site,
        fallbacks=record.fallbacks,
        old=record.old,
        raised=record.raised,
        cases=record.cases,
        blamed=record.blamed,
        example=record.example,
        stage=record.stage,
    )


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
    return PartCount(
        part=part,
        listed=len(listed),
        reached=sum(site.reached for site in listed),
        unlisted=len(sites) - len(listed),
        fell_back=len({site.place for site in sites if site.fallbacks}),
    )


def site_document(site: GuardSite) -> dict[str, Any]:
    """The machine-readable form of a site."""
    document: dict[str, Any] = msgspec.to_builtins(site)
    return {"schema": SITE_SCHEMA, **document, "reached": site.reached}


def totals_document(of: Totals) -> dict[str, Any]:
    """The machine-readable form of the totals."""
    document: dict[str, Any] = msgspec.to_builtins(of)
    return {"schema": TOTALS_SCHEMA, **document}
