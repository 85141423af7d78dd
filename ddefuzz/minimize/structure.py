"""Passes over the structure of a program: which steps it has, what they read, and what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddefuzz.minimize.order import is_operation, operations
from ddefuzz.minimize.rewrite import (
    Facts,
    Scalar,
    everywhere,
    fresh_name,
    live_steps,
    newly_dead_dropped,
    uses,
    with_value,
    without_steps,
)
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Binary,
    Call,
    Conditional,
    Dim,
    Expr,
    Index,
    Input,
    Lambda,
    Literal,
    Name,
    Program,
    Recipe,
    Sequence,
    Step,
    Unary,
    children,
    expressions,
    mapped,
    names_in,
    substitute,
    walk,
    walk_outside,
)
from ddefuzz.program.modules import called_name

Replacement = tuple[Expr, Input | None]
"""An expression that replaces a value, and the new input that it needs."""


def isolate(program: Program, facts: Facts) -> Iterator[Program]:
    """One operation alone, on inputs that replace its operands. This is enough for most findings.

    If the failing function is known, only its calls are tried.
    """
    return _isolated(program, facts, failing=True)


def isolate_any(program: Program, facts: Facts) -> Iterator[Program]:
    """The other operations alone, if a failing function is known. The known function may not be the whole cause."""
    return _isolated(program, facts, failing=False)


def _isolated(program: Program, facts: Facts, *, failing: bool) -> Iterator[Program]:
    if operations(program) < 2:
        return
    operations_of = _latest_first(program)
    known = {operation for operation in operations_of if _is_call(operation, facts.failing)}
    for operation, is_statement in operations_of.items():
        if (operation in known or not known) != failing:
            continue
        operands = [expr for expr in _operands(operation) if expr not in {Name(one.name) for one in program.inputs}]
        yield from _alone(program, facts, operation, operands, is_statement)
        # Keep numbers that are read from a tensor (`item`): they are not sizes of an input.
        tensors = [expr for expr in operands if facts.tensor(expr)]
        if len(tensors) < len(operands):
            yield from _alone(program, facts, operation, tensors, is_statement)


def _alone(
    program: Program, facts: Facts, operation: Expr, operands: list[Expr], is_statement: bool
) -> Iterator[Program]:
    choices = [list(stand_ins(program, facts, operand, f"operand{i}_")) for i, operand in enumerate(operands)]
    for chosen in _one_by_one(choices):
        given = {operand: expr for operand, (expr, _) in zip(operands, chosen, strict=True)}
        value = replaced(operation, given)
        added = tuple(one for _, one in chosen if one is not None)
        inputs = (*program.inputs, *added)
        steps = live_steps(program.steps, value)
        if not is_statement:
            yield replace(program, inputs=inputs, steps=steps, returns=value)
        if inputs and (is_statement or facts.scalar(operation)):  # a capture may require a tensor to return
            last = Step((), value) if is_statement else Step(("result",), value)
            yield replace(program, inputs=inputs, steps=(*steps, last), returns=Name(inputs[-1].name))


def _one_by_one(choices: list[list[Replacement]]) -> Iterator[tuple[Replacement, ...]]:
    """All first choices, then all second ones, and so on. Every combination would need too many captures."""
    for place in range(max(map(len, choices), default=1)):
        yield tuple(options[min(place, len(options) - 1)] for options in choices)


def _latest_first(program: Program) -> dict[Expr, bool]:
    """The operations outside of functions, from the last to the first, each with whether it is a statement."""
    latest: dict[Expr, bool] = {}
    for node in walk_outside(program.returns):
        if is_operation(node):
            latest.setdefault(node, False)
    for step in reversed(program.steps):
        for node in walk_outside(step.value):
            if is_operation(node):
                latest.setdefault(node, not step.targets and node is step.value)
    return latest


def _operands(operation: Expr) -> list[Expr]:
    """The outermost subexpressions that are values of their own, each once."""
    operands: dict[Expr, None] = {}

    def visit(expr: Expr) -> None:
        if isinstance(expr, Name | Attribute) or is_operation(expr) or isinstance(expr, Index):
            operands.setdefault(expr)
        else:
            for child in children(expr):
                visit(child)

    for child in children(operation):
        visit(child)
    return list(operands)


def stand_ins(program: Program, facts: Facts, value: Expr, stem: str = "new") -> Iterator[Replacement]:
    """Expressions that can replace a value, the best first; the value itself if nothing is known of it."""
    tensor, scalar = facts.tensor(value), facts.scalar(value)
    name = fresh_name(program, stem)
    if tensor is not None:
        for recipe in _recipes(tensor):
            yield Name(name), replace(tensor, name=name, recipe=recipe)
    elif scalar is not None:
        yield from _sizes(program, scalar, name)
        yield Literal(scalar.value), None
    else:
        yield value, None


def _recipes(tensor: Input) -> Iterator[Recipe]:
    """Recipes for an input: for listed indices a random `index` with the same bound, then its own recipe."""
    listed = [value for value in tensor.recipe.args if isinstance(value, int)]
    if tensor.recipe.kind == "values" and listed and min(listed) >= 0:
        yield Recipe("index", (max(listed) + 1,))
    yield tensor.recipe


def _sizes(program: Program, scalar: Scalar, name: str) -> Iterator[Replacement]:
    """An unbacked size as the size of an input's dim."""
    if scalar.symbol is None or isinstance(scalar.value, bool | float) or scalar.value < 0:
        return
    for item in program.inputs:
        for place, dim in enumerate(item.shape):
            if dim.symbol == scalar.symbol and dim.size == scalar.value:
                yield Index(Attribute(Name(item.name), "shape"), Literal(place)), None
                return
    sized = Input(name, "float32", (Dim(scalar.value, scalar.symbol),), Recipe("normal"))
    yield Index(Attribute(Name(name), "shape"), Literal(0)), sized


