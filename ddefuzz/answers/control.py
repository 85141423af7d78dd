"""Does the control runs in a worker: the smallest program with static sizes, then with backed sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import torch

from ddefuzz.answers.model import NOT_JUDGED, Control, ControlOutcome
from ddefuzz.classify.chain import lasting
from ddefuzz.classify.failure import Failure, decisive
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import SIZE_OBLIVIOUS, STAGES, ProgramSubject, Run, Runner
from ddefuzz.instrument import torch_api
from ddefuzz.minimize.order import operations
from ddefuzz.minimize.rewrite import (
    Inspect,
    Scalar,
    StandIn,
    fresh_name,
    newly_dead_dropped,
    tidy,
    with_value,
    without_steps,
)
from ddefuzz.oracles.capture import classify
from ddefuzz.oracles.program import look
from ddefuzz.oracles.table import oracle_of, row_of
from ddefuzz.program.evaluate import evaluate, materialize, run_step
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Call,
    Dim,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
    functions_in,
    walk_outside,
)
from ddefuzz.program.recipes import DIFFERENTIABLE
from ddefuzz.program.sizes import CallSize, at_data_size, static
from ddefuzz.program.text import print_program

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
                if (operation := _first_inside(step.value, env)) is not None:
                    return Source(place, operation)
                env |= run_step(step, env)
            operation = _first_inside(program.returns, env)
        # torch raises various exceptions for what it cannot trace. A step that fails is no source.
        except Exception:  # noqa: BLE001
            return None
    return None if operation is None else Source(len(program.steps), operation)


def _first_inside(expr: Expr, env: dict[str, Any]) -> Expr | None:
    """The innermost operation of `expr`, in the order of evaluation, whose value is unbacked."""
    operations = [node for node in walk_outside(expr) if isinstance(node, Apply | Call | Index)]
    return next((node for node in reversed(operations) if _is_data(node) or _is_unbacked(evaluate(node, env))), None)


def _is_data(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in DATA


def _is_unbacked(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_is_unbacked, value))
    symbolic = isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)
    return symbolic and bool(torch_api.bound(torch_api.FREE_UNBACKED)(value))


FindSource: TypeAlias = Callable[[Program], Source | None]


def without_sources(program: Program, inspect: Inspect, find: FindSource) -> Program | None:
    """The program with each source of data-dependent sizes replaced by an input, or by a size of an input.

    None if the program does not run, if a source's value is not known, or if nothing is left to capture.
    """
    whole, changed = operations(program), program
    for _ in range(whole + 1):
        facts = inspect(changed)
        if facts is None:
            return None
        source = find(changed)
        if source is None:
            if changed is program:
                return program
            tidied = tidy(changed)
            return tidied if operations(tidied) else None
        following = _replaced(changed, facts, source)
        if following is None:
            return None
        changed = following
    return None


def _replaced(program: Program, facts: Mapping[Expr, StandIn], source: Source) -> Program | None:
    place, operation = source
    if place < len(program.steps) and program.steps[place].value == operation:
        values: dict[str, Expr] = {}
        for target in program.steps[place].targets:
            replacement = _stand_in(program, facts.get(Name(target)))
            if replacement is None:
                return None
            program, values[target] = replacement
        return without_steps(program, (place,), values)
    replacement = _stand_in(program, facts.get(operation))
    if replacement is None:
        return None
    after, value = replacement
    return newly_dead_dropped(after, with_value(after, operation, value))


def _stand_in(program: Program, known: StandIn | None) -> tuple[Program, Expr] | None:
    """The program with an input that replaces a value, and the expression that reads it."""
    name = fresh_name(program)
    match known:
        case Scalar(bool(value) | float(value)):
            return program, Literal(value)
        case Scalar(int(value)) if value < 0:
            return program, Literal(value)
        case Scalar(int(value), symbol):
            sized = Input(name, "float32", (Dim(value, symbol or f"u_{name}"),), Recipe("normal"))
            return _with_input(program, sized), Index(Attribute(Name(name), "shape"), Literal(0))
        case Input():
            needs_grad = known.dtype in DIFFERENTIABLE and any(one.requires_grad for one in program.inputs)
            return _with_input(program, replace(known, name=name, requires_grad=needs_grad)), Name(name)
        case _:
            return None


def _with_input(program: Program, added: Input) -> Program:
    return replace(program, inputs=(*program.inputs, added))


def control(
    program: Program,
    shown: Failure,
    ops: tuple[str, ...],
    without_sources: Callable[[Program], Program | None],
    runner: Runner,
) -> Control:
    """Capture `program` in the stage and semantics of its failure, with static and with backed sizes.

    `ops` are the functions that fail. If all of them are sources of data-dependent sizes, the program has no
    such variant.
    """
    if shown.observation.stage not in STAGES:  # other sizes, or repetition, are what shows it
        return NOT_JUDGED
    called = shown.observation.calls
    if called:  # the failure shows at this size, so make it the example size
        program = at_data_size(program, called[0].size)
    form = without_sources(program) if not row_of(shown.kind).deadly else None
    if form is None or _lost(program, form, ops):
        return NOT_JUDGED
    backed = ProgramSubject(print_program(form), backed=True)
    return Control(
        static=_outcome(ProgramSubject(print_program(static(form))), shown, runner),
        backed=_outcome(backed, shown, runner),
    )


def _lost(program: Program, form: Program, ops: tuple[str, ...]) -> bool:
    before, after = (set(functions_in(one)).intersection(ops) for one in (program, form))
    return bool(before) and not after


def _outcome(subject: ProgramSubject, shown: Failure, runner: Runner) -> ControlOutcome:
    calls: tuple[CallSize, ...] = ("example",) if shown.observation.calls else ()
    own = oracle_of(shown.kind)
    run = Run(subject, shown.observation.stage, shown.observation.semantics, calls=calls)
    (seen,) = look(run, runner, (SIZE_OBLIVIOUS,) if own.compares else ())
    if seen.observation.outcome in {"crash", "timeout", "not-judged"}:
        return "not judged"
    judging = (oracle_of("dde"), *((own,) if own.calls else ()))
    failures = [failure for oracle in judging for failure in oracle.judge(seen)]
    if not failures:
        return "passes"
    return "fails" if any(_same(failure, shown) for failure in failures) else "fails otherwise"


def _same(failure: Failure, shown: Failure) -> bool:
    """Whether two failures are the same: by signature. Errors other than guards may also have the same
    exception and message. For a wrong captured program the kind is enough: the guard that is blamed may be gone.
    """
    if oracle_of(shown.kind).calls:
        return failure.kind == shown.kind
    if failure.kind != shown.kind:
        return False
    if classify(failure).signature == classify(shown).signature:
        return True
    if row_of(shown.kind).about_data:
        return False
    _, seen = decisive(failure.observation)
    _, known = decisive(shown.observation)
    return (seen.name, lasting(seen.message)) == (known.name, lasting(known.message))
