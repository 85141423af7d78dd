"""Evaluates expressions on concrete values: makes the inputs of a program, and runs it step by step."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Any, Final

import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.program.expressions import BINARY, BUILTINS, MAPPED_PREFIX, UNARY, imported_for
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Binary,
    Call,
    Conditional,
    Constant,
    Ellipsis_,
    Expr,
    Index,
    Input,
    Lambda,
    Literal,
    Name,
    Program,
    Sequence,
    Slice,
    Step,
    Unary,
)
from ddefuzz.program.modules import SEED, has_mesh, is_made_before
from ddefuzz.program.plain import FOR_A_NEW_PROGRAM
from ddefuzz.program.recipes import WORLD, input_expression, is_placed

_GENERATOR: Final = Name("generator")

_METHODS: Final[Mapping[str, str]] = {
    "Tensor": "torch.Tensor",
    "Module": "torch.nn.Module",
    "DTensor": "torch.distributed.tensor.DTensor",
    "list": "builtins.list",
}
"""The classes of methods, by the prefix in the catalogue's names."""


def materialize(program: Program) -> dict[str, torch.Tensor]:
    """The program's inputs by name, as new tensors with the same values at every call.

    Random values are seeded by the position of the input. torch's global generators are not used.
    """
    return {item.name: materialize_input(item, position) for position, item in enumerate(program.inputs)}


def materialize_input(item: Input, position: int) -> torch.Tensor:
    """The tensor of one input, which is at `position` in its program."""
    generator = torch.Generator().manual_seed(position)
    if is_placed(item):
        join_fake()
    tensor: torch.Tensor = evaluate(input_expression(item, _GENERATOR), {"generator": generator})
    return tensor


def run_steps(program: Program, inputs: Mapping[str, object]) -> object:
    """The value that the program returns for `inputs`. Raises what a step raises."""
    env = dict(inputs)
    for step in program.steps:
        env.update(run_step(step, env))
    return evaluate(program.returns, env)


def run_step(step: Step, env: Mapping[str, object]) -> dict[str, object]:
    """The targets of one step with their values. Raises ValueError if the value does not unpack into them."""
    value: Any = evaluate(step.value, env)
    if step.unpack:
        return dict(zip(step.targets, value, strict=True))
    return dict.fromkeys(step.targets, value)


def evaluate(expr: Expr, env: Mapping[str, object]) -> Any:
    """The value of `expr` with the names of `env`, evaluated in Python's order."""
    match expr:
        case Name(id):
            return env[id]
        case Literal(value):
            return value
        case Call(function, args, kwargs):
            if is_made_before(expr):
                return made_before(expr)
            call = resolve(function)
            return call(*[evaluate(arg, env) for arg in args], **{name: evaluate(arg, env) for name, arg in kwargs})
        case Sequence(items, is_list):
            values = [evaluate(item, env) for item in items]
            return values if is_list else tuple(values)
        case Index(value, index):
            return evaluate(value, env)[evaluate(index, env)]
        case Binary("and", left, right):
            return evaluate(left, env) and evaluate(right, env)
        case Binary("or", left, right):
            return evaluate(left, env) or evaluate(right, env)
        case Binary(op, left, right):
            return BINARY[op].compute(evaluate(left, env), evaluate(right, env))
        case Attribute(value, name):
            return getattr(evaluate(value, env), name)
        case Slice(start, stop, step):
            return slice(*[None if bound is None else evaluate(bound, env) for bound in (start, stop, step)])
        case Constant(path):
            return resolve(path)
        case Unary(op, operand):
            return UNARY[op].compute(evaluate(operand, env))
        case Conditional(test, body, orelse):
            return evaluate(body if evaluate(test, env) else orelse, env)
        case Lambda(parameters, body):
            return _function(parameters, body, env)
        case Apply(function, args):
            return evaluate(function, env)(*[evaluate(arg, env) for arg in args])
        case Ellipsis_():
            return ...


def _function(parameters: tuple[str, ...], body: Expr, env: Mapping[str, object]) -> Callable[..., Any]:
    """The function that computes `body`. How many parameters its code has decides what a function is for
    `flex_attention` (torch/nn/attention/flex_attention.py, `_get_mod_type`).
    """

    def run(*values: object) -> Any:
        return evaluate(body, {**env, **dict(zip(parameters, values, strict=True))})

    match len(parameters):
        case 4:
            return lambda a, b, c, d: run(a, b, c, d)  # noqa: PLW0108 the number counts
        case 5:
            return lambda a, b, c, d, e: run(a, b, c, d, e)  # noqa: PLW0108
        case _:
            return run


def made_before(expr: Expr) -> Any:
    """What is made before a capture: a new module, the same at every call, or a mesh.

    The state of torch's global generator stays as it is. What torch says of a class that it deprecates is no warning
    about a program.
    """
    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(SEED)  # in LocalTensorMode it seeds the generators of all processes
        if has_mesh(expr):
            join_fake()
        return _made(expr)


def join_fake() -> None:
    """Make a process group of which this process is the only one that exists, if there is no group.

    A collective returns at once. With others than this process, what it returns are no values
    (torch/csrc/distributed/c10d/FakeProcessGroup.hpp).
    """
    group: Any = torch.distributed
    if not group.is_initialized():
        group.init_process_group("fake", rank=0, world_size=WORLD)


def _made(expr: Expr) -> Any:
    if not isinstance(expr, Call):
        return evaluate(expr, {})
    return resolve(expr.function)(*map(_made, expr.args), **{name: _made(value) for name, value in expr.kwargs})


@cache
def resolve(name: str) -> Any:
    """The function or constant of a catalogue name: `torch.chunk`, `torch.float32`, `int`, `Tensor.view`
    (unbound).

    `torch.vmap(torch.cat)` is the mapped function. Control flow is plain Python (`plain`).

    Raises UnsupportedError if this torch does not have it.
    """
    if name in BUILTINS:
        return BUILTINS[name]
    if name in FOR_A_NEW_PROGRAM:
        return FOR_A_NEW_PROGRAM[name]
    if name.startswith(MAPPED_PREFIX):
        return torch.vmap(resolve(name.removeprefix(MAPPED_PREFIX).removesuffix(")")))
    first, _, path = name.partition(".")
    if first == "Distribution":
        return lambda receiver, *args, **kwargs: getattr(receiver, path)(*args, **kwargs)  # its class has its own
    path = f"{_METHODS[first]}.{path}" if first in _METHODS else name
    for module in imported_for([path]):
        importlib.import_module(module)
    first, _, path = path.partition(".")
    try:
        return reduce(getattr, path.split("."), importlib.import_module(first))
    except AttributeError as error:
        raise UnsupportedError(f"{name} is not in torch {torch.__version__}") from error