def replaced(expr: Expr, given: dict[Expr, Expr]) -> Expr:
    """`expr` with its parts replaced, the outermost first."""
    if expr in given:
        return given[expr]
    return mapped(expr, lambda child: replaced(child, given))


def promote(program: Program, facts: Facts) -> Iterator[Program]:
    """Return an intermediate value, with only the steps that it needs. The failing call's value is tried first."""
    calls = [i for i, step in enumerate(program.steps) if step.targets and _calls(step.value, facts.failing)]
    for place in dict.fromkeys((*calls, *range(len(program.steps)))):
        step = program.steps[place]
        if step.targets:
            returns: Expr = Name(step.targets[0])
            yield replace(program, steps=live_steps(program.steps[: place + 1], returns), returns=returns)


def _calls(value: Expr, functions: tuple[str, ...]) -> bool:
    return any(_is_call(node, functions) for node in walk(value))


def _is_call(expr: Expr, functions: tuple[str, ...]) -> bool:
    return isinstance(expr, Apply | Call) and called_name(expr) in functions


def return_less(program: Program, facts: Facts) -> Iterator[Program]:
    """Return one of several values, or all but one. If the result does not need all steps, return an input."""
    del facts
    returns = program.returns
    if isinstance(returns, Sequence):
        parts = [*returns.items]
        if len(parts) > 2:
            parts += [replace(returns, items=(*parts[:i], *parts[i + 1 :])) for i in range(len(parts))]
        for part in parts:
            yield replace(program, returns=part, steps=live_steps(program.steps, part))
            yield newly_dead_dropped(program, replace(program, returns=part))
    if program.inputs and live_steps(program.steps, returns) != program.steps:
        yield newly_dead_dropped(program, replace(program, returns=Name(program.inputs[0].name)))


def drop_dead(program: Program, facts: Facts) -> Iterator[Program]:
    """Remove steps that no returned value needs: all of them, then each."""
    del facts
    yield replace(program, steps=live_steps(program.steps, program.returns))
    read = uses(program)
    for place in reversed(range(len(program.steps))):
        if not any(read[target] for target in program.steps[place].targets):
            yield without_steps(program, (place,), {})


def drop_steps(program: Program, facts: Facts) -> Iterator[Program]:
    """Remove runs of steps, in halves, quarters … single ones. What they were computed from replaces their targets."""
    count = len(program.steps)
    length = count // 2
    while length >= 1:
        for start in range(count - length, -1, -length):
            yield from _skipped(program, facts, range(start, start + length))
        length //= 2


