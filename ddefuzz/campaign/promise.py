"""The yield of a strategy: what it brought for its cost. A strategy with a higher yield is chosen more often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

FORGET: Final = 0.98
"""The weight of a round's gains and costs in the next round."""

DOUBT: Final = 20.0
"""The cost at which a strategy's own record counts as much as the average of all strategies. A strategy without a
record is rated by the average alone.
"""


@dataclass(slots=True)
class Payoff:
    """What one strategy, form or op has gained lately, such as new sites, and at what cost."""

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


def pick(strategies: Mapping[str, Payoff], random: Random) -> str:
    """One of them, by the squares of their promises."""
    payoffs = strategies.values()
    usual = (sum(one.gained for one in payoffs) + 1) / (sum(one.cost for one in payoffs) + 1)
    return random.choices(tuple(strategies), [one.promise(usual) ** 2 for one in payoffs])[0]
