"""How many reported failures are among the findings of a folder or a database.

A reported failure is a case of a module with `CASES` (corpora/reported/cases.py has the form). What it does is observed
with the installed torch. It is found if a finding has the kind and the site of one of its failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from ci.bench.command import Result, Session
from ddefuzz.classify.signature import USER_CODE
from ddefuzz.errors import InputError
from ddefuzz.execute.pool import Future, LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject, Run, Stage
from ddefuzz.execute.subject import load_module
from ddefuzz.findings.database import Database
from ddefuzz.findings.inventory import installed_version
from ddefuzz.findings.textform import read_findings
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.oracles.program import Trial, TriedRun, judge_run, tried_of
from ddefuzz.show.blocks import Block, prose, table

ORACLES: Final = ("capture", "agreement", "assertions", "specialization")
"""What a case is judged by. Its example inputs are called: no other sizes of a user's inputs are known."""

CASE_SECONDS: Final = 120.0

FINDINGS: Final = Path("findings")

Known: TypeAlias = frozenset[tuple[str, str]]
"""The kind and the site of each finding."""

SentRun: TypeAlias = tuple[Trial, Future[TriedRun]]

BY_DESIGN: Final = frozenset({"unsupported", "timeout"})
"""Kinds that are no failure of PyTorch by themselves: it says that it does not trace something."""


class ReportedCase(NamedTuple):
    """A case: the module's file, its id, its category and the title of the report."""

    file: str
    id: str
    category: str
    title: str


class ShownFailure(msgspec.Struct, frozen=True):
    """One failure of a case in a stage: its kind, its site, and whether a finding has both."""

    stage: Stage
    kind: str
    site: str
    is_known: bool


class BacktestedCase(msgspec.Struct, frozen=True):
    """A case with the failures of PyTorch that it shows. `user` says that only the case's own code branches on data."""

    file: str
    id: str
    category: str
    title: str
    failures: tuple[ShownFailure, ...]
    user: bool
    not_judged: tuple[str, ...]

    @property
    def is_found(self) -> bool:
        """Whether some failure of the case is a finding."""
        return any(failure.is_known for failure in self.failures)


class Backtest(msgspec.Struct, frozen=True, kw_only=True):
    """All cases, and where the findings are from."""

    schema: str = "ddefuzz.bench.backtest/1"
    torch: str
    findings: int
    source: str
    cases: tuple[BacktestedCase, ...]


def cases_of(path: str) -> tuple[ReportedCase, ...]:
    """The cases of a module, which is imported: in a worker. Raises InputError where there is no list of them."""
    listed = getattr(load_module(path), "CASES", None)
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "id" in one for one in listed):
        raise InputError(f"{path}: found no list CASES, expected one as corpora/reported/cases.py has it")
    return tuple(
        ReportedCase(path, str(one["id"]), str(one.get("category", "")), str(one.get("title", ""))) for one in listed
    )


def run(
    session: Session, files: tuple[str, ...], url: DatabaseUrl | None, stages: tuple[Stage, ...], jobs: int
) -> Result:
    """Observe the cases, and look for their failures among the findings: those of the database, if there is one."""
    if url is None:
        findings = read_findings(FINDINGS, datetime.now(UTC))
    else:
        with Database.open(url, create=False) as database:
            findings = database.findings()
    known = frozenset((one.kind, str(one.site)) for one in findings)
    backtest = Backtest(
        torch=installed_version(),
        findings=len(findings),
        source=str(FINDINGS) if url is None else str(url),
        cases=tuple(_observed(session, files, stages, jobs, known)),
    )
    return Result(backtest, [*view(backtest)])


def _observed(
    session: Session, files: Iterable[str], stages: tuple[Stage, ...], jobs: int, known: Known
) -> Iterator[BacktestedCase]:
    with Pool(jobs) as pool:
        reported = [*chain.from_iterable(_listed(session, pool, file) for file in files)]
        sent: dict[ReportedCase, list[SentRun]] = defaultdict(list)
        for case in reported:
            for stage in stages:
                trial = Trial(
                    Run(CallableSubject(case.file, case=case.id), stage, EXPLICIT, calls=("example",)), ORACLES
                )
                sent[case].append((trial, pool.submit(judge_run, trial, CASE_SECONDS)))
        for number, (case, runs) in enumerate(sent.items(), 1):
            session.live.update(f"{number} of {len(reported)} cases: {case.id}")
            yield _judged(session, case, runs, known)


def _listed(session: Session, pool: Pool, file: str) -> tuple[ReportedCase, ...]:
    answer = session.answer(pool.submit(cases_of, file, CASE_SECONDS))
    if isinstance(answer, LostTask):
        raise InputError(f"{file}: found a module that ends its worker ({answer.reason}), expected one with CASES")
    return answer


def _judged(session: Session, case: ReportedCase, runs: Iterable[SentRun], known: Known) -> BacktestedCase:
    shown, users, reasons = list[ShownFailure](), list[bool](), list[str]()
    for trial, future in runs:
        stage = trial.run.stage
        try:
            answer = session.answer(future)
        except InputError as error:
            reasons.append(f"{stage}: {error}")
            continue
        tried = tried_of(lost_observation(trial.run, answer)) if isinstance(answer, LostTask) else answer
        if tried.observation.outcome == "not-judged":
            reasons.append(f"{stage}: {tried.observation.reason}")
        for failure in tried.failures:
            signature = failure.signature
            is_user = signature.site.module == USER_CODE
            users.append(is_user)
            if not is_user and signature.kind not in BY_DESIGN:
                place = str(signature.site)
                shown.append(ShownFailure(stage, signature.kind, place, (signature.kind, place) in known))
    return BacktestedCase(
        case.file, case.id, case.category, case.title, tuple(shown), bool(users) and all(users), tuple(reasons)
    )


def view(backtest: Backtest) -> Iterator[Block]:
    """A row for each category and for all, then the failures that are not among the findings."""
    rows = [_row(name, [one for one in backtest.cases if one.category == name]) for name in _categories(backtest)]
    counts = ("cases", "own code", "PyTorch fails", "found", "share")
    yield table(("category", *counts), [*rows, _row("all", backtest.cases)], right=counts)
    missed = [(one.id, one.failures[0]) for one in backtest.cases if one.failures and not one.is_found]
    if missed:
        named = [(name, first.stage, first.kind, first.site) for name, first in missed]
        yield table(("not found", "stage", "kind", "site"), named)
    skipped = [(one.id, one.not_judged[0]) for one in backtest.cases if one.not_judged and not one.failures]
    if skipped:
        yield table(("not judged", "why"), skipped)
    yield prose(
        f"torch {backtest.torch}; {backtest.findings} findings, of {backtest.source}. A case is found if one has the "
        "kind and the site of one of its failures. In `own code`, only the case's own code branches on data."
    )


def _categories(backtest: Backtest) -> list[str]:
    return sorted({one.category for one in backtest.cases})


def _row(name: str, cases: Iterable[BacktestedCase]) -> tuple[str, ...]:
    own = list(cases)
    failing = [one for one in own if one.failures]
    count = sum(one.is_found for one in failing)
    share = f"{100 * count / len(failing):.0f}%" if failing else ""
    return name, str(len(own)), str(sum(one.user for one in own)), str(len(failing)), str(count), share
