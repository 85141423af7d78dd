"""The rows of an experiment on a guard."""

from __future__ import annotations

from ddefuzz.answers.model import Tally

TITLES = ("answer", "captured", "agrees", "refuses", "differs", "accepts")


def tally_cells(tally: Tally) -> tuple[str, ...]:
    """The cells of one row, under `TITLES`."""
    sizes = (tally.agrees, tally.refuses, tally.differs, tally.accepts)
    captured = f"{tally.captures} of {tally.programs}" if tally.programs else "no"
    answer = f"{tally.answer}{f' for {tally.clause}' if tally.clause else ''}"
    return answer, captured, *(" ".join(names) for names in sizes)
