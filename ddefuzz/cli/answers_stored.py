"""The answers that findings keep: verdicts by cause, and the patches with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ddefuzz.answers.model import Answers, PatchEvidence
from ddefuzz.escape import json_text
from ddefuzz.findings.model import Finding
from ddefuzz.show.blocks import Block, Heading, Items, Paragraph, Table, counted, prose, table

SCHEMA = "ddefuzz.answers.stored/1"

MOST_USEFUL = 10
"""How many patches are listed with their evidence."""


def answered(findings: Iterable[Finding]) -> list[tuple[Finding, Answers]]:
    """The findings with answers, by id."""
    return sorted(((one, one.answers) for one in findings if one.answers is not None), key=lambda pair: pair[0].id)


def most_useful(findings: Iterable[Finding]) -> list[tuple[Finding, PatchEvidence]]:
    """The patches with which nothing differs, those first that most programs pass with."""
    patched = ((finding, found.patch) for finding, found in answered(findings) if found.patch is not None)
    right = [(finding, patch) for finding, patch in patched if patch.is_right]
    return sorted(right, key=lambda pair: -(pair[1].kept.agree + pair[1].samples.agree))[:MOST_USEFUL]


def summary_lines(findings: Sequence[Finding]) -> list[str]:
    """The totals, line by line."""
    done = answered(findings)
    tried = [found.patch for _, found in done if found.patch is not None]
    verdicts = Counter(found.verdict for _, found in done)
    said = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    return [
        f"{len(done)} of {counted(len(findings), 'finding')} of kind dde have answers, on torch "
        f"{', '.join(sorted({found.torch for _, found in done})) or 'none'}",
        f"verdicts: {said or 'none'}",
        f"{len(tried)} patches of Python proposed; nothing differs with {sum(one.is_right for one in tried)}",
    ]


def stored_view(findings: Sequence[Finding]) -> Iterator[Block]:
    """The totals, the verdicts by cause, and the most useful patches."""
    yield Items(tuple(summary_lines(findings)))
    verdicts = _verdicts(findings)
    if verdicts.rows:
        yield verdicts
    useful = _most_useful(findings)
    if useful.rows:
        yield useful


def stored_document(findings: Sequence[Finding]) -> str:
    """The JSON: a row for each finding with answers."""
    rows: list[dict[str, Any]] = [
        {"finding": finding.id, "site": str(finding.site), "anchor": finding.anchor, "cause": finding.cause}
        | {"answers": msgspec.to_builtins(found)}
        for finding, found in answered(findings)
    ]
    return json_text({"schema": SCHEMA, "findings": len(findings), "rows": rows}) + "\n"


def stored_page(findings: Sequence[Finding]) -> Iterator[Block]:
    """The page for the docs: the totals, and a row for each finding."""
    useful = _most_useful(findings)
    rows = (
        (finding.id, f"{finding.site} [{finding.anchor}]", finding.cause, found.verdict, _form(found))
        for finding, found in answered(findings)
    )
    yield Heading("Answers for the findings", 1)
    yield prose(
        "Made by `ddefuzz answers --stored --output markdown=docs/results/answers-2.13.md`; do not edit. "
        "[answers.md](../answers.md) says how answers are found."
    )
    yield Items(tuple(summary_lines(findings)))
    yield Heading("Verdicts by cause")
    yield _verdicts(findings)
    yield prose("A finding's cause may follow from its answers ([causes.md](../causes.md)).")
    yield Heading(f"The {len(useful.rows)} most useful patches")
    yield Paragraph(
        "With each of them nothing differs: neither what is captured, nor what eager does. Those come first with which "
        "most kept programs and samples of torch pass."
    )
    yield useful
    yield Heading("All")
    yield table(("finding", "guard", "cause", "verdict", "patch"), rows, code=("guard",))


def _most_useful(findings: Sequence[Finding]) -> Table:
    rows = (
        (finding.id, str(finding.site), " ".join(patch.code.split()), str(patch.kept), str(patch.samples))
        for finding, patch in most_useful(findings)
    )
    titles = ("finding", "site", "becomes", "kept programs", "torch's samples")
    return table(titles, rows, code=("site", "becomes"), folding=titles[1:])


def _verdicts(findings: Sequence[Finding]) -> Table:
    """A row for each verdict: how many findings have it, in all and with each cause."""
    done = answered(findings)
    both = Counter((found.verdict, finding.cause) for finding, found in done)
    causes = tuple(dict(Counter(finding.cause for finding, _ in done).most_common()))
    verdicts = Counter(found.verdict for _, found in done)
    rows = [
        (verdict, str(number), *(str(both[verdict, cause] or "") for cause in causes))
        for verdict, number in verdicts.most_common()
    ]
    return table(("verdict", "findings", *causes), rows, right=("findings", *causes))


def _form(found: Answers) -> str:
    if found.patch is None:
        return ""
    return found.patch.form if found.patch.is_right else f"{found.patch.form}, and something differs"
