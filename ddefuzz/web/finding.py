"""The page of one finding: everything that helps to decide on it."""

from __future__ import annotations

from typing import Any

import msgspec

from ddefuzz.classify.cause import PROOFS
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, FindingSummary, as_document
from ddefuzz.show.facts import TITLES, VERDICTS, facts_of, tally_cells
from ddefuzz.show.source import Lines, similar, site_lines, snippet_of
from ddefuzz.show.stack import StackLines, stack_to_site
from ddefuzz.web.forms import FormOf, forms_of
from ddefuzz.web.rows import Asked, Unreadable
from ddefuzz.web.versions import MatrixCell, cells_of

MOST_NEAR = 60
"""How many findings of the same place are compared to find similar ones."""


class FindingQuery(Asked):
    """A finding has no options but the format."""


class Fact(msgspec.Struct, frozen=True):
    """A name and what is known, in one or more lines."""

    name: str
    value: str


class VerdictLine(msgspec.Struct, frozen=True):
    """The verdict of one stage."""

    stage: str
    verdict: str
    meaning: str


class AnswerTable(msgspec.Struct, frozen=True):
    """The experiment on the guard: rows under titles, and what follows."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    verdict: str
    conclusion: str
    patch: str


class FindingPage(msgspec.Struct, frozen=True, kw_only=True):
    """One finding. `finding` is its document as `findings show --format json` has it."""

    finding: dict[str, Any]
    facts: tuple[Fact, ...]
    snippet: str
    source: Lines | None
    stack: StackLines | None
    verdicts: tuple[VerdictLine, ...]
    answers: AnswerTable | None
    forms: tuple[FormOf, ...]
    matrix: dict[str, MatrixCell]
    similar: tuple[FindingSummary, ...]
    unreadable: Unreadable = Unreadable()
    schema: str = "ddefuzz.page.finding/2"


def finding_page(database: Database, finding_id: str) -> FindingPage:
    """The page. Raises `InputError` if there is no such finding."""
    finding = database.get(finding_id)
    others = database.read(lambda session: listing.near(session, finding, MOST_NEAR))
    return FindingPage(
        finding=as_document(finding),
        facts=tuple(Fact(name, value) for name, value in facts_of(finding) if value),
        snippet=snippet_of(finding),
        source=site_lines(finding),
        stack=_stack(finding),
        verdicts=tuple(
            VerdictLine(stage, verdict, VERDICTS.get(verdict, ""))  # type: ignore[call-overload]
            for stage, verdict in finding.verdicts.items()
        ),
        answers=_answers(finding),
        forms=forms_of(finding),
        matrix=database.read(lambda session: cells_of(session, finding)),
        similar=tuple(similar(finding, others)),
    )


def _stack(finding: Finding) -> StackLines | None:
    stack = None if finding.evidence is None else stack_to_site(finding.evidence, finding.site)
    return stack if stack is not None and stack.lines else None


def _answers(finding: Finding) -> AnswerTable | None:
    answers = finding.answers
    if answers is None:
        return None
    proof = next((one for one in PROOFS if one.verdict == answers.verdict), None)
    patch = answers.patch
    return AnswerTable(
        titles=TITLES,
        rows=tuple(map(tally_cells, answers.tallies)),
        verdict=f"{answers.verdict} ({answers.programs} programs in {answers.stage}, torch {answers.torch})",
        conclusion=f"so its cause is {proof.cause}: {proof.why}" if proof is not None else "",
        patch="" if patch is None else f"{patch.code}\nkept programs: {patch.kept}\nsamples of torch: {patch.samples}",
    )
