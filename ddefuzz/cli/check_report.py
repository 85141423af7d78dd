"""The result of `ddefuzz check` as the record that `ddefuzz.show` writes."""

from __future__ import annotations

from pathlib import Path

from ddefuzz import __version__
from ddefuzz.checking.chain import own_caller
from ddefuzz.checking.check import Captured, Document, Problem, is_minor
from ddefuzz.checking.offers import offers_lines
from ddefuzz.cli.check_page import headline, what
from ddefuzz.cli.layout import counted
from ddefuzz.cli.reports import command_line, rules
from ddefuzz.show.record import Outcome, Report, Result, Rule

CAPTURED = Rule("captured", "a capture that succeeds, and no oracle says that the captured program is wrong")
"""The rule of the captures that are not a problem."""


def check_report(document: Document) -> Report:
    """A result for each capture that succeeds, and for each problem.

    A problem failed, whether it is a known finding or not, as the exit code says. One that neither stops capture nor
    makes the captured program wrong is skipped.
    """
    cases = tuple(dict.fromkeys(one.case for one in document.captures))
    captured = [one for one in document.captures if one.outcome in ("ok", "not-judged")]
    return Report(
        command=command_line(),
        title=f"ddefuzz check {document.target}: {counted(len(document.problems), 'problem')}",
        version=__version__,
        torch=document.torch,
        rules=(*rules(), CAPTURED),
        results=(*map(_captured, captured), *(_problem(one, document) for one in document.problems)),
        facts=(
            *(
                headline(
                    case,
                    [one for one in document.captures if one.case == case],
                    [one for one in document.problems if one.case == case],
                )
                for case in cases
            ),
            *offers_lines(document),
        ),
        document=document,
        records=document.problems,
    )


def _captured(one: Captured) -> Result:
    outcome: Outcome = "passed" if one.outcome == "ok" else "skipped"
    said = "captured" if one.outcome == "ok" else one.reason
    return Result(
        id=f"{one.case}/{one.stage}/{one.semantics}",
        rule=CAPTURED.id,
        outcome=outcome,
        title=f"{one.case}, {one.stage}: {said}",
        seconds=one.seconds,
    )


def _problem(one: Problem, document: Document) -> Result:
    own = own_caller(one.chain)
    path, line = ("", 0) if own is None else (_below_here(own.file), own.line)
    known = [str(finding) for finding in document.known if finding.id in one.keys]
    changes = [offered.change.does for offered in document.changes if offered.case == one.case]
    return Result(
        id=f"{one.case}/{one.key}",
        rule=one.kind,
        outcome="skipped" if is_minor(one.kind) else "failed",
        title=f"{one.owner}: {what(one)}",
        message="; ".join(filter(None, [one.exception or one.evidence, one.remedy])),
        path=path,
        line=line if path else 0,
        site=str(one.site),
        site_path=one.site.module or "",
        cause=one.cause,
        facts=tuple(
            (name, value)
            for name, value in (
                ("captures", ", ".join(one.stages)),
                ("module", one.module),
                ("symbols", ", ".join(f"{symbol.symbol} = {symbol.origin}" for symbol in one.symbols)),
                ("known", "; ".join(known)),
                ("changes", "; ".join(changes)),
            )
            if value
        ),
    )


def _below_here(file: str) -> str:
    """The path relative to the current folder, empty if it is elsewhere: reports name no folders of a machine."""
    path, here = Path(file).absolute(), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) and path.is_file() else ""
