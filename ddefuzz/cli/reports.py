"""The reports of commands: the record that `ddefuzz.show` writes, made from findings, campaigns and replays."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ddefuzz.campaign.replay import MISMATCHES, Replayed, Status, statuses
from ddefuzz.campaign.summary import Summary
from ddefuzz.cli.output import Writer
from ddefuzz.escape import shell_words
from ddefuzz.files import leads_to_file
from ddefuzz.findings.model import Finding, as_document
from ddefuzz.findings.textform import MINIMAL, ORIGINAL
from ddefuzz.findings.url import without_passwords
from ddefuzz.internal import InternalError, noted
from ddefuzz.oracles.table import oracle_of
from ddefuzz.repro.run import ScriptResult
from ddefuzz.show.blocks import counted
from ddefuzz.show.record import Outcome, Report, Result, Rule, rules
from ddefuzz.show.table import FORMATS

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
