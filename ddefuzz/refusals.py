"""Rows of the input that cannot be used: a case that cannot be built, a damaged row of the database.

In a `refusals` block a command goes on with the other rows, and names these in the end. Elsewhere the first one raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ddefuzz.errors import DdefuzzError

MOST_SAID = 20
"""How many rows are named."""

_refused: ContextVar[dict[str, int] | None] = ContextVar("refused", default=None)


@contextmanager
def refusals() -> Iterator[dict[str, int]]:
    """Note rows instead of raising. What is noted is the line about each row, and the exit code of its error."""
    noted: dict[str, int] = {}
    token = _refused.set(noted)
    try:
        yield noted
    finally:
        _refused.reset(token)


def refuse(error: DdefuzzError) -> None:
    """Note a row that is left out. Raises the error outside of a `refusals` block."""
    noted = _refused.get()
    if noted is None:
        raise error
    noted[str(error)] = error.exit_code


def refused() -> tuple[str, ...]:
    """What was noted so far."""
    return tuple(_refused.get() or ())


def lines_of(noted: Mapping[str, int]) -> Iterator[str]:
    """A line for each row, with how many there are."""
    for number, said in enumerate(noted, 1):
        if number > MOST_SAID:
            yield f"left out: {len(noted) - MOST_SAID} more"
            return
        yield f"left out ({number} of {len(noted)}): {said}"
