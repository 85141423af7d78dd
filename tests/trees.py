"""Syntax trees of the package and of ci/, for tests of the code itself: parsed when the first of them runs."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def trees(folder: str) -> dict[Path, ast.Module]:
    """The trees of all modules of a folder, by their paths in the repository."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
