"""The links between the documents, the list of pages in the README, and what the root of the repository holds."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md")]
)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> set[str]:
    """The targets of a page's links to files and headings."""
    text = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    return {target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in links(page):
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.is_file(), target
        assert not heading or heading in anchors(file), target


def test_the_readme_lists_every_page() -> None:
    listed = {(ROOT / target.partition("#")[0]).resolve() for target in links(ROOT / "README.md")}
    assert set((ROOT / "docs").glob("*.md")) <= listed


def test_the_root_holds_what_contributing_lists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## What the root holds")[2].partition("\n## ")[0]
    listed = {name.rstrip("/") for name in re.findall(r"^\| `([^`]+)`", section, re.MULTILINE)}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {path.partition("/")[0] for path in tracked.splitlines()} == listed
