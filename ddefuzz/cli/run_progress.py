"""A campaign's progress: how much of the budget is used, what was found, and a line for each new finding."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from ddefuzz.campaign.campaign import Event, Listener
from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.summary import Tally
from ddefuzz.cli.output import plain
from ddefuzz.cli.progress import LiveLine
from ddefuzz.show.blocks import counted


@contextmanager
def campaign_progress(plan: Plan, replay: str) -> Iterator[Listener]:
    """A listener for a campaign's events. `replay` is the command that draws the same cases again."""
    began = time.monotonic()
    with LiveLine(f"starting {counted(plan.jobs, 'worker')} (importing torch takes some seconds)") as live:
        live.say(Text.assemble(("$", "bold"), " ", plain(replay)))

        def listen(event: Event, tally: Tally) -> None:
            seconds = time.monotonic() - began
            match event:
                case "found", name if (seen := tally.findings[name]).is_new and seen.counts:
                    site = plain(f"{seconds:6.1f}s  new  {seen.cause:<12}  {seen.signature.site}  ")
                    live.say(site + plain(name, style="dim"))
                case "lost", line:
                    live.say(f"{seconds:6.1f}s  {line}")
            live.update(_line(plan, tally, seconds))

        yield listen


def _line(plan: Plan, tally: Tally, seconds: float) -> str:
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
