"""The yield of a strategy: its gain, such as new guard sites, per cost. Strategies with a higher yield are chosen more
often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

DECAY: Final = 0.98
"""The factor by which older gains and costs are multiplied after each round."""

PRIOR_COST: Final = 20.0
"""The cost at which a strategy's own record counts as much as the average of all strategies. A strategy without a
record gets the average.
"""


@dataclass(slots=True)
class Yield:
    """The recent gain and cost of one strategy, form or op."""

    cost: float = 0.0
    gained: float = 0.0

    def add(self, cost: float, gained: float) -> None:
        """Add the cost and gain of a case."""
        self.cost += cost
        self.gained += gained

    def decay(self) -> None:
        """Reduce the weight of the record after a round."""
        self.cost *= DECAY
        self.gained *= DECAY

    def rate(self, prior: float, prior_cost: float = PRIOR_COST) -> float:
        """The estimated gain per cost. `prior` is the rate without a record, and has the weight of `prior_cost`."""
        return (self.gained + prior_cost * prior) / (self.cost + prior_cost)


def pick(strategies: Mapping[str, Yield], random: Random) -> str:
    """Choose a strategy at random, with the squares of their rates as weights."""
    records = strategies.values()
    prior = (sum(one.gained for one in records) + 1) / (sum(one.cost for one in records) + 1)
    return random.choices(tuple(strategies), [one.rate(prior) ** 2 for one in records])[0]
