"""Export a program repeated a few times and many times, and count the evaluations of expressions over sizes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import torch

from ddefuzz.execute.observe import Stopwatch
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import Observation, Run, measured, not_judged
from ddefuzz.execute.stages import export
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.counting import Counts, Stack, counting
from ddefuzz.instrument.torch_api import EVALUATE_EXPR
from ddefuzz.internal import message_of
from ddefuzz.oracles.growth import BLOCKS, Growth, Growths

LARGEST: Final = 1_000_000  # the elements of a tensor at most, when eager runs the blocks

_LINEAR = re.compile(r"[-+ ]*((\d+\*)?[us]\d+|\d+)([-+ ]+((\d+\*)?[us]\d+|\d+))*")

Carried = Mapping[int, int]  # by the place of an argument, the place of the result that the next block gets there


def run(task: Run) -> Observation:
    """Export the subject repeated. It is not judged if that raises."""
    stopwatch = Stopwatch()
    try:
        counts = counted(lambda: prepare(task.subject))
    except Exception as error:  # noqa: BLE001 the subject is under test: other stages judge that it raises
        return not_judged(task, f"{type(error).__name__}: {message_of(error)}".partition("\n")[0])
    return stopwatch.read(Observation(task.stage, task.semantics, "ok", measured=measured(Growths(counts))))


def counted(make: Callable[[], PreparedSubject]) -> tuple[Growth, ...]:
    """How each count grows. `make` prepares a new program for each export.

    All blocks get the same inputs. If eager and torch.export accept that, there are also counts of a chain: each block
    gets results of the one before in place of its inputs.
    """
    export(repeated(make(), 1))  # imports, and fills torch's caches
    counts = _compared(make, {})
    carried = carried_results(make())
    if carried:
        with suppress(Exception):  # code of the subject and of torch; judged by other stages
            counts += _compared(make, carried)
    return counts


def _compared(make: Callable[[], PreparedSubject], carried: Carried) -> tuple[Growth, ...]:
    few, many = (_counts(repeated(make(), number, carried)) for number in BLOCKS)
    every = (_by_caller(api.name, few, many, carried) for api in (EVALUATE_EXPR, *torch_api.COUNTED))
    return tuple(max(found, key=lambda one: (one.is_steep, one.exponent, one.many)) for found in every if found)


def _by_caller(method: str, few: Counts, many: Counts, carried: Carried) -> list[Growth]:
    less, more = _callers(few.callers[method]), _callers(many.callers[method])
    form = many.most(method) if method == EVALUATE_EXPR.name else ""
    return [
        Growth(method, less[caller].total(), stacks.total(), _grown_most(less[caller], stacks), form, dict(carried))
        for caller, stacks in sorted(more.items())
    ]


def _callers(stacks: Counter[Stack]) -> defaultdict[Stack, Counter[Stack]]:
    callers: defaultdict[Stack, Counter[Stack]] = defaultdict(Counter)
    for stack, number in stacks.items():
        callers[stack[-1:]][stack] += number
    return callers


def _counts(prepared: PreparedSubject) -> Counts:
    with counting() as counts:
        export(prepared)
    return counts


def repeated(prepared: PreparedSubject, number: int, carried: Carried = MappingProxyType({})) -> PreparedSubject:
    """A program that runs the block this many times, and returns all results."""
    block = prepared.call

    def blocks(*args: Any, **kwargs: Any) -> list[Any]:
        every = []
        for _ in range(number):
            every.append(block(*args, **kwargs))
            args = _next(args, every[-1], carried)
        return every

    return replace(prepared, call=blocks)


def _next(args: tuple[Any, ...], results: Any, carried: Carried) -> tuple[Any, ...]:
    """The arguments of the next block. Raises `ValueError` for sizes that are not linear: they grow exponentially."""
    leaves = _leaves(results)
    for place in carried.values():
        if not all(_LINEAR.fullmatch(str(size)) for size in leaves[place].shape):
            raise ValueError(f"found the shape {leaves[place].shape}, expected sizes that are linear in the symbols")
    return tuple(leaves[carried[place]] if place in carried else one for place, one in enumerate(args))


def carried_results(prepared: PreparedSubject) -> Carried:
    """The results, by dtype and rank, that take the places of inputs; none if eager refuses or tensors become large."""
    args: tuple[Any, ...] = prepared.args
    carried: Carried = {}
    try:
        for _ in range(BLOCKS[1]):
            results = prepared.call(*args, **prepared.kwargs)
            carried = carried or _same_form(args, _leaves(results))
            args = _next(args, results, carried)
            if not carried or any(isinstance(one, torch.Tensor) and one.numel() > LARGEST for one in args):
                return {}
    except Exception:  # noqa: BLE001 the subject is under test
        return {}
    return carried


def _same_form(args: Sequence[Any], results: Sequence[Any]) -> Carried:
    free = [place for place, one in enumerate(results) if isinstance(one, torch.Tensor)]
    carried: dict[int, int] = {}
    for place, argument in enumerate(args):
        fits = (at for at in free if isinstance(argument, torch.Tensor) and _form(results[at]) == _form(argument))
        at = next(fits, None)
        if at is not None:
            carried[place] = at
            free.remove(at)
    return carried


def _leaves(results: Any) -> list[Any]:
    leaves: list[Any] = torch_api.bound(torch_api.TREE_LEAVES)(results)
    return leaves


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.dim(), tensor.layout, tensor.requires_grad


def _grown_most(few: Counter[Stack], many: Counter[Stack]) -> Stack:
    return max(sorted(many), key=lambda name: many[name] - few[name] * BLOCKS[1] // BLOCKS[0], default=())
