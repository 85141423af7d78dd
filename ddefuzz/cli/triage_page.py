"""One screen of `ddefuzz triage`: what a person needs to decide on a finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.text import Text

from ddefuzz.answers.model import Answers
from ddefuzz.classify.cause import MEANINGS
from ddefuzz.classify.wording import question
from ddefuzz.cli.layout import counted, facts_grid, folded
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.escape import visible
from ddefuzz.findings.lifecycle import ROWS
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.show.facts import verdict_lines
from ddefuzz.show.source import similar, site_lines, snippet_of


def screen(finding: Finding, others: Iterable[FindingSummary], at: str, page: Page) -> str:
    """The screen. `at` says which finding of how many it is."""
    width = page.width
    parts: list[RenderableType] = [
        plain(folded(f"{at}  {finding.id}", width), style="dim"),
        plain(folded(finding.title, width), style="bold"),
        "",
        facts_grid(_facts(finding), width),
        Text(""),
        _python(snippet_of(finding)),
    ]
    source = site_lines(finding)
    if source is not None:
        parts += [Text(""), plain(f"{source.path}:{source.line}", style="bold")]
        parts.append(
            Syntax(
                visible(source.text),
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
    yield "what to change", meaning.fix
    if finding.answers is not None:
        yield "what fixes it", "\n".join(_tried(finding.answers))
    yield "site", f"{finding.site} ({finding.site.language})"
    yield "evaluates", question(finding.expression)
    yield "verdicts", "\n".join(verdict_lines(finding))
    yield "torch", ", ".join(finding.torch_versions)
    yield "links", "\n".join(finding.links)
    yield "notes", "\n".join(note.text for note in finding.notes)


def _tried(answers: Answers) -> Iterator[str]:
    """The verdict of the experiment with other answers of the guard, and the patch that was tried."""
    yield f"{answers.verdict} (tried in {counted(answers.programs, 'program')}, torch {answers.torch})"
    if answers.patch is not None:
        yield answers.patch.code


def parts_of(text: str, lines: int) -> list[str]:
    """The text of a screen in parts of so many lines, each with as many as fit. Blank lines at the end are left out."""
    rows = text.rstrip("\n").splitlines(keepends=True)
    most = max(lines, 1)
    return ["".join(rows[first : first + most]).rstrip("\n") + "\n" for first in range(0, len(rows), most)]


def _python(text: str) -> Syntax:
    return Syntax(visible(text.rstrip()), "python", word_wrap=True, theme="ansi_dark")
