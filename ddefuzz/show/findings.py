"""Findings for people and for reports: the list, one finding, the scripts, and what a change of rules changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ddefuzz.classify.anchor import question
from ddefuzz.classify.cause import FRAMEWORK_CAUSES
from ddefuzz.escape import shell_word
from ddefuzz.files import leads_to_file
from ddefuzz.findings.lifecycle import ROWS, said_of
from ddefuzz.findings.merge import Change, Reclassification
from ddefuzz.findings.model import Finding, FindingSummary, HistoryEntry, as_document
from ddefuzz.findings.textform import MINIMAL, ORIGINAL
from ddefuzz.oracles.table import oracle_of
from ddefuzz.repro.run import STATUSES, ScriptResult
from ddefuzz.show.blocks import (
    Block,
    Code,
    Column,
    Commands,
    Facts,
    Heading,
    Invocation,
    Items,
    Paragraph,
    Span,
    Table,
    TableRow,
    counted,
    prose,
    table,
)
from ddefuzz.show.evidence import MARK, evidence_blocks, facts_of, same_program, stack_to_site
from ddefuzz.show.record import Outcome, Report, Result


def changes_view(result: Reclassification, *, written: bool) -> Iterator[Block]:
    """What the rules of classification change, and whether it is saved."""
    counts = result.counts
    if result.changes:
        rows = (
            TableRow((one.change, one.finding, one.becomes if one.becomes != one.finding else ""), _of_change(one))
            for one in result.changes
        )
        yield table(("change", "finding", "becomes"), rows)
    causes = sorted({*counts.causes, *counts.causes_after})
    of_causes = [f"{name} {counts.causes.get(name, 0)} → {counts.causes_after.get(name, 0)}" for name in causes]
    lines = (
        f"{counted(counts.findings, 'finding')} become {counts.findings_after}: {counts.moved} moved, "
        f"{counts.merged} merged into others, {counts.split_off} split off, {counts.other_cause} with another cause.",
        f"{counted(counts.sightings, 'sighting')}, {counts.sightings_after} after it, "
        f"{counts.sightings_moved} of them in another finding than before.",
        f"Causes: {', '.join(of_causes)}." if of_causes else "",
        f"{counted(counts.occurrences_unobserved, 'occurrence')} kept no failure of their own and stay with their "
        "finding."
        if counts.occurrences_unobserved
        else "",
        _end(result, written=written),
    )
    yield Items(tuple(filter(None, lines)))


def _end(result: Reclassification, *, written: bool) -> str:
    if not result.changes and result.counts.sightings == result.counts.sightings_after:
        return "Nothing changes."
    return "Saved." if written else "Nothing is saved: --write saves it."


def _of_change(change: Change) -> str:
    if change.change == "split":
        return f"{counted(change.sightings, 'sighting')}: {change.before} → {change.after}"
    return f"{change.before} → {change.after}"


WIDE, WIDE_FOR_TITLE = 100, 140
"""The widths of pages from which on columns of less importance, and one for titles, are in the table."""


COLUMNS: tuple[tuple[Column, Callable[[FindingSummary], str]], ...] = (
    (Column("id"), lambda finding: finding.id),
    (Column("cause"), lambda finding: finding.cause),
    # A narrow column would break the names in titles.
    (Column("title", folding=True, least_width=WIDE_FOR_TITLE), lambda finding: finding.title),
    (Column("stage", least_width=WIDE), lambda finding: finding.stage or ""),
    (
        Column("steps", right=True, least_width=WIDE),
        lambda finding: "" if finding.steps is None else str(finding.steps),
    ),
    (Column("confirmed", right=True, least_width=WIDE), lambda finding: str(finding.confirmed or "")),
    (Column("state"), lambda finding: said_of(finding.state, finding.fixed_in)),
)

OF_IMPACT: tuple[tuple[Column, Callable[[FindingSummary], str]], ...] = (
    *COLUMNS[:2],
    (Column("models", right=True), lambda finding: str(len(finding.models))),
    (Column("ops", right=True), lambda finding: str(len(finding.ops))),
    *COLUMNS[2:],
)
"""The columns where findings are sorted by `impact`."""


def impact(finding: FindingSummary) -> tuple[int, int]:
    """The key for sorting by what meets a finding, the most first: models of a study, then functions."""
    return -len(finding.models), -len(finding.ops)


def list_view(
    findings: Sequence[FindingSummary],
    call: Invocation,
    left_out: int = 0,
    filters: str = "",
    total: int = 0,
    columns: tuple[tuple[Column, Callable[[FindingSummary], str]], ...] = COLUMNS,
) -> Iterator[Block]:
    """The table, and what to type next.

    `left_out` is the number of findings that do not depend on data. `filters` are the options that select findings, and
    `total` is the number of all findings in the database.
    """
    more = (
        f"{counted(left_out, 'finding')} more {'does' if left_out == 1 else 'do'} not depend on data: "
        f"--all lists {'it' if left_out == 1 else 'them'}."
    )
    if left_out and not findings:
        yield Items((f"no findings that depend on data{f' match {filters}' if filters else ''}", more))
    elif not findings and total:
        yield Paragraph(f"no findings match {filters} ({total} in the database)")
    elif not findings:
        yield prose("no findings (`{}` looks for some)", call.command("run"))
    else:
        cells = (TableRow(tuple(cell(finding) for _, cell in columns)) for finding in findings)
        yield Table(tuple(column for column, _ in columns), tuple(cells))
        first = findings[0]
        commands = (
            f"{call.command('findings', 'show', first.id)}  # all that is known of it",
            f"{call.command('findings', 'show', first.id, '--repro')}  # a script that needs torch alone",
            *_triage(first, call)[:1],
        )
        yield Commands(commands, f"{counted(len(findings), 'finding')}. {f'{more} ' if left_out else ''}Next:")


def show_view(
    finding: Finding, call: Invocation, matrix: str = "", alike: Iterable[FindingSummary] = ()
) -> Iterator[Block]:
    """Everything about one finding, with commands for what to do next. `matrix` says what it does by version, `alike`
    are the other findings with the same smallest program.
    """
    yield Heading(f"{finding.id}: {finding.title}", 1)
    yield Facts((*facts_of(finding), ("matrix", matrix), same_program(alike)))
    if finding.minimal is not None:
        yield Heading("smallest program")
        yield Code(finding.minimal)
    stack = stack_to_site(finding.evidence, finding.site) if finding.evidence is not None else None
    if stack is not None and stack.lines:
        legend = f" ({MARK} is the site)" if stack.marked else ""
        which = "smallest program" if finding.shown is not None else "program it was found with"
        yield Heading(f"from the {which} to the site, in {finding.stage}{legend}")
        frames = counted(stack.left_out, "internal frame")
        left_out = [f"  {frames} not shown: `--format json` has them all"] if stack.left_out else []
        yield Paragraph("\n".join([*stack.lines, *left_out]))
    if finding.answers is not None and finding.cause in FRAMEWORK_CAUSES:
        yield Heading("what would fix it")
        yield from evidence_blocks(finding.answers, finding.expression)
    if finding.original is not None and finding.original != finding.minimal:
        yield Heading("program that it was found with")
        yield Code(finding.original)
        yield from _failed_otherwise(finding)
    if finding.notes:
        yield Heading("notes")
        yield Paragraph("\n".join(_indented(f"{note.when[:16]} {note.who}: {note.text}") for note in finding.notes))
    if finding.history:
        yield Heading("history")
        yield Paragraph("\n".join(_indented(_change(entry)) for entry in finding.history))
    yield Commands(_next_commands(finding, call))


def _failed_otherwise(finding: Finding) -> Iterator[Block]:
    """The failure of the original program, if it differs from the displayed one."""
    if finding.failure is not None and finding.shown is not None:
        observation = finding.failure.observation
        expression = observation.raised.expression if observation.raised is not None else ""
        if (observation.stage, expression) != (finding.stage, finding.expression):
            evaluating = f", evaluating {question(expression)}" if expression else ""
            yield Paragraph(f"  it failed in {observation.stage}{evaluating}")


def _change(entry: HistoryEntry) -> str:
    why = f" ({entry.why})" if entry.why else ""
    change = f"{entry.field.removeprefix('given_')} {entry.before or '-'} → {entry.after or '-'}{why}"
    return f"{entry.when[:16]} {entry.who}: {change}"


def _indented(text: str) -> str:
    """An item of a list of texts that may have several lines."""
    return "  " + text.replace("\n", "\n    ")


def _next_commands(finding: Finding, call: Invocation) -> tuple[str, ...]:
    name = finding.id
    show = ("findings", "show", name)
    program, file = "--minimal" if finding.minimal else "--original", f"{name}.py"
    replay = (
        call.repro(name),
        f"{call.command(*show, '--snippet')}  # what to paste into an issue",
        *(
            (f"{call.command(*show, program)} > {shell_word(file)} && {call.command('check', file, with_db=False)}",)
            if oracle_of(finding.kind).of_programs
            else ()
        ),
        call.command("minimize", name),
    )
    fix = (call.command("fixes", "show", name),) if finding.cause in FRAMEWORK_CAUSES else ()
    return (*(replay if finding.minimal or finding.original else ()), *fix, *_triage(finding, call))


def _triage(finding: Finding | FindingSummary, call: Invocation) -> tuple[str, ...]:
    """The commands to decide on a finding, by its state."""
    name = finding.id
    if finding.state == "duplicate":
        of = finding.duplicate_of
        original = () if of is None else (call.command("findings", "show", of),)
        return *original, call.command("findings", "undup", name)
    after = {"new": "triaged", "triaged": "reported"}.get(finding.state) or ROWS[finding.state].to[0]
    link = f"{call.command('findings', 'link', name)} https://…"
    return call.command("findings", "set", name, after), link


FOLDER = Path("findings")


def result_of(finding: Finding, outcome: Outcome, message: str = "") -> Result:
    """A finding as a result. Its path is the file of its program in the text form, if that is there."""
    files = (FOLDER / finding.id / name for name in (MINIMAL, ORIGINAL))
    path = next((file.as_posix() for file in files if leads_to_file(file)), "")
    facts = {
        "state": finding.state,
        "stage": finding.stage or "",
        "ops": ", ".join(finding.shown_ops),
        "torch": ", ".join(finding.torch_versions),
        "owner": finding.owner,
        "links": " ".join(finding.links),
    }
    return Result(
        id=finding.id,
        rule=finding.kind,
        outcome=outcome,
        title=finding.title,
        message=message,
        path=path,
        line=1 if path else 0,
        site=str(finding.site),
        site_path=finding.site.module or "",
        site_line=_site_line(finding),
        cause=finding.cause,
        program=finding.minimal or finding.original or "",
        facts=tuple((name, value) for name, value in facts.items() if value),
    )


def _site_line(finding: Finding) -> int:
    """The line of a Python site, 0 if it is not known."""
    if finding.evidence is None:
        return 0
    frame = oracle_of(finding.kind).frame(finding.evidence)
    raised, site = finding.evidence.observation.raised, finding.site
    if frame is None and raised is not None and site.module is not None:
        same = (one for one in reversed(raised.python) if (one.file, one.function) == (site.module, site.function))
        frame = next(same, None)
    return 0 if frame is None else frame.line


def findings_report(findings: Iterable[Finding], torch: str, is_failed: Callable[[Finding], bool]) -> Report:
    """Findings of a database. Some count against the run, all others are known."""
    listed = tuple(findings)
    documents = tuple(as_document(finding) for finding in listed)
    return Report(
        title=f"ddefuzz: {counted(len(listed), 'finding')}",
        torch=torch,
        results=tuple(result_of(one, "failed" if is_failed(one) else "known") for one in listed),
        document=documents,
        records=documents,
    )


def numbers(counts: Mapping[Any, int]) -> str:
    """`2 as expected, 1 gone`."""
    return ", ".join(f"{number} {status}" for status, number in counts.items())


_SCRIPTS: dict[str, Outcome] = {
    "shows": "known",
    "passes": "passed",
    "fails otherwise": "failed",
    "not judged": "skipped",
}


def scripts_report(results: Iterable[ScriptResult], findings: Iterable[Finding], torch: str) -> Report:
    """The stand-alone scripts of findings. One that fails otherwise failed."""
    by_id = {finding.id: finding for finding in findings}
    ran = tuple(results)
    documents = tuple({"schema": "ddefuzz.scripts/1", **msgspec.structs.asdict(result)} for result in ran)
    counts = Counter(result.status for result in ran)
    return Report(
        title=f"ddefuzz replay --scripts: {counted(len(ran), 'script')}",
        torch=torch,
        results=tuple(
            result_of(by_id[one.finding], _SCRIPTS[one.status], ": ".join(filter(None, [one.status, one.reason])))
            for one in ran
        ),
        facts=(numbers(counts),),
        document={"schema": "ddefuzz.scripts/1", "torch": torch, "scripts": documents, "counts": dict(counts)},
        records=documents,
    )


def total(noun: str, counts: Mapping[Any, int]) -> str:
    """`3 cases: 2 as expected, 1 gone`."""
    return f"{counted(sum(counts.values()), noun)}: {numbers(counts)}"


def scripts_view(results: tuple[ScriptResult, ...], call: Invocation) -> Iterator[Block]:
    """The scripts that do not show their finding, the counts, and the command for the first that fails otherwise."""
    listed = [result for result in results if result.status != "shows"]
    if listed:
        rows = (TableRow((result.status, result.finding), Span(_of_script(result), style="dim")) for result in listed)
        yield table(("status", "finding"), rows)
    yield Items((scripts_total(results),))
    for first in [result for result in listed if result.status == "fails otherwise"][:1]:
        yield Commands((call.command("findings", "show", first.finding),))


def _of_script(result: ScriptResult) -> str:
    return result.reason or f"expected {_said(result.expected)}; seen {_said(result.seen)}"


def _said(facts: dict[str, str] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items()) if facts else "no failure"


def scripts_total(results: tuple[ScriptResult, ...]) -> str:
    counts = Counter(result.status for result in results)
    return total("script", {status: counts[status] for status in STATUSES if counts[status]})
