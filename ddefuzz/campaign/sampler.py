"""Choose which sample of an op is run next, and in which form.

First every op of torch's OpInfo is run once, then ops and forms are chosen by their yield.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ddefuzz.generate.origin import Origin, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS
from ddefuzz.ops.catalogue import OPS
from ddefuzz.ops.opinfo import TAKES_OUT
from ddefuzz.ops.spec import Indices, Leaf, Tensor

DECAY: Final = 0.98
"""The factor by which older gains and costs are multiplied after each round."""

PRIOR_COST: Final = 20.0
"""The cost at which a strategy's own record counts as much as the average of all, which it has without a record."""


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


OPENING_FORM = "all"
"""The form in which every op is run first: every dim unbacked."""

PRIOR_RATE = 1 / 8
"""The rate of an op without a record. It is high, so that each op is tried in some form before others are repeated."""

TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    str(spec): spec.callables
    for spec in OPS
    if any(isinstance(slot, Tensor | Indices | Leaf) for _, slot in spec.slots)
}
"""The ops of the catalogue that take a tensor, by their templates, with the functions that they call."""


def takes_out(op: str) -> bool:
    """Whether an op takes `out=`: an op of the catalogue, or one of torch by its name and variant (`norm.nuc`)."""
    name = op.split(".")
    called = TEMPLATES.get(op) or tuple(f"torch.{'.'.join(name[:length])}" for length in range(1, len(name) + 1))
    return not TAKES_OUT.isdisjoint(called)


@dataclass(slots=True)
class Sampler:
    """Which samples were run, and the yields of forms and ops. `first` are the ops with samples in torch, `others`
    those without.

    A form is chosen by its yield. Then an op is chosen by its yield and by how rarely it was run in that form.
    """

    first: tuple[str, ...]
    others: tuple[str, ...]
    seed: int
    forms: dict[str, Yield] = field(init=False)
    of_ops: dict[str, Yield] = field(init=False)
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    without_out: frozenset[str] = field(init=False)
    _unopened: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._unopened = Random(f"samples:{self.seed}").sample(self.first, len(self.first))
        self.without_out = frozenset(op for op in (*self.first, *self.others) if not takes_out(op))
        self.forms = {form: Yield() for form in UNBACKED_FORMS}
        self.of_ops = {op: Yield() for op in (*self.first, *self.others)}

    @property
    def opening(self) -> bool:
        """Whether some op was not run yet."""
        return bool(self._unopened)

    def next(self, random: Random) -> Sample:
        """The next sample. There must be at least one op."""
        op, form = (self._unopened.pop(), OPENING_FORM) if self._unopened else self._choose(random)
        number = self.tried[op, form]
        self.tried[op, form] += 1
        return Sample(op, form, number, random.getrandbits(16))

    def _choose(self, random: Random) -> tuple[str, str]:
        form = pick(self.forms, random)
        ops = {
            op: record for op, record in self.of_ops.items() if form != "out" or op not in self.without_out
        } or self.of_ops
        weights = [record.rate(PRIOR_RATE, prior_cost=2) / (1 + self.tried[op, form]) for op, record in ops.items()]
        return random.choices(tuple(ops), weights)[0], form

    def learn(self, chosen: Sample, made: Origin, gained: int, *, opening: bool) -> None:
        """Add the gain of a case to the form that it really has, and to its op.

        Results of the opening are not added to forms, because the first runs gain most in any form.
        """
        if isinstance(made, Sample) and not opening:
            self.forms[made.form].add(1, gained)
        self.of_ops[chosen.op].add(1, gained if isinstance(made, Sample) else 0)

    def decay(self) -> None:
        """Reduce the weight of the forms' records after a round."""
        for record in self.forms.values():
            record.decay()
