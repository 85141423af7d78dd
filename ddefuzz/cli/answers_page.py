"""Experiments on guards as text and JSON: the rows of each program, the verdict, and the patch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from ddefuzz.answers.guard import GuardResult, TriedPatches
from ddefuzz.answers.model import Answers, Row
from ddefuzz.classify.cause import PROOFS
from ddefuzz.classify.signature import Verdict
from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.show.answers import TITLES, tally_cells

SCHEMA = "ddefuzz.answers/1"

LEGEND = (
    "columns: data sizes at which the captured program agrees with eager, refuses inputs that eager takes, differs "
    "from eager, or accepts inputs that eager rejects",
    "sizes: example: as in the inputs; 0, 1, 2; equal: as a static size; all: the largest possible; random-…: drawn",
)

NOTHING_TO_ANSWER: dict[Verdict, str] = {
    "needs SymInt": "torch needs a number there, which no answer of a guard provides",
    "not a guard": "the program does not fail by a guard that cannot be decided",
}
"""Verdicts of programs without an experiment, and why there is none."""


OTHER_GUARDS: frozenset[Verdict] = frozenset({"another guard decides", "no answer captures"})
"""Verdicts after which the next thing to look at is another guard of the program."""

MOST_STEPS = 5
"""The number of commands that are printed as next steps."""


class Answered(NamedTuple):
    """The result of a finding or a file, by its name."""

    name: str
    result: GuardResult
    is_finding: bool = False


def document(done: Iterable[Answered]) -> str:
    """The JSON of all results: a row for each program and answer, and a verdict for each site."""
    rows: list[dict[str, Any]] = []
    verdicts = []
    for name, result, _ in done:
        found = result.experiment
        rows += [
            {"target": name, "program": one.name, **msgspec.to_builtins(row)}
            for one in found.programs
            for row in one.rows
        ]
        verdicts.append(
            {
                "target": name,
                "stage": found.stage,
                "site": msgspec.to_builtins(found.site),
                "expression": found.expression,
                "programs": len(found.programs),
                "tallies": [_whole(tally) for tally in found.tallies],
                "verdict": found.verdict,
                **({} if result.patches is None else {"patch": _patch(result.patches)}),
            }
        )
    return json.dumps({"schema": SCHEMA, "rows": rows, "verdicts": verdicts}, indent=2) + "\n"


def _whole(record: msgspec.Struct) -> dict[str, Any]:
    """All fields of a record, those with their default too."""
    return {name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(record).items()}


def _patch(patches: TriedPatches) -> dict[str, Any]:
    refused = [msgspec.to_builtins(one) for one in patches.refused]
    if patches.best is None:
        return {"diff": None, "refused": refused}
    found = patches.best.evidence
    return {
        "diff": patches.best.patch.diff,
        "form": found.form,
        "code": found.code,
        "right": found.is_right,
        "kept": _whole(found.kept),
        "samples": _whole(found.samples),
        "refused": refused,
    }


def answers_page(done: Sequence[Answered], page: Page) -> str:
    """The table of answers of each site, its verdict, its patch, and what to type next."""
    parts: list[RenderableType] = []
    for name, result, _ in done:
        found = result.experiment
        needs = f" needs {found.expression}" if found.expression else ""
        parts.append(plain(f"{name}  {found.stage}  {found.site or ''}{needs}"))
        if found.tallies:
            parts.append(_table(result, page))
        parts.append(Text(folded(f"verdict: {verdict(result)}", page.width), style="bold"))
        parts += [plain(line) for line in _patch_lines(result.patches)]
        parts.append(Text())
    if any(result.experiment.tallies for _, result, _ in done):
        parts += [Text(folded(line, page.width), style="dim") for line in LEGEND]
    if len(done) > 1:
        counts = Counter(result.experiment.verdict for _, result, _ in done)
        verdicts = ", ".join(f"{number} {name}" for name, number in counts.most_common())
        parts.append(plain(f"{counted(len(done), 'program')}: {verdicts}"))
    if not done:
        return "no findings of kind dde with a program\n"
    first, call = done[0], page.invocation
    steps = [_other_guards(one, call) for one in done if one.result.experiment.verdict in OTHER_GUARDS]
    if first.is_finding:
        steps.insert(0, call.command("findings", "show", first.name))
    elif not steps:
        steps.append(call.command("check", first.name, with_db=False))
    return f"{rendered(Group(*parts), page)}\nNext:\n" + "".join(f"  {one}\n" for one in steps[:MOST_STEPS])


def _other_guards(one: Answered, call: Invocation) -> str:
    """The command that lists the guards after the one that was answered."""
    file = f"{one.name}.py" if one.is_finding else one.name
    minimal = f"{call.command('findings', 'show', one.name, '--minimal')} > {file} && " if one.is_finding else ""
    return f"{minimal}{call.command('check', file, with_db=False)}  # lists the guards that follow"


def _table(result: GuardResult, page: Page) -> RenderableType:
    found = result.experiment
    details = {
        (row.clause, row.answer): detail
        for one in reversed(found.programs)
        for row in one.rows
        if (detail := _detail(row))
    }
    rows = [
        Detailed([plain(cell) for cell in tally_cells(tally)], plain(details.get((tally.clause, tally.answer), "")))
        for tally in found.tallies
    ]
    return table(TITLES, rows, page.width, folding=TITLES[2:])


def evidence_parts(answers: Answers, page: Page) -> list[RenderableType]:
    """What a finding keeps of its experiment: the rows, the verdict and what it means for the cause, and the patch."""
    proof = next((one for one in PROOFS if one.verdict == answers.verdict), None)
    where = f"{counted(answers.programs, 'program')} in {answers.stage}, torch {answers.torch}"
    said = f"verdict: {answers.verdict} ({where})"
    parts: list[RenderableType] = []
    if answers.tallies:
        rows = [Detailed([plain(cell) for cell in tally_cells(one)]) for one in answers.tallies]
        parts.append(table(TITLES, rows, page.width, folding=TITLES[2:]))
    parts.append(plain(folded(said, page.width)))
    if proof is not None:
        parts.append(plain(folded(f"so its cause is {proof.cause}: {proof.why}", page.width)))
    if answers.patch is not None:
        parts.append(plain(folded(f"patch: {answers.patch.code}", page.width)))
        parts.append(plain(folded(f"kept programs: {answers.patch.kept}", page.width)))
        parts.append(plain(folded(f"samples of torch: {answers.patch.samples}", page.width)))
    return parts


def verdict(result: GuardResult) -> str:
    """The verdict, and what it leaves open."""
    found = result.experiment
    if found.verdict in NOTHING_TO_ANSWER:
        return f"{found.verdict}: nothing to answer, because {NOTHING_TO_ANSWER[found.verdict]}"
    right = {one.answer for one in found.tallies if one.is_right and not one.clause}
    both = " (False and True both agree)" if {"False", "True"} <= right else ""
    return f"{found.verdict}{both}"


def _detail(row: Row) -> str:
    then = "; ".join(f"also answered: {one}" for one in row.then)
    stopped = f"stopped by {row.stopped}" if row.stopped else ""
    return "; ".join(filter(None, (then, stopped)))


def _patch_lines(patches: TriedPatches | None) -> list[str]:
    if patches is None:
        return []
    if patches.best is None:
        why = (
            "; ".join(f"{one.form}: {one.why}" for one in patches.refused) or "the code there has no form that decides"
        )
        return [f"patch: none ({why})"]
    found = patches.best.evidence
    return [
        f"patch: {found.form}{'' if found.is_right else ' (not right for all)'}, tried in memory only",
        patches.best.patch.diff.rstrip("\n"),
        f"kept programs: {found.kept}",
        f"samples of torch: {found.samples}",
    ]
