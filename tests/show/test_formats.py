"""Every format of the table, on one report with hostile text. The expected outputs are written out."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from expecttest import assert_expected_inline
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from pydantic_sarif.model import (  # type: ignore[import-untyped]
    StaticAnalysisResultsFormatSarifVersion210JsonSchema as OasisLog,
)

from ddefuzz.checking.patch import ChangedFile, hunks
from ddefuzz.escape import block
from ddefuzz.show.record import Fix, Outcome, Replacement, Report, Result, Rule
from ddefuzz.show.table import FORMATS, NAMES, rows_of

HOSTILE = "</script><b>|`x` @you %0A ::error::\x1b[31m"

FAILED = Result(
    id="dde-1",
    rule="dde",
    outcome="failed",
    title="torch.roll: needs u0 == 0",
    message="expected ok",
    path="findings/dde 1/minimal.py",
    line=1,
    site="torch/_refs/__init__.py:roll",
    site_path="torch/_refs/__init__.py",
    site_line=4098,
    cause="avoidable",
    program="def program(x):\n    return torch.roll(x, 1)\n",
    facts=(("state", "new"),),
)
KNOWN = Result(id="dde-2", rule="dde", outcome="known", title=HOSTILE, message=HOSTILE, program=HOSTILE, site=HOSTILE)
PASSED = Result(id="corpora/a.py@export/explicit", rule="replay", outcome="passed", title="as expected: ok")
SKIPPED = Result(id="dde-3", rule="unsupported", outcome="skipped", title="not judged")

REPORT = Report(
    command="ddefuzz replay",
    title="ddefuzz replay: 4 cases",
    version="0.1",
    torch="2.13.0",
    rules=(Rule("dde", "a guard could not be decided"), Rule("unsupported", "refused"), Rule("replay", "not so")),
    results=(FAILED, KNOWN, PASSED, SKIPPED),
    facts=("seed 7",),
    document={"schema": "x/1"},
    records=({"id": "dde-1"}, {"id": "dde-2"}),
)

WRITE = {one.name: one.write for one in FORMATS}


def test_json_is_one_document_and_jsonl_a_record_a_line() -> None:
    assert json.loads(WRITE["json"](REPORT)) == {"schema": "x/1"}
    assert [json.loads(line) for line in WRITE["jsonl"](REPORT).splitlines()] == [{"id": "dde-1"}, {"id": "dde-2"}]


def test_github_annotations() -> None:
    assert_expected_inline(
        WRITE["github"](REPORT),
        """\
