"""Which sample of an op comes next, and in which form: every op of torch's own once, then what has brought most."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ddefuzz.campaign.promise import Payoff, pick
from ddefuzz.generate.origin import Origin, Sample
from ddefuzz.generate.variants import UNBACKED_FORMS
from ddefuzz.ops.catalogue import OPS
from ddefuzz.ops.opinfo import TAKES_OUT
from ddefuzz.ops.spec import Indices, Leaf, Tensor

OPENING_FORM = "all"
"""The form in which every op comes first: every dim unbacked."""

USUAL = 1 / 8
"""What is expected of an op: rather much, so that each is tried in some form before one that has brought nothing."""

TEMPLATES: Final[dict[str, tuple[str, ...]]] = {
    str(spec): spec.callables
    for spec in OPS
    if any(isinstance(slot, Tensor | Indices | Leaf) for _, slot in spec.slots)
}
"""The ops of the catalogue that take a tensor, by their templates, with what they call."""


def takes_out(op: str) -> bool:
    """Whether an op has the form `out`: one of the catalogue, or of torch's by its name and variant (`norm.nuc`)."""
    name = op.split(".")
    called = TEMPLATES.get(op) or tuple(f"torch.{'.'.join(name[:length])}" for length in range(1, len(name) + 1))
    return not TAKES_OUT.isdisjoint(called)


@dataclass(slots=True)
class Sampler:
    """The state of a campaign's samples: of the ops `first`, that torch has samples of, and of the `others`.

    A form is chosen by what it has gained. Of the ops, those come next that have gained most for their tries and have
    been tried least in the form.
    """

    first: tuple[str, ...]
    others: tuple[str, ...]
    seed: int
    forms: dict[str, Payoff] = field(init=False)
    of_ops: dict[str, Payoff] = field(init=False)
    tried: Counter[tuple[str, str]] = field(default_factory=Counter)
    without_out: frozenset[str] = field(init=False)
    _unopened: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self._unopened = Random(f"samples:{self.seed}").sample(self.first, len(self.first))
        self.without_out = frozenset(op for op in (*self.first, *self.others) if not takes_out(op))
        self.learn_anew()

    def learn_anew(self) -> None:
        """Know nothing of forms and ops."""
        self.forms = {form: Payoff() for form in UNBACKED_FORMS}
        self.of_ops = {op: Payoff() for op in (*self.first, *self.others)}

    @property
    def opening(self) -> bool:
        """Whether some op has not come yet."""
        return bool(self._unopened)

    def next(self, random: Random) -> Sample:
        """The next sample; only where there are ops."""
        op, form = (self._unopened.pop(), OPENING_FORM) if self._unopened else self._choose(random)
        number = self.tried[op, form]
        self.tried[op, form] += 1
        return Sample(op, form, number, random.getrandbits(16))

    def _choose(self, random: Random) -> tuple[str, str]:
        form = pick(self.forms, random)
        ops = {
            op: payoff for op, payoff in self.of_ops.items() if form != "out" or op not in self.without_out
        } or self.of_ops
        weights = [payoff.promise(USUAL, doubt=2) / (1 + self.tried[op, form]) for op, payoff in ops.items()]
        return random.choices(tuple(ops), weights)[0], form

    def learn(self, asked: Sample, made: Origin, gained: int, *, opening: bool) -> None:
        """Take in what a case has brought, by the form that it really has.

        The opening says nothing of forms: whatever comes first brings most.
        """
        if isinstance(made, Sample) and not opening:
            self.forms[made.form].add(1, gained)
        self.of_ops[asked.op].add(1, gained if isinstance(made, Sample) else 0)

    def forget(self) -> None:
        """Let a round pass."""
        for payoff in self.forms.values():
            payoff.forget()
