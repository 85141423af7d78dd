"""The census: one row per op with its status under explicit and size-oblivious semantics, and the totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ddefuzz.sweep.tasks import Failed, Source, Status, Swept, UpstreamResult

SCHEMA = "ddefuzz.sweep/1"

STATUSES: tuple[Status, ...] = ("dde", "unsupported", "other", "ok", "none")
"""In the order in which a reader wants to see them."""


class Failure(msgspec.Struct, frozen=True):
    """One call site at which samples of an op fail, and a program that shows it.

    `finding` is its id in the findings database; None if no capture stage was tried or none shows it. `confirmed` are
    the capture stages that fail with the same signature.
    """

    finding: str | None
    kind: str
    cause: str
    site: str
    anchor: str
    verdict: str
    evidence: str
    forms: tuple[str, ...]
    dtypes: tuple[str, ...]
    runs: int
    confirmed: tuple[str, ...]
    program: str


class Row(msgspec.Struct, frozen=True):
    """One op. `cause` and `site` are those of the failure that most samples show. `called` counts the captured programs
    that were called, and `wrong` is what the oracles said of them.
    """

    op: str
    source: Source
    explicit: Status
    size_oblivious: Status
    cause: str
    site: str
    samples: int
    runs: int
    failures: tuple[Failure, ...]
    rescued: tuple[str, ...]
    dropped: dict[str, int]
    lost: tuple[str, ...]
    called: int = 0
    wrong: tuple[Failure, ...] = ()


class Totals(msgspec.Struct, frozen=True):
    """Numbers of ops, samples, runs; of distinct fallback places and, by function, call sites of errors; of captured
    programs that were called and, by kind, of the ops of which one is wrong.
    """

    ops: int
    opinfo: int
    catalogue: int
    samples: int
    runs: int
    explicit: dict[str, int]
    size_oblivious: dict[str, int]
    fallback_sites: int
    fallback_sites_cxx: int
    dde_sites: int
    dde_sites_cxx: int
    cpu_seconds: float
    called: int = 0
    wrong: dict[str, int] = {}


class Difference(msgspec.Struct, frozen=True):
    """An entry on which the census and upstream's list differ, why, and the run that says so."""

    op: str
    reason: str
    evidence: str


class Upstream(msgspec.Struct, frozen=True):
    """The census compared with upstream's list.

    `reproduced` entries fail here with a data-dependent error. `accounted` counts these and the explained ones.
    """

    entries: int
    accounted: int
    reproduced: int
    only_here: tuple[Difference, ...]
    only_upstream: tuple[Difference, ...]
    unaccounted: tuple[str, ...]


class Census(msgspec.Struct, frozen=True):
    """The whole document."""

    torch: str
    generator: str
    selection: tuple[str, ...]
    seconds: float
    totals: Totals
    rows: tuple[Row, ...]
    interrupted: bool = False
    upstream: Upstream | None = None
    schema: str = SCHEMA


def row_of(swept: Swept) -> Row:
    """The row of one op."""
    ordered = sorted(swept.failures, key=lambda failed: (failed.signature.kind != "dde", -failed.runs))
    first = ordered[0] if ordered else None
    return Row(
        op=swept.op,
        source=swept.source,
        explicit=swept.explicit,
        size_oblivious=swept.size_oblivious,
        cause=first.cause if first else "",
        site=str(first.signature.site) if first else next(iter(swept.rescued), ""),
        samples=swept.samples,
        runs=swept.runs,
        failures=tuple(map(_failure, ordered)),
        rescued=swept.rescued,
        dropped=swept.dropped,
        lost=swept.lost,
        called=swept.called,
        wrong=tuple(msgspec.structs.replace(_failure(one), finding=one.signature.key) for one in swept.wrong),
    )


def _failure(failed: Failed) -> Failure:
    signature = failed.signature
    return Failure(
        finding=signature.key if failed.is_recorded else None,
        kind=signature.kind,
        cause=failed.cause,
        site=str(signature.site),
        anchor=signature.anchor,
        verdict=failed.verdict,
        evidence=failed.evidence,
        forms=failed.forms,
        dtypes=failed.dtypes,
        runs=failed.runs,
        confirmed=tuple(shown.stage for shown in failed.confirmed if shown.signature == str(signature)),
        program=failed.program,
    )


