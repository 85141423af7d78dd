"""Choose the programs that a guided campaign captures and calls: those that evaluate guards which few called programs
evaluated.

Most cases end in the fake stage, which shows the guards that they evaluate. A program that passes there, or was
captured, can be called. So such a program is chosen for a guard, instead of waiting for a new draw that evaluates it.
If all programs that evaluated a guard failed, another stage may still capture one of them: non-strict export knows
upper ends of sizes, for example.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from random import Random
from typing import Final

from ddefuzz.campaign.tasks import CaseResult
from ddefuzz.execute.protocol import EXPLICIT, SCREEN, Stage
from ddefuzz.generate.origin import HOW, Again, Draw, How, Mutate, Origin
from ddefuzz.instrument.events import Place

FRESH: Final = 3
"""One in this many called cases is a new draw."""

RETRIED: Final = 5
"""One in this many called cases may be for a guard that only programs which failed evaluated. Most fail again."""

KEPT: Final = 8
"""The number of programs that are kept for each guard, each with another form of its expression."""

ALONE: Final[tuple[How, ...]] = tuple(how for how in HOW if how != "splice")
"""The mutations that need no second program."""


@dataclass(slots=True)
class Calling:
    """The guards whose fallback was taken, the programs that evaluated them, and how often these were called.

    `programs` passed in the stage where they evaluated the guard, `failed` did not. `runs` counts the called programs
    of a guard in a stage: those that evaluated it, and those that were chosen for it and did not. `total` is over all
    stages. `tried` are the programs that were captured, failed to capture, or were chosen in a stage.
    """

    programs: dict[Place, dict[str, str]] = field(default_factory=dict)
    failed: dict[Place, dict[str, str]] = field(default_factory=dict)
    runs: Counter[tuple[Place, Stage]] = field(default_factory=Counter)
    total: Counter[Place] = field(default_factory=Counter)
    tried: set[tuple[str, Stage]] = field(default_factory=set)
    _aimed: dict[int, tuple[Place, Stage]] = field(default_factory=dict)
    _chosen: int = 0

    def choose(self, index: int, stage: Stage, fresh: Draw, random: Random) -> Origin:
        """The case of an index, to be called in a stage; `fresh` is what a campaign without a guide takes.

        The guard with the fewest runs in the stage is chosen, then in all stages. A program that evaluated it and was
        not run in this stage yet is run as it is. If there is none, one of its programs is mutated. Programs that
        failed are not mutated, and they are used only for a guard that has no others.
        """
        self._chosen += 1
        doubtful = {place for place in self.failed.keys() - self.programs if self._untried(self.failed[place], stage)}
        retries = self._chosen % RETRIED == 0 or not self.programs
        places = [*self.programs, *(sorted(doubtful) if retries else ())]
        if self._chosen % FRESH == 0 or not places:
            return fresh
        place = min(places, key=lambda one: (self.runs[one, stage], self.total[one], random.random()))
        self._aimed[index] = (place, stage)
        self._count({(place, stage)})
        known = self.programs.get(place, self.failed.get(place, {}))
        untried = self._untried(known, stage)
        if not untried:
            return Mutate(random.choice(ALONE), random.choice(list(known.values())), random.getrandbits(48))
        program = random.choice(untried)
        self.tried.add((program, stage))
        return Again(program)

    def _untried(self, known: Mapping[str, str], stage: Stage) -> list[str]:
        return [program for program in known.values() if (program, stage) not in self.tried]

    def learn(self, result: CaseResult) -> None:
        """Add the result of any case. Results have to come in the order of the cases."""
        passed = {one.stage for one in result.outcomes if one.outcome == "ok" and one.semantics == str(EXPLICIT)}
        came: set[tuple[Place, Stage]] = set()
        for stage, place, form in _fallbacks(result):
            if not result.program:
                continue
            known = (self.programs if stage in passed else self.failed).setdefault(place, {})
            if len(known) < KEPT:
                known.setdefault(form, result.program)
            if stage != SCREEN:
                self.tried.add((result.program, stage))
            if stage != SCREEN and stage in passed:
                came.add((place, stage))
        self._count(came - {self._aimed.pop(result.index, None)})

    def _count(self, runs: Set[tuple[Place, Stage]]) -> None:
        self.runs.update(runs)
        self.total.update(place for place, _ in runs)


def _fallbacks(result: CaseResult) -> Iterator[tuple[Stage, Place, str]]:
    """The guards whose fallback a case took: the stage, the place and the form of the expression."""
    for stage in result.reached:
        for one in stage.reached:
            if one.answer != "raised":
                yield stage.stage, one.place, one.shape
