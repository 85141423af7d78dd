"""The census of a sweep: every op with its status under explicit and size-oblivious semantics, the totals, the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from ddefuzz.escape import shell_words
from ddefuzz.program.recipes import PLACEMENTS
from ddefuzz.show.blocks import (
    Block,
    Commands,
    Heading,
    Inline,
    Invocation,
    Items,
    Paragraph,
    Span,
    Style,
    codes,
    counted,
    joined,
    prose,
    table,
)
from ddefuzz.show.record import Outcome, Report, Result, Rule, rules
from ddefuzz.sweep.tasks import STATIC, OpFailure, OpResult, Status, UpstreamResult, row_of

SCHEMA = "ddefuzz.sweep/2"

STATUS_STYLES: dict[Status, Style] = {"dde": "bad", "unsupported": "warn", "other": "warn", "ok": "good", "none": "dim"}
"""In the order in which a reader wants to see them."""

STATUSES: tuple[Status, ...] = tuple(STATUS_STYLES)


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
    """The whole document. `placed` says that the inputs were DTensors."""

    torch: str
    generator: str
    selection: tuple[str, ...]
    seconds: float
    totals: Totals
    rows: tuple[OpResult, ...]
    interrupted: bool = False
    upstream: Upstream | None = None
    placed: bool = False
    schema: str = SCHEMA


def totals_of(swept: Iterable[OpResult]) -> Totals:
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


def rows_of(swept: Iterable[OpResult]) -> tuple[OpResult, ...]:
    """The ops in the order of the census: failing ones first, then by name."""
    return tuple(sorted(map(row_of, swept), key=lambda row: (STATUSES.index(row.explicit), row.source, row.op)))


def compared(
    swept: Iterable[OpResult], listed: Iterable[str], skipped: Iterable[str], tests: dict[str, UpstreamResult]
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


def _why_not(result: OpResult, test: UpstreamResult | None) -> tuple[str, str] | None:
    """Why an entry of upstream's list has no data-dependent error in the census, and the evidence; None if unknown."""
    if test is None or test.outcome == "lost":
        return None
    if test.outcome == "ok":
        return "stale: upstream's own test passes on this torch", f"{test.samples} samples under compile(eager)"
    if test.outcome == "no-sample":
        return "nothing to try: no sample has a dim of 2 or more", "0 samples with a dim to mark"
    if test.kind == "dde":
        return "only under compile(eager), with upstream's sample", test.signature
    fails_here = f"; here {result.explicit} at {result.failures[0].signature.site}" if result.failures else ""
    return "fails for another reason than a data-dependent error", f"{test.signature}: {test.message}{fails_here}"


def _why_here(result: OpResult, test: UpstreamResult | None, *, skipped: bool) -> tuple[str, str]:
    """Why an op that fails here is not on upstream's list, and the failure."""
    failed = next(failed for failed in result.failures if failed.signature.kind == "dde")
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


def census_document(census: Census) -> Iterator[Block]:
    """The page for a repository. An op that does not fail is only in the last list."""
    words = ["ddefuzz", "sweep", *(word for glob in census.selection for word in ("--ops", glob))]
    words += ["--placements"] if census.placed else []
    words += ["--compare-upstream"] if census.upstream is not None else []
    selection = f", ops {' '.join(census.selection)}" if census.selection else ""
    inputs = " of DTensors" if census.placed else ""
    yield Heading(f"Census of data-dependent errors{inputs}: torch {census.torch}{selection}", 1)
    yield prose("Made by `{}`; do not edit.", f"{shell_words(words)} --output markdown=FILE")
    yield Items(tuple(summary_lines(census)))
    yield prose(
        "Statuses: **dde** a sample ends in a data-dependent error; **unsupported** none does, but a sample is refused "
        "(no kernel, or an output whose shape or value depends on data); **other** a sample fails in another way; "
        "**ok** all samples trace; **none** no sample could be made. size-oblivious is the status with size-oblivious "
        "semantics in the same runs."
    )
    yield from census_tables(census)
    untried = [row for row in census.rows if row.explicit == "none" and row.source == "opinfo"]
    lists = {
        "Ops whose samples all trace (OpInfo)": [
            row for row in census.rows if row.explicit == "ok" and row.source == "opinfo"
        ],
        "Ops of which no sample counts, because some fail at static sizes, too": [
            row for row in untried if STATIC in row.dropped
        ],
        "Ops without a sample that eager runs (OpInfo)": [row for row in untried if STATIC not in row.dropped],
    }
    for title, rows in lists.items():
        if rows:
            yield Heading(title)
            yield Paragraph(codes([row.op for row in rows]))


def census_tables(census: Census) -> Iterator[Block]:
    """What upstream's list does not have, or has alone, then what fails and what is wrong."""
    if census.upstream is not None:
        yield from _upstream(census.upstream)
    failing = [row for row in census.rows if row.explicit not in ("ok", "none")]
    titles = ("op", "explicit", "size-oblivious", "cause", "confirmed", "samples", "runs", "call sites")
    for source, title in (("opinfo", "Ops of OpInfo that fail"), ("catalogue", "Ops of the catalogue that fail")):
        rows = [_cells(row) for row in failing if row.source == source]
        if rows:
            yield Heading(title)
            yield table(titles, rows, right=("samples", "runs"), code=("op",), folding=("confirmed", "call sites"))
    wrong = [(row, failure) for row in census.rows for failure in row.wrong]
    if wrong:
        yield Heading(f"{counted(len({row.op for row, _ in wrong}), 'op')} whose captured programs are wrong")
        cells = (
            (row.op, one.finding or "", one.signature.kind, str(one.signature.site), one.evidence) for row, one in wrong
        )
        columns = ("op", "finding", "kind", "site", "evidence")
        yield table(columns, cells, code=("op", "finding", "site", "evidence"), folding=("site", "evidence"))


