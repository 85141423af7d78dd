"""`ddefuzz replay --scripts`: the findings' stand-alone scripts, each in a new process of a plain interpreter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Group

from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.output import Page, deliver, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import scripts_report, writers_of
from ddefuzz.errors import EXIT_FOUND, InputError, NothingRanError
from ddefuzz.escape import visible
from ddefuzz.files import is_there
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING, read_finding, read_findings
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.repro.run import STATUSES, ScriptResult, run_scripts, torch_of

SCHEMA = "ddefuzz.scripts/1"


def replay_scripts(
    paths: Iterable[Path],
    url: DatabaseUrl | None,
    python: str,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
    *,
    trust: bool,
) -> None:
    """Run the scripts of the findings below the paths and in the database. Exits with 1 if one fails otherwise."""
    findings = findings_in(paths, url)
    if not findings:
        raise NothingRanError("found no finding, expected some in the paths or the database")
    done = 0
    with LiveLine(f"running {counted(len(findings), 'script')} under torch {torch_of(python)}") as live:

        def listen(result: ScriptResult) -> None:
            nonlocal done
            done += 1
            live.update(f"{done} of {counted(len(findings), 'script')}", is_last=done == len(findings))
            if result.status == "fails otherwise":
                live.say(f"{result.status}: {result.finding}")

        results = run_scripts(findings, python, jobs, listen, trust=trust)
        if format_ != "text":
            live.say(_total(results))
    report = scripts_report(results, findings, torch_of(python), SCHEMA)
    deliver({"text": lambda page: _page(results, page), **writers_of(report)}, format_, outputs)
    if any(result.status == "fails otherwise" for result in results):
        raise SystemExit(EXIT_FOUND)


def findings_in(paths: Iterable[Path], url: DatabaseUrl | None) -> list[Finding]:
    """The findings in folders (of all, or of one) and in a database, by id."""
    found: dict[str, Finding] = {}
    for path in paths:
        if not path.is_dir():
            raise InputError(f"{path}: found no folder there, expected one with findings")
        if is_there(path / FINDING):
            read: Iterable[Finding] = (read_finding(path),)
        else:
            read = read_findings(path, datetime.now(UTC))
        found |= {finding.id: finding for finding in read}
    if url is not None:
        with Database.open(url, create=False) as database:
            found |= {finding.id: finding for finding in database.findings()}
    return [found[key] for key in sorted(found)]


def _page(results: tuple[ScriptResult, ...], page: Page) -> str:
    listed = [result for result in results if result.status != "shows"]
    rows = [
        Detailed([plain(result.status), plain(result.finding)], plain(_detail(result), style="dim"))
        for result in listed
    ]
    shown = rendered(Group(table(("status", "finding"), rows, page.width), ""), page) if rows else ""
    return shown + "\n".join([_total(results), *map(visible, _next(listed, page))]) + "\n"


def _detail(result: ScriptResult) -> str:
    if result.reason:
        return result.reason
    return f"expected {_facts(result.expected)}; seen {_facts(result.seen)}"


def _facts(facts: dict[str, str] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items()) if facts else "no failure"


def _total(results: tuple[ScriptResult, ...]) -> str:
    counts = Counter(result.status for result in results)
    parts = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    return f"{counted(len(results), 'script')}: {parts}"


def _next(listed: list[ScriptResult], page: Page) -> list[str]:
    """The command for the first script that failed otherwise."""
    first = next((result for result in listed if result.status == "fails otherwise"), None)
    return ["Next:", f"  {page.invocation.command('findings', 'show', first.finding)}"] if first else []
