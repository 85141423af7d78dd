"""Parameters of tests that run the same code, of which most need `--long`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def one_in(every: int, values: Iterable[object]) -> list[ParameterSet]:
    """All values in their order. The first of each `every` runs always, the others with `--long`."""
    return [pytest.param(value, marks=pytest.mark.long if at % every else ()) for at, value in enumerate(values)]
