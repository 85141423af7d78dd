"""Gradients of tensor-parallel modules, compared with those of the plain modules in all processes of the mesh.

Eager itself may be wrong here: the backward of a redistribution is Python code of DTensor. So each such module that a
program calls is called once more beside the module without its plan, with the same weights, the same input and the same
random gradient of the result, in float64. What each process has is put together here without collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch

from ddefuzz.execute.comparison import Unequal, close, how_much, is_distributed
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.processes import all_processes, own_tensors
from ddefuzz.instrument import torch_api
from ddefuzz.program.evaluate import evaluate, made_before
from ddefuzz.program.model import Call, Expr, Program, mapped, walk
from ddefuzz.program.modules import PARALLELIZE, modules_of

SEED = 0
"""The seed of the gradients of results."""


class NotComparableError(Exception):
    """Why a module is not compared."""


class _Ends(NamedTuple):
    """How tensors enter and leave a module that are no DTensors: the placements that its plan says."""

    given: Any
    returned: Any


def parallel_modules(program: Program) -> dict[str, Expr]:
    """The tensor-parallel modules of a program by the names of their variables."""
    return {name: expr for expr, name in modules_of(program).items() if any(_plans(expr))}


def unequal_gradients(program: Program, fresh: Callable[[], PreparedSubject]) -> list[Unequal]:
    """What differs between the tensor-parallel modules that a program calls, and the plain ones. `fresh` makes the
    arguments of the program for all processes. Raises NotComparableError.
    """
    modules = parallel_modules(program)
    given: dict[str, tuple[Any, ...]] = {}
    with ExitStack() as stack, all_processes():
        prepared = fresh()
        for name in modules:
            hook = partial(_keep, given, name)
            handle = getattr(prepared.call, name).register_forward_pre_hook(hook, prepend=True)
            stack.callback(handle.remove)
        prepared.call(*prepared.args, **prepared.kwargs)
    return [one for name, args in given.items() for one in _of_module(name, modules[name], args)]


def _keep(given: dict[str, tuple[Any, ...]], name: str, _module: torch.nn.Module, args: tuple[Any, ...]) -> None:
    given[name] = args


def _plans(expr: Expr) -> Iterator[Expr]:
    return (node.args[2] for node in walk(expr) if isinstance(node, Call) and node.function == PARALLELIZE)


def _plain(expr: Expr) -> Expr:
    """A module without its plans."""
    if isinstance(expr, Call) and expr.function == PARALLELIZE:
        return _plain(expr.args[0])
    return mapped(expr, _plain)


def _ends(expr: Expr) -> _Ends:
    """Those of the first and the last part that has a plan."""
    styles = [evaluate(plan, {}) for plan in _plans(expr)]
    first, last = styles[0], styles[-1]
    given, returned = getattr(first, "input_layouts", None), getattr(last, "output_layouts", None)
    sequences = [getattr(style, "sequence_sharding", None) for style in (first, last)]
    placements = [
        (layouts or sequence or (None,))[0] for layouts, sequence in zip((given, returned), sequences, strict=True)
    ]
    if None in placements:
        raise NotComparableError("a plan does not say how tensors enter and leave the module")
    return _Ends(*placements)


def _of_module(name: str, expr: Expr, args: tuple[Any, ...]) -> Iterator[Unequal]:
    if len(args) != 1 or not isinstance(args[0], torch.Tensor):
        raise NotComparableError("a tensor-parallel module has other arguments than one tensor")
    ends, plain = _ends(expr), made_before(_plain(expr)).double()
    with all_processes():
        module = made_before(expr).double()
        x = _wide(_same_if_whole(args[0], ends.given))
        y = module(x).clone()  # waits for a collective
    placed = _placement(x, ends.given), _placement(y, ends.returned)
    count = len(_by_rank(x))
    with torch.no_grad():
        for weight, right in zip(module.parameters(), plain.parameters(), strict=True):
            right.copy_(_whole(weight, _placement(weight, None)))
    whole = _wide(_whole(x, placed[0]))
    result = plain(whole)
    parts = _parts(result, placed[1], count)
    if any(own.shape != part.shape or not close(part, own) for own, part in zip(_by_rank(y), parts, strict=True)):
        raise NotComparableError("a tensor-parallel module has another result than the plain one")
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(SEED), dtype=result.dtype)
    wanted = [("input", x, whole, placed[0])] if x.requires_grad else []
    for (place, weight), right in zip(module.named_parameters(), plain.parameters(), strict=True):
        wanted.append((place, weight, right, None))
    expected = torch.autograd.grad(result, [one[2] for one in wanted], cotangent, allow_unused=True)
    with all_processes():
        gradients = torch.autograd.grad(y, [one[1] for one in wanted], _as(y, cotangent, placed[1]), allow_unused=True)
        actual = [None if one is None else one.clone() for one in gradients]
    for (place, _, _, placement), right, own in zip(wanted, expected, actual, strict=True):
        yield from _unequal(f"{name}.{place}", right, own, placement)


def _unequal(where: str, right: Any, own: Any, placement: Any) -> Iterator[Unequal]:
    if right is None or own is None:
        if right is not own:
            yield Unequal("gradient", where, f"{'no' if own is None else 'a'} gradient, unlike the plain module")
        return
    placement = _placement(own, placement)
    if placement.is_partial():
        pairs = [("", right, _whole(own, placement))]
    else:
        parts = _parts(right, placement, len(_by_rank(own)))
        pairs = [(f"['process {rank}']", *pair) for rank, pair in enumerate(zip(parts, _by_rank(own), strict=True))]
    for process, expected, actual in pairs:
        if expected.shape != actual.shape:
            how = f"shape {tuple(actual.shape)}, that of the plain module has {tuple(expected.shape)}"
            yield Unequal("gradient", where + process, how)
        elif not close(expected, actual):
            how = how_much(expected, actual).replace("eager has", "the plain module has")
            yield Unequal("gradient", where + process, how)


def _same_if_whole(tensor: torch.Tensor, placement: Any) -> torch.Tensor:
    """An argument that each process has whole: that of the first, because a program draws one for each process."""
    if is_distributed(tensor) or not placement.is_replicate():
        return tensor
    first, *_ = _by_rank(tensor)
    made: torch.Tensor = torch_api.bound(torch_api.RANK_MAP)(lambda _rank: first.clone())
    return made


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf of its own, in float64 if it is a float."""
    own = tensor.detach()
    return own.double().requires_grad_() if own.is_floating_point() else own


