"""`ddefuzz report`, and the reports of other commands: the record that `ddefuzz.show` writes."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import rich_click as click

from ddefuzz.campaign.replay import MISMATCHES, Replayed, Status, statuses
from ddefuzz.campaign.summary import Summary
from ddefuzz.cli.invocation import resolve
from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import Output, Writer, deliver, output_options
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.escape import shell_words
from ddefuzz.files import leads_to_file
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import is_open
from ddefuzz.findings.listing import results
from ddefuzz.findings.model import Finding, as_document
from ddefuzz.findings.textform import MINIMAL, ORIGINAL
from ddefuzz.findings.url import DatabaseUrl, without_passwords
from ddefuzz.internal import InternalError, noted
from ddefuzz.oracles.table import oracle_of
from ddefuzz.repro.run import ScriptResult
from ddefuzz.repro.upstream import exportdb_example, issue, unit_test
from ddefuzz.show.blocks import counted
from ddefuzz.show.record import Outcome, Report, Result, Rule, rules
from ddefuzz.show.table import FORMATS, NAMES
from ddefuzz.versions.model import status_by_version

UPSTREAM: Final = {
    "issue": "an issue as PyTorch asks for it, in Markdown",
    "unittest": "a unit test in PyTorch's style that is expected to fail",
    "exportdb": "an example for PyTorch's ExportDB",
}
"""The formats of one finding, with what they are. Nothing is filed."""


def _formats() -> str:
    """A line for each format, for the help."""
    rows = [(one.name, one.meaning) for one in FORMATS]
    rows += [(name, f"with an ID: {meaning}") for name, meaning in UPSTREAM.items()]
    return "\n".join(f"  {name:9} {meaning}" for name, meaning in rows)


@click.command(
    "report",
    help=f"""Write findings in a format for other tools, or one finding as an issue or test for PyTorch.

Without ID, the report has all findings that are open and depend on data. New findings count as failed, reviewed ones
as known.

