"""Compiles programs of one op with fullgraph=False in a worker, and adds up where their graphs break."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from ddefuzz.artifacts.breaks import find_breaks
from ddefuzz.artifacts.model import Cause
from ddefuzz.execute.journal import Entry
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.worker import note
from ddefuzz.program.text import print_program
from ddefuzz.sweep.breaks import BreakSite, OpBreaks, OpBreaksTask
from ddefuzz.sweep.select import chosen
from ddefuzz.sweep.tasks import Caps, SweepTask
from ddefuzz.sweep.worker import CALLED_FORMS

CAPS = Caps(full=0, some=0, others=0)
"""Samples in their plainest form only: all dims unbacked."""


def run_breaks(task: OpBreaksTask) -> OpBreaks:
    """Compile up to `task.programs` programs."""
    dropped: Counter[str] = Counter()
    candidates = chosen(SweepTask(task.op, task.source, 0, CAPS), dropped)
    taken = islice((one for one in candidates if one.form in CALLED_FORMS), task.programs)
    found: dict[tuple[str, ...], tuple[Cause, list[str]]] = {}
    errors: Counter[str] = Counter()
    programs = broken = graphs = 0
    for one in taken:
        text = print_program(one.program)
        note(Entry(0, "compile", text))
        seen = find_breaks(ProgramSubject(text))
        programs += 1
        broken += bool(seen.breaks)
        graphs += seen.graphs
        errors.update([seen.error] if seen.error else [])
        for each in seen.breaks:
            cause = each.cause
            key = (cause.kind, cause.site, cause.anchor, cause.cause)
            found.setdefault(key, (cause, []))[1].append(text)
    sites = [BreakSite(cause, len(set(texts)), min(texts, key=len)) for cause, texts in found.values()]
    ordered = sorted(sites, key=lambda site: -site.programs)
    return OpBreaks(task.op, task.source, programs, broken, graphs, tuple(ordered), dict(errors))
