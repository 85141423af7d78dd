"""The cases of a campaign that reach given places, in the order in which the campaign did them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

from ddefuzz.campaign.summary import Tally
from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.execute.protocol import CHEAP_TO_CALL, EXPLICIT, Stage
from ddefuzz.instrument.events import Place


class Reacher(NamedTuple):
    """A program in a stage. `called` says that it was captured and called there.

    `reached` are the places whose guards took their fallback, each with the form of the expression. `cpu_seconds` and
    `cases` are the campaign's when it was done.
    """

    program: str
    stage: Stage
    called: bool
    reached: frozenset[tuple[Place, str]]
    cpu_seconds: float
    cases: int


class Maker(NamedTuple):
    """A program in a stage, and the places in torch that make run-time assertions in it, which some call violates."""

    program: str
    stage: Stage
    places: tuple[Place, ...]


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign without faults, and all runs of its cases that reached a place with an undecided guard, in order.

    `cpu_seconds` are those of the campaign. It was `interrupted` if that is not its whole budget.
    """

    schema: Literal["ddefuzz.bench.survey/1"] = "ddefuzz.bench.survey/1"
    torch: str
    seed: int
    budget: str
    cpu_seconds: float
    interrupted: bool
    found: tuple[Reacher, ...]

    def first(self, place: Place) -> Reacher | None:
        """The first run that reached a place."""
        return next((one for one in self.found if any(at == place for at, _ in one.reached)), None)

    def called(self, place: Place, number: int, alike: int) -> Iterator[Reacher]:
        """The first `number` captured and called programs that reached a place, with at most `alike` for each set of
        forms of the expressions there.
        """
        forms: dict[frozenset[str], int] = {}
        for one in self.found:
            form = frozenset(shape for at, shape in one.reached if at == place)
            if one.called and form and forms.get(form, 0) < alike:
                forms[form] = forms.get(form, 0) + 1
                yield one
                number -= 1
                if not number:
                    return


@dataclass(slots=True)
class Reachers:
    """Collects the runs of a campaign's cases that reached a place with an undecided guard."""

    found: list[Reacher] = field(default_factory=list)

    def __call__(self, result: CaseResult, tally: Tally) -> None:
        """Note one case, in all stages of its explicit runs."""
        captured = {one.stage for one in result.outcomes if one.outcome == "ok" and one.semantics == str(EXPLICIT)}
        now = round(tally.total_cpu_seconds(), 3)
        for one in result.reached:
            places = frozenset((each.place, each.shape) for each in one.reached if each.answer != "raised")
            if result.program and places:
                called = one.stage in captured and one.stage in CHEAP_TO_CALL
                self.found.append(Reacher(result.program, one.stage, called, places, now, len(tally.digests)))
