"""The input of the oracles, and the experiments that find the site of a wrong capture.

An experiment captures the program again, with some guards forced to their true value or with fewer steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ddefuzz.classify.chain import Located, op_name
from ddefuzz.classify.shape import expression_shape
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import python_site
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Runner, Semantics
from ddefuzz.instrument.events import Answer, Constraint, Guard
from ddefuzz.ops import catalogue
from ddefuzz.oracles.truth import value_at
from ddefuzz.program.model import Name, Program, Sequence, functions_in
from ddefuzz.program.text import digest, print_program


class Seen(NamedTuple):
    """A program's text (empty for user code) and its observation in one stage."""

    text: str
    observation: Observation

    @property
    def program(self) -> Program | None:
        """The program, None for user code."""
        return catalogue.parse(self.text, "<program>").program if self.text else None


Shows = Callable[[Call], bool]
"""A predicate: whether a call shows the failure in question."""


def answered_falsely(observation: Observation, call: Call) -> tuple[tuple[Guard, bool], ...]:
    """The guards whose fallback was not the true value in a call, each with the true value."""
    symbols = dict(call.symbols)
    found = ((guard, value_at(guard.expression, symbols)) for guard in observation.guards)
    return tuple((guard, bool(truth)) for guard, truth in found if truth is not None and bool(truth) != guard.fallback)


def guard_to_blame(seen: Seen, call: Call, shows: Shows, runner: Runner) -> Located | None:
    """The guard whose true value fixes the call; None if no guard's does.

    The program is captured again with each single guard forced to its true value. If none is enough, all are
    forced, and those that are not needed are left out again.
    """
    suspects = answered_falsely(seen.observation, call)
    if not suspects or not seen.text:
        return None

    def fixes(chosen: tuple[tuple[Guard, bool], ...]) -> bool:
        answers = tuple(Answer(guard.place, truth, guard.expression) for guard, truth in chosen)
        again = _again(seen, seen.text, call, runner, answers)
        return again is not None and not shows(again)

    alone = next((one for one in suspects if fixes((one,))), None)
    if alone is not None:
        return at_guard(alone[0])
    if len(suspects) == 1 or not fixes(suspects):
        return None
    needed = suspects
    for one in suspects:
        fewer = tuple(other for other in needed if other is not one)
        if fewer and fixes(fewer):
            needed = fewer
    return at_guard(needed[0][0])


def op_to_blame(seen: Seen, call: Call, shows: Shows, anchor: str, runner: Runner) -> Located | None:
    """The op of the first step whose own result shows the failure; None if no step does.

    The program is captured again with each step's targets returned in place of what it returns, in order.
    """
    program = seen.program
    if program is None:
        return None
    for shorter, functions in _prefixes(program):
        again = _again(seen, print_program(shorter), call, runner, ())
        if again is not None and shows(again):
            name = functions[-1] if functions else None
            return None if name is None else Located(Site("op", None, op_name(name)), None, anchor)
    return None


def unknown(seen: Seen) -> Located:
    """The site of a failure that could not be located. It contains the program's digest, so different programs
    do not share it.
    """
    program = seen.program
    return Located(Site("Python", None, None), None, f"program {digest(program)[:12]}" if program else "user code")


def at_guard(guard: Guard) -> Located:
    """The site of a guard that took its fallback."""
    anchor = f"{guard.method} {expression_shape(guard.expression)}"
    if guard.place.language == "C++":
        return Located(Site("C++", None, guard.place.file), None, anchor)
    return Located(Site("Python", guard.place.file, guard.function), None, anchor)


def at_maker(constraint: Constraint) -> Located:
    """The site that made an assertion, a replacement or a range."""
    anchor = f"{constraint.kind} {expression_shape(constraint.text.replace(' = ', ' == '))}"
    if constraint.place.language == "C++":
        return Located(Site("C++", None, constraint.place.file), None, anchor)
    site, frame = python_site(constraint.python, constraint.traced)
    return Located(site, frame, anchor)


def _again(seen: Seen, text: str, call: Call, runner: Runner, answers: tuple[Answer, ...]) -> Call | None:
    """The same call, with the program captured again; None if it is not captured."""
    before = seen.observation.semantics
    # The first answer that fits a guard is used. Those that the run already had (a planted fault) stay for the others.
    semantics: Semantics = msgspec.structs.replace(before, answers=(*answers, *before.answers))
    observation = runner(Run(ProgramSubject(text), seen.observation.stage, semantics, calls=(call.size,)))
    return observation.calls[0] if observation.calls else None


def _prefixes(program: Program) -> Iterator[tuple[Program, tuple[str, ...]]]:
    for number, step in enumerate(program.steps):
        if step.targets:
            returned = tuple(Name(target) for target in step.targets)
            value = returned[0] if len(returned) == 1 else Sequence(returned)
            shorter = replace(program, steps=program.steps[: number + 1], returns=value)
            yield shorter, functions_in(replace(program, steps=(step,), returns=value))
    yield program, functions_in(program)