def totals_of(swept: Iterable[Swept]) -> Totals:
    """The totals over the ops."""
    all_ = tuple(swept)
    places = {place for one in all_ for place in one.sites}
    failing = [failed for one in all_ for failed in one.failures if failed.signature.kind == "dde"]
    sites = {(str(failed.signature.site), failed.signature.site.language) for failed in failing}
    return Totals(
        ops=len(all_),
        opinfo=sum(one.source == "opinfo" for one in all_),
        catalogue=sum(one.source == "catalogue" for one in all_),
        samples=sum(one.samples for one in all_),
        runs=sum(one.runs for one in all_),
        explicit=_counted(one.explicit for one in all_),
        size_oblivious=_counted(one.size_oblivious for one in all_),
        fallback_sites=len(places),
        fallback_sites_cxx=sum(".py:" not in place for place in places),
        dde_sites=len(sites),
        dde_sites_cxx=sum(language == "C++" for _, language in sites),
        cpu_seconds=round(sum(one.cpu_seconds for one in all_), 1),
        called=sum(one.called for one in all_),
        wrong=dict(Counter(kind for one in all_ for kind in {failed.signature.kind for failed in one.wrong})),
    )


def _counted(statuses: Iterable[Status]) -> dict[str, int]:
    counts = Counter(statuses)
    return {status: counts[status] for status in STATUSES if counts[status]}


def rows_of(swept: Iterable[Swept]) -> tuple[Row, ...]:
    """The rows, failing ops first, then by name."""
    return tuple(sorted(map(row_of, swept), key=lambda row: (STATUSES.index(row.explicit), row.source, row.op)))


def compared(
    swept: Iterable[Swept], listed: Iterable[str], skipped: Iterable[str], tests: dict[str, UpstreamResult]
) -> Upstream:
    """The census against upstream's list; `tests` are what upstream's own test does here with entries of either."""
    by_name = {one.op: one for one in swept if one.source == "opinfo"}
    entries = [name for name in listed if name in by_name]
    failing = {name for name, one in by_name.items() if one.explicit == "dde"}
    reproduced = [name for name in entries if name in failing]
    reasons = {name: _why_not(by_name[name], tests.get(name)) for name in entries if name not in failing}
    only_upstream = tuple(Difference(name, *reason) for name, reason in reasons.items() if reason is not None)
    skips = frozenset(skipped)
    only_here = tuple(
        Difference(name, *_why_here(by_name[name], tests.get(name), skipped=name in skips))
        for name in sorted(failing.difference(entries))
    )
    return Upstream(
        entries=len(entries),
        accounted=len(reproduced) + len(only_upstream),
        reproduced=len(reproduced),
        only_here=only_here,
        only_upstream=only_upstream,
        unaccounted=tuple(name for name, reason in reasons.items() if reason is None),
    )


def _why_not(one: Swept, test: UpstreamResult | None) -> tuple[str, str] | None:
    """Why an entry of upstream's list has no data-dependent error in the census, and the evidence; None if unknown."""
    if test is None or test.outcome == "lost":
        return None
    if test.outcome == "ok":
        return "stale: upstream's own test passes on this torch", f"{test.samples} samples under compile(eager)"
    if test.outcome == "no-sample":
        return "nothing to try: no sample has a dim of 2 or more", "0 samples with a dim to mark"
    if test.kind == "dde":
        return "only under compile(eager), with upstream's sample", test.signature
    fails_here = f"; here {one.explicit} at {one.failures[0].signature.site}" if one.failures else ""
    return "fails for another reason than a data-dependent error", f"{test.signature}: {test.message}{fails_here}"


def _why_here(one: Swept, test: UpstreamResult | None, *, skipped: bool) -> tuple[str, str]:
    """Why an op that fails here is not on upstream's list, and the failure."""
    failed = next(failed for failed in one.failures if failed.signature.kind == "dde")
    evidence = f"{failed.signature.site} [{failed.signature.anchor}]"
    if skipped:
        return "upstream skips it", evidence
    if test is not None and test.outcome == "fail":
        return f"upstream's own test fails as well ({test.kind})", evidence
    plain = [one for one in failed.forms if one == "all"]
    if plain and "float32" in failed.dtypes:
        return "other samples, or another stage than compile(eager)", evidence
    if plain:
        return f"with {', '.join(failed.dtypes)}, which upstream does not try", evidence
    return f"in the forms {', '.join(failed.forms)}, which upstream does not try", evidence
