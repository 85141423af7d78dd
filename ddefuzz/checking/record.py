"""The report of a check for other tools: a result for each capture that succeeds, and for each problem."""

from __future__ import annotations

import re
from pathlib import Path

from ddefuzz import __version__
from ddefuzz.checking.patch import Change, hunks
from ddefuzz.checking.problems import Problem, exception_of, origin_of, own_caller
from ddefuzz.checking.report import CaptureResult, headline, offers_lines, what
from ddefuzz.checking.report import Report as CheckReport
from ddefuzz.errors import InputError
from ddefuzz.escape import one_line
from ddefuzz.files import is_file, leads_to_file, read_text
from ddefuzz.oracles.table import kinds
from ddefuzz.show.blocks import counted
from ddefuzz.show.record import Fix, Replacement, Report, Result, Rule

CAPTURED = Rule("captured", "a capture that succeeds, and no oracle says that the captured program is wrong")
"""The rule of the captures that are not a problem."""


def report_record(report: CheckReport, command: str) -> Report:
    """The report for other tools: a result for each capture that succeeds, and for each problem.

    A problem failed, whether it is a known finding or not, as the exit code says; one that is accepted is known. One
    that neither stops capture nor makes the captured program wrong is skipped. `command` is the command line.
    """
    cases = tuple(dict.fromkeys(one.case for one in report.captures))
    of_case = {
        case: (
            [one for one in report.captures if one.case == case],
            [one for one in report.problems if one.case == case],
        )
        for case in cases
    }
    return Report(
        command=command,
        title=f"ddefuzz check {report.target}: {counted(len(report.problems), 'problem')}",
        version=__version__,
        torch=report.torch,
        rules=(*(Rule(kind, row.meaning) for kind, row in kinds().items()), CAPTURED),
        results=(
            *(_capture_record(one) for one in report.captures if one.outcome in ("ok", "captured", "not-judged")),
            *(_problem_record(one, report) for one in report.problems),
        ),
        facts=(*(headline(case, *shown) for case, shown in of_case.items()), *offers_lines(report)),
        document=report,
        records=report.problems,
    )


def _capture_record(capture: CaptureResult) -> Result:
    words = ["captured"] if capture.outcome in ("ok", "captured") else []
    return Result(
        id=f"{capture.case}/{capture.stage}/{capture.semantics}",
        rule=CAPTURED.id,
        outcome="passed" if capture.outcome == "ok" else "skipped",
        title=f"{capture.case}, {capture.stage}: {', '.join(filter(None, (*words, capture.reason)))}",
        seconds=capture.seconds,
    )


def _problem_record(problem: Problem, report: CheckReport) -> Result:
    own, site, accepting = own_caller(problem.chain), problem.classified.signature.site, report.accepting(problem)
    path, line = ("", 0) if own is None else (_below_here(own.file), own.line)
    if not path:
        path, line = definition(problem.case if ":" in problem.case else report.target)
    changes = [offer.change for offer in report.changes if offer.case == problem.case]
    facts = {
        "captures": ", ".join(problem.stages),
        "module": problem.module,
        "symbols": ", ".join(f"{symbol.symbol} = {origin_of(symbol)}" for symbol in problem.symbols),
        "known": "; ".join(str(finding) for finding in report.known if finding.id in problem.keys),
        "accepted": str(accepting or ""),
        "changes": "; ".join(one.does for one in changes),
    }
    return Result(
        id=f"{problem.case}/{problem.keys[0]}",
        rule=problem.kind,
        outcome="skipped" if problem.is_minor else "known" if accepting else "failed",
        title=f"{problem.owner}: {what(problem)}",
        message="; ".join(
            filter(None, [exception_of(problem.observation) or problem.classified.failure.evidence, problem.remedy])
        ),
        path=path,
        line=line if path else 0,
        site=str(site),
        site_path=site.module or "",
        cause=problem.classified.cause,
        seconds=round(problem.observation.seconds, 3),
        facts=tuple((name, value) for name, value in facts.items() if value),
        fix=next((_fix(one) for one in changes if not one.fails), None),
    )


def _fix(change: Change) -> Fix | None:
    """The change for a viewer that applies it. None if a part of it lies elsewhere than below the current folder."""
    files = [(_below_here(changed.path), changed) for changed in change.files]
    if change.paste or not files or not all(path for path, _ in files):
        return None
    parts = (
        Replacement(path, hunk.start + 1, hunk.end + 1, "".join(hunk.lines))
        for path, changed in files
        for hunk in hunks(changed)
    )
    return Fix(one_line(change.does), tuple(parts))


def definition(target: str) -> tuple[str, int]:
    """Where the name of a target is defined: a file below the current folder and its line; ("", 0) if it is unknown."""
    file, _, name = target.rpartition(":") if ":" in target else (target, "", "")
    modules = [f"{file.replace('.', '/')}{ending}" for ending in (".py", "/__init__.py")]
    path = next((path for one in (file, *modules) if (path := _below_here(one)) and is_file(Path(path))), "")
    if not path:
        return "", 0
    try:
        lines = read_text(Path(path)).splitlines()
    except InputError:
        return path, 1
    definitions = re.compile(rf"(async def|def|class) {re.escape(name)}\b|{re.escape(name)}\s*[:=]")
    return path, next((number for number, line in enumerate(lines, 1) if name and definitions.match(line)), 1)


def _below_here(file: str) -> str:
    """The path relative to the current folder, empty if it is elsewhere: reports name no folders of a machine."""
    path, here = Path(file).absolute(), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) and leads_to_file(path) else ""
