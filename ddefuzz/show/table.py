"""The table of formats. The options `--format` and `--output` of commands that report are made from it.

SARIF 2.1.0 (OASIS standard, 2020-03-27) is for code scanning. Only results that failed are in it, because a viewer
shows each result as an open alert. All rules are, so that a viewer closes alerts of rules without results. The primary
location is a file of the repository, because a viewer cannot open others: the configuration if the result has none.
torch's call site is a related location if its line is known. The rest is what GitHub requires: the rules GH1001 to
GH1018 and GH2012 of sarif-multitool.
"""

from __future__ import annotations

import csv as writer
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, assert_never
from urllib.parse import quote, unquote

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ddefuzz.escape import (
    csv_cell,
    from_sarif_message,
    github_data,
    github_property,
    json_text,
    sarif_message,
    xml_text,
)
from ddefuzz.show.blocks import Block, Code, Details, Facts, Heading, Paragraph, Span, Table, prose, table
from ddefuzz.show.html import html
from ddefuzz.show.markdown import markdown
from ddefuzz.show.record import Fix, Report, Result, Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "ddefuzz/signature/v1"

CONFIGURATION: Final = "ddefuzz.toml"
"""The file of results that have none of their own."""

MOST_ALERTS: Final = 1000
"""The number of results that GitHub takes (GH1004)."""


def sarif(report: Report) -> str:
    """The log file with one run."""
    index = {rule.id: number for number, rule in enumerate(report.rules)}
    log = {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "ddefuzz",
                        "semanticVersion": report.version,
                        "rules": [_rule(rule, report) for rule in report.rules],
                    },
                    "extensions": [{"name": "torch", "version": report.torch}],
                },
                "invocations": [_invocation(report)],
                "columnKind": "unicodeCodePoints",
                "results": [_result(result, index) for result in report.of("failed")[:MOST_ALERTS]],
            }
        ],
    }
    return json_text(log, indent=True) + "\n"


def rows_of(log: str) -> Iterator[dict[str, Any]]:
    """What failed by a log file of `sarif`: id, rule, message, path and line, as they were before it was written."""
    for result in (result for run in json.loads(log)["runs"] for result in run["results"]):
        place = result["locations"][0]["physicalLocation"]
        yield {
            "id": result["partialFingerprints"][FINGERPRINT],
            "rule": result["ruleId"],
            "message": from_sarif_message(result["message"]["text"]),
            "path": unquote(place["artifactLocation"]["uri"], errors="surrogatepass"),
            "line": place["region"]["startLine"],
        }


def _invocation(report: Report) -> dict[str, Any]:
    """The command. What an exception of ddefuzz itself ended is a notification (3.20.21)."""
    errors = [
        {"level": "error", "message": {"text": f"{one.title}: {one.message}"}, "descriptor": {"id": one.rule}}
        for one in report.of("error")
    ]
    told = list(errors)
    if (left := len(report.of("failed")) - MOST_ALERTS) > 0:
        told.append({"level": "warning", "message": {"text": f"{left} more failed: code scanning takes {MOST_ALERTS}"}})
    invocation = {"commandLine": report.command, "executionSuccessful": not errors}
    return invocation | ({"toolExecutionNotifications": told} if told else {})


def _rule(rule: Rule, report: Report) -> dict[str, Any]:
    command = f"The message says where. Run it again: {report.command}" if report.command else "The message says where."
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.meaning},
        "fullDescription": {"text": f"{rule.meaning[:1].upper()}{rule.meaning[1:]}."},
        "help": {"text": command},
        "defaultConfiguration": {"level": "error"},
    }


def _result(result: Result, index: dict[str, int]) -> dict[str, Any]:
    facts = {"cause": result.cause, "site": result.site, "program": result.program, **dict(result.facts)}
    text = sarif_message("\n".join(filter(None, [result.title, result.message])))
    made = {
        "ruleId": result.rule,
        "ruleIndex": index.get(result.rule),
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": _place(result.path or CONFIGURATION, result.line or 1)}],
        "relatedLocations": [_site(result)] if result.site_path and result.site_line else [],
        "partialFingerprints": {FINGERPRINT: result.id},
        "fixes": [_fix(result.fix)] if result.fix is not None else [],
        "properties": {name: value for name, value in facts.items() if value},
    }
    return {name: value for name, value in made.items() if value not in (None, [], {})}


