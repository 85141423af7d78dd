"""A fault planted at any of 50 guard sites is blamed on exactly that site, in every stage."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import CallableSubject, Run, Semantics, Stage
from ddefuzz.execute.subject import case_ids
from ddefuzz.instrument.events import Place
from tests.parameters import one_in

CALLS = str(Path(__file__).with_name("unbacked_calls.py"))
SITES = 50


@lru_cache(maxsize=3)
def sites(stage: Stage) -> tuple[tuple[Place, str], ...]:
    """The places that took a fallback in one pass over the calls, each with the first call that reached it."""
    found: dict[Place, str] = {}
    for case in case_ids(CALLS):
        seen = observe(Run(CallableSubject(CALLS, case=case), stage))
        assert seen.outcome == "ok", (case, seen.exceptions)
        for guard in seen.guards:
            found.setdefault(guard.place, case)
    return tuple(found.items())


@pytest.mark.slow
@pytest.mark.parametrize("stage", one_in(3, ("export-strict", "export", "compile")))
def test_a_planted_fault_is_blamed_on_its_site(stage: Stage) -> None:
    """Compile evaluates nearly all guards of the others: of these, a part is taken."""
    assert len(sites(stage)) >= SITES
    blamed, chosen = [], sites(stage) if stage == "compile" else sites(stage)[::3]
    for place, case in chosen:
        seen = observe(Run(CallableSubject(CALLS, case=case), stage, Semantics("explicit", (place,))))
        blamed.append((case, seen.outcome, seen.raised and seen.raised.place, seen.raised and seen.raised.withheld))
    assert blamed == [(case, "fail", place, True) for place, case in chosen]