def _cells(row: OpResult) -> tuple[Inline, ...]:
    failures = (
        f"{one.finding or one.signature.kind} {one.signature.site} [{one.signature.anchor}]{_placements(one)}"
        for one in row.failures
    )
    sites: list[str | Span] = [*(Span(line, code=True) for line in dict.fromkeys(failures)), *row.lost]
    return (
        row.op,
        Span(row.explicit, style=STATUS_STYLES[row.explicit]),
        row.size_oblivious,
        row.cause,
        ", ".join(dict.fromkeys(stage for failure in row.failures for stage in failure.stages)),
        str(row.samples),
        str(row.runs),
        joined(sites, "\n"),
    )


def _placements(failure: OpFailure) -> str:
    """Where the inputs are DTensors: their placements in the runs that fail."""
    ways = [form for form in failure.forms if set(form.split(", ")) <= PLACEMENTS.keys()]
    return f" ({'; '.join(ways)})" if ways else ""


def _upstream(upstream: Upstream) -> Iterator[Block]:
    for title, differences in (
        ("with a data-dependent error here, not on upstream's list", upstream.only_here),
        ("on upstream's list, with no data-dependent error here", upstream.only_upstream),
    ):
        if differences:
            yield Heading(f"{counted(len(differences), 'op')} {title}")
            rows = ((one.op, one.reason, one.evidence) for one in differences)
            yield table(("op", "reason", "evidence"), rows, code=("op", "evidence"), folding=("reason", "evidence"))
    if upstream.unaccounted:
        yield Heading("On upstream's list, and no run explains why")
        yield Paragraph(codes(upstream.unaccounted))


def summary_lines(census: Census) -> list[str]:
    """The totals, line by line."""
    totals = census.totals
    lines = [
        f"torch {census.torch}: {counted(totals.ops, 'op')} ({totals.opinfo} of OpInfo, {totals.catalogue} of the "
        f"catalogue), {totals.samples} samples in {totals.runs} runs, {totals.cpu_seconds:.0f} CPU seconds, "
        f"{census.seconds:.0f} s this time",
        f"explicit: {_statuses(totals.explicit)}",
        f"size-oblivious: {_statuses(totals.size_oblivious)}",
        f"guard sites reached: {totals.fallback_sites} took a fallback answer ({totals.fallback_sites_cxx} in C++), "
        f"{totals.dde_sites} raised a data-dependent error ({totals.dde_sites_cxx} in C++)",
    ]
    if totals.called:
        wrong = ", ".join(f"{number} {kind}" for kind, number in totals.wrong.items()) or "none wrong"
        lines.append(f"called: {counted(totals.called, 'captured program')}; ops by what is wrong: {wrong}")
    if census.upstream is not None:
        of = census.upstream
        lines.append(
            f"upstream's list: {of.accounted} of {of.entries} entries accounted for by runs, {of.reproduced} of them "
            f"reproduced; {counted(len(of.only_here), 'op')} failing only here"
        )
    if census.interrupted:
        lines.append("interrupted: what was done is saved; the same command continues")
    return lines


def _statuses(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in counts.items()) or "nothing"


def census_view(census: Census, call: Invocation) -> Iterator[Block]:
    """What fails, the totals, and what to type next."""
    yield from census_tables(census)
    yield Items(tuple(summary_lines(census)))
    finding_id = next((one.finding for row in census.rows for one in row.failures if one.finding), None)
    if finding_id is not None:
        show = call.command("findings", "show", finding_id)
        repro = call.repro(finding_id)
        yield Commands((show, repro, call.command("findings", "list"), call.command("sites")))


TRACES = Rule("traces", "all samples of the op trace with unbacked sizes")
"""The rule of the ops that do not fail."""

_WITHOUT_FAILURE: dict[Status, tuple[Outcome, str]] = {
    "ok": ("passed", "all samples trace"),
    "none": ("skipped", "no sample could be made"),
}


def sweep_report(census: Census) -> Report:
    """A result for each failure of each op, and for each op without one."""
    lines = summary_lines(census)
    return Report(
        title=f"ddefuzz sweep: {lines[0]}",
        torch=census.torch,
        rules=(*rules(), TRACES),
        results=tuple(result for row in census.rows for result in _results(row)),
        facts=tuple(lines[1:]),
        document=census,
        records=census.rows,
    )


def _results(row: OpResult) -> Iterator[Result]:
    failures = (*row.failures, *row.wrong)
    for number, failure in enumerate(failures):
        yield _failure(row, failure, number)
    if not failures:
        outcome, title = _WITHOUT_FAILURE.get(row.explicit, ("failed", "; ".join(row.lost) or row.explicit))
        yield Result(id=row.op, rule=TRACES.id, outcome=outcome, title=f"{row.op}: {title}")


def _failure(row: OpResult, failure: OpFailure, number: int) -> Result:
    return Result(
        id=failure.finding or f"{row.op}/{failure.signature.kind}/{number}",
        rule=failure.signature.kind,
        outcome="failed",
        title=f"{row.op}: {failure.evidence}",
        site=str(failure.signature.site),
        cause=failure.cause,
        program=failure.program,
        facts=tuple(
            (name, value)
            for name, value in (
                ("op", row.op),
                ("forms", ", ".join(failure.forms)),
                ("confirmed in", ", ".join(failure.stages)),
                ("verdict", failure.verdict),
            )
            if value
        ),
    )
