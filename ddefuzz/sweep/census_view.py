"""The census of a sweep as blocks: ops that upstream does not list, ops that fail, totals."""

from __future__ import annotations

from collections.abc import Iterator

from ddefuzz.escape import shell_words
from ddefuzz.show.blocks import (
    Block,
    Heading,
    Inline,
    Items,
    Paragraph,
    Row,
    Span,
    Style,
    codes,
    counted,
    joined,
    prose,
    table,
)
from ddefuzz.sweep import census as model
from ddefuzz.sweep.census import Census, Upstream

STATUS_STYLES: dict[str, Style] = {"dde": "bad", "unsupported": "warn", "other": "warn", "ok": "good", "none": "dim"}


def census_document(census: Census) -> Iterator[Block]:
    """The page for a repository. An op that does not fail is only in the last list."""
    words = ["ddefuzz", "sweep", *(word for glob in census.selection for word in ("--ops", glob))]
    words += ["--compare-upstream"] if census.upstream is not None else []
    selection = f", ops {' '.join(census.selection)}" if census.selection else ""
    yield Heading(f"Census of data-dependent errors: torch {census.torch}{selection}", 1)
    yield prose("Made by `{}`; do not edit.", f"{shell_words(words)} --output markdown=FILE")
    yield Items(tuple(summary_lines(census)))
    yield prose(
        "Statuses: **dde** a sample ends in a data-dependent error; **unsupported** none does, but a sample is refused "
        "(no kernel, or an output whose shape or value depends on data); **other** a sample fails in another way; "
        "**ok** all samples trace; **none** no sample could be made. size-oblivious is the status with size-oblivious "
        "semantics in the same runs."
    )
    yield from census_tables(census)
    for status, title in (("ok", "Ops whose samples all trace (OpInfo)"), ("none", "Ops without a sample (OpInfo)")):
        names = [row.op for row in census.rows if row.explicit == status and row.source == "opinfo"]
        if names:
            yield Heading(title)
            yield Paragraph(codes(names))


def census_tables(census: Census) -> Iterator[Block]:
    """What upstream's list does not have, or has alone, then what fails and what is wrong."""
    if census.upstream is not None:
        yield from _upstream(census.upstream)
    failing = [row for row in census.rows if row.explicit not in ("ok", "none")]
    titles = ("op", "explicit", "size-oblivious", "cause", "confirmed", "samples", "runs", "call sites")
    for source, title in (("opinfo", "Ops of OpInfo that fail"), ("catalogue", "Ops of the catalogue that fail")):
        rows = [_row(row) for row in failing if row.source == source]
        if rows:
            yield Heading(title)
            yield table(titles, rows, right=("samples", "runs"), code=("op",), folding=("confirmed", "call sites"))
    wrong = [(row, failure) for row in census.rows for failure in row.wrong]
    if wrong:
        yield Heading(f"{counted(len({row.op for row, _ in wrong}), 'op')} whose captured programs are wrong")
        cells = ((row.op, one.finding or "", one.kind, one.site, one.evidence) for row, one in wrong)
        columns = ("op", "finding", "kind", "site", "evidence")
        yield table(columns, cells, code=("op", "finding", "site", "evidence"), folding=("site", "evidence"))


def _row(row: model.Row) -> Row:
    failures = [f"{one.finding or one.kind} {one.site} [{one.anchor}]" for one in row.failures]
    sites: list[str | Span] = [*(Span(line, code=True) for line in dict.fromkeys(failures)), *row.lost]
    stages = dict.fromkeys(stage for failure in row.failures for stage in failure.confirmed)
    cells: tuple[Inline, ...] = (
        row.op,
        Span(row.explicit, style=STATUS_STYLES[row.explicit]),
        row.size_oblivious,
        row.cause,
        ", ".join(stages),
        str(row.samples),
        str(row.runs),
        joined(sites, "\n"),
    )
    return Row(cells)


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
