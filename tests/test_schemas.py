"""The schemas of machine-readable output are spelled alike, and the documentation has them all."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

ANY_SPELLING = re.compile(r"""["`](ddefuzz[.-][a-z._-]+/\d+)["`]""")
SPELLING = re.compile(r"ddefuzz(\.[a-z]+)+/[0-9]+")


def test_the_documentation_has_every_schema() -> None:
    modules = [path for folder in ("ddefuzz", "ci") for path in (ROOT / folder).rglob("*.py")]
    used = {name for path in modules for name in ANY_SPELLING.findall(path.read_text())}
    told = set(ANY_SPELLING.findall((ROOT / "docs" / "architecture.md").read_text()))
    assert used == told
    assert [name for name in used if not SPELLING.fullmatch(name)] == []
