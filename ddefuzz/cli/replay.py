"""`ddefuzz replay`: run stored cases and known findings again, and compare the results with the expected ones."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import rich_click as click
from rich.console import Group

from ddefuzz.campaign.replay import (
    MISMATCHES,
    KeptCase,
    Replayed,
    Status,
    finding_cases,
    kept_cases,
    replay,
    statuses,
    statuses_of_findings,
    trusted_modules,
    user_function,
)
from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import URL, jobs_option, trust_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.replay_scripts import replay_scripts
from ddefuzz.cli.reports import replay_report, writers_of
from ddefuzz.coverage.inventory import installed_version
from ddefuzz.coverage.ledger import Ledger
from ddefuzz.errors import EXIT_FOUND, NothingRanError
from ddefuzz.escape import visible
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.table import NAMES

SCHEMA = "ddefuzz.replay/1"

DEFAULT_FINDINGS = (Path("findings"),)
DEFAULT_PATHS = (Path("corpora"), *DEFAULT_FINDINGS)


@click.command("replay")
@click.argument("paths", metavar="[PATH]...", type=click.Path(path_type=Path), nargs=-1)
@click.option("--db", "known", type=URL, help="Also replay the findings of this database.")
@trust_option
@click.option("--scripts", is_flag=True, help="Run the stand-alone scripts of the findings instead, one process each.")
@click.option("--python", metavar="PATH", help="With --scripts: the interpreter, of any torch (default: this one).")
@click.option("--sites", "url", type=URL, help="Save the guard sites that the cases reach in this database.")
@jobs_option
@output_options("text", *NAMES)
def command(
    paths: tuple[Path, ...],
    known: DatabaseUrl | None,
    trust: bool,
    scripts: bool,
    python: str | None,
    url: DatabaseUrl | None,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Run the saved cases again and compare them with what is expected.

    PATH is a file of cases or a folder with such files. Without PATH and --db, the folders corpora and findings are
    replayed, and their trusted.toml files count. For each finding, its smallest and its original program are replayed.

    The last lines count cases and findings by status. With --format jsonl stdout has one line for each case, and the
    counts go to stderr.

    Exit code 1: a case fails that is expected to pass, or it fails in another way than expected. A case that passes
    and was expected to fail ("gone") does not change the exit code. Exit code 2: a case cannot be read or built. The
    others are replayed.

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
        replay_scripts(folders, known, python or sys.executable, jobs, format_, outputs, trust=trust)
        return
    # A downloaded folder may contain a list. So only the project's own lists are trusted by default.
    if not paths and known is None:
        trust, paths = True, tuple(path for path in DEFAULT_PATHS if path.exists())
    cases = kept_cases(paths, trust=trust)
    if known is not None:
        cases = (*cases, *_cases_of(known, trust=trust))
    done = 0

    with LiveLine(f"replaying {counted(len(cases), 'case')}") as live:
        # Name the user's code that is executed, or would be with --trust.
        said = "executing" if trust else "not executed without --trust:"
        keyed = {name for case in cases if (name := user_function(case))}
        for module in trusted_modules(paths):
            live.say(f"{said} the user module {module}")
        for name in sorted(keyed):
            live.say(f"{said} the key function {name}")
        if not trust:
            cases = tuple(case for case in cases if not user_function(case))
        if not cases:
            raise NothingRanError(_nothing(paths, known))

        def listen(result: Replayed) -> None:
            nonlocal done
            done += 1
            live.update(f"{done} of {counted(len(cases), 'case')}", is_last=done == len(cases))
            if result.status in MISMATCHES:
                live.say(f"{result.status}: {result.case.id}")

        ledger = Ledger()
        results = replay(cases, jobs, listen, ledger)
        if format_ != "text":
            for line in _totals(results):
                live.say(line)
    if url is not None:
        with Database.open(url) as database:
            database.add_sites(installed_version(), ledger.drain())
    report = replay_report(results, installed_version(), SCHEMA)
    deliver({"text": lambda page: _page(results, page), **writers_of(report)}, format_, outputs)
    if any(result.status in MISMATCHES for result in results):
        raise SystemExit(EXIT_FOUND)


def _nothing(paths: tuple[Path, ...], known: DatabaseUrl | None) -> str:
    if not paths and known is None:
        names = " or ".join(map(str, DEFAULT_PATHS))
        return f"found no folder {names} in {Path.cwd()}, expected one of them, a PATH or --db"
    places = ", ".join([*map(str, paths), *([] if known is None else ["the database"])])
    return f"found no case to replay in {places}, expected programs there"


def _cases_of(url: DatabaseUrl, *, trust: bool) -> tuple[KeptCase, ...]:
    with Database.open(url, create=False) as database:
        return finding_cases(database.findings(), str(url), trust=trust)


def _page(results: tuple[Replayed, ...], page: Page) -> str:
    listed = [result for result in results if result.status != "as expected"]
    rows = [
        Detailed(
            [plain(result.status), plain(result.case.id)],
            plain(f"expected {result.case.expect}; seen {_seen(result)}", style="dim"),
        )
        for result in listed
    ]
    shown = rendered(Group(table(("status", "case"), rows, page.width), ""), page) if rows else ""
    return shown + "\n".join([*_totals(results), *map(visible, _next(listed, page.invocation))]) + "\n"


def _totals(results: tuple[Replayed, ...]) -> list[str]:
    """The number of cases and findings with each status."""
    lines = [_total("case", statuses(results))]
    if findings := statuses_of_findings(results):
        lines.append(_total("finding", findings))
    return lines


def _total(noun: str, counts: Mapping[Status, int]) -> str:
    parts = ", ".join(f"{number} {status}" for status, number in counts.items())
    return f"{counted(sum(counts.values()), noun)}: {parts}"


def _next(listed: list[Replayed], call: Invocation) -> list[str]:
    """What to type next. Commands are never folded."""
    lines = []
    gone = {result.case.finding: result.case for result in listed if result.status == "gone" and result.case.finding}
    if gone:
        lines.append("Next, if the pinned torch fixed it:")
        lines += [f"  {_command(call, 'set', case, 'fixed')}" for _, case in sorted(gone.items())[:5]]
    mismatch = next((result.case for result in listed if result.status in MISMATCHES), None)
    if mismatch is not None:
        if mismatch.database:
            return [*lines, "Next:", f"  {_command(call, 'show', mismatch)}"]
        target = mismatch.id.partition("@")[0]
        path, _, case = target.partition(".py:")
        words = (f"{path}.py", "--case", case) if case else (target,)
        lines += ["Next:", f"  {call.command('check', *words, with_db=False)}"]
    return lines


def _command(call: Invocation, verb: str, case: KeptCase, *words: str) -> str:
    """A command on the finding of a case, with the database of the case."""
    db = ("--db", case.database) if case.database else ()
    return call.command("findings", verb, case.finding, *words, *db, with_db=False)


def _seen(result: Replayed) -> str:
    return f"{result.seen}: {result.evidence}" if result.evidence else result.seen
