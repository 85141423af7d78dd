"""A campaign's summary as text: what it found, how its runs ended, what to type next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddefuzz.campaign.summary import Called, Minimized, Seen, Summary
from ddefuzz.cli.invocation import Invocation
from ddefuzz.coverage.ledger import SiteCount
from ddefuzz.execute.protocol import Stage
from ddefuzz.program.sizes import CALL_SIZES
from ddefuzz.show.blocks import Block, Commands, Inline, Items, Row, Span, counted, table
from ddefuzz.show.facts import VERDICTS, verdicts_line

NUMBERS = ("cases", "steps", "conf")
"""The columns of numbers: cases that showed the finding, size of its smallest program, confirmations."""


LONGER = "--budget 5m"
"""The budget to try if no case ended in a shorter one."""


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
    longer = f"{replay.replace(f'--budget {summary.budget}', LONGER, 1)}  # no case ended in {summary.budget}"
    yield Commands((*_next(summary, bugs, call), replay if ran else longer))


def _lines(summary: Summary, bugs: list[Seen]) -> Iterator[str]:
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
    yield _expired(bugs)
    if summary.minimized:
        yield _minimized(summary.minimized)
    if summary.cases > 0:
        yield _sites(summary.sites)
    yield _called(summary.calls)
    if summary.cases > 0:
        strategies = (f"{name} {of.cases} ({of.new_sites})" for name, of in summary.strategies.items())
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


def _called(of: Mapping[Stage, Called]) -> str:
    """How many captured programs were called, and at how many of the sizes."""
    stages = ", ".join(f"{stage} {one.programs} ({one.at_all_sizes})" for stage, one in of.items())
    programs = sum(one.programs for one in of.values())
    sizes = ", ".join(f"{size} {sum(one.sizes[size] for one in of.values())}" for size in CALL_SIZES)
    if not programs:
        return ""
    return f"programs called beside eager (at all {len(CALL_SIZES)} sizes): {stages}; by size: {sizes}"


def _minimized(of: Minimized) -> str:
    return (
        f"{counted(of.findings, 'finding')} minimized: steps median {of.median_steps:g}, max {of.max_steps}; "
        f"{of.confirmed} of {of.findings} confirmed cold; {of.cpu_seconds_each:.1f} CPU seconds a finding"
    )


def _expired(bugs: list[Seen]) -> str:
    names = [seen.finding for seen in bugs if seen.expired]
    return f"new again, because the date of their decision has passed: {', '.join(names)}" if names else ""


def _sites(of: SiteCount) -> str:
    return (
        f"guard sites reached: {of.fallback} took a fallback answer ({of.fallback_cxx} in C++), "
        f"{of.dde} raised an error ({of.dde_cxx} in C++)"
    )


def _importance(seen: Seen) -> tuple[bool, bool, str, str]:
    return not seen.counts, not seen.is_new, seen.cause, str(seen.signature)


def _cells(seen: Seen) -> tuple[Inline, ...]:
    steps = "" if seen.steps is None else str(seen.steps)
    name = Span(seen.finding, style="bold" if seen.is_new else "")
    site, anchor = str(seen.signature.site), seen.signature.anchor
    return name, seen.cause, seen.status, site, anchor, str(seen.cases), steps, seen.confirmed


def _runs(summary: Summary) -> Iterator[Row]:
    """How the runs of each stage ended: verdicts, and other outcomes than ok by semantics."""
    for stage, by_semantics in summary.outcomes.items():
        verdicts = summary.verdicts.get(stage, {})
        ends = [
            f"{semantics}: {', '.join(f'{number} {outcome}' for outcome, number in sorted(outcomes.items()))}"
            for semantics, outcomes in by_semantics.items()
        ]
        judged = [f"{verdicts[name]} {name}" for name in VERDICTS if name in verdicts]
        yield Row((stage, ", ".join(judged)), Span("; ".join(ends), style="dim"))


def _next(summary: Summary, bugs: list[Seen], call: Invocation) -> list[str]:
    lines = [call.command("run", "--resume")] if summary.interrupted else []
    if bugs:
        name = min(bugs, key=_importance).finding
        lines += [
            call.command("findings", "show", name),
            f"{call.command('findings', 'show', name, '--repro')} > repro.py && {call.python} repro.py",
            call.command("findings", "list"),
        ]
    unminimized = next((seen.finding for seen in bugs if seen.is_new and seen.steps is None), None)
    return [*lines, *([call.command("minimize", unminimized)] if summary.unminimized and unminimized else [])]
