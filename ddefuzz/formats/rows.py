"""The format `csv`."""

from __future__ import annotations

import csv as writer
import io

from ddefuzz.formats.record import Report

COLUMNS = ("id", "outcome", "rule", "cause", "site", "title", "path", "line", "message")

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so is a formula for spreadsheets. Messages are not trusted, so `'` is put before it."""


def csv(report: Report) -> str:
    """A header and a row for each result (RFC 4180)."""
    out = io.StringIO()
    rows = writer.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for result in report.results:
        rows.writerow([_cell(getattr(result, name) or "") for name in COLUMNS])
    return out.getvalue()


def _cell(value: str | int) -> str:
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text
