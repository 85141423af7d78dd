#!/usr/bin/env python
"""Write the list of findings that `ddefuzz init` writes into a repository, from findings/.

Run it after `ddefuzz findings export`. With `--check` it writes nothing, and ends with 1 if the list is out of date.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import tomli_w

from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.textform import fields_of, known_of, read_findings

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "ddefuzz/cli/templates/init/baseline.toml"
HEAD = "# Findings that ddefuzz knows: they do not make a campaign red. `ddefuzz ci baseline` writes them again.\n"


def text() -> str:
    """The list. A finding that nobody has decided yet is triaged: it is known that it is there."""
    decisions = {}
    for finding in read_findings(ROOT / "findings", datetime.now(UTC)):
        fields = fields_of(known_of(finding))
        fields |= {} if ROWS[finding.state].decided else {"state": "triaged"}
        decisions[finding.id] = {name: fields[name] for name in ("state", "title", "url", "fixed_in") if name in fields}
        decisions[finding.id] |= {"state": "triaged"} if fields["state"] == "duplicate" else {}
    return HEAD + "".join(f"\n{tomli_w.dumps({name: fields})}" for name, fields in sorted(decisions.items()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PLACE.read_text(encoding="utf-8") != text())
    PLACE.write_text(text(), encoding="utf-8")
