"""`ddefuzz minimize --all`: minimize all findings of a database again, in the order of their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import rich_click as click

from ddefuzz.campaign.launch import Workers
from ddefuzz.campaign.renew import Renewed, can_be_minimized, renew
from ddefuzz.cli.layout import counted
from ddefuzz.findings.database import Database
from ddefuzz.internal import guarded


def minimize_all(
    database: Database,
    after: str,
    jobs: int,
    max_attempts: int,
    timeout: float,
    report: Callable[[Renewed], None],
) -> None:
    """Minimize the findings with ids after `after`. Each is saved as soon as it is confirmed."""
    findings = [finding for finding in database.findings() if can_be_minimized(finding) and finding.id > after]
    counts: Counter[str] = Counter()
    done = after
    try:
        with TemporaryDirectory(prefix="ddefuzz-") as journal, Workers(jobs, Path(journal)) as workers:
            for one in renew(findings, workers, Path(journal), max_attempts=max_attempts, timeout=timeout):
                with guarded(one.finding.id):
                    _save(database, one)
                counts[one.status] += 1
                done = one.finding.id
                report(one)
    finally:
        said = ", ".join(f"{number} {status}" for status, number in sorted(counts.items())) or "none done"
        click.echo(f"{counted(counts.total(), 'finding')} of {len(findings)}: {said}", err=True)
        if counts.total() < len(findings):
            click.echo(f"the others: --all --after {done}" if done else "the others: --all", err=True)


def _save(database: Database, one: Renewed) -> None:
    if one.shown is None or one.result is None:
        return
    name, result = one.finding.id, one.result
    with database.transaction():
        if one.status == "smaller":
            database.set_minimal(name, result.program, steps=result.steps, attempts=result.attempts)
        database.set_confirmed(name, 1, 1, one.shown)
        database.set_control(name, one.control)