::error file=findings/dde 1/minimal.py,line=1,title=dde dde-1::torch.roll: needs u0 == 0: expected ok
::notice title=ddefuzz::ddefuzz replay: 4 cases: 1 failed, 1 known, 1 passed, 1 skipped
""",
    )


def test_github_shows_ten_lines_and_counts_the_others() -> None:
    many = msgspec.structs.replace(REPORT, results=(FAILED,) * 12)
    lines = WRITE["github"](many).splitlines()
    assert sum(line.startswith("::error") for line in lines) == 10
    assert "3 more failed" in lines[9]


@given(st.text())
def test_an_annotation_is_one_line(text: str) -> None:
    failed = msgspec.structs.replace(FAILED, title=text, message=text, path=text)
    written = WRITE["github"](msgspec.structs.replace(REPORT, results=(failed,)))
    assert written.count("\n") == 2
    assert "\r" not in written


def test_csv_has_a_row_for_each_result_and_no_formula() -> None:
    formula = msgspec.structs.replace(KNOWN, title="=cmd()")
    rows = list(csv.DictReader(io.StringIO(WRITE["csv"](msgspec.structs.replace(REPORT, results=(FAILED, formula))))))
    assert [(row["id"], row["outcome"], row["title"], row["line"]) for row in rows] == [
        ("dde-1", "failed", "torch.roll: needs u0 == 0", "1"),
        ("dde-2", "known", "'=cmd()", ""),
    ]


JUNIT = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, ("testsuite",)),
    "testsuite": (
        {"name", "tests", "failures", "errors", "group", "time", "skipped", "timestamp", "hostname", "id", "package"},
        ("testsuite", "properties", "testcase", "system-out", "system-err"),
    ),
    "properties": (set(), ("property",)),
    "property": ({"name", "value"}, ()),
    "testcase": ({"name", "time", "classname", "group"}, ("skipped", "error", "failure", "system-out", "system-err")),
    "failure": ({"type", "message"}, ()),
    "skipped": ({"type", "message"}, ()),
}
"""The elements that are written, with the attributes and elements that the schema of Jenkins (`junit-10.xsd`) allows
them.
"""


@pytest.mark.parametrize("results", [REPORT.results, ()])
def test_junit_has_only_what_the_schema_of_jenkins_allows(results: tuple[Result, ...]) -> None:
    for element in ET.fromstring(WRITE["junit"](msgspec.structs.replace(REPORT, results=results))).iter():
        attributes, elements = JUNIT[element.tag]
        assert set(element.keys()) <= attributes, element.tag
        assert {child.tag for child in element} <= set(elements), element.tag


def test_junit_has_a_case_for_each_result() -> None:
    suites = ET.fromstring(WRITE["junit"](msgspec.structs.replace(REPORT, when="2026-11-26T12:00:00+00:00")))
    (suite,) = suites
    assert suite.get("timestamp") == "2026-11-26T12:00:00"
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        **{"tests": "4", "failures": "1", "errors": "0", "skipped": "2"}
    }
    cases = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert cases == {
        "dde-1": ["failure"],
        "dde-2": ["skipped"],
        "corpora/a.py@export/explicit": [],
        "dde-3": ["skipped"],
    }
    failure = next(suite.iter("failure"))
    assert failure.get("message") == FAILED.title
    assert FAILED.program in (failure.text or "")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_junit_can_be_read_whatever_the_text(text: str) -> None:
    results = tuple(msgspec.structs.replace(one, title=text, message=text, program=text) for one in REPORT.results)
    ET.fromstring(WRITE["junit"](msgspec.structs.replace(REPORT, results=results)))


SARIF: dict[str, Any] = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name", "rules"]}}},
                    "invocations": {"items": {"required": ["executionSuccessful"]}},
                    "results": {
                        "items": {
                            "required": ["message", "ruleId"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": -1},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                                "locations": {"items": {"$ref": "#/$defs/location"}},
                                "relatedLocations": {"items": {"$ref": "#/$defs/location"}},
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                                "fixes": {"items": {"required": ["description", "artifactChanges"]}},
                                "properties": {"type": "object"},
                            },
                        }
                    },
                },
            }
        },
    },
    "$defs": {
        "location": {
            "additionalProperties": False,
            "properties": {
                "message": {"required": ["text"]},
                "logicalLocations": {"items": {"required": ["fullyQualifiedName"]}},
                "physicalLocation": {
                    "required": ["artifactLocation"],
                    "properties": {
                        "artifactLocation": {
                            "properties": {
                                "uri": {"type": "string", "pattern": "^[A-Za-z0-9._~/%-]+$"},
                                "uriBaseId": {"type": "string"},
                            }
                        },
                        "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
                    },
                },
            },
        }
    },
}
"""What code scanning needs besides: no other properties than these, relative paths as URIs. The rules `anyOf` of the
OASIS schema (a message has a text, a place has a file) are here too, because classes cannot state them.
"""


def checked_sarif(text: str) -> Any:
    """The log. The classes of pydantic-sarif are generated from the OASIS schema, and refuse unknown properties."""
    OasisLog.model_validate_json(text, strict=True)
    log = json.loads(text)
    jsonschema.validate(log, SARIF)
    return log


def code_scanning(log: Any) -> Iterator[str]:
    """What GitHub refuses or does not show in a log, by the rules of `sarif-multitool --rule-kind Ghas`."""
    if not log.get("$schema", "").endswith("2.1.0.json") or log.get("version") != "2.1.0":
        yield "GH1011, GH1013: another version"
    if len(log["runs"]) > 5:
        yield "GH1004: more than 5 runs"
    for run in log["runs"]:
        driver = run.get("tool", {}).get("driver", {})
        if not driver.get("name") or "rules" not in driver:
            yield "GH1018: a tool without name or rules"
        if "results" not in run:
            yield "GH1014: a run without results"
        if len(run["results"]) > 1000 or len(driver["rules"]) > 1000:
            yield "GH1004: more than 1000 results or rules"
        for rule in driver["rules"]:
            texts = [rule.get(name, {}).get("text", "").strip() for name in DESCRIPTIONS]
            if not rule.get("id") or not all(texts):
                yield f"GH2012: rule {rule.get('id')} without one of {', '.join(DESCRIPTIONS)}"
        for result in run["results"]:
            yield from _result_rules(result)


DESCRIPTIONS = ("shortDescription", "fullDescription", "help")


def _result_rules(result: Any) -> Iterator[str]:
    if not result.get("message", {}).get("text", "").strip():
        yield "GH1007, GH1015: a message without text"
    if not result.get("partialFingerprints"):
        yield "GH1015: no fingerprint"
    if not 1 <= len(result.get("locations", ())) <= 10:
        yield "GH1001, GH1004, GH1015: no location, or more than 10"
    if "codeFlows" in result:
        yield "GH1002: steps of threads must be inline"
    for location in (*result.get("locations", ()), *result.get("relatedLocations", ())):
        place = location.get("physicalLocation", {})
        uri = place.get("artifactLocation", {}).get("uri")
        if uri is None:
            yield "GH1001, GH1016, GH1017: a location without a file"
        elif urlsplit(uri).scheme or uri.startswith("//"):
            yield "GH1005, GH1006: a file that is not relative"
        if place.get("region", {}).get("startLine", 0) < 1:
            yield "GH1003, GH1017: a location without a line"


BARE = Result(id="dde-9", rule="dde", outcome="failed", title="no file", site="at::native::chunk")


def test_sarif_is_what_code_scanning_takes() -> None:
    many = (FAILED, BARE, msgspec.structs.replace(FAILED, site_line=0), *[KNOWN] * 9)
    log = json.loads(WRITE["sarif"](msgspec.structs.replace(REPORT, results=many)))
    assert list(code_scanning(log)) == []
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    assert places[1] == {"artifactLocation": {"uri": "ddefuzz.toml"}, "region": {"startLine": 1}}


def test_sarif_has_at_most_what_code_scanning_takes() -> None:
    log = checked_sarif(WRITE["sarif"](msgspec.structs.replace(REPORT, results=(FAILED,) * 1007)))
    assert list(code_scanning(log)) == []
    [told] = log["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert told["message"]["text"] == "7 more failed: code scanning takes 1000"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        (("version",), "GH1011"),
        (("runs", 0, "tool", "driver", "rules", 0, "help"), "GH2012"),
        (("runs", 0, "tool", "driver", "rules", 0, "fullDescription"), "GH2012"),
        (("runs", 0, "results", 0, "locations"), "GH1001"),
        (("runs", 0, "results", 0, "partialFingerprints"), "GH1015"),
        (("runs", 0, "results", 0, "message"), "GH1007"),
        (("runs", 0, "results", 0, "locations", 0, "physicalLocation", "region"), "GH1003"),
        (("runs", 0, "results", 0, "relatedLocations", 0, "physicalLocation"), "GH1001"),
    ],
)
def test_each_rule_of_code_scanning_is_looked_at(path: tuple[str | int, ...], rule: str) -> None:
    log = inner = json.loads(WRITE["sarif"](msgspec.structs.replace(REPORT, results=(FAILED,))))
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    assert any(rule in said for said in code_scanning(log))


def test_a_fix_is_one_that_a_viewer_can_apply() -> None:
    before = "a\nb\nc\nd"
    changed = ChangedFile("model.py", before, "a\nB\nB2\nd\ne")
    parts = [Replacement("model.py", one.start + 1, one.end + 1, "".join(one.lines)) for one in hunks(changed)]
    failed = msgspec.structs.replace(FAILED, fix=Fix("use B", tuple(parts)))
    log = checked_sarif(WRITE["sarif"](msgspec.structs.replace(REPORT, results=(failed,))))
    [fix] = log["runs"][0]["results"][0]["fixes"]
    assert fix["description"]["text"] == "use B"
    [file] = fix["artifactChanges"]
    assert file["artifactLocation"]["uri"] == "model.py"
    assert applied(before, file["replacements"]) == changed.after


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text("ab ä%{}]/", min_size=1))
def test_what_failed_can_be_read_back(text: str, path: str) -> None:
    failed = msgspec.structs.replace(FAILED, title=text, message="", path=path)
    log = WRITE["sarif"](msgspec.structs.replace(REPORT, results=(failed, KNOWN)))
    [row] = rows_of(log)
    assert (row["id"], row["rule"], row["line"]) == ("dde-1", "dde", 1)
    assert row["message"] == block(text)
    assert row["path"] == re.sub("^//+", "/", path)


def applied(text: str, replacements: list[Any]) -> str:
    """The text with the regions replaced, which are given by lines and columns from 1."""
    starts = [0, *(number + 1 for number, char in enumerate(text) if char == "\n"), len(text)]
    for one in sorted(replacements, key=lambda one: -int(one["deletedRegion"]["startLine"])):
        region = one["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        start, end = (starts[min(region[name], len(starts)) - 1] for name in ("startLine", "endLine"))
        text = text[:start] + one["insertedContent"]["text"] + text[end:]
    return text


def test_sarif_has_what_failed_and_all_rules() -> None:
    log = checked_sarif(WRITE["sarif"](REPORT))
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["dde", "unsupported", "replay"]
    (result,) = run["results"]
    assert result["partialFingerprints"] == {"ddefuzz/signature/v1": "dde-1"}
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("findings/dde%201/minimal.py", 1)
    site = result["relatedLocations"][0]["physicalLocation"]
    assert site == {
        "artifactLocation": {"uri": "torch/_refs/__init__.py", "uriBaseId": "TORCH"},
        "region": {"startLine": 4098},
    }


def test_sarif_without_results_still_has_the_rules() -> None:
    log = checked_sarif(WRITE["sarif"](msgspec.structs.replace(REPORT, results=())))
    assert len(log["runs"][0]["tool"]["driver"]["rules"]) == 3


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_sarif_is_valid_whatever_the_text(text: str) -> None:
    failed = msgspec.structs.replace(FAILED, title=text, path=text, site=text, site_path=text, program=text)
    checked_sarif(WRITE["sarif"](msgspec.structs.replace(REPORT, results=(failed,))))


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ('"version": "2.1.0"', '"version": "2.0.0"'),
        ('"level": "error"', '"level": "fatal"'),
        ('"executionSuccessful": true', '"successful": true'),
        ('"executionSuccessful": true', '"executionSuccessful": "yes"'),
        ('"ruleIndex": 0', '"ruleIndex": -2'),
        ('"relatedLocations"', '"related"'),
        ('"startLine": 1', '"startLine": 0'),
        ('"columnKind": "unicodeCodePoints"', '"columnKind": "bytes"'),
        ('"name": "torch"', '"title": "torch"'),
        ('"ddefuzz/signature/v1": "dde-1"', '"ddefuzz/signature/v1": 1'),
    ],
)
def test_the_oasis_schema_refuses_other_logs(written: str, wrong: str) -> None:
    text = WRITE["sarif"](REPORT)
    assert written in text
    with pytest.raises(ValidationError):
        OasisLog.model_validate_json(text.replace(written, wrong), strict=True)


def test_markdown() -> None:
    failed = msgspec.structs.replace(REPORT, results=(FAILED,), facts=("seed 7",))
    assert_expected_inline(
        WRITE["markdown"](failed),
        """\
## ddefuzz replay: 4 cases

**1 failed** on torch 2.13.0

seed 7

| id | rule | cause | site | title |
| --- | --- | --- | --- | --- |
| `dde-1` | dde | avoidable | `torch/_refs/__init__.py:roll` | torch.roll: needs u0 == 0 |

<details><summary><code>dde-1</code>: program</summary>

```python
def program(x):
    return torch.roll(x, 1)
```

</details>

Made by `ddefuzz replay`, ddefuzz 0.1.
""",
    )


class Tags(HTMLParser):
    """The tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_has_no_outside_file_and_no_tag_from_a_program() -> None:
    tags = Tags()
    tags.feed(WRITE["html"](REPORT))
    assert tags.links == []
    assert not {"script", "b"} & set(tags.seen)
    assert tags.seen.count("h3") == 4


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("outcome", ["failed", "known", "passed", "skipped", None])
def test_every_format_writes_a_report_with_any_outcome(name: str, outcome: Outcome | None) -> None:
    results = tuple(one for one in REPORT.results if one.outcome == outcome)
    assert WRITE[name](msgspec.structs.replace(REPORT, results=results)).endswith(("\n", ">"))
