#!/usr/bin/env python
"""Write the list of findings that `ddefuzz init` writes into a repository, from findings/.

    python ci/baseline.py                     # after `ddefuzz findings export`
    python ci/baseline.py sqlite:///other.db  # also add what a campaign under another version of torch has seen
    python ci/baseline.py --check             # write nothing, and end with 1 if the list is out of date

What only another version than that of findings/ shows is kept in ci/other-versions.toml.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomli_w

from ddefuzz.files import is_file, read_toml
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import fields_of, known_of, read_findings

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "ddefuzz/cli/templates/init/baseline.toml"
OTHERS = ROOT / "ci/other-versions.toml"
HEAD = "# Findings that ddefuzz knows: they do not make a campaign red. `ddefuzz ci baseline` writes them again.\n"
HEAD_OF_OTHERS = "# Findings of campaigns under other versions of torch, not read. Written by ci/baseline.py.\n"


def text() -> str:
    """The list. A finding that nobody has decided yet is triaged: it is known that it is there."""
    decisions = _others()
    for finding in _findings():
        fields = fields_of(known_of(finding))
        fields |= {} if ROWS[finding.state].decided else {"state": "triaged"}
        decisions[finding.id] = {name: fields[name] for name in ("state", "title", "url", "fixed_in") if name in fields}
        decisions[finding.id] |= {"state": "triaged"} if fields["state"] == "duplicate" else {}
    return _list(HEAD, decisions)


def add_seen(url: str) -> str:
    """The findings of other versions, with those of a database that findings/ does not have."""
    others, known = _others(), {finding.id for finding in _findings()}
    with Database.open(url, create=False) as database:
        for finding in database.findings():
            if finding.id not in known and finding.cause != "user":  # that is no finding about PyTorch
                versions = {one.partition("+")[0] for one in finding.torch_versions}
                versions |= set(others.get(finding.id, {}).get("versions", ()))
                others[finding.id] = {"state": "triaged", "title": finding.title, "versions": sorted(versions)}
    return _list(HEAD_OF_OTHERS, others)


def _findings() -> tuple[Finding, ...]:
    return read_findings(ROOT / "findings", datetime.now(UTC))


def _others() -> dict[str, dict[str, Any]]:
    return read_toml(OTHERS) if is_file(OTHERS) else {}


def _list(head: str, decisions: dict[str, dict[str, Any]]) -> str:
    return head + "".join(f"\n{tomli_w.dumps({name: fields})}" for name, fields in sorted(decisions.items()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PLACE.read_text(encoding="utf-8") != text())
    for database_url in sys.argv[1:]:
        OTHERS.write_text(add_seen(database_url), encoding="utf-8")
    PLACE.write_text(text(), encoding="utf-8")
