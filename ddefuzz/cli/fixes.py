"""`ddefuzz fixes`: the changes of PyTorch that mend findings, grouped, as patches with tests, and verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import rich_click as click

from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import DB
from ddefuzz.cli.output import LiveLine, current_invocation, deliver, page_writers, stop_on_interrupt
from ddefuzz.cli.streams import say
from ddefuzz.errors import EXIT_INTERRUPTED, InputError, refused
from ddefuzz.files import write_files
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.fixes.group import Coverage, coverage, grouped, on_trial, why_none
from ddefuzz.fixes.model import LABELS, PATCH, REQUEST, TEST, Fix, Label, named, read_fixes, remove_others, write_fixes
from ddefuzz.fixes.verify import apply_fault
from ddefuzz.fixes.work import Job, baselines, job_of, verified
from ddefuzz.show.blocks import (
    Block,
    Code,
    Commands,
    Facts,
    Heading,
    Invocation,
    Items,
    Paragraph,
    TableRow,
    codes,
    counted,
    table,
)
from ddefuzz.show.evidence import facts_of

SCHEMA = "ddefuzz.fixes/1"

FOLDER = option(
    "Folder of the verified fixes, one folder each.", "--fixes", default=Path("findings/fixes"), metavar="FOLDER"
)


class _ListsByDefault(click.RichGroup):
    """A group that lists if no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("fixes", cls=_ListsByDefault)
def command() -> None:
    """List the changes of PyTorch that mend findings, and write them as patches with tests.

    Without a subcommand, `list` is run.
    """


def tried(folder: Path) -> dict[str, Fix]:
    """The stored fixes that were tried in a copy of torch, by id."""
    return {fix.id: fix for fix in read_fixes(folder) if fix.is_tried}


def _loaded(db: DatabaseUrl, folder: Path) -> tuple[tuple[Finding, ...], tuple[Fix, ...]]:
    """The findings of a database, and all fixes for them."""
    with Database.open(db, create=False) as database:
        findings = database.findings()
    return findings, grouped(findings, tried(folder).values())


@click_command("list", command)
def list_(
    db: DatabaseUrl = DB,
    folder: Path = FOLDER,
    labels: tuple[Label, ...] = option(f"Only fixes with this label: {', '.join(LABELS)}.", type_=LABELS),
    output: Output = formats("text", "json", "markdown"),
) -> None:
    """List the changes, those for the most severe findings first, then those that repair most ops.

    \b
    Labels:
      verified                  made in a copy of torch, and tested there
      backed by forced answers  an answer of the guard was forced, and results agree with eager; not compiled
      untested idea             it follows from the cause, or from answers that leave it open; not tried
      in doubt                  tried in a copy of torch, answered or read, and something speaks against it
    """
    findings, fixes = _loaded(db, folder)
    listed = [fix for fix in fixes if not labels or fix.label in labels]
    known = coverage(findings, fixes)
    document = {
        "schema": SCHEMA,
        "findings": known.findings,
        "by_label": known.by_label,
        "fixes": [msgspec.to_builtins(fix) for fix in listed],
    }
    pages = page_writers("Fixes", list_view(listed, known, current_invocation()), document, indent=True)
    deliver(pages, output)


def list_view(fixes: Sequence[Fix], known: Coverage, call: Invocation) -> Iterator[Block]:
    """The table of fixes, and how many findings they mend."""
    rows = [
        TableRow(
            (fix.id, fix.label, fix.severity, str(len(fix.ops)), str(len(fix.findings)), str(fix.site)), fix.change
        )
        for fix in fixes
    ]
    if rows:
        columns = ("id", "label", "severity", "ops", "findings", "site")
        yield table(columns, rows, right=("ops", "findings"), code=("site",), folding=("site",))
    counts = ", ".join(f"{known.by_label[label]} {label}" for label in LABELS)
    none = known.findings - sum(known.by_label.values())
    yield Paragraph(
        f"{counted(len(fixes), 'fix', 'fixes')}. Of {counted(known.findings, 'open finding')} that a change of PyTorch "
        f"mends: {counts}, {none} without a known change"
    )
    if fixes:
        first = next((fix for fix in fixes if fix.label == "verified"), fixes[0])
        yield Commands((call.command("fixes", "show", first.id),))


