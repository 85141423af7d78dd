"""The format `sarif`: SARIF 2.1.0 (OASIS standard, 2020-03-27), for code scanning.

Only results that failed are in it, because a viewer shows each result as an open alert. All rules are, so that a viewer
closes alerts of rules without results. The primary location is a file of the repository; torch's call site is a related
location, because a viewer cannot open files outside of the repository.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from ddefuzz.escape import json_text, sarif_message
from ddefuzz.show.record import Report, Result, Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "ddefuzz/signature/v1"


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
                        "rules": [_rule(rule) for rule in report.rules],
                    },
                    "extensions": [{"name": "torch", "version": report.torch}],
                },
                "invocations": [_invocation(report)],
                "columnKind": "unicodeCodePoints",
                "results": [_result(result, index) for result in report.of("failed")],
            }
        ],
    }
    return json_text(log, indent=True) + "\n"


def _invocation(report: Report) -> dict[str, Any]:
    """The command. What an exception of ddefuzz itself ended is a notification (3.20.21)."""
    errors = [
        {"level": "error", "message": {"text": f"{one.title}: {one.message}"}, "descriptor": {"id": one.rule}}
        for one in report.of("error")
    ]
    found = {"commandLine": report.command, "executionSuccessful": not errors}
    return found | ({"toolExecutionNotifications": errors} if errors else {})


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.meaning},
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
        "locations": [{"physicalLocation": _place(result.path, result.line)}] if result.path else [],
        "relatedLocations": [_site(result)] if result.site else [],
        "partialFingerprints": {FINGERPRINT: result.id},
        "properties": {name: value for name, value in facts.items() if value},
    }
    return {name: value for name, value in made.items() if value not in (None, [], {})}


def _site(result: Result) -> dict[str, Any]:
    """torch's call site, with its file if it is Python."""
    place = {"physicalLocation": _place(result.site_path, result.site_line, "TORCH")} if result.site_path else {}
    message = {"text": sarif_message(f"call site in torch: {result.site}")}
    return {**place, "logicalLocations": [{"fullyQualifiedName": result.site}], "message": message}


def _place(path: str, line: int, folder: str = "") -> dict[str, Any]:
    """A line of a file, from 1. `folder` names the one to which the path is relative."""
    file = {"uri": _uri(path)} | ({"uriBaseId": folder} if folder else {})
    return {"artifactLocation": file} | ({"region": {"startLine": line}} if line else {})


def _uri(path: str) -> str:
    """A relative path as the path of a URI (RFC 3986). Two slashes at its start would make a host of what follows."""
    return quote(re.sub(r"^//+", "/", path), errors="surrogatepass")