\b
Formats:
{_formats()}
""",
)
@click.argument("finding_id", metavar="[ID]", required=False)
@click.option("--all", "all_", is_flag=True, help="Also findings that are not open, or do not depend on data.")
@click.option("--env", is_flag=True, help="With the format issue: run torch.utils.collect_env and add what it prints.")
@db_option
@output_options(*("markdown", *(name for name in NAMES if name != "markdown"), *UPSTREAM))
def command(
    finding_id: str | None,
    all_: bool,
    env: bool,
    db: DatabaseUrl,
    output: Output,
) -> None:
    """See the decorator: the help lists the table of formats."""
    with Database.open(db, create=False) as database:
        everything = database.findings()
        one = resolve(database, finding_id) if finding_id else None
        in_versions = "" if one is None else status_by_version(one, database.read(results))
    if one is None and (alone := sorted(output.formats & set(UPSTREAM))):
        raise InputError(f"--format {alone[0]}: found no ID, expected that of a finding")
    tracked = {version for finding in everything for version in finding.torch_versions}
    if one is not None:
        listed = [one]
    else:
        listed = [
            finding
            for finding in everything
            if all_ or (is_open(finding.state, finding.fixed_in, tracked) and finding.data_dependent is not False)
        ]
    writers = writers_of(findings_report(listed, ", ".join(sorted(tracked)), lambda finding: finding.state == "new"))
    if one is not None:
        said = environment() if env and "issue" in output.formats else ""
        writers |= {
            "issue": lambda _page: issue(one, said, in_versions),
            "unittest": lambda _page: unit_test(one),
            "exportdb": lambda _page: exportdb_example(one),
        }
    deliver(writers, output)


def environment() -> str:
    """What `python -m torch.utils.collect_env` prints. Raises `UnsupportedError`."""
    words = [sys.executable, "-P", "-m", "torch.utils.collect_env"]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120.0)
    except (subprocess.SubprocessError, OSError) as error:
        raise UnsupportedError(f"--env: torch.utils.collect_env ended with {error}, expected its output") from error
    return ran.stdout


FOLDER = Path("findings")

REPLAY_SCHEMA, SCRIPTS_SCHEMA = "ddefuzz.replay/1", "ddefuzz.scripts/1"

UNEXPECTED = Rule("replay", "a replayed case does not do what is expected of it")
"""The rule of a replayed case that is expected to pass."""


INTERNAL = Rule("internal-error", "not judged, because an exception of ddefuzz itself ended it")
"""The rule of what a bug of ddefuzz ended."""


def writers_of(report: Report) -> dict[str, Writer]:
    """A writer for each format of the table. They do not depend on the page.

    Exceptions of ddefuzz itself are among the results.
    """
    report = msgspec.structs.replace(report, command=command_line())
    errors = tuple(map(_of_error, noted()))
    if errors:
        all_rules, results = (*report.rules, INTERNAL), (*report.results, *errors)
        report = msgspec.structs.replace(report, rules=all_rules, results=results)
    return {one.name: partial(lambda write, _page: write(report), one.write) for one in FORMATS}


def _of_error(error: InternalError) -> Result:
    return Result(
        id=error.where or INTERNAL.id,
        rule=INTERNAL.id,
        outcome="error",
        title=f"{error.where}: not judged",
        message=error.reason,
        facts=(("report", error.report),) if error.report else (),
    )


def command_line() -> str:
    """The command line of this process, without the passwords of databases."""
    return shell_words(["ddefuzz", *map(without_passwords, sys.argv[1:])])


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
    found = tuple(findings)
    documents = tuple(as_document(finding) for finding in found)
    return Report(
        title=f"ddefuzz: {counted(len(found), 'finding')}",
        torch=torch,
        results=tuple(result_of(one, "failed" if is_failed(one) else "known") for one in found),
        document=documents,
        records=documents,
    )


def run_report(summary: Summary, findings: Iterable[Finding]) -> Report:
    """A campaign. New findings about PyTorch failed, all others are known."""
    by_id = {finding.id: finding for finding in findings}
    seen = [one for one in summary.findings if one.finding in by_id]
    new = {one.finding for one in seen if one.is_new and one.counts}
    return Report(
        title=f"ddefuzz campaign: {counted(summary.cases, 'case')}, {counted(len(new), 'new finding')}",
        torch=summary.torch,
        results=tuple(result_of(by_id[one.finding], "failed" if one.finding in new else "known") for one in seen),
        facts=(f"seed {summary.seed}, profile {summary.profile}, {summary.seconds:.0f} s",),
        document=summary,
        records=summary.findings,
    )


_OUTCOMES: dict[Status, Outcome] = {
    "as expected": "passed",
    "gone": "passed",
    "fails": "failed",
    "fails otherwise": "failed",
    "not judged": "failed",
}


def replay_report(results: Iterable[Replayed], torch: str) -> Report:
    """A replay: a result for each case. What does not do what is expected failed."""
    replayed = tuple(results)
    documents = tuple(
        {
            "schema": REPLAY_SCHEMA,
            "case": result.case.id,
            "finding": result.case.finding or None,
            "status": result.status,
            "expected": str(result.case.expect),
            "seen": result.seen,
            "evidence": result.evidence,
        }
        for result in replayed
    )
    counts = statuses(replayed)
    mismatches = sum(result.status in MISMATCHES for result in replayed)
    return Report(
        title=f"ddefuzz replay: {counted(len(replayed), 'case')}, {mismatches} not as expected",
        torch=torch,
        rules=(*rules(), UNEXPECTED),
        results=tuple(map(_replayed, replayed)),
        facts=(_numbers(counts),),
        document={"schema": REPLAY_SCHEMA, "torch": torch, "cases": documents, "counts": counts},
        records=documents,
    )


def _numbers(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def _replayed(result: Replayed) -> Result:
    expect = result.case.expect
    path = Path(result.case.id.partition("@")[0].partition(".py:")[0] + ".py" * (".py:" in result.case.id))
    relative = leads_to_file(path) and not path.is_absolute()
    outcome = _OUTCOMES[result.status]
    if outcome == "passed" and expect.kind is not None and result.status == "as expected":
        outcome = "known"
    return Result(
        id=result.case.id,
        rule=expect.kind or UNEXPECTED.id,
        outcome=outcome,
        title=f"{result.status}: {result.seen}",
        message=f"expected {expect}" + (f"; {result.evidence}" if result.evidence else ""),
        path=path.as_posix() if relative else "",
        line=1 if relative else 0,
        site=expect.site,
        facts=(("finding", result.case.finding),) if result.case.finding else (),
    )


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
    documents = tuple({"schema": SCRIPTS_SCHEMA, **msgspec.structs.asdict(result)} for result in ran)
    counts = Counter(result.status for result in ran)
    return Report(
        title=f"ddefuzz replay --scripts: {counted(len(ran), 'script')}",
        torch=torch,
        results=tuple(
            result_of(by_id[one.finding], _SCRIPTS[one.status], ": ".join(filter(None, [one.status, one.reason])))
            for one in ran
        ),
        facts=(_numbers(counts),),
        document={"schema": SCRIPTS_SCHEMA, "torch": torch, "scripts": documents, "counts": dict(counts)},
        records=documents,
    )
