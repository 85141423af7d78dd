"""The census of the sweeps in the database."""

from __future__ import annotations

import msgspec
from pydantic import Field

from ddefuzz.errors import InputError
from ddefuzz.findings import runs
from ddefuzz.findings.database import Database
from ddefuzz.findings.schema import readable
from ddefuzz.sweep.census import STATUSES, row_of
from ddefuzz.sweep.tasks import Swept
from ddefuzz.web.rows import Asked, Line, Unreadable


class CensusQuery(Asked):
    """Which sweep, and which of its ops."""

    sweep: Line = Field(default="", description="The key of a sweep. Default: the last in order.")
    status: Line = Field(default="", description="Only ops with this status under explicit semantics.")


class OpLine(msgspec.Struct, frozen=True):
    """One op of a sweep, with its status under explicit and size-oblivious semantics."""

    op: str
    source: str
    explicit: str
    size_oblivious: str
    cause: str
    site: str
    samples: int
    runs: int


class CensusPage(msgspec.Struct, frozen=True, kw_only=True):
    """The ops of one sweep. `sweeps` are the keys of all, with the number of their ops. `statuses` counts all ops."""

    sweep: str
    sweeps: dict[str, int]
    statuses: dict[str, int]
    ops: tuple[OpLine, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.census/1"


def census_page(database: Database, asked: CensusQuery) -> CensusPage:
    """The page. Raises `InputError` for a sweep that is not in the database."""
    sweeps = database.read(runs.sweeps)
    wanted = asked.sweep or next(reversed(sweeps), "")
    if asked.sweep and asked.sweep not in sweeps:
        raise InputError(f"sweep: found {asked.sweep!r}, expected a key that /census lists ({len(sweeps)} sweeps)")
    if asked.status and asked.status not in STATUSES:
        raise InputError(f"status: found {asked.status!r}, expected one of {', '.join(STATUSES)}")
    stored = database.swept(wanted).items()
    rows = list(readable("op of the sweep", stored, lambda one: row_of(msgspec.json.decode(one[1], type=Swept))))
    rows.sort(key=lambda row: (STATUSES.index(row.explicit), row.op))
    found = [row.explicit for row in rows]
    return CensusPage(
        sweep=wanted,
        sweeps=sweeps,
        statuses={status: found.count(status) for status in STATUSES if status in found},
        ops=tuple(
            OpLine(row.op, row.source, row.explicit, row.size_oblivious, row.cause, row.site, row.samples, row.runs)
            for row in rows
            if asked.status in ("", row.explicit)
        ),
    )
