"""Hypothesis strategies for programs. Programs are built forward on concrete tensors; each step runs at once at two
data sizes.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from hypothesis import assume
from hypothesis import strategies as st

from ddefuzz.generate.arguments import Arguments
from ddefuzz.generate.choices import WORDS, Choices
from ddefuzz.generate.eager import strict_eager
from ddefuzz.generate.extents import NothingFitsError
from ddefuzz.generate.lockstep import REFUSALS, Journal, Lockstep
from ddefuzz.generate.profiles import Profile, cumulative_weights
from ddefuzz.generate.tensors import draw_unbacked_input
from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.spec import OpSpec, Tensor
from ddefuzz.program.model import Program, names_in
from ddefuzz.program.sizes import DataSize

FOCUS: Final = st.integers(0, 2**16 - 1)
"""The first thing drawn: which op of the catalogue the program is to have (modulo their number)."""

OTHER_SIZES: Final[tuple[DataSize, ...]] = (*("2",) * 7, "1")
ATTEMPTS_PER_STEP: Final = 4
SPARE_ATTEMPTS: Final = 8
STARTS: Final = tuple(spec for spec in GROUPS["sources"] if not spec.stops)
UNBACKED: Final = Tensor(1, 3)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program, and the number of steps that was requested."""

    program: Program
    requested: int


def programs(profile: Profile) -> st.SearchStrategy[Program]:
    """Programs of a profile."""
    return drawn_programs(profile).map(lambda drawn: drawn.program)


@st.composite
def drawn_programs(draw: st.DrawFn, profile: Profile, journal: Journal | None = None) -> Drawn:
    """Programs of a profile with the requested number of steps. `journal` is called with each step before it runs."""

    def choices() -> Choices:
        return Choices(draw(WORDS))

    focus = OPS[draw(FOCUS) % len(OPS)]
    first = choices()
    requested = first.between(profile.min_steps, profile.max_steps)
    lockstep = Lockstep(first.pick(OTHER_SIZES), journal)
    due = 0 if first.one_in(2) else first.between(0, requested - 1)
    with strict_eager():
        if focus in GROUPS["sources"]:
            attempt(lockstep, choices(), focus)
        elif first.below(16) < profile.unbacked_input:
            draw_unbacked_input(lockstep, first, UNBACKED)
        for _ in range(ATTEMPTS_PER_STEP):
            if lockstep.tensors or lockstep.ints:
                break
            start = choices()
            attempt(lockstep, start, start.pick(STARTS))
        is_focus_due = focus not in GROUPS["sources"]
        for _ in range(SPARE_ATTEMPTS + ATTEMPTS_PER_STEP * requested):
            if len(lockstep.steps) >= requested:
                break
            step = choices()
            if is_focus_due and len(lockstep.steps) >= due:
                is_focus_due = not attempt(lockstep, step, focus)
            else:
                attempt(lockstep, step, pick(profile, step))
    program = lockstep.program()
    assume(program.steps and len(program.inputs) == len(inputs_read(program)))
    return Drawn(program, requested)


def inputs_read(program: Program) -> frozenset[str]:
    """The inputs that some step reads. An unread one cannot simply be left out: values depend on an input's
    position.
    """
    read = frozenset().union(*(names_in(step.value) for step in program.steps))
    return read.intersection(item.name for item in program.inputs)


def pick(profile: Profile, choices: Choices) -> OpSpec:
    """An op of the catalogue, by the profile's weights."""
    ops, weights = cumulative_weights(profile.name)
    return ops[bisect_right(weights, choices.below(weights[-1]))]


def attempt(lockstep: Lockstep, choices: Choices, op: OpSpec) -> bool:
    """Add a call of `op`. False, with nothing added, if its arguments cannot be made or torch raises.

    A call with literals alone is not added either: it has no unbacked size.
    """
    mark = lockstep.mark()
    try:
        expr = Arguments(lockstep, choices).call(op)
    except (NothingFitsError, *REFUSALS):
        lockstep.rollback(mark)
        return False
    if not names_in(expr) or lockstep.add_step(expr) is None:
        lockstep.rollback(mark)
        return False
    return True
