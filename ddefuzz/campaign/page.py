"""A campaign and a replay, for people and for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.replay import (
    MISMATCHES,
    KeptCase,
    ReplayResult,
    Status,
    statuses,
    statuses_of_findings,
)
from ddefuzz.campaign.summary import CallCounts, CampaignFinding, Summary, Tally
from ddefuzz.execute.protocol import Stage
from ddefuzz.files import leads_to_file
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.table import severity_rank
from ddefuzz.program.sizes import SIZE_KINDS
from ddefuzz.show.blocks import Block, Commands, Inline, Invocation, Items, Span, TableRow, counted, table
from ddefuzz.show.evidence import VERDICTS, verdicts_line
from ddefuzz.show.findings import (
    numbers,
    result_of,
    total,
)
from ddefuzz.show.record import Outcome, Report, Result, Rule, rules


def progress_line(plan: Plan, tally: Tally, seconds: float) -> str:
    """How much of the budget is used, and what was found."""
    budget, cases = plan.budget, len(tally.digests)
    if budget.cases is not None:
        done = f"{cases} of {budget.cases} cases"
    else:
        spent, of = seconds, budget.seconds
        if budget.cpu_seconds is not None:
            spent, of = tally.total_cpu_seconds(), budget.cpu_seconds
        unit = "s" if budget.cpu_seconds is None else "CPU s"
        done = f"{min(spent, of or spent):.0f} of {of:g} {unit}, {counted(cases, 'case')}"
    bugs = [seen for seen in tally.findings.values() if seen.counts]
    new = sum(seen.is_new for seen in bugs)
    waiting = sum(seen.is_new and not seen.confirmed for seen in bugs) if plan.minimize else 0
    rest = f", {waiting} to minimize and confirm" if waiting else ""
    sites = counted(len(tally.ledger.fallback_sites), "guard site")
    return f"{done} ({cases / max(seconds, 0.1):.1f}/s)  {counted(len(bugs), 'finding')}, {new} new{rest}, {sites}"


NUMBERS = ("cases", "steps", "conf")
"""The columns of numbers: cases that showed the finding, size of its smallest program, confirmations."""


def summary_view(summary: Summary, replay: str, call: Invocation) -> Iterator[Block]:
    """The whole page."""
    bugs = [seen for seen in summary.findings if seen.counts]
    if summary.findings:
        titles = ("finding", "cause", "status", "site", "anchor", *NUMBERS)
        rows = map(_cells, sorted(summary.findings, key=_importance))
        yield table(titles, rows, right=NUMBERS, folding=("site", "anchor"))
    if summary.outcomes:
        yield table(("stage", "verdicts"), _runs(summary))
    yield Items(tuple(line for line in _lines(summary, bugs) if line))
    ran = summary.cases > 0 or summary.interrupted
    longer = f"{replay.replace(f'--budget {summary.budget}', '--budget 5m', 1)}  # no case ended in {summary.budget}"
    yield Commands((*_next(summary, bugs, call), replay if ran else longer))


def _lines(summary: Summary, bugs: list[CampaignFinding]) -> Iterator[str]:
    """What was found and how. A line without a subject is empty."""
    first = f", the first after {min(seen.first_seconds for seen in bugs):.1f} s" if bugs else ""
    new = [seen for seen in bugs if seen.is_new]
    yield verdicts_line(name for verdicts in summary.verdicts.values() for name in verdicts)
    yield (
        f"{counted(summary.cases, 'case')} in {summary.seconds:.0f} s on torch {summary.torch}: "
        f"{counted(len(bugs), 'finding')} about PyTorch{first}"
    )
    if bugs:
        known = len(bugs) - len(new)
        yield f"{len(new)} new; {known} known: in the database before this campaign, or in --known FILE"
    if expired := [seen.finding for seen in bugs if seen.expired]:
        yield f"new again, because the date of their decision has passed: {', '.join(expired)}"
    if of := summary.minimized:
        yield (
            f"{counted(of.findings, 'finding')} minimized: steps median {of.median_steps:g}, max {of.max_steps}; "
            f"{of.confirmed} of {of.findings} confirmed cold; {of.cpu_seconds_each:.1f} CPU seconds a finding"
        )
    if summary.cases > 0:
        sites = summary.sites
        yield (
            f"guard sites reached: {sites.fallback} took a fallback answer ({sites.fallback_cxx} in C++), "
            f"{sites.dde} raised an error ({sites.dde_cxx} in C++)"
        )
    yield _called(summary.calls)
    if summary.accepted:
        counts = (f"{name} {one.programs} (case {one.case})" for name, one in summary.accepted.items())
        yield f"accepted differences from eager, in programs called (first case): {', '.join(counts)}"
    if summary.cases > 0:
        strategies = (f"{name} {one.cases} ({one.new_sites})" for name, one in summary.strategies.items())
        yield f"cases by strategy (new sites): {', '.join(strategies)}"
        seconds = (f"{name} {seconds:.1f}" for name, seconds in summary.cpu_seconds.items())
        yield f"CPU seconds: {', '.join(seconds)}"
    if summary.interrupted:
        yield "interrupted: what was found is saved; run --resume continues"
    if summary.unminimized:
        yield f"not minimized yet: {counted(summary.unminimized, 'new finding')}"
    if summary.lost:
        yield (
            f"{counted(summary.lost, 'case')} ended the worker: a crash or timeout if in a capture or call, "
            "else not judged"
        )


def _called(of: Mapping[Stage, CallCounts]) -> str:
    """How many captured programs were called, and at how many of the sizes."""
    stages = ", ".join(f"{stage} {one.programs} ({one.at_all_sizes})" for stage, one in of.items())
    programs = sum(one.programs for one in of.values())
    sizes = ", ".join(f"{size} {sum(one.sizes.get(size, 0) for one in of.values())}" for size in SIZE_KINDS)
    if not programs:
        return ""
    return f"programs called beside eager (at all {len(SIZE_KINDS)} kinds of sizes): {stages}; by size: {sizes}"


def _importance(seen: CampaignFinding) -> tuple[bool, bool, int, str, str]:
    severity = severity_rank(seen.signature.kind)
    return not seen.counts, not seen.is_new, severity, seen.cause, str(seen.signature)


def _cells(seen: CampaignFinding) -> tuple[Inline, ...]:
    steps = "" if seen.steps is None else str(seen.steps)
    name = Span(seen.finding, style="bold" if seen.is_new else "")
    site, anchor = str(seen.signature.site), seen.signature.anchor
    return name, seen.cause, seen.status, site, anchor, str(seen.cases), steps, seen.confirmed


def _runs(summary: Summary) -> Iterator[TableRow]:
    """How the runs of each stage ended: verdicts, and other outcomes than ok by semantics."""
    for stage, by_semantics in summary.outcomes.items():
        verdicts = summary.verdicts.get(stage, {})
        ends = [
            f"{semantics}: {', '.join(f'{number} {outcome}' for outcome, number in sorted(outcomes.items()))}"
            for semantics, outcomes in by_semantics.items()
        ]
        judged = [f"{verdicts[name]} {name}" for name in VERDICTS if name in verdicts]
        yield TableRow((stage, ", ".join(judged)), Span("; ".join(ends), style="dim"))


def _next(summary: Summary, bugs: list[CampaignFinding], call: Invocation) -> list[str]:
    lines = [call.command("run", "--resume")] if summary.interrupted else []
    if bugs:
        name = min(bugs, key=_importance).finding
        lines += [
            call.command("findings", "show", name),
            call.repro(name),
            call.command("findings", "list"),
        ]
    unminimized = next((seen.finding for seen in bugs if seen.is_new and seen.steps is None), None)
    return [*lines, *([call.command("minimize", unminimized)] if summary.unminimized and unminimized else [])]


UNEXPECTED = Rule("replay", "a replayed case does not do what is expected of it")
"""The rule of a replayed case that is expected to pass."""


def run_report(summary: Summary, findings: Iterable[Finding]) -> Report:
    """A campaign. New findings about PyTorch failed, those that were there are known; others are skipped."""
    by_id = {finding.id: finding for finding in findings}
    seen = [one for one in summary.findings if one.finding in by_id]
    new = {one.finding for one in seen if one.is_new and one.counts}

    def outcome(of: CampaignFinding) -> Outcome:
        return "skipped" if not of.counts else "failed" if of.is_new else "known"

    return Report(
        title=f"ddefuzz campaign: {counted(summary.cases, 'case')}, {counted(len(new), 'new finding')}",
        torch=summary.torch,
        results=tuple(result_of(by_id[one.finding], outcome(one)) for one in seen),
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


def replay_report(results: Iterable[ReplayResult], torch: str, *, gone: bool = False) -> Report:
    """A replay: a result for each case. What does not do what is expected failed; with `gone`, also a case that passes
    and was expected to fail.
    """
    replayed = tuple(results)
    documents = tuple(
        {
            "schema": "ddefuzz.replay/1",
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
        results=tuple(_replayed(result, gone=gone) for result in replayed),
        facts=(numbers(counts),),
        document={"schema": "ddefuzz.replay/1", "torch": torch, "cases": documents, "counts": counts},
        records=documents,
    )


def _replayed(result: ReplayResult, *, gone: bool) -> Result:
    expect = result.case.expect
    path = Path(result.case.id.partition("@")[0].partition(".py:")[0] + ".py" * (".py:" in result.case.id))
    relative = leads_to_file(path) and not path.is_absolute()
    outcome = "failed" if gone and result.status == "gone" else _OUTCOMES[result.status]
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


def replay_view(results: tuple[ReplayResult, ...], call: Invocation) -> Iterator[Block]:
    """The cases that do not do what is expected, the counts, and what to type next."""
    listed = [result for result in results if result.status != "as expected"]
    if listed:
        yield table(("status", "case"), map(_row, listed))
    yield Items(tuple(totals(results)))
    gone = {result.case.finding: result.case for result in listed if result.status == "gone" and result.case.finding}
    if gone:
        lines = tuple(_command(call, "set", case, "fixed") for _, case in sorted(gone.items())[:5])
        yield Commands(lines, "Next, if the pinned torch fixed it:")
    mismatch = next((result.case for result in listed if result.status in MISMATCHES), None)
    if mismatch is None:
        return
    if mismatch.database:
        yield Commands((_command(call, "show", mismatch),))
    else:
        target = mismatch.id.partition("@")[0]
        path, _, case = target.partition(".py:")
        words = (f"{path}.py", "--case", case) if case else (target,)
        yield Commands((call.command("check", *words, with_db=False),))


def _row(result: ReplayResult) -> TableRow:
    evidence = f": {result.evidence}" if result.evidence else ""
    detail = Span(f"expected {result.case.expect}; seen {result.seen}{evidence}", style="dim")
    return TableRow((result.status, result.case.id), detail)


def totals(results: tuple[ReplayResult, ...]) -> list[str]:
    """The number of cases and findings with each status."""
    findings = statuses_of_findings(results)
    return [total("case", statuses(results)), *([total("finding", findings)] if findings else [])]


def _command(call: Invocation, verb: str, case: KeptCase, *words: str) -> str:
    """A command on the finding of a case, with the database of the case."""
    db = ("--db", case.database) if case.database else ()
    return call.command("findings", verb, case.finding, *words, *db, with_db=False)
