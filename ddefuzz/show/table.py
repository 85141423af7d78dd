"""The table of formats. The options `--format` and `--output` of commands that report are made from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ddefuzz.escape import json_text
from ddefuzz.show.github import github
from ddefuzz.show.junit import junit
from ddefuzz.show.page import page
from ddefuzz.show.record import Report
from ddefuzz.show.rows import csv
from ddefuzz.show.sarif import sarif
from ddefuzz.show.summary import markdown


class Format(NamedTuple):
    """One format: what it is for, and how it is written."""

    name: str
    meaning: str
    write: Callable[[Report], str]


def _json(report: Report) -> str:
    return json_text(report.document) + "\n"


def _jsonl(report: Report) -> str:
    return "".join(json_text(record) + "\n" for record in report.records)


FORMATS: tuple[Format, ...] = (
    Format("json", "one JSON document with all data", _json),
    Format("jsonl", "one JSON object a line: a finding or a case", _jsonl),
    Format("markdown", "a summary for a pull request or a CI step", markdown),
    Format("html", "one page without outside files", page),
    Format("junit", "JUnit XML for CI servers: a test case for each result", junit),
    Format("sarif", "SARIF 2.1.0 for code scanning: what failed", sarif),
    Format("github", "GitHub's annotations: at most ten lines for the log of a step", github),
    Format("csv", "a row for each result", csv),
)
"""All formats but `text`, which each command lays out for a terminal itself."""

NAMES: tuple[str, ...] = tuple(one.name for one in FORMATS)
