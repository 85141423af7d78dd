"""`ddefuzz replay`: run stored cases and known findings again, and compare the results with the expected ones."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import rich_click as click

from ddefuzz.campaign.page import replay_report, replay_view, totals
from ddefuzz.campaign.replay import (
    MISMATCHES,
    ReplayResult,
    finding_cases,
    kept_cases,
    replay,
    trusted_modules,
    user_function,
)
from ddefuzz.cli.command import Output, argument, click_command, formats, option
from ddefuzz.cli.options import JOBS, TRUST
from ddefuzz.cli.output import LiveLine, current_invocation, deliver_report
from ddefuzz.errors import InputError, NothingRanError, refuse
from ddefuzz.files import is_folder, is_there
from ddefuzz.findings.database import Database
from ddefuzz.findings.inventory import installed_version
from ddefuzz.findings.ledger import Ledger
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING, read_finding, read_findings
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.repro.run import ScriptResult, run_scripts, torch_of
from ddefuzz.show.blocks import counted
from ddefuzz.show.findings import scripts_report, scripts_total, scripts_view
from ddefuzz.show.table import NAMES

DEFAULT_FINDINGS = (Path("findings"),)
DEFAULT_PATHS = (Path("corpora"), *DEFAULT_FINDINGS)


@click_command("replay")
def command(
    paths: tuple[Path, ...] = argument("[PATH]..."),
    known: DatabaseUrl | None = option("Also replay the findings of this database.", "--db"),
    trust: bool = TRUST,
    scripts: bool = option("Run the stand-alone scripts of the findings instead, one process each."),
    python: str | None = option("With --scripts: the interpreter, of any torch (default: this one).", metavar="PATH"),
    failing: str = option(
        "What makes the exit code 1: unexpected (a case does not do what is expected), or gone (also one that passes "
        "and was expected to fail).",
        "--fail-on",
        default="unexpected",
        type_=("unexpected", "gone"),
        metavar="WHAT",
    ),
    url: DatabaseUrl | None = option("Save the guard sites that the cases reach in this database.", "--sites"),
    jobs: int = JOBS,
    output: Output = formats("text", *NAMES),
) -> None:
    """Run the saved cases again and compare them with what is expected.

    PATH is a file of cases or a folder with such files. Without PATH and --db, the folders corpora and findings are
    replayed, and their trusted.toml files count. For each finding, its smallest and its original program are replayed.

    The last lines count cases and findings by status. With --format jsonl stdout has one line for each case, and the
    counts go to stderr.

    Exit code 1: a case fails that is expected to pass, or it fails in another way than expected. A case that passes and
    was expected to fail ("gone") changes the exit code only with --fail-on gone. Exit code 2: a case cannot be read or
    built. The others are replayed.

    With --scripts, PATH is a folder with findings (default: findings). A plain interpreter runs the stand-alone script
    of each, which says `shows`, `passes`, `fails otherwise`, or `not judged`: this torch has no such op or stage. Exit
    code 1: one fails otherwise. One that passes does not change the exit code.
    """
    if python is not None and not scripts:
        raise click.UsageError("found --python without --scripts, expected both")
    if scripts:
        if url is not None:
            raise click.UsageError("found --sites with --scripts, expected one of them")
        folders = paths or (DEFAULT_FINDINGS if known is None else ())
        _replay_scripts(folders, known, python or sys.executable, jobs, output, trust=trust)
        return
    # A downloaded folder may contain a list. So only the project's own lists are trusted by default.
    if not paths and known is None:
        trust, paths = True, tuple(path for path in DEFAULT_PATHS if is_there(path))
    cases = kept_cases(paths, trust=trust)
    if known is not None:
        with Database.open(known, create=False) as database:
            cases = (*cases, *finding_cases(database.findings(), str(known), trust=trust))
    with LiveLine(f"replaying {counted(len(cases), 'case')}") as live:
        # Name the user's code that is executed, or would be with --trust.
        verb = "executing" if trust else "not executed without --trust:"
        functions = {name for case in cases if (name := user_function(case))}
        for module in trusted_modules(paths):
            live.say(f"{verb} the user module {module}")
        for name in sorted(functions):
            live.say(f"{verb} the key function {name}")
        if not trust:
            cases = tuple(case for case in cases if not user_function(case))
        if not cases:
            raise NothingRanError(_nothing(paths, known))
        tick = live.counter(len(cases), "case")

        def listen(result: ReplayResult) -> None:
            tick("")
            if result.status in MISMATCHES:
                live.say(f"{result.status}: {result.case.id}")

        ledger = Ledger()
        results = replay(cases, jobs, listen, ledger)
        if output.format != "text":
            for line in totals(results):
                live.say(line)
    if url is not None:
        with Database.open(url) as database:
            database.add_sites(installed_version(), ledger.drain())
    view = replay_view(results, current_invocation())
    deliver_report(replay_report(results, installed_version(), gone=failing == "gone"), view, output)


def _nothing(paths: tuple[Path, ...], known: DatabaseUrl | None) -> str:
    if not paths and known is None:
        names = " or ".join(map(str, DEFAULT_PATHS))
        return f"found no folder {names} in {Path.cwd()}, expected one of them, a PATH or --db"
    places = ", ".join([*map(str, paths), *([] if known is None else ["the database"])])
    return f"found no case to replay in {places}, expected programs there"


def _replay_scripts(
    paths: Iterable[Path], url: DatabaseUrl | None, python: str, jobs: int, output: Output, *, trust: bool
) -> None:
    """Run the stand-alone scripts of the findings below the paths and in the database, each in a new process of a plain
    interpreter. Exits with 1 if one fails otherwise.
    """
    findings = findings_in(paths, url)
    if not findings:
        raise NothingRanError("found no finding, expected some in the paths or the database")
    with LiveLine(f"running {counted(len(findings), 'script')} under torch {torch_of(python)}") as live:
        tick = live.counter(len(findings), "script")

        def listen(result: ScriptResult) -> None:
            tick("")
            if result.status == "fails otherwise":
                live.say(f"{result.status}: {result.finding}")

        results = run_scripts(findings, python, jobs, listen, trust=trust)
        if output.format != "text":
            live.say(scripts_total(results))
    view = scripts_view(results, current_invocation())
    deliver_report(scripts_report(results, findings, torch_of(python)), view, output)


def findings_in(paths: Iterable[Path], url: DatabaseUrl | None) -> list[Finding]:
    """The findings in folders (of all, or of one) and in a database, by id. One that cannot be read is refused."""
    by_id: dict[str, Finding] = {}
    for path in paths:
        if not is_folder(path):
            raise InputError(f"{path}: found no folder there, expected one with findings")
        if not is_there(path / FINDING):
            by_id |= {finding.id: finding for finding in read_findings(path, datetime.now(UTC))}
            continue
        try:
            finding = read_finding(path)
            by_id[finding.id] = finding
        except InputError as error:
            refuse(error)
    if url is not None:
        with Database.open(url, create=False) as database:
            by_id |= {finding.id: finding for finding in database.findings()}
    return [by_id[key] for key in sorted(by_id)]
