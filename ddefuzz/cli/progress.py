"""A campaign's progress on stderr: a live line on a terminal, now and then a plain one elsewhere."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from types import FrameType, TracebackType

from rich.markup import escape
from rich.status import Status

from ddefuzz.campaign.campaign import Event
from ddefuzz.campaign.plan import Plan
from ddefuzz.campaign.summary import BUG_CAUSES, Tally
from ddefuzz.cli.layout import counted
from ddefuzz.cli.output import progress_console

LINE_SECONDS = 10.0
"""How often a plain line is written where there is no terminal."""


class Progress:
    """Called with each event of a campaign; use it in a `with` block."""

    def __init__(self, plan: Plan, replay: str) -> None:
        self._plan = plan
        self._console = progress_console()
        self._began = self._last = time.monotonic()
        self._status: Status | None = None
        self._console.print(f"[bold]$[/] {escape(replay)}", soft_wrap=True)
        self._starting = f"starting {counted(plan.jobs, 'worker')} (importing torch takes some seconds)"

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._status = self._console.status(self._starting)
            self._status.start()
        else:
            self._console.print(self._starting)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, event: Event, tally: Tally) -> None:
        """Show an event, and how far the campaign is."""
        match event:
            case "found", name if (seen := tally.findings[name]).is_new and seen.cause in BUG_CAUSES:
                self._say(f"new  {seen.cause:<9}  {escape(str(seen.signature.site))}  [dim]{name}[/]")
            case "lost", line:
                self._say(escape(line))
        line = self._line(tally)
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            self._console.print(line, soft_wrap=True)

    def _say(self, line: str) -> None:
        seconds = time.monotonic() - self._began
        self._console.print(f"{seconds:6.1f}s  {line}", soft_wrap=True)

    def _line(self, tally: Tally) -> str:
        seconds = time.monotonic() - self._began
        budget, cases = self._plan.budget, len(tally.digests)
        if budget.cases is not None:
            done = f"{cases}/{budget.cases} cases"
        else:
            spent, of = seconds, budget.seconds
            if budget.cpu_seconds is not None:
                spent, of = tally.total_cpu_seconds(), budget.cpu_seconds
            unit = "s" if budget.cpu_seconds is None else "CPU s"
            done = f"{min(spent, of or spent):.0f}/{of:g} {unit}  {counted(cases, 'case')}"
        bugs = [seen for seen in tally.findings.values() if seen.cause in BUG_CAUSES]
        new = sum(seen.is_new for seen in bugs)
        waiting = sum(seen.is_new and not seen.confirmed for seen in bugs) if self._plan.minimize else 0
        rest = f", {waiting} to minimize and confirm" if waiting else ""
        sites = counted(len(tally.ledger.fallback_sites), "guard site")
        return f"{done} ({cases / max(seconds, 0.1):.1f}/s)  {counted(len(bugs), 'finding')}, {new} new{rest}, {sites}"


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C asks to stop, so that what is at hand is saved whole; a second one stops at once."""
    asked = Flag()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        sys.stderr.write("\nstopping; what was found is saved (Ctrl-C again stops at once)\n")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
