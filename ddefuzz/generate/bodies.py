"""Draws what a function inside of a call computes: a few steps on its parameters, written as one expression."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from ddefuzz.generate.lockstep import REFUSALS, WORD_BITS, Choices, Handle, Lockstep
from ddefuzz.generate.tensors import NothingFitsError, fill, template
from ddefuzz.ops.spec import Body, OpSpec
from ddefuzz.program.equivalents import has_effect
from ddefuzz.program.model import Expr, Index, Lambda, Literal, Name, Step, names_in, substitute, walk
from ddefuzz.program.plain import address_of

ATTEMPTS: Final = 8
MOST_STEPS: Final = 3
MOST_NODES: Final = 80
"""A value that is read twice is written twice, so an expression may be longer than its steps."""

ENOUGH: Final = 0.3
"""How likely it is that no further step is tried after one."""

COPIED: Final = "r.clone(memory_format=torch.contiguous_format)"
ALONE: Final = 0.75
"""How likely it is that a function reads its parameters only."""

Attempt: TypeAlias = Callable[[Lockstep, Choices], bool]
"""Adds one step. False if it could not be made."""


def takes_functions(op: OpSpec) -> bool:
    """Whether a call of the op has a function as an argument."""
    return any(isinstance(node, Lambda) for node in walk(template(op.template)))


def draw_body(
    lockstep: Lockstep, choices: Choices, slot: Body, filled: Mapping[str, Handle], attempt: Attempt
) -> Handle:
    """The expression, with its values for those of the parameters. NothingFitsError if none is found.

    It may read values of the program around it. No step with an effect is in it.
    """
    given = {name: handle.expr for name, handle in filled.items()}
    values = {name: _evaluated(lockstep, fill(text, given)) for name, text in slot.parameters}
    wanted = _wanted(lockstep, slot, filled, given)
    source = random.Random(choices.below(2**32))
    around, inputs, steps = lockstep.tensors, len(lockstep.inputs), len(lockstep.steps)
    with lockstep.function(values, alone=source.random() < ALONE):
        outside = (*around, *lockstep.tensors)
        for _ in range(ATTEMPTS):
            made = len(lockstep.steps) - steps
            if made == MOST_STEPS or (made and source.random() < ENOUGH):
                break
            before = lockstep.mark()
            if attempt(lockstep, Choices(source.getrandbits(WORD_BITS))) and _is_refused(
                lockstep.steps[before.steps :]
            ):
                lockstep.rollback(before)
        fitted = (_fitted(lockstep, one, slot, wanted, outside) for one in reversed(lockstep.tensors))
        written = (
            replace(one, expr=_written_out(lockstep.steps[steps:], one.expr)) for one in fitted if one is not None
        )
        result = next((one for one in written if _reads(one.expr, values)), None)
    if result is None or not names_in(result.expr).issuperset(item.name for item in lockstep.inputs[inputs:]):
        raise NothingFitsError
    return result


def _reads(expr: Expr, parameters: Container[str]) -> bool:
    """Whether an expression reads a parameter, and is short."""
    nodes = [*walk(expr)]
    return len(nodes) <= MOST_NODES and any(isinstance(node, Name) and node.id in parameters for node in nodes)


def _evaluated(lockstep: Lockstep, expr: Expr) -> Handle:
    try:
        return lockstep.evaluate(expr)
    except REFUSALS as error:
        raise NothingFitsError from error


def _is_refused(steps: list[Step]) -> bool:
    return any(has_effect(step.value) or not step.targets for step in steps)


def _wanted(lockstep: Lockstep, slot: Body, filled: Mapping[str, Handle], given: dict[str, Expr]) -> Handle | None:
    """The value whose form the result has to have."""
    if slot.shape is not None:
        return _evaluated(lockstep, fill(slot.shape, given))
    return filled[slot.like] if slot.like is not None else None


def _fitted(
    lockstep: Lockstep, result: Handle, slot: Body, wanted: Handle | None, outside: tuple[Handle, ...]
) -> Handle | None:
    """A value in the form that a slot has to have; None if it has another."""
    texts = ["r", "r.sum()", "(r * 1.0).sum()"] if slot.scalar else ["r", "r.clone()", "r * 2", COPIED]
    if wanted is not None and wanted.left.dtype != result.left.dtype:
        texts = [f"r.to({wanted.left.dtype})"]
    for text in texts:
        try:
            made = lockstep.evaluate(fill(text, {"r": result.expr}))
        except REFUSALS:
            continue
        if _has_form(made, slot, wanted) and not _shares(made, outside):
            return made
    return None


def _has_form(made: Handle, slot: Body, wanted: Handle | None) -> bool:
    if slot.scalar:
        return made.left.dim() == 0 and bool(made.left.is_floating_point())
    if wanted is None:
        return True
    if made.left.dim() != wanted.left.dim() or made.left.dtype != wanted.left.dtype:
        return False
    pairs = ((made.left, wanted.left), (made.right, wanted.right))
    return slot.shape is None or all(a.shape == b.shape and a.stride() == b.stride() for a, b in pairs)


def _shares(made: Handle, outside: tuple[Handle, ...]) -> bool:
    """Whether a result shares memory, at either data size, with a value that is not made inside of the function."""
    left, right = {address_of(one.left) for one in outside}, {address_of(one.right) for one in outside}
    return address_of(made.left) in left - {0} or address_of(made.right) in right - {0}


def _written_out(steps: list[Step], result: Expr) -> Expr:
    """The result of steps as one expression."""
    values: dict[str, Expr] = {}
    for step in steps:
        value = substitute(step.value, values)
        if step.unpack:
            values |= {target: Index(value, Literal(at)) for at, target in enumerate(step.targets)}
        else:
            values |= dict.fromkeys(step.targets, value)
    return substitute(result, values)