@click_command("show", command)
def show(
    fix_id: str = argument("ID"),
    db: DatabaseUrl = DB,
    folder: Path = FOLDER,
    output: Output = formats("text", "json", "markdown"),
) -> None:
    """Show one change: its findings, what was tried, the patch and the test. ID is that of a fix, or of a finding.

    For a finding without a known change it shows why none is known.
    """
    findings, fixes = _loaded(db, folder)
    alone = [one for one in findings if fix_id and one.id.startswith(fix_id)]
    if len(alone) == 1 and not any(alone[0].id in fix.findings for fix in fixes):
        (finding,) = alone
        document = {"schema": SCHEMA, "finding": finding.id, "cause": finding.cause, "evidence": why_none(finding)}
        return deliver(
            page_writers(finding.id, none_view(finding, current_invocation()), document, indent=True), output
        )
    fix = named(fix_id, fixes)
    document = {"schema": SCHEMA, **msgspec.to_builtins(fix)}
    deliver(page_writers(fix.id, show_view(fix, fixes, current_invocation()), document, indent=True), output)


def none_view(finding: Finding, call: Invocation) -> Iterator[Block]:
    """Why no change is known for a finding."""
    yield Heading(f"{finding.id}: no change of PyTorch is known", 1)
    facts = dict(facts_of(finding))
    yield Facts(tuple((name, facts[name]) for name in ("site", "code at the site", "cause", "what to change", "state")))
    yield Items(why_none(finding))
    tried = (
        [] if finding.answers is not None or finding.kind != "dde" else [call.command("answers", finding.id, "--write")]
    )
    yield Commands((*tried, call.command("findings", "show", finding.id)))


def show_view(fix: Fix, fixes: Sequence[Fix], call: Invocation) -> Iterator[Block]:
    """Everything about one fix. Verified changes of the same function are one pull request."""
    beside = [one.id for one in fixes if (one.site, one.label) == (fix.site, "verified") and one.id != fix.id]
    yield Heading(f"{fix.id}: {fix.site}", 1)
    yield Paragraph(fix.change)
    yield Facts(
        (
            ("label", fix.label + ("" if fix.site.language == "Python" else ", not compiled")),
            ("form", fix.form),
            ("file", fix.file),
            ("severity", fix.severity),
            ("guards", codes(fix.guards)),
            ("ops", codes(fix.ops)),
            ("findings", codes(fix.findings)),
            ("later links", codes(fix.later)),
            ("versions", ", ".join(fix.versions)),
            ("same function", codes(beside)),
        )
    )
    for title, sentences in (("evidence", fix.evidence), ("doubts", fix.doubts)):
        if sentences:
            yield Heading(title)
            yield Items(sentences)
    if fix.patch:
        yield Heading("patch")
        yield Code(fix.patch, "diff")
    if fix.test:
        yield Heading("test")
        yield Code(fix.test)
    yield Commands(tuple(call.command("findings", "show", one) for one in fix.findings[:3]))


SHOWN: Final[frozenset[Label]] = frozenset({"verified", "backed by forced answers"})
"""The labels of changes that mend their findings, as far as was tried."""

AT_ONCE = 6
"""How many groups are run with torch as installed in one process."""