def _skipped(program: Program, facts: Facts, places: range) -> Iterator[Program]:
    options: list[list[Expr]] = []
    targets: list[str] = []
    for place in places:
        step = program.steps[place]
        for target in step.targets:
            targets.append(target)
            wanted = facts.tensor(Name(target))
            operands: list[Expr] = [Name(name) for name in sorted(names_in(step.value))]
            # An operand of the same kind of value is the most likely to fit.
            operands.sort(key=lambda operand: not _alike(facts.tensor(operand), wanted))
            options.append(operands)
    if not all(options):
        return
    width = max(map(len, options), default=1) if len(places) == 1 else 1
    for choice in range(width):
        values: dict[str, Expr] = {}
        for target, operands in zip(targets, options, strict=True):
            operand = operands[min(choice, len(operands) - 1)]
            values[target] = substitute(operand, values)
        yield without_steps(program, places, values)


def _alike(first: Input | None, second: Input | None) -> bool:
    return first is not None and second is not None and (first.dtype, first.shape) == (second.dtype, second.shape)


def cut(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace a computed value by an input (with an unbacked dim if its size depends on data), or by a constant."""
    for place in reversed(range(len(program.steps))):
        targets = program.steps[place].targets
        if not targets or any(Name(target) not in facts.values for target in targets):
            continue
        choices = [list(stand_ins(program, facts, Name(target), f"{target}_")) for target in targets]
        for chosen in _one_by_one(choices):
            values = {target: expr for target, (expr, _) in zip(targets, chosen, strict=True)}
            added = tuple(one for _, one in chosen if one is not None)
            yield without_steps(replace(program, inputs=(*program.inputs, *added)), (place,), values)
    yield from _cut_inside(program, facts)


def _cut_inside(program: Program, facts: Facts) -> Iterator[Program]:
    whole = set(expressions(program))
    inner = [node for expr in expressions(program) for node in walk(expr) if is_operation(node) and node not in whole]
    for value in dict.fromkeys(inner):
        if value in facts.values:
            for new, added in stand_ins(program, facts, value):
                inputs = program.inputs if added is None else (*program.inputs, added)
                yield newly_dead_dropped(program, with_value(replace(program, inputs=inputs), value, new))


def inline(program: Program, facts: Facts) -> Iterator[Program]:
    """Move a value that is read once to where it is read, unless that nests calls, which are hard to read."""
    del facts
    read = uses(program)
    for place in reversed(range(len(program.steps))):
        step = program.steps[place]
        if step.unpack or len(step.targets) != 1 or read[step.targets[0]] != 1:
            continue
        (target,) = step.targets
        reader = next(expr for expr in expressions(program) if target in names_in(expr))
        if reader == Name(target) or not (_nests(step.value) and _nests(reader)):
            yield without_steps(program, (place,), {target: step.value})


def call_functions(program: Program, facts: Facts) -> Iterator[Program]:
    """Replace a call that takes functions by what one of them computes for its other arguments, or for their rows; or a
    function by a copy of a parameter.
    """
    del facts

    def simpler(node: Expr) -> Iterator[Expr]:
        match node:
            case Lambda(parameters):
                yield from (Lambda(parameters, Call("Tensor.clone", (Name(name),))) for name in parameters)
                return
            case Call(_, args):
                functions = [arg for arg in args if isinstance(arg, Lambda)]
                others = tuple(arg for arg in args if not isinstance(arg, Lambda))
                given = [*(arg.items for arg in others if isinstance(arg, Sequence)), others, others[:1]]
            case Apply(Call(_, args), others):
                functions = [one for arg in args for one in walk(arg) if isinstance(one, Lambda)]
                given = [others]
            case _:
                return
        for function in functions:
            for operands in given:
                rows = tuple(Index(operand, Literal(0)) for operand in operands)
                if len(operands) == len(function.parameters):
                    yield substitute(function.body, dict(zip(function.parameters, operands, strict=True)))
                    yield substitute(function.body, dict(zip(function.parameters, rows, strict=True)))

    yield from everywhere(program, simpler)


def _nests(expr: Expr) -> bool:
    return any(isinstance(node, Apply | Call | Binary | Unary | Conditional) for node in walk(expr))
