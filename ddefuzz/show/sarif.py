"""The format `sarif`: SARIF 2.1.0 (OASIS standard, 2020-03-27), for code scanning.

Only results that failed are in it, because a viewer shows each result as an open alert. All rules are, so that a viewer
closes alerts of rules without results. The primary location is a file of the repository; torch's call site is a related
location, because a viewer cannot open files outside of the repository.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import msgspec

from ddefuzz.escape import json_text, sarif_message
from ddefuzz.show.record import Report, Result, Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "ddefuzz/signature/v1"


class Text(msgspec.Struct, frozen=True):
    """`message` and `multiformatMessageString`."""

    text: str


class ArtifactLocation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A file. `uri_base_id` names the folder to which it is relative."""

    uri: str
    uri_base_id: str = ""


class Region(msgspec.Struct, frozen=True, rename="camel"):
    """A line, from 1."""

    start_line: int


class PhysicalLocation(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A place in a file."""

    artifact_location: ArtifactLocation
    region: Region | None = None


class LogicalLocation(msgspec.Struct, frozen=True, rename="camel"):
    """A function."""

    fully_qualified_name: str


class Location(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A place, with a message for a related one."""

    physical_location: PhysicalLocation | None = None
    logical_locations: tuple[LogicalLocation, ...] = ()
    message: Text | None = None


class SarifResult(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`result`."""

    rule_id: str
    rule_index: int = -1
    level: str = "warning"
    message: Text = Text("")
    locations: tuple[Location, ...] = ()
    related_locations: tuple[Location, ...] = ()
    partial_fingerprints: dict[str, str] = {}
    properties: dict[str, str] = {}


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


def _result(result: Result, index: dict[str, int]) -> SarifResult:
    facts = {"cause": result.cause, "site": result.site, "program": result.program, **dict(result.facts)}
    return SarifResult(
        rule_id=result.rule,
        rule_index=index.get(result.rule, -1),
        level="error",
        message=Text(sarif_message("\n".join(filter(None, [result.title, result.message])))),
        locations=(_location(result),) if result.path else (),
        related_locations=_site(result),
        partial_fingerprints={FINGERPRINT: result.id},
        properties={name: value for name, value in facts.items() if value},
    )


def _location(result: Result) -> Location:
    region = Region(result.line) if result.line else None
    return Location(PhysicalLocation(ArtifactLocation(_uri(result.path)), region))


def _site(result: Result) -> tuple[Location, ...]:
    """torch's call site, with its file if it is Python."""
    if not result.site:
        return ()
    place = None
    if result.site_path:
        region = Region(result.site_line) if result.site_line else None
        place = PhysicalLocation(ArtifactLocation(_uri(result.site_path), "TORCH"), region)
    return (
        Location(place, (LogicalLocation(result.site),), Text(sarif_message(f"call site in torch: {result.site}"))),
    )


def _uri(path: str) -> str:
    """A relative path as the path of a URI (RFC 3986). Two slashes at its start would make a host of what follows."""
    return quote(re.sub(r"^//+", "/", path), errors="surrogatepass")
