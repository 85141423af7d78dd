"""The format `junit`."""

from __future__ import annotations

import re
from typing import assert_never

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from ddefuzz.formats.record import Report, Result

NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain."""


def junit(report: Report) -> str:
    """A test suite with a test case for each result. A known failure is skipped, with its title."""
    suite = TestSuite(_xml(report.title))
    suite.add_property("torch", report.torch)
    suite.add_property("ddefuzz", report.version)
    suite.add_property("command", _xml(report.command))
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
    case = TestCase(_xml(result.id), classname=_xml(f"ddefuzz.{result.rule}"), time=result.seconds)
    text = _xml("\n".join(filter(None, [result.message, result.site and f"site: {result.site}", result.program])))
    match result.outcome:
        case "failed":
            failure = Failure(_xml(result.title), type_=_xml(result.rule))
            failure.text = text
            case.result = [failure]
        case "known" | "skipped":
            case.result = [Skipped(_xml(f"{result.outcome}: {result.title}"))]
        case "passed":
            pass
        case other:
            assert_never(other)
    return case


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)
