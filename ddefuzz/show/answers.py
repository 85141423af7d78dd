"""Experiments on guards as text and JSON: those that ran, and all that findings keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from ddefuzz.answers.experiment import (
    GuardResult,
    TriedPatches,
)
from ddefuzz.answers.model import Answers, PatchEvidence
from ddefuzz.answers.model import GuardOutcome as AnswerRow
from ddefuzz.classify.signature import Verdict
from ddefuzz.escape import json_text
from ddefuzz.findings.model import Finding
from ddefuzz.show.blocks import (
    Block,
    Code,
    Commands,
    Heading,
    Invocation,
    Items,
    Paragraph,
    Table,
    counted,
    prose,
    table,
)
from ddefuzz.show.evidence import scores, tallies_table

SCHEMA, STORED_SCHEMA = "ddefuzz.answers/1", "ddefuzz.answers.stored/1"


LEGEND = (
    "columns: data sizes at which the captured program agrees with eager, refuses inputs that eager takes, differs "
    "from eager, or accepts inputs that eager rejects",
    "sizes: example: as in the inputs; 0, 1, 2; equal: as a static size; all: the largest possible; u0=…: drawn; "
    "values-…: the example's, with zeros, equal values, ties, or infinities and NaN",
)


NOTHING_TO_ANSWER: dict[Verdict, str] = {
    "needs SymInt": "torch needs a number there, which no answer of a guard provides",
    "not a guard": "the program does not fail by a guard that cannot be decided",
}
"""Verdicts of programs without an experiment, and why there is none."""


class AnswerResult(NamedTuple):
    """The result of a finding or a file, by its name."""

    name: str
    result: GuardResult
    is_finding: bool = False


def document(done: Iterable[AnswerResult]) -> str:
    """The JSON of all results: a row for each program and answer, and a verdict for each site."""
    rows: list[dict[str, Any]] = []
    verdicts = []
    for name, result, _ in done:
        experiment = result.experiment
        rows += [
            {"target": name, "program": one.name, **msgspec.to_builtins(row)}
            for one in experiment.programs
            for row in one.rows
        ]
        verdicts.append(
            {
                "target": name,
                "stage": experiment.stage,
                "site": msgspec.to_builtins(experiment.site),
                "expression": experiment.expression,
                "programs": len(experiment.programs),
                "tallies": [_whole(tally) for tally in experiment.tallies],
                "verdict": experiment.verdict,
                **({} if result.patches is None else {"patch": _patch(result.patches)}),
            }
        )
    return json_text({"schema": SCHEMA, "rows": rows, "verdicts": verdicts}, indent=True) + "\n"


def _whole(record: msgspec.Struct) -> dict[str, Any]:
    """All fields of a record, those with their default too."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(record).items()}


def _patch(patches: TriedPatches) -> dict[str, Any]:
    refused = [msgspec.to_builtins(one) for one in patches.refused]
    if patches.best is None:
        return {"diff": None, "refused": refused}
    evidence = patches.best.evidence
    return {
        "diff": patches.best.patch.diff,
        "form": evidence.form,
        "code": evidence.code,
        "right": evidence.is_right,
        "kept": _whole(evidence.kept),
        "samples": _whole(evidence.samples),
        "refused": refused,
    }


def answers_view(done: Sequence[AnswerResult], call: Invocation) -> Iterator[Block]:
    """The table of answers of each site, its verdict, its patch, and what to type next."""
    if not done:
        yield Paragraph("no findings of kind dde with a program to try")
        return
    for name, result, _ in done:
        experiment = result.experiment
        needs = f" needs {experiment.expression}" if experiment.expression else ""
        yield Heading(f"{name}  {experiment.stage}  {experiment.site or ''}{needs}")
        if experiment.tallies:
            yield tallies_table(experiment.tallies, _details(result))
        yield Paragraph(f"verdict: {verdict(result)}", "bold")
        yield from _patch_blocks(result.patches)
    if any(result.experiment.tallies for _, result, _ in done):
        yield Items(LEGEND, "dim")
    if len(done) > 1:
        counts = Counter(result.experiment.verdict for _, result, _ in done)
        verdicts = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        yield Paragraph(f"{counted(len(done), 'program')}: {verdicts}")
    first = done[0]
    others = ("another guard decides", "no answer captures")
    steps = [_other_guards(one, call) for one in done if one.result.experiment.verdict in others]
    if first.is_finding:
        steps.insert(0, call.command("findings", "show", first.name))
    elif not steps:
        steps.append(call.command("check", first.name, with_db=False))
    yield Commands(tuple(steps[:5]))


