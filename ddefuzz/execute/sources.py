"""Find where a program makes data-dependent sizes: the first operation whose fake result has an unbacked size."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch

from ddefuzz.execute.observe import captured_output
from ddefuzz.instrument import torch_api
from ddefuzz.program.evaluate import evaluate, materialize, run_step
from ddefuzz.program.model import Call, Expr, Index, Program, walk

DATA = frozenset({"Tensor.item", "Tensor.tolist"})
"""Ops whose result is data. FakeTensor has a `tolist` of its own, and that of Tensor fails."""


class Source(NamedTuple):
    """An operation in a step (the last place is what is returned) whose result has a data-dependent size or is one."""

    place: int
    operation: Expr


def first_source(program: Program) -> Source | None:
    """The first operation that makes an unbacked size out of inputs with static sizes. None if there is none.

    The program is run in one FakeTensorMode. A step that fails there ends the search.
    """
    env_of_shapes = torch_api.bound(torch_api.SHAPE_ENV)()
    mode = torch_api.bound(torch_api.FAKE_MODE)(shape_env=env_of_shapes, allow_non_fake_inputs=True)
    mode.allow_scalar_outputs = True
    env: dict[str, Any] = {
        name: mode.from_tensor(tensor, static_shapes=True) for name, tensor in materialize(program).items()
    }
    # What torch prints about operations that fail is discarded.
    with (
        captured_output(),
        warnings.catch_warnings(action="ignore"),
        mode,
        torch_api.bound(torch_api.PYTHON_DISPATCHER)(),
    ):
        try:
            for place, step in enumerate(program.steps):
                if (found := _first_inside(step.value, env)) is not None:
                    return Source(place, found)
                env |= run_step(step, env)
            found = _first_inside(program.returns, env)
        # torch raises various exceptions for what it cannot trace. A step that fails is no source.
        except Exception:  # noqa: BLE001
            return None
    return None if found is None else Source(len(program.steps), found)


def _first_inside(expr: Expr, env: dict[str, Any]) -> Expr | None:
    """The innermost operation of `expr`, in the order of evaluation, whose value is unbacked."""
    operations = [node for node in walk(expr) if isinstance(node, Call | Index)]
    return next((node for node in reversed(operations) if _is_data(node) or _is_unbacked(evaluate(node, env))), None)


def _is_data(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in DATA


def _is_unbacked(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_unbacked, value))
    symbolic = isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
    return symbolic and bool(torch_api.bound(torch_api.FREE_UNBACKED)(value))
