"""The format `junit`."""

from __future__ import annotations

from typing import assert_never

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from ddefuzz.escape import xml_text
from ddefuzz.show.record import Report, Result


def junit(report: Report) -> str:
    """A test suite with a test case for each result. A known failure is skipped, with its title."""
    suite = TestSuite(xml_text(report.title))
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
        case "failed":
            failure = Failure(xml_text(result.title), type_=xml_text(result.rule))
            failure.text = text
            case.result = [failure]
        case "known" | "skipped":
            case.result = [Skipped(xml_text(f"{result.outcome}: {result.title}"))]
        case "error":
            error = Error(xml_text(result.title), type_=xml_text(result.rule))
            error.text = text
            case.result = [error]
        case "passed":
            pass
        case other:
            assert_never(other)
    return case