def _placement(tensor: Any, otherwise: Any) -> Any:
    """How a tensor is divided among the processes of a mesh of one dim."""
    placements = tensor.placements if is_distributed(tensor) else (otherwise,)
    if len(placements) != 1 or placements[0] is None:
        raise NotComparableError("no plan says how a tensor is divided")
    return placements[0]


def _by_rank(tensor: Any) -> list[torch.Tensor]:
    return [one.detach() for one in own_tensors(tensor)]


def _whole(tensor: Any, placement: Any) -> torch.Tensor:
    """What the processes have together."""
    parts = _by_rank(tensor)
    if placement.is_shard():
        return torch.cat(parts, placement.dim)
    if placement.is_partial():
        return torch.stack(parts).sum(0)
    if not all(close(parts[0], part) for part in parts):
        raise NotComparableError("a tensor that has to be the same in all processes is not")
    return parts[0]


def _parts(tensor: torch.Tensor, placement: Any, count: int) -> list[torch.Tensor]:
    """What each process has of a tensor: the last ones may have nothing of it."""
    if not placement.is_shard():
        return [tensor.detach()] * count
    parts = list(tensor.detach().chunk(count, placement.dim))
    return parts + [tensor.detach().narrow(placement.dim, 0, 0)] * (count - len(parts))


def _as(result: Any, cotangent: torch.Tensor, placement: Any) -> Any:
    """A gradient of the result in all processes."""
    parts = _parts(cotangent, placement, len(_by_rank(result)))
    own = torch_api.bound(torch_api.RANK_MAP)(lambda rank: parts[rank].contiguous())
    if not is_distributed(result):
        return own
    kind: Any = type(result)
    return kind.from_local(
        own, result.device_mesh, result.placements, run_check=False, shape=cotangent.shape, stride=cotangent.stride()
    )
