"""One screen of `ddefuzz triage`: what a person needs to decide on a finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from ddefuzz.answers.installed import source_of
from ddefuzz.classify.cause import MEANINGS
from ddefuzz.classify.wording import question
from ddefuzz.cli.findings_page import facts_grid, verdict_lines
from ddefuzz.cli.layout import folded
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.cli.streams import printable
from ddefuzz.errors import DdefuzzError
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.capture import KINDS, classify
from ddefuzz.repro.snippet import finding_snippet

AROUND = 3
"""Lines of torch's source shown before and after the site."""

MOST_SIMILAR = 4


class Lines(NamedTuple):
    """Lines of a file of the installed torch. `first` is the number of the first one, `line` that of the site."""

    path: str
    first: int
    line: int
    text: str


def screen(finding: Finding, others: Iterable[Finding], at: str, page: Page) -> str:
    """The screen. `at` says which finding of how many it is."""
    width = page.width
    parts: list[RenderableType] = [
        plain(folded(f"{at}  {finding.id}", width), style="dim"),
        plain(folded(finding.title, width), style="bold"),
        "",
        facts_grid(_facts(finding), width),
        Text(""),
        _python(_snippet(finding)),
    ]
    source = site_lines(finding)
    if source is not None:
        parts += [Text(""), plain(f"{source.path}:{source.line}", style="bold")]
        parts.append(
            Syntax(
                printable(source.text),
                "python",
                line_numbers=True,
                start_line=source.first,
                highlight_lines={source.line},
                word_wrap=True,
                theme="ansi_dark",
            )
        )
    close = similar(finding, others)
    if close:
        parts += [Text(""), plain("similar findings", style="bold")]
        parts += [plain(folded(f"  {one.id} ({one.state}) {one.title}", width)) for one in close]
    return rendered(Group(*parts), page)


def _facts(finding: Finding) -> Iterator[tuple[str, str]]:
    meaning = MEANINGS[finding.cause]
    yield "state", f"{finding.state}: {ROWS[finding.state].meaning}"
    yield "cause", f"{finding.cause}: {meaning.meaning}"
    yield "to change", meaning.fix
    yield "site", f"{finding.site} ({finding.site.language})"
    yield "evaluates", question(finding.expression)
    yield "verdicts", "\n".join(verdict_lines(finding))
    yield "torch", ", ".join(finding.torch_versions)
    yield "links", "\n".join(finding.links)
    yield "notes", "\n".join(note.text for note in finding.notes)


def _snippet(finding: Finding) -> str:
    try:
        return finding_snippet(finding)
    except DdefuzzError:  # too long, or a stage without a capture
        return finding.minimal or finding.original or "# a program of a user"


def _python(text: str) -> Syntax:
    return Syntax(printable(text.rstrip()), "python", word_wrap=True, theme="ansi_dark")


def site_lines(finding: Finding) -> Lines | None:
    """The lines of the installed torch around a Python site. None if it is C++, or another version of torch."""
    if finding.evidence is None or finding.evidence.kind not in KINDS:
        return None
    frame = classify(finding.evidence).frame
    source = source_of(frame.file) if frame is not None and frame.file.endswith(".py") else None
    if frame is None or source is None:
        return None
    lines = source.text.splitlines()
    if frame.code and (frame.line > len(lines) or frame.code.split("\n")[0].strip() not in lines[frame.line - 1]):
        return None  # the lines have moved since this finding was seen
    first = max(1, frame.line - AROUND)
    return Lines(frame.file, first, frame.line, "\n".join(lines[first - 1 : frame.line + AROUND]))


def similar(finding: Finding, others: Iterable[Finding]) -> Sequence[Finding]:
    """Findings at the same function, or of the same question in the same file."""

    def shared(other: Finding) -> int:
        same_file = other.site.module is not None and other.site.module == finding.site.module
        return 2 * (other.site == finding.site) + (same_file and other.anchor == finding.anchor)

    found = [other for other in others if other.id != finding.id and shared(other)]
    return sorted(found, key=lambda other: (-shared(other), other.id))[:MOST_SIMILAR]
