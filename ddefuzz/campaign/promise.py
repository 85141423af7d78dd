"""What a way of making cases has brought for its cost: the more, the likelier it is taken again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

FORGET: Final = 0.995
"""What a round's gains and costs still count in the next one."""

OPTIMISM: Final = 2.0
"""The cost that a way is credited with before it is tried, and an eighth of it as its gain."""


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

    @property
    def promise(self) -> float:
        """Something new for its cost, of a way that has hardly been tried rather much."""
        return (self.gained + OPTIMISM / 8) / (self.cost + OPTIMISM)


def pick(ways: Mapping[str, Way], random: Random) -> str:
    """One of them, by the squares of their promises."""
    return random.choices(tuple(ways), [way.promise**2 for way in ways.values()])[0]