def _site(result: Result) -> dict[str, Any]:
    """torch's call site."""
    message = {"text": sarif_message(f"call site in torch: {result.site}")}
    place = _place(result.site_path, result.site_line, "TORCH")
    return {"physicalLocation": place, "logicalLocations": [{"fullyQualifiedName": result.site}], "message": message}


def _fix(fix: Fix) -> dict[str, Any]:
    """What a viewer can apply (3.55). A region from column 1 to column 1 has whole lines, with their ends."""
    changes: dict[str, list[dict[str, Any]]] = {}
    for part in fix.replacements:
        region = {"startLine": part.start, "startColumn": 1, "endLine": part.end, "endColumn": 1}
        changes.setdefault(part.path, []).append({"deletedRegion": region, "insertedContent": {"text": part.text}})
    files = [{"artifactLocation": {"uri": _uri(path)}, "replacements": made} for path, made in changes.items()]
    return {"description": {"text": sarif_message(fix.does)}, "artifactChanges": files}


def _place(path: str, line: int, folder: str = "") -> dict[str, Any]:
    """A line of a file, from 1. `folder` names the one to which the path is relative."""
    file = {"uri": _uri(path)} | ({"uriBaseId": folder} if folder else {})
    return {"artifactLocation": file, "region": {"startLine": line}}


def _uri(path: str) -> str:
    """A relative path as the path of a URI (RFC 3986). Two slashes at its start would make a host of what follows."""
    return quote(re.sub(r"^//+", "/", path), errors="surrogatepass")


class Format(NamedTuple):
    """One format: what it is for, and how it is written."""

    name: str
    meaning: str
    write: Callable[[Report], str]


MOST_ROWS: Final = 200
"""Rows of one table. GitHub cuts a step's summary at 1 MB."""

MOST_OPEN: Final = 20
"""The number of programs up to which a page of HTML does not fold them."""

MOST_ANNOTATIONS: Final = 10
"""GitHub shows at most ten annotations of a kind for each step."""

COLUMNS: Final = ("id", "outcome", "rule", "cause", "site", "title", "path", "line", "message")
"""The columns of `csv`."""


def _json(report: Report) -> str:
    return json_text(report.document) + "\n"


def _jsonl(report: Report) -> str:
    return "".join(json_text(record) + "\n" for record in report.records)


def _framed(report: Report, level: int, view: Callable[[Report], Iterator[Block]]) -> Iterator[Block]:
    """The results, between the title with the counts and what made them."""
    yield Heading(report.title, level)
    yield prose("**{}** on torch {}", _counts(report), report.torch)
    yield from map(Paragraph, report.facts)
    yield from view(report)
    yield prose("Made by `{}`, ddefuzz {}.", report.command, report.version)


def _tables(report: Report) -> Iterator[Block]:
    """A table of failed results with their programs, and tables of the others to unfold."""
    failed = report.of("failed")
    if failed:
        yield _results(failed)
    for result in failed[:10]:
        if result.program:
            yield Details((Span(result.id, code=True), ": program"), (Code(result.program),))
    for outcome in ("known", "passed", "skipped"):
        if others := report.of(outcome):
            yield Details(f"{len(others)} {outcome}", (_results(others),))


def _counts(report: Report) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in report.counts.items()) or "no results"


def _results(results: Sequence[Result]) -> Table:
    rows = [(one.id, one.rule, one.cause, one.site, one.title) for one in results[:MOST_ROWS]]
    if len(results) > MOST_ROWS:
        rows.append(("", "", "", "", f"and {len(results) - MOST_ROWS} more"))
    return table(("id", "rule", "cause", "site", "title"), rows, code=("id", "site"))