def _other_guards(answered: AnswerResult, call: Invocation) -> str:
    """The command that lists the guards after the one that was answered."""
    file = f"{answered.name}.py" if answered.is_finding else answered.name
    minimal = (
        f"{call.command('findings', 'show', answered.name, '--minimal')} > {file} && " if answered.is_finding else ""
    )
    return f"{minimal}{call.command('check', file, with_db=False)}  # lists the guards that follow"


def _details(result: GuardResult) -> dict[tuple[str, str], str]:
    """What else happened with each answer, in the first program in which something did."""
    rows = [row for program in reversed(result.experiment.programs) for row in program.rows]
    return {(row.clause, row.answer): detail for row in rows if (detail := _detail(row))}


def verdict(result: GuardResult) -> str:
    """The verdict, and what it leaves open."""
    experiment = result.experiment
    if experiment.verdict in NOTHING_TO_ANSWER:
        return f"{experiment.verdict}: nothing to answer, because {NOTHING_TO_ANSWER[experiment.verdict]}"
    return experiment.verdict


def _detail(row: AnswerRow) -> str:
    then = "; ".join(f"also answered: {one}" for one in row.then)
    stopped = f"stopped by {row.stopped}" if row.stopped else ""
    return "; ".join(filter(None, (then, stopped)))


def _patch_blocks(patches: TriedPatches | None) -> Iterator[Block]:
    if patches is None:
        return
    if patches.best is None:
        refused = "; ".join(f"{one.form}: {one.why}" for one in patches.refused)
        yield Paragraph(f"patch: none ({refused or 'the code there has no form that decides'})")
        return
    evidence = patches.best.evidence
    yield Paragraph(
        f"patch: {evidence.form}{'' if evidence.is_right else ' (not right for all)'}, tried in memory only"
    )
    yield Code(patches.best.patch.diff, "diff")
    yield Items(scores(evidence))


def answered(findings: Iterable[Finding]) -> list[tuple[Finding, Answers]]:
    """The findings with answers, by id."""
    return sorted(((one, one.answers) for one in findings if one.answers is not None), key=lambda pair: pair[0].id)


def most_useful(findings: Iterable[Finding]) -> list[tuple[Finding, PatchEvidence]]:
    """The patches with which nothing differs, and which do what the verdict says: those first that most programs pass
    with.
    """
    fitting = ((finding, found.fitting_patch(finding.expression)) for finding, found in answered(findings))
    right = [(finding, patch) for finding, patch in fitting if patch is not None]
    return sorted(right, key=lambda pair: -(pair[1].kept.agree + pair[1].samples.agree))[:10]


def summary_lines(findings: Sequence[Finding]) -> list[str]:
    """The totals, line by line."""
    done = answered(findings)
    tried = [found.patch for _, found in done if found.patch is not None]
    verdicts = Counter(found.verdict for _, found in done)
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    return [
        f"{len(done)} of {counted(len(findings), 'finding')} of kind dde have answers, on torch "
        f"{', '.join(sorted({found.torch for _, found in done})) or 'none'}",
        f"verdicts: {counts or 'none'}",
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
    return json_text({"schema": STORED_SCHEMA, "findings": len(findings), "rows": rows}) + "\n"


def stored_page(findings: Sequence[Finding]) -> Iterator[Block]:
    """The page for the docs: the totals, and a row for each finding."""
    useful = _most_useful(findings)
    rows = (
        (finding.id, f"{finding.site} [{finding.anchor}]", finding.cause, found.verdict, _form(finding))
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


def _form(finding: Finding) -> str:
    answers = finding.answers
    if answers is None or answers.patch is None:
        return ""
    if not answers.patch.is_right:
        return f"{answers.patch.form}, and something differs"
    fits = answers.fitting_patch(finding.expression) is not None
    return answers.patch.form if fits else f"{answers.patch.form}, but not what the verdict says"
