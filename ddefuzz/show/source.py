"""The program of a finding, torch's source at its site, and findings like it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ddefuzz.answers.patch import source_of
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.oracles.table import oracle_of
from ddefuzz.repro.snippet import finding_snippet
from ddefuzz.show.stack import site_frame

AROUND = 3
"""Lines of torch's source shown before and after the site."""

MOST_SIMILAR = 4


class Lines(msgspec.Struct, frozen=True):
    """Lines of a file of the installed torch. `first` is the number of the first one, `line` that of the site."""

    path: str
    first: int
    line: int
    text: str


def snippet_of(finding: Finding) -> str:
    """The snippet for an issue, else the program."""
    try:
        return finding_snippet(finding)
    except DdefuzzError:  # too long, or a stage without a capture
        return finding.minimal or finding.original or "# a program of a user"


def site_lines(finding: Finding) -> Lines | None:
    """The lines of the installed torch around a Python site. None if it is C++, or another version of torch."""
    if finding.evidence is None:
        return None
    frame = oracle_of(finding.kind).frame(finding.evidence)
    if frame is None:
        frame = site_frame(finding.evidence, finding.site)
    source = source_of(frame.file) if frame is not None and frame.file.endswith(".py") else None
    if frame is None or source is None:
        return None
    lines = source.text.splitlines()
    if frame.code and (frame.line > len(lines) or frame.code.split("\n")[0].strip() not in lines[frame.line - 1]):
        return None  # the lines have moved since this finding was seen
    first = max(1, frame.line - AROUND)
    return Lines(frame.file, first, frame.line, "\n".join(lines[first - 1 : frame.line + AROUND]))


def similar(finding: Finding, others: Iterable[FindingSummary]) -> Sequence[FindingSummary]:
    """Findings at the same function, or of the same question in the same file."""

    def shared(other: FindingSummary) -> int:
        site, anchor = other.signature.site, other.signature.anchor
        same_file = site.module is not None and site.module == finding.site.module
        return 2 * (site == finding.site) + (same_file and anchor == finding.anchor)

    found = [other for other in others if other.id != finding.id and shared(other)]
    return sorted(found, key=lambda other: (-shared(other), other.id))[:MOST_SIMILAR]
