"""What a way of making cases has brought for its cost: the more, the likelier it is taken again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

FORGET: Final = 0.98
"""What a round's gains and costs still count in the next one."""

DOUBT: Final = 20.0
"""The cost at which a way's own record counts as much as that of all ways together, which is all that is said of one
that has not been tried."""


@dataclass(slots=True)
class Way:
    """What one way has brought lately, and at what cost: new sites, and whatever it is measured against others by."""

    cost: float = 0.0
    gained: float = 0.0

    def add(self, cost: float, gained: float) -> None:
        """Count a case."""
        self.cost += cost
        self.gained += gained

    def forget(self) -> None:
        """Let a round pass."""
        self.cost *= FORGET
        self.gained *= FORGET

    def promise(self, usual: float, doubt: float = DOUBT) -> float:
        """Something new for its cost; what is `usual` counts like a record of `doubt`'s cost."""
        return (self.gained + doubt * usual) / (self.cost + doubt)


def pick(ways: Mapping[str, Way], random: Random) -> str:
    """One of them, by the squares of their promises."""
    usual = (sum(way.gained for way in ways.values()) + 1) / (sum(way.cost for way in ways.values()) + 1)
    return random.choices(tuple(ways), [way.promise(usual) ** 2 for way in ways.values()])[0]
