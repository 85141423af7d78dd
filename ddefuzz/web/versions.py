"""The page of versions of torch: sightings, guard sites, and the results of `ddefuzz matrix` for each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, Literal

import msgspec
from msgspec.structs import asdict
from pydantic import Field
from sqlalchemy.orm import Session

from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import version_key
from ddefuzz.findings.listing import VersionCount, result_page, statuses
from ddefuzz.findings.model import Result
from ddefuzz.findings.schema import FINDINGS, programs, readable
from ddefuzz.versions.model import Cell, Change, Line, Status, cell_of_result, key_of
from ddefuzz.web.dashboard import PageQuery, Unreadable

ON_A_PAGE: Final = 50


class VersionsQuery(PageQuery):
    """Which results of `ddefuzz matrix`, and which page of them."""

    show: Literal["differing", "all"] = Field(
        default="differing", description="differing: findings and cases whose status is not the same in all versions."
    )
    page: int = Field(default=1, ge=1, le=1_000_000)


class MatrixCell(msgspec.Struct, frozen=True, kw_only=True):
    """One finding under one version of torch: its failure showed in `shows` of `runs` runs.

    `outdated`: the finding has another smallest program now.
    """

    status: Status
    shows: int
    runs: int
    reason: str
    when: str
    outdated: bool


class MatrixLine(msgspec.Struct, frozen=True, kw_only=True):
    """One finding or case under the versions of torch with results, oldest first. `title` is empty for a case, and for
    a finding that is not in the database any more.
    """

    id: str
    title: str
    change: Change
    cells: dict[str, MatrixCell]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Results of `ddefuzz matrix`. `statuses` has the numbers of all results, by version and status. `total` is the
    number of findings and cases that the query selects, and `lines` are those of one page.
    """

    statuses: dict[str, dict[str, int]]
    total: int
    page: int
    pages: int
    lines: tuple[MatrixLine, ...]


class VersionsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Findings and guard sites by version of torch, and the results of `ddefuzz matrix`. `fixed_in` counts fixed
    findings by the version that has the fix; an empty version stands for all.
    """

    versions: tuple[VersionCount, ...]
    sites: dict[str, int]
    fixed_in: dict[str, int]
    matrix: Matrix
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.versions/1"


def versions_page(database: Database, asked: VersionsQuery) -> VersionsPage:
    """The page."""

    def read(session: Session) -> VersionsPage:
        return VersionsPage(
            versions=tuple(sorted(listing.versions(session), key=lambda one: version_key(one.torch))),
            sites=listing.site_counts(session),
            fixed_in=listing.fixed_in(session),
            matrix=_matrix(session, asked),
        )

    return database.read(read)


def _matrix(session: Session, asked: VersionsQuery) -> Matrix:
    counts = statuses(session)
    differing = asked.show == "differing"
    total, results = result_page(session, differing=differing, first=(asked.page - 1) * ON_A_PAGE, most=ON_A_PAGE)
    cases = sorted({result.case for result in results})
    known = {finding.id: finding for finding in listing.by_ids(session, cases)}
    texts = programs(session, FINDINGS.c.id.in_(cases))
    keys = {name: key_of(one.signature, one.stage, texts.get(name)) for name, one in known.items()}
    return Matrix(
        statuses={torch: counts[torch] for torch in in_order(counts)},
        total=total,
        page=asked.page,
        pages=max(1, -(-total // ON_A_PAGE)),
        lines=tuple(
            _line(case, known[case].title if case in known else "", matrix_cells(group, keys.get(case)))
            for case, group in groupby(results, lambda result: result.case)
        ),
    )


def _line(case: str, title: str, cells: dict[str, MatrixCell]) -> MatrixLine:
    plain = {torch: Cell(cell.status, cell.shows, cell.runs, cell.reason) for torch, cell in cells.items()}
    return MatrixLine(id=case, title=title, change=Line(case, title, plain).change, cells=cells)


def matrix_cells(results: Iterable[Result], program: str | None) -> dict[str, MatrixCell]:
    """What `ddefuzz matrix` found of one finding, by version of torch, oldest first. `program` is its `program_key`."""

    def cell_of(result: Result) -> tuple[str, MatrixCell]:
        outdated = program is not None and result.program != program
        return result.torch, MatrixCell(**asdict(cell_of_result(result)), when=result.when, outdated=outdated)

    cells = dict(readable("result", results, cell_of))
    return {torch: cells[torch] for torch in in_order(cells)}


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions of torch, oldest first."""
    return sorted(versions, key=lambda torch: (version_key(torch), torch))
