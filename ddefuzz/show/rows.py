"""The format `csv`."""

from __future__ import annotations

import csv as writer
import io

from ddefuzz.escape import csv_cell
from ddefuzz.show.record import Report

COLUMNS = ("id", "outcome", "rule", "cause", "site", "title", "path", "line", "message")


def csv(report: Report) -> str:
    """A header and a row for each result (RFC 4180)."""
    out = io.StringIO()
    rows = writer.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for result in report.results:
        rows.writerow([csv_cell(str(getattr(result, name) or "")) for name in COLUMNS])
    return out.getvalue()
