"""Save guard sites: add the counts of some cases to the stored ones, in a few statements for all sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import Table, insert, select, tuple_, update
from sqlalchemy.orm import Session

from ddefuzz.coverage.ledger import SiteRecord
from ddefuzz.findings.rows import to_record
from ddefuzz.findings.schema import SiteRow

AT_A_TIME = 200
"""The number of sites whose keys are parameters of one statement. Older SQLite takes at most 999 parameters."""


def save_sites(
    session: Session,
    torch: str,
    records: Sequence[SiteRecord],
    both: Callable[[SiteRecord, SiteRecord], SiteRecord],
) -> None:
    """Save records of distinct sites. A stored site is replaced by `both` of the stored and the new record."""
    table: Table = SiteRow.__table__  # type: ignore[assignment]
    keys = [table.c[name] for name in ("language", "file", "line", "function")]
    for first in range(0, len(records), AT_A_TIME):
        some = {record.key: record for record in records[first : first + AT_A_TIME]}
        # A statement on the table, not the class: SQLAlchemy then does not refresh the session's loaded objects.
        rows = session.execute(select(table).where(table.c.torch == torch, tuple_(*keys).in_(list(some))))
        known = {record.key: record for record in (to_record(row, SiteRecord) for row in rows)}
        saved = [{"torch": torch, **msgspec.to_builtins(both(known[key], some[key]))} for key in known]
        added = [{"torch": torch, **msgspec.to_builtins(some[key])} for key in some if key not in known]
        if saved:
            session.execute(update(SiteRow), saved)
        if added:
            session.execute(insert(SiteRow), added)
