"""What a program has from before its capture: modules (`torch.nn.BatchNorm1d(4).eval()(x)`), and the mesh of DTensors.

Each is a call whose settings are constants. A module is made from a seed, and what is captured has it as a submodule,
as a user's model has. So a run, a script and a captured program read it as a variable (`hoisted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Final

from ddefuzz.program.model import (
    Apply,
    Call,
    Expr,
    Lambda,
    Name,
    Program,
    children,
    expressions,
    mapped,
    parameters_in,
    walk,
)

MODULE_PREFIX: Final = "Module."
"""Prefix of methods of modules in the catalogue's names: `Module.eval`, printed as `torch.nn.Linear(4, 3).eval()`."""

MODULE_METHODS: Final = frozenset({"eval"})

MESH: Final = "torch.distributed.device_mesh.init_device_mesh"
"""Makes the mesh."""

PARALLELIZE: Final = "torch.distributed.tensor.parallel.parallelize_module"
"""Makes a module tensor-parallel. Its third argument is the plan."""

CHANGES: Final = frozenset(
    {
        *(f"torch.nn.utils.parametrizations.{name}" for name in ("orthogonal", "spectral_norm", "weight_norm")),
        PARALLELIZE,
    }
)
"""Functions that change a module and return it."""

SEED: Final = 0
"""The seed from which each module is made."""


def is_module(expr: Expr) -> bool:
    """Whether an expression is a module: a class of `torch.nn` that is called, or such a module changed."""
    if not isinstance(expr, Call):
        return False
    function = expr.function
    if function in CHANGES or function.startswith(MODULE_PREFIX):
        return bool(expr.args) and is_module(expr.args[0])
    return function.startswith(("torch.nn.", "torch.ao.nn.")) and function.rpartition(".")[2][:1].isupper()


def called_name(expr: Call | Apply) -> str:
    """The catalogue's name of what a call calls: `torch.nn.Linear` of `torch.nn.Linear(4, 3).eval()(x)`."""
    match expr:
        case Apply(Call() | Apply() as function, _):
            return called_name(function)
        case Call(function, (Call() as module, *_)) if function.startswith(MODULE_PREFIX):
            return called_name(module)
        case Call(function):
            return function
        case _:
            return ""


def is_mesh(expr: Expr) -> bool:
    """Whether an expression makes the mesh."""
    return isinstance(expr, Call) and expr.function == MESH


def has_mesh(expr: Expr) -> bool:
    """Whether a mesh is made somewhere in an expression."""
    return any(map(is_mesh, walk(expr)))


def is_made_before(expr: Expr) -> bool:
    """Whether an expression is made before the capture: a module or a mesh."""
    return is_module(expr) or is_mesh(expr)


def is_settled(expr: Expr) -> bool:
    """Whether a module or a mesh can be made before the capture: its settings are constants."""
    return is_made_before(expr) and not any(isinstance(node, Name | Lambda) for node in walk(expr))


def modules_of(program: Program) -> dict[Expr, str]:
    """The modules and the mesh of a program with the names of their variables, in order of first use. Equal ones are
    one.
    """
    modules = dict.fromkeys(one for expr in expressions(program) for one in _outermost(expr))
    return dict(zip(modules, unused_names(program, "m"), strict=False))


def unused_names(program: Program, start: str) -> Iterator[str]:
    """Names that nothing in a program has: `m0`, `m1`, …"""
    taken = {item.name for item in program.inputs}.union(*(step.targets for step in program.steps))
    taken = taken.union(*map(parameters_in, expressions(program)))
    return (name for name in (f"{start}{number}" for number in count()) if name not in taken)


def _outermost(expr: Expr) -> Iterator[Expr]:
    if is_settled(expr):
        yield expr
        return
    for child in children(expr):
        yield from _outermost(child)


def hoisted(program: Program, owner: str = "") -> Program:
    """The program with its modules as variables (`m0`), which are not among its inputs. `owner` is written before."""
    modules = modules_of(program)

    def read(expr: Expr) -> Expr:
        return Name(f"{owner}{modules[expr]}") if expr in modules else mapped(expr, read)

    if not modules:
        return program
    steps = tuple(replace(step, value=read(step.value)) for step in program.steps)
    return replace(program, steps=steps, returns=read(program.returns))
