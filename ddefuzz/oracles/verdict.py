"""What the old mechanism would have done with a stage: six verdicts, from one observation and rarely a second."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.protocol import Observation

Verdict: TypeAlias = Literal["ok", "rescued", "fails", "changed", "regressed", "diverged", "not-judged"]
"""
ok          explicit traces, and so did the old mechanism
rescued     explicit traces, the old mechanism could not decide somewhere
fails       explicit fails
changed     both trace, their graphs differ
regressed   only explicit fails
diverged    one of the two computes something else than eager
not-judged  the stage could not say (never to be read as ok)
"""


def needs_second_run(explicit: Observation) -> bool:
    """Whether the size-oblivious run must really be made: some fallback differs from what the old mechanism said.

    Both runs then want their graph's text (`Run.graph`).
    """
    return explicit.outcome in ("ok", "fail") and any(guard.counterfactual == "other" for guard in explicit.guards)


def verdict(explicit: Observation, size_oblivious: Observation | None = None) -> Verdict:
    """The verdict on one stage; `size_oblivious` is the second run where `needs_second_run` asks for one."""
    if explicit.outcome == "not-judged":
        return "not-judged"
    if not needs_second_run(explicit):
        return _alone(explicit)
    if size_oblivious is None:
        raise DdefuzzError(f"stage {explicit.stage}: a guard answered otherwise, so a size-oblivious run must be given")
    if _differs(explicit) or _differs(size_oblivious):
        return "diverged"
    match explicit.outcome, size_oblivious.outcome:
        case _, "not-judged":
            return "not-judged"
        case "ok", "ok":
            return _compared(explicit, size_oblivious)
        case "ok", _:
            return "rescued"
        case _, "ok":
            return "regressed"
        case _:
            return "fails"


def _alone(explicit: Observation) -> Verdict:
    if explicit.outcome != "ok":
        return "fails"
    if _differs(explicit):
        return "diverged"
    return "rescued" if any(guard.counterfactual == "undecided" for guard in explicit.guards) else "ok"


def _compared(explicit: Observation, size_oblivious: Observation) -> Verdict:
    if explicit.graph is None or size_oblivious.graph is None:
        return "not-judged"
    return "ok" if explicit.graph == size_oblivious.graph else "changed"


def _differs(observation: Observation) -> bool:
    return any(call.agreement == "differs" for call in observation.calls)