@click_command("verify", command)
def verify(
    ids: tuple[str, ...] = argument("[ID]..."),
    fresh: bool = option("Also groups that were tried with this torch before."),
    db: DatabaseUrl = DB,
    folder: Path = FOLDER,
) -> None:
    """Make the changes of Python code in a copy of torch, and run the findings, torch's samples and a test there.

    Each result is written as soon as it is known. So you can stop it and start it again. One group takes about 40 CPU
    seconds. Without ID, all groups are tried for which code of Python can be changed, and findings that are in no
    group: only verified changes of these are kept.
    """
    torch = version("torch")
    findings, fixes = _loaded(db, folder)
    trials = on_trial(findings, fixes)
    fixes, known = (*fixes, *trials), tried(folder)
    by_id = {one.id: one for one in findings}
    chosen = [named(one, fixes) for one in ids] or [
        fix for fix in fixes if fresh or fix.id not in known or known[fix.id].torch != torch
    ]
    chosen = sorted(chosen, key=lambda fix: LABELS.index(fix.label))
    jobs_of = {fix.id: job_of(fix, by_id) for fix in chosen}
    every = [job for job in jobs_of.values() if job is not None]
    if ids and len(every) < len(jobs_of):
        lost = next(fix for fix in chosen if jobs_of[fix.id] is None)
        raise InputError(f"{lost.id}: found no change of Python's code for {lost.site}, expected one to try")
    with stop_on_interrupt() as stopped, LiveLine(f"verifying {counted(len(every), 'change')}") as live:
        tick = live.counter(len(every), "change")
        for jobs in batched(every, AT_ONCE):
            for job, before in zip(jobs, baselines(jobs), strict=True):
                if stopped():
                    raise SystemExit(EXIT_INTERRUPTED)
                mended = [fix for fix in (*fixes, *known.values()) if fix.label in SHOWN]
                taken = {name for fix in mended for name in fix.findings}
                others = [one for one in findings if one.id not in taken]
                forms = {(fix.site, fix.guards[0]): fix.form for fix in known.values() if fix.label == "verified"}
                fix = verified(job, before, others, torch, forms)
                if fix.label == "verified" or job.fix not in trials:
                    known[fix.id] = fix
                    write_fixes([fix], folder)
                tick(f": {fix.id} {fix.label}: {job.fix.site}")
    verified_now = sum(fix.label == "verified" for fix in known.values())
    say(f"{counted(verified_now, 'verified change')} in {folder}")


def batched(jobs: Sequence[Job], number: int) -> Iterator[Sequence[Job]]:
    """So many at a time."""
    return (jobs[first : first + number] for first in range(0, len(jobs), number))


@click_command("write", command)
def write(db: DatabaseUrl = DB, folder: Path = FOLDER) -> None:
    """Write all groups as text for review, a folder each. What was tried in a copy of torch is kept.

    Folders of groups that are no more are removed.
    """
    read_fixes(folder)
    if lost := refused():
        raise InputError(f"{folder}: found {counted(len(lost), 'fix', 'fixes')} that cannot be read, expected none")
    fixes = _loaded(db, folder)[1]
    write_fixes(fixes, folder)
    if not refused():  # a finding that cannot be read may be in one of them
        remove_others(fixes, folder)
    say(f"{counted(len(fixes), 'fix', 'fixes')} written to {folder}")


@click_command("export", command)
def export(
    place: Path = argument("DIR"),
    ids: tuple[str, ...] = option("Only this fix.", "--id", metavar="ID"),
    db: DatabaseUrl = DB,
    folder: Path = FOLDER,
) -> None:
    """Write each verified change to a folder below DIR: a patch, a test, and the text of a pull request.

    Each patch is checked first by `git apply --check` in a copy of the files of the installed torch. Nothing is filed.
    """
    fixes = _loaded(db, folder)[1]
    chosen = [named(one, fixes) for one in ids] or [fix for fix in fixes if fix.label == "verified"]
    files: dict[str, str] = {}
    for fix in chosen:
        if not fix.patch:
            raise InputError(f"{fix.id}: found a change that is {fix.label}, expected a verified one")
        if fault := apply_fault(fix.patch, fix.file.split(", ")):
            misfit = f"torch {version('torch')}, to which its patch does not apply ({fault})"
            raise InputError(f"{fix.id}: found {misfit}, expected torch {fix.torch}")
        files |= {f"{fix.id}/{PATCH}": fix.patch, f"{fix.id}/{TEST}": fix.test, f"{fix.id}/{REQUEST}": fix.pull_request}
    write_files(place, files)
    say(f"{counted(len(chosen), 'change')} written to {place}")
