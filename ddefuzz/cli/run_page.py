"""A campaign's summary as text: what it found, how its runs ended, what to type next."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from ddefuzz.campaign.summary import Called, Minimized, Seen, Summary
from ddefuzz.cli.invocation import Invocation
from ddefuzz.cli.layout import Detailed, counted, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.coverage.ledger import SiteCount
from ddefuzz.execute.protocol import Stage
from ddefuzz.program.sizes import CALL_SIZES
from ddefuzz.show.meanings import VERDICTS, verdicts_line

NUMBERS = ("cases", "steps", "conf")
"""The columns of numbers: cases that showed the finding, size of its smallest program, confirmations."""


LONGER = "--budget 5m"
"""The budget to try if no case ended in a shorter one."""


def summary_page(summary: Summary, replay: str, page: Page) -> str:
    """The whole page."""
    bugs = [seen for seen in summary.findings if seen.counts]
    parts: list[RenderableType] = []
    if summary.findings:
        parts.append(_findings(sorted(summary.findings, key=_importance), page))
    if summary.outcomes:
        parts += ["", _runs(summary, page)]
    new = [seen for seen in bugs if seen.is_new]
    is_run = summary.cases > 0
    longer = f"{replay.replace(f'--budget {summary.budget}', LONGER, 1)}  # no case ended in {summary.budget}"
    first = f", the first after {min(seen.first_seconds for seen in bugs):.1f} s" if bugs else ""
    lines = [
        verdicts_line(name for verdicts in summary.verdicts.values() for name in verdicts),
        f"{counted(summary.cases, 'case')} in {summary.seconds:.0f} s on torch {summary.torch}: "
        f"{counted(len(bugs), 'finding')} about PyTorch{first}",
        f"{len(new)} new; {len(bugs) - len(new)} known: in the database before this campaign, or in --known FILE"
        if bugs
        else "",
        _expired(bugs),
        _minimized(summary.minimized) if summary.minimized else "",
        _sites(summary.sites) if is_run else "",
        _called(summary.calls),
        "cases by strategy (new sites): "
        + ", ".join(f"{name} {strategy.cases} ({strategy.new_sites})" for name, strategy in summary.strategies.items())
        if is_run
        else "",
        "CPU seconds: " + ", ".join(f"{name} {seconds:.1f}" for name, seconds in summary.cpu_seconds.items())
        if is_run
        else "",
    ]
    if summary.interrupted:
        lines.append("interrupted: what was found is saved; run --resume continues")
    if summary.unminimized:
        lines.append(f"not minimized yet: {counted(summary.unminimized, 'new finding')}")
    if summary.lost:
        lines.append(
            f"{counted(summary.lost, 'case')} ended the worker: a crash or timeout if in a capture or call, "
            "else not judged"
        )
    parts += ["", *(Text(folded(line, page.width)) for line in lines if line)]
    # Commands are never folded: they are there to be copied.
    commands = [*_next(summary, bugs, page.invocation), replay if is_run or summary.interrupted else longer]
    return rendered(Group(*parts), page) + "\nNext:\n" + "".join(f"  {line}\n" for line in commands)


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


def _findings(findings: list[Seen], page: Page) -> RenderableType:
    titles = ("finding", "cause", "status", "site", "anchor", *NUMBERS)
    return table(titles, [_row(seen) for seen in findings], page.width, right=NUMBERS, folding=("site", "anchor"))


def _row(seen: Seen) -> Detailed:
    cells = (seen.cause, seen.status, str(seen.signature.site), seen.signature.anchor)
    numbers = (str(seen.cases), "" if seen.steps is None else str(seen.steps), seen.confirmed)
    return Detailed([Text(seen.finding, style="bold" if seen.is_new else ""), *map(plain, (*cells, *numbers))])


def _runs(summary: Summary, page: Page) -> RenderableType:
    """How the runs of each stage ended: verdicts, and other outcomes than ok by semantics."""
    rows = []
    for stage, by_semantics in summary.outcomes.items():
        verdicts = summary.verdicts.get(stage, {})
        ends = [
            f"{semantics}: {', '.join(f'{number} {outcome}' for outcome, number in sorted(outcomes.items()))}"
            for semantics, outcomes in by_semantics.items()
        ]
        judged = [f"{verdicts[name]} {name}" for name in VERDICTS if name in verdicts]
        rows.append(Detailed([Text(stage), Text(", ".join(judged))], Text("; ".join(ends), style="dim")))
    return table(("stage", "verdicts"), rows, page.width)


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
