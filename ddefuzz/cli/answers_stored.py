"""The answers that findings keep: verdicts by cause, and the patches with their evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType

from ddefuzz.answers.model import Answers, PatchEvidence
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.escape import json_text, markdown_code, markdown_table, markdown_text
from ddefuzz.findings.model import Finding

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


def stored_page(findings: Sequence[Finding], page: Page) -> str:
    """The totals, the verdicts by cause, and the most useful patches."""
    causes, rows = _verdicts(findings)
    titles = ("verdict", "findings", *causes)
    parts: list[RenderableType] = [plain("\n".join(summary_lines(findings)))]
    if rows:
        parts += [
            "",
            table(titles, [Detailed([plain(cell) for cell in row]) for row in rows], page.width, right=titles[1:]),
        ]
    useful = [Detailed([plain(cell) for cell in _patch_cells(*pair)]) for pair in most_useful(findings)]
    if useful:
        parts += ["", table(PATCH_TITLES, useful, page.width, folding=PATCH_TITLES[1:])]
    return rendered(Group(*parts), page)


def stored_document(findings: Sequence[Finding]) -> str:
    """The JSON: a row for each finding with answers."""
    rows: list[dict[str, Any]] = [
        {"finding": finding.id, "site": str(finding.site), "anchor": finding.anchor, "cause": finding.cause}
        | {"answers": msgspec.to_builtins(found)}
        for finding, found in answered(findings)
    ]
    return json_text({"schema": SCHEMA, "findings": len(findings), "rows": rows}) + "\n"


def stored_markdown(findings: Sequence[Finding]) -> str:
    """The page for the docs: the totals, and a row for each finding."""
    causes, rows = _verdicts(findings)
    every = [
        (
            markdown_text(finding.id),
            markdown_code(f"{finding.site} [{finding.anchor}]"),
            *map(markdown_text, (finding.cause, found.verdict, _form(found))),
        )
        for finding, found in answered(findings)
    ]
    cells = [_patch_cells(*pair) for pair in most_useful(findings)]
    useful = [(markdown_text(id_), *map(markdown_code, (site, code)), *scores) for id_, site, code, *scores in cells]
    lines = [
        "# Answers for the findings",
        "",
        "Made by `ddefuzz answers --stored --output markdown=docs/answers-2.13.md`; do not edit. "
        "[answers.md](answers.md) says how answers are found.",
        "",
        *(f"- {markdown_text(line)}" for line in summary_lines(findings)),
        "",
        "## Verdicts by cause",
        "",
        markdown_table(
            ("verdict", "findings", *map(markdown_text, causes)), (tuple(map(markdown_text, row)) for row in rows)
        ),
        "",
        "A finding's cause may follow from its answers ([causes.md](causes.md)).",
        "",
        f"## The {len(useful)} most useful patches",
        "",
        "With each of them nothing differs: neither what is captured, nor what eager does. Those come first with which "
        "most kept programs and samples of torch pass.",
        "",
        markdown_table(PATCH_TITLES, useful),
        "",
        "## All",
        "",
        markdown_table(("finding", "guard", "cause", "verdict", "patch"), every),
    ]
    return "\n".join(lines) + "\n"


PATCH_TITLES = ("finding", "site", "becomes", "kept programs", "torch's samples")


def _patch_cells(finding: Finding, patch: PatchEvidence) -> tuple[str, ...]:
    return finding.id, str(finding.site), " ".join(patch.code.split()), str(patch.kept), str(patch.samples)


def _verdicts(findings: Sequence[Finding]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The causes, and a row for each verdict: how many findings have it, in all and with each cause."""
    done = answered(findings)
    both = Counter((found.verdict, finding.cause) for finding, found in done)
    causes = tuple(dict(Counter(finding.cause for finding, _ in done).most_common()))
    verdicts = Counter(found.verdict for _, found in done)
    rows = [
        (verdict, str(number), *(str(both[verdict, cause] or "") for cause in causes))
        for verdict, number in verdicts.most_common()
    ]
    return causes, rows


def _form(found: Answers) -> str:
    if found.patch is None:
        return ""
    return found.patch.form if found.patch.is_right else f"{found.patch.form}, and something differs"
