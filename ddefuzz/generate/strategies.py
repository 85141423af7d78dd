"""Hypothesis strategies of programs: built forward on concrete tensors, each step run at once on two data sizes."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from hypothesis import assume
from hypothesis import strategies as st

from ddefuzz.generate.arguments import Arguments
from ddefuzz.generate.choices import WORDS, Choices
from ddefuzz.generate.extents import NothingFitsError
from ddefuzz.generate.lockstep import REFUSALS, Journal, Lockstep
from ddefuzz.generate.profiles import Profile, cumulative_weights
from ddefuzz.generate.tensors import draw_unbacked_input
from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.spec import OpSpec, Tensor
from ddefuzz.program.inputs import DataSize
from ddefuzz.program.model import Program

FOCUS: Final = st.integers(0, 2**16 - 1)
"""The first thing drawn: which op of the catalogue the program is to have (modulo their number)."""

OTHER_SIZES: Final[tuple[DataSize, ...]] = (*("2",) * 7, "1")
ATTEMPTS_PER_STEP: Final = 4
UNBACKED: Final = Tensor(1, 3)


@st.composite
def programs(draw: st.DrawFn, profile: Profile, journal: Journal | None = None) -> Program:
    """Programs of a profile; `journal` is told each step before it runs."""

    def choices() -> Choices:
        return Choices(draw(WORDS))

    focus = OPS[draw(FOCUS) % len(OPS)]
    first = choices()
    asked = first.between(profile.min_steps, profile.max_steps)
    lockstep = Lockstep(first.pick(OTHER_SIZES), journal)
    due = 0 if first.one_in(2) else first.between(0, asked - 1)
    with _strict_eager():
        if focus in GROUPS["sources"]:
            _attempt(lockstep, choices(), focus)
        elif first.below(16) < profile.unbacked_input:
            draw_unbacked_input(lockstep, first, UNBACKED)
        for _ in range(ATTEMPTS_PER_STEP):
            if lockstep.tensors or lockstep.ints:
                break
            start = choices()
            _attempt(lockstep, start, start.pick(GROUPS["sources"]))
        is_focus_due = focus not in GROUPS["sources"]
        for _ in range(ATTEMPTS_PER_STEP * asked):
            if len(lockstep.steps) >= asked:
                break
            step = choices()
            if is_focus_due and len(lockstep.steps) >= due:
                is_focus_due = not _attempt(lockstep, step, focus)
            else:
                _attempt(lockstep, step, _pick(profile, step))
    assume(lockstep.steps)
    return lockstep.program()


def _pick(profile: Profile, choices: Choices) -> OpSpec:
    ops, weights = cumulative_weights(profile.name)
    return ops[bisect_right(weights, choices.below(weights[-1]))]


def _attempt(lockstep: Lockstep, choices: Choices, op: OpSpec) -> bool:
    """Add a call of `op`; False, with nothing added, where its arguments cannot be made or torch refuses it."""
    mark = lockstep.mark()
    try:
        expr = Arguments(lockstep, choices).call(op)
    except (NothingFitsError, *REFUSALS):
        lockstep.rollback(mark)
        return False
    if lockstep.add_step(expr) is None:
        lockstep.rollback(mark)
        return False
    return True


@contextmanager
def _strict_eager() -> Iterator[None]:
    """Eager torch on one thread, where warnings are errors and torch gives each of them every time.

    So whether a step is dropped depends on nothing that happened before. One thread is also much faster: handing a
    small convolution to a pool costs milliseconds on a busy machine.
    """
    warns_always, threads = torch.is_warn_always_enabled(), torch.get_num_threads()
    torch.set_warn_always(True)
    if threads != 1:
        torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        torch.set_warn_always(warns_always)
        if threads != 1:
            torch.set_num_threads(threads)