def _articles(report: Report) -> Iterator[Block]:
    """Each result with its facts and its program."""
    for outcome in (one for one in report.counts if one != "error"):
        results = report.of(outcome)
        yield Heading(outcome)
        for result in results:
            file = f"{result.path}:{result.line}" if result.path and result.line else result.path
            id_, site, place = (Span(text, code=True) for text in (result.id, result.site, file))
            yield Heading(result.title, 3, anchor=result.id)
            facts = (("id", id_), ("rule", result.rule), ("cause", result.cause), ("site", site), ("file", place))
            yield Facts((*facts, *result.facts))
            if result.message:
                yield Paragraph(result.message)
            if result.program:
                yield Details("program", (Code(result.program),), outcome == "failed" and len(results) <= MOST_OPEN)


def junit(report: Report) -> str:
    """A test suite with a test case for each result. A known failure is skipped, with its title."""
    suite = TestSuite(xml_text(report.title))
    if report.when:
        suite.timestamp = report.when.partition("+")[0]  # Jenkins's schema has no time zone
    suite.add_property("torch", xml_text(report.torch))
    suite.add_property("ddefuzz", xml_text(report.version))
    suite.add_property("command", xml_text(report.command))
    for result in report.results:
        suite.add_testcase(_case(result))
    suite.update_statistics()
    document = JUnitXml("ddefuzz")
    document.add_testsuite(suite)
    # The counts of a document that the schema of Jenkins allows: `skipped` is not one of them.
    document.tests, document.failures, document.errors = suite.tests, suite.failures, suite.errors
    document.time = suite.time
    written: bytes = document.tostring()
    return written.decode() + "\n"


def _case(result: Result) -> TestCase:
    case = TestCase(xml_text(result.id), classname=xml_text(f"ddefuzz.{result.rule}"), time=result.seconds)
    text = xml_text("\n".join(filter(None, [result.message, result.site and f"site: {result.site}", result.program])))
    match result.outcome:
        case "failed" | "error":
            kind = Failure if result.outcome == "failed" else Error
            ended = kind(xml_text(result.title), type_=xml_text(result.rule))
            ended.text = text
            case.result = [ended]
        case "known" | "skipped":
            case.result = [Skipped(xml_text(f"{result.outcome}: {result.title}"))]
        case "passed":
            pass
        case other:
            assert_never(other)
    return case


def _github(report: Report) -> str:
    """An `::error` line for each failed result, at most `MOST_ANNOTATIONS`, then a notice with the counts."""
    failed = report.of("error", "failed")
    shown = failed if len(failed) <= MOST_ANNOTATIONS else failed[: MOST_ANNOTATIONS - 1]
    lines = [_annotation(result) for result in shown]
    if len(failed) > len(shown):
        left = len(failed) - len(shown)
        lines.append(f"::error title=ddefuzz::{left} more failed: the summary and the SARIF file list them")
    lines.append(f"::notice title=ddefuzz::{github_data(f'{report.title}: {_counts(report)}')}")
    return "\n".join(lines) + "\n"


def _annotation(result: Result) -> str:
    fields = {"file": result.path, "line": str(result.line or ""), "title": f"{result.rule} {result.id}"}
    properties = ",".join(f"{name}={github_property(value)}" for name, value in fields.items() if value)
    message = f"{result.title}: {result.message}" if result.message else result.title
    return f"::error {properties}::{github_data(message)}"


def _csv(report: Report) -> str:
    """A header and a row for each result (RFC 4180)."""
    out = io.StringIO()
    rows = writer.writer(out, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for result in report.results:
        rows.writerow([csv_cell(str(getattr(result, name) or "")) for name in COLUMNS])
    return out.getvalue()


FORMATS: tuple[Format, ...] = (
    Format("json", "one JSON document with all data", _json),
    Format("jsonl", "one JSON object a line: a finding or a case", _jsonl),
    Format("markdown", "a summary for a pull request or a CI step", lambda of: markdown(_framed(of, 2, _tables))),
    Format("html", "one page without outside files", lambda of: html(of.title, _framed(of, 1, _articles))),
    Format("junit", "JUnit XML for CI servers: a test case for each result", junit),
    Format("sarif", "SARIF 2.1.0 for code scanning: what failed", sarif),
    Format("github", "GitHub's annotations: at most ten lines for the log of a step", _github),
    Format("csv", "a row for each result", _csv),
)
"""All formats but `text`, which each command lays out for a terminal itself."""

NAMES: tuple[str, ...] = tuple(one.name for one in FORMATS)
