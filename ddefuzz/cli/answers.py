"""`ddefuzz answers`: find by experiment which answer of a guard would fix a data-dependent error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import rich_click as click

from ddefuzz.answers.experiment import (
    Asked,
    GuardResult,
    Runners,
    SampleRequest,
    TriedPatches,
    answer_guard,
    calling,
    samples,
)
from ddefuzz.answers.model import Answers, PatchEvidence
from ddefuzz.answers.model import Row as AnswerRow
from ddefuzz.classify.signature import Verdict
from ddefuzz.cli.invocation import Invocation, current_invocation, resolve
from ddefuzz.cli.options import capture_stage_option, db_option, jobs_option, timeout_option
from ddefuzz.cli.output import Output, deliver, output_options, page_writers
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import InputError
from ddefuzz.escape import json_text
from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import CAPTURE_STAGES, ProgramSubject, Stage
from ddefuzz.files import is_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.merge import with_cause
from ddefuzz.findings.model import Finding
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.internal import guarded
from ddefuzz.ops import catalogue
from ddefuzz.oracles.capture import classify
from ddefuzz.program.text import print_program
from ddefuzz.show.blocks import Block, Code, Commands, Heading, Items, Paragraph, Table, counted, prose, table
from ddefuzz.show.facts import scores, tallies_table

SCHEMA, STORED_SCHEMA = "ddefuzz.answers/1", "ddefuzz.answers.stored/1"

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

MOST_USEFUL = 10
"""How many patches are listed with their evidence."""


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
    return json_text({"schema": SCHEMA, "rows": rows, "verdicts": verdicts}, indent=True) + "\n"


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


def answers_view(done: Sequence[Answered], call: Invocation) -> Iterator[Block]:
    """The table of answers of each site, its verdict, its patch, and what to type next."""
    if not done:
        yield Paragraph("no findings of kind dde with a program")
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
    steps = [_other_guards(one, call) for one in done if one.result.experiment.verdict in OTHER_GUARDS]
    if first.is_finding:
        steps.insert(0, call.command("findings", "show", first.name))
    elif not steps:
        steps.append(call.command("check", first.name, with_db=False))
    yield Commands(tuple(steps[:MOST_STEPS]))


def _other_guards(one: Answered, call: Invocation) -> str:
    """The command that lists the guards after the one that was answered."""
    file = f"{one.name}.py" if one.is_finding else one.name
    minimal = f"{call.command('findings', 'show', one.name, '--minimal')} > {file} && " if one.is_finding else ""
    return f"{minimal}{call.command('check', file, with_db=False)}  # lists the guards that follow"


def _details(result: GuardResult) -> dict[tuple[str, str], str]:
    """What else happened with each answer, in the first program in which something did."""
    rows = [row for program in reversed(result.experiment.programs) for row in program.rows]
    return {(row.clause, row.answer): detail for row in rows if (detail := _detail(row))}


def verdict(result: GuardResult) -> str:
    """The verdict, and what it leaves open."""
    found = result.experiment
    if found.verdict in NOTHING_TO_ANSWER:
        return f"{found.verdict}: nothing to answer, because {NOTHING_TO_ANSWER[found.verdict]}"
    right = {one.answer for one in found.tallies if one.is_right and not one.clause}
    both = " (False and True both agree)" if {"False", "True"} <= right else ""
    return f"{found.verdict}{both}"


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
    found = patches.best.evidence
    yield Paragraph(f"patch: {found.form}{'' if found.is_right else ' (not right for all)'}, tried in memory only")
    yield Code(patches.best.patch.diff, "diff")
    yield Items(scores(found))


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
    return json_text({"schema": STORED_SCHEMA, "findings": len(findings), "rows": rows}) + "\n"


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


STRICTEST: Stage = "aot"
"""The stage whose graph has the decompositions. An export has the ops themselves, so the op's kernel hides that a guard
of its decomposition was answered wrongly.
"""

SAMPLES_SECONDS = 300.0
"""The time limit for making torch's samples of a finding's functions. The first needs an import of some seconds."""


class Target(NamedTuple):
    """The programs of an experiment: those of a finding, or that of a file, and stored programs in addition."""

    name: str
    own: tuple[Asked, ...]
    stages: tuple[Stage, ...]
    functions: tuple[str, ...] = ()
    others: tuple[Asked, ...] = ()
    finding: Finding | None = None


@click.command("answers")
@click.argument("targets", metavar="[ID|FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Try all findings of kind dde in the database.")
@click.option(
    "--patch",
    "patching",
    is_flag=True,
    help="Print a patch for a guard in torch's Python code. It is tried first, in memory, with stored programs and "
    "torch's samples.",
)
@click.option("--write", is_flag=True, help="Save each result in its finding, with the cause that follows from it.")
@click.option("--fresh", is_flag=True, help="With --all --write: also try findings that have a result of this torch.")
@click.option(
    "--stored", is_flag=True, help="Print the results that the findings of the database have, and run nothing."
)
@capture_stage_option(
    f"Capture in this stage: {', '.join(CAPTURE_STAGES)}. Default: aot if the guard fails there too, else the "
    "finding's own; export for a FILE.",
)
@timeout_option(60.0, "one run")
@jobs_option
@db_option
@output_options("text", "json", "markdown")
def command(
    targets: tuple[str, ...],
    everything: bool,
    patching: bool,
    write: bool,
    fresh: bool,
    stored: bool,
    stage: Stage | None,
    timeout: float,
    jobs: int,
    db: DatabaseUrl,
    output: Output,
) -> None:
    """Try which answer of a guard would fix a data-dependent error.

    The first guard that cannot be decided is answered False, then True, then deferred to a run-time assertion. Each
    clause of `And`, `Or` and Python's `a or b` is answered in the same way. For each answer the program is captured,
    and the captured program is compared with eager at all data sizes. Other programs of the database that evaluate the
    same guard are tried too. The verdict is the smallest change that gives correct results: guard_or_false,
    guard_or_true or torch._check. If no change does, the verdict says so.
    """
    if bool(targets) + everything + stored != 1:
        raise click.UsageError("found none or several of ID or FILE, --all and --stored, expected one of them")
    if stored:
        with Database.open(db, create=False) as kept:
            findings = [finding for finding in kept.findings() if finding.kind == "dde"]
        markdown = page_writers("Answers for the findings", stored_page(findings))
        text = page_writers("", stored_view(findings))["text"]
        deliver(markdown | {"text": text, "json": stored_document(findings)}, output)
        return
    if "markdown" in output.formats:
        raise click.UsageError("found the format markdown without --stored, expected both")
    torch = version("torch")
    with ExitStack() as stack:
        needs_database = everything or not all(is_file(Path(name)) for name in targets)
        database = stack.enter_context(Database.open(db, create=False)) if needs_database else None
        chosen = _targets(targets, stage, database, torch if write and not fresh else None)
        pool = stack.enter_context(Pool(jobs))
        live = stack.enter_context(LiveLine(f"answering for {counted(len(chosen), 'program')}"))
        threads = stack.enter_context(ThreadPoolExecutor(jobs))
        sent = {
            threads.submit(_answered, target, pool, timeout, patching=patching): place
            for place, target in enumerate(chosen)
        }
        studied: dict[int, Answered] = {}
        for future in as_completed(sent):
            target, found = chosen[sent[future]], future.result()
            if found is None:
                continue
            studied[sent[future]] = Answered(target.name, found, target.finding is not None)
            if write and database is not None and target.finding is not None:
                with guarded(target.name):
                    database.set_answers(target.finding.id, found.evidence(torch), _with_cause)
            said = f"{len(studied)} of {counted(len(chosen), 'program')}: {target.name}: {found.experiment.verdict}"
            live.update(said, is_last=len(studied) == len(chosen))
    done = [studied[place] for place in sorted(studied)]
    deliver(page_writers("Answers", answers_view(done, current_invocation())) | {"json": document(done)}, output)


def _with_cause(finding: Finding) -> Finding:
    return with_cause(finding, classify, datetime.now(UTC))


def _answered(target: Target, pool: Pool, timeout: float, *, patching: bool) -> GuardResult | None:
    """The result for a target, None if a bug of ddefuzz ended it."""

    def made(request: SampleRequest) -> tuple[str, ...]:
        found = pool.submit(samples, request, SAMPLES_SECONDS).result()
        return () if isinstance(found, Lost) else found

    runners = Runners(partial(pool.observe, timeout=timeout), partial(pool.observe_patched, timeout=timeout), made)
    signature = None if target.finding is None else target.finding.signature
    own, others, functions, stages = target.own, target.others, target.functions, target.stages
    with guarded(target.name):
        return answer_guard(own, others, functions, stages, signature, runners, patching=patching)
    return None


def _targets(
    names: tuple[str, ...], stage: Stage | None, database: Database | None, answered: str | None
) -> tuple[Target, ...]:
    """What to answer for. With `answered`, of all findings those without a result of that torch."""
    found = []
    for path in (Path(name) for name in names if is_file(Path(name))):
        program = print_program(catalogue.read(path).program)
        found.append(Target(str(path), (Asked(str(path), ProgramSubject(program)),), (stage or "export",)))
    if database is not None:
        known = database.findings()
        kept = [*_programs(known), *_examples(database)]
        findings = [resolve(database, name) for name in names if not is_file(Path(name))] or [
            finding
            for finding in known
            if finding.kind == "dde"
            and (finding.minimal or finding.original)
            and (answered is None or finding.answers is None or finding.answers.torch != answered)
        ]
        found += [_of_finding(finding, stage, known, kept) for finding in findings]
    return tuple(found)


def _programs(findings: tuple[Finding, ...]) -> Iterator[tuple[str, str]]:
    """All programs that findings keep, with a name each."""
    for finding in findings:
        for name, text in (("minimal", finding.minimal), ("original", finding.original)):
            if text is not None:
                yield f"{finding.id}/{name}", text


def _examples(database: Database) -> Iterator[tuple[str, str]]:
    """The programs that first reached a guard site."""
    for torch in database.torch_versions():
        for site in database.sites(torch):
            if site.example:
                yield str(site.key), site.example


def _of_finding(
    finding: Finding, stage: Stage | None, known: tuple[Finding, ...], kept: list[tuple[str, str]]
) -> Target:
    own = tuple(Asked(name, ProgramSubject(text)) for name, text in dict(_programs((finding,))).items())
    if not own:
        raise InputError(f"{finding.id}: found a finding of user code, expected one with a program")
    functions = finding.shown_ops
    texts = {asked.subject for asked in own}
    same_site = {one.id for one in known if one.site == finding.site}
    near = sorted(kept, key=lambda program: program[0].partition("/")[0] not in same_site)
    others = tuple(one for one in calling(finding.ops or functions, near) if one.subject not in texts)
    stages: tuple[Stage, ...] = (stage,) if stage else (STRICTEST, finding.stage or "export")
    return Target(finding.id, own, stages, functions, others, finding)
