"""Mutants of torch's Python source, made by rule: which there are, and how a process runs one.

A mutant changes one expression or statement of a function. Nothing is written and no module is loaded again: the
function objects of the process get the code of the changed source, with the lines and the file name of the old one.
Neither the rules nor what is drawn from them knows anything of the oracles.
"""

from __future__ import annotations

import ast
import difflib
import gc
import importlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from ddefuzz.errors import InputError

AREAS: Final[Mapping[str, tuple[str, ...]]] = {
    "refs": ("torch/_refs/",),
    "decomp": ("torch/_decomp/",),
    "meta": ("torch/_meta_registrations.py",),
    "prims": ("torch/_prims/", "torch/_prims_common/"),
    "shapes": ("torch/fx/experimental/symbolic_shapes.py",),
    "export": ("torch/export/", "torch/_export/"),
    "aot": ("torch/_functorch/aot_autograd.py", "torch/_functorch/_aot_autograd/", "torch/_functorch/partitioners.py"),
    "lowering": ("torch/_inductor/lowering.py",),
    "ir": ("torch/_inductor/ir.py",),
    "scheduler": ("torch/_inductor/scheduler.py",),
    "codegen": tuple(f"torch/_inductor/codegen/{name}.py" for name in ("common", "cpp", "cpp_utils", "wrapper")),
}
"""The files of torch that have mutants, by area: files and folders."""

INDUCTOR: Final = frozenset({"lowering", "ir", "scheduler", "codegen"})
KERNELS: Final = frozenset({"refs", "decomp", "meta", "prims"})
CHECKS: Final = frozenset({"_check", "_check_value", "_check_with", "_check_is_size", "_check_type", "check", "_assert",
                           "_assert_scalar", "expect_true", "defer_runtime_assert", "sym_constrain_range",
                           "sym_constrain_range_for_size", "guard_or_defer_runtime_assert"})  # fmt: skip
VIEWS: Final = frozenset({"as_strided", "view", "view_of", "expand", "transpose", "permute", "squeeze", "unsqueeze",
                          "alias", "detach", "slice", "select", "narrow", "diagonal", "broadcast_in_dim", "split_dim",
                          "collapse_view", "slice_in_dim", "reshape", "movedim", "t", "contiguous"})  # fmt: skip
STATIC: Final = ("dtype", "ndim", "dim()", "type", "device", "layout", "is_", "isinstance", " in ", "rank", "None",
                 "len(")  # fmt: skip
"""What the conditions of checks contain that no size decides."""

SWAPPED_CALLS: Final = frozenset({"sub", "div", "true_divide", "floor_divide", "pow", "remainder", "fmod", "atan2",
                                  "copysign", "lt", "gt", "le", "ge", "mm", "matmul", "FloorDiv", "Mod", "truncdiv",
                                  "ModularIndexing", "floordiv", "mod"})  # fmt: skip
OPS: Final[Mapping[str, str]] = {"add": "sub", "sub": "add", "mul": "add", "maximum": "minimum", "minimum": "maximum",
       "lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ge", "ne": "gt", "logical_and": "logical_or",
       "logical_or": "logical_and", "floor": "ceil", "ceil": "floor", "floordiv": "truncdiv", "truncdiv": "floordiv",
       "remainder": "mod", "mod": "remainder"}  # fmt: skip
"""Operations of inductor's loop bodies, and what a changed lowering computes in place of each."""

COMPARED: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.GtE: ast.Eq, ast.Gt: ast.GtE, ast.LtE: ast.Lt, ast.Lt: ast.LtE, ast.Eq: ast.GtE, ast.NotEq: ast.Gt,
}  # fmt: skip
SILENT: Final = ("log", "warn", "debug", "print", "dump", "__repr__", "__str__", "trace_structured", "instant")
"""What begins the names of functions that only report, or is contained in them. They have no mutants."""


class Mutant(msgspec.Struct, frozen=True):
    """A change of a function of torch: the `number`-th that the rule makes in it.

    `function` is the qualified name of the outermost function, `inner` the innermost. `line` is that of the change,
    `statement` that of its statement: a program reaches the mutant if it runs this line.
    """

    rule: str
    file: str
    function: str
    number: int
    inner: str
    line: int
    statement: int

    @property
    def name(self) -> str:
        """What a list of mutants calls it."""
        return f"{self.rule} {self.file}:{self.function} {self.number}"


class Place(NamedTuple):
    """Where a rule looks: the area, the names of the functions around, outermost first, and the names assigned to."""

    area: str
    functions: tuple[str, ...]
    targets: str = ""

    def about(self, *words: str) -> bool:
        """Whether a name of a function or of what is assigned contains one of the words."""
        return any(word in name for word in words for name in (*self.functions, self.targets))


class Edit(NamedTuple):
    """A possible change of a function's tree; `make` makes it."""

    rule: str
    inner: str
    line: int
    statement: int
    make: Callable[[], None]


Expressions: TypeAlias = Callable[[ast.expr, Place], Iterator[ast.expr]]
Statements: TypeAlias = Callable[[list[ast.stmt], int, Place], Iterator[list[ast.stmt]]]


def _made(template: str, at: ast.expr, *parts: ast.expr) -> ast.expr:
    """The expression of the template with the parts in place of A, B and C, and the position of `at`."""
    names = dict(zip("ABC", parts, strict=False))

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return deepcopy(names[node.id]) if node.id in names else node

    made: ast.expr = Fill().visit(ast.parse(template, mode="eval").body)
    for node in ast.walk(made):  # nodes of torch's source keep theirs
        if hasattr(node, "lineno") and not _is_in(node, at):
            ast.copy_location(node, at)
    return made


def _is_in(node: Any, outer: Any) -> bool:
    start, end = (outer.lineno, outer.col_offset), (outer.end_lineno, outer.end_col_offset)
    return start <= (node.lineno, node.col_offset) and (node.end_lineno, node.end_col_offset) <= end


def _called(node: ast.AST) -> str:
    """The bare name of the function that an expression calls, else empty."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name
    return ""


def _is_size(node: ast.expr) -> bool:
    """`x.shape[i]`, `x.size(i)`, `x.numel()`; in inductor `x.get_size()[i]` and `x.get_numel()`."""
    match node:
        case ast.Subscript(ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="get_size")), index):
            return isinstance(node.ctx, ast.Load) and not isinstance(index, ast.Slice)
        case (
            ast.Call(func=ast.Attribute(attr="size"), args=[_])
            | ast.Call(func=ast.Attribute(attr="numel" | "get_numel"), args=[])
        ):
            return True
    return False


def _sizes(ordinary: tuple[str, ...], inductor: tuple[str, ...]) -> Expressions:
    """The rule that puts each size into templates, for files of inductor into others."""

    def rule(node: ast.expr, place: Place) -> Iterator[ast.expr]:
        if _is_size(node):
            yield from (_made(one, node, node) for one in (inductor if place.area in INDUCTOR else ordinary))

    return rule


def _stride(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    if place.about("stride", "contiguous"):
        match node:
            case ast.BinOp(left, ast.Mult(), right):
                yield _made("A + B", node, left, right)
            case ast.Call(ast.Name("reversed"), [only]):
                yield _made("A", node, only)
            case ast.Call(ast.Name("max") | ast.Attribute(attr="sym_max" | "Max"), [first, second]):
                yield from (_made("A", node, one) for one in (first, second) if not isinstance(one, ast.Constant))
    match node:
        case ast.Call(ast.Attribute(attr="stride"), []):
            yield _made("A[::-1]", node, node)
        case ast.Call(ast.Attribute(attr="stride"), [_]):
            yield _made("A + (A > 1)", node, node)
        case ast.Call(
            ast.Name("make_contiguous_strides_for") | ast.Attribute(attr="make_contiguous_strides_for"), [_, *_]
        ):
            yield _made("A[::-1]", node, node)
        case ast.Call(ast.Name("suggest_memory_format") | ast.Attribute(attr="suggest_memory_format"), [_]):
            yield _made("torch.contiguous_format", node)


def _swap(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left, ast.Sub() | ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow() | ast.MatMult(), right):
            if not isinstance(left, ast.Constant | ast.JoinedStr):
                yield ast.copy_location(ast.BinOp(deepcopy(right), node.op, deepcopy(left)), node)
        case ast.Call(function, [first, second, *rest]) if _called(node) in SWAPPED_CALLS:
            yield ast.copy_location(ast.Call(function, [second, first, *rest], node.keywords), node)
        case ast.Call(function, [condition, first, second]) if _called(node) == "where":
            yield ast.copy_location(ast.Call(function, [condition, second, first], node.keywords), node)


def _index(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    match node:
        case ast.Call(ast.Name("range"), [*args]) if args:
            at = min(1, len(args) - 1)
            new = [*args[:at], _made("A - 1", args[at], args[at]), *args[at + 1 :]]
            yield ast.copy_location(ast.Call(node.func, new, []), node)
        case ast.Subscript(value, ast.Slice(lower, upper, None) as part, ast.Load()) if lower or upper:
            bound = lower or upper
            moved = _made("A + 1" if lower else "A - 1", bound, bound) if bound else None
            cut = ast.copy_location(ast.Slice(moved, upper) if lower else ast.Slice(None, moved), part)
            yield ast.copy_location(ast.Subscript(value, cut, node.ctx), node)
        case ast.Subscript(value, ast.Name("i" | "j" | "d" | "dim" | "idx" | "axis") as name, ast.Load()):
            yield ast.copy_location(ast.Subscript(value, _made("A - 1", name, name), node.ctx), node)
        case ast.BinOp(op=ast.Add() | ast.Mult()) if place.area in INDUCTOR and place.about(
            "index", "inner_fn", "load"
        ):
            yield _made("A + 1", node, node)


def _gradient(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    if place.about("backward", "grad", "jvp", "vjp"):
        match node:
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), _) if not isinstance(
                left, ast.Constant | ast.List
            ):
                yield _made("A", node, left)
            case ast.Call(args=[first, _, *_]) if _called(node) in {"add", "sub", "mul"}:
                yield _made("A", node, first)


def _compare(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in COMPARED:
            values = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            if not any(value is None or isinstance(value, str | bool) for value in values):
                yield ast.copy_location(ast.Compare(left, [COMPARED[type(op)]()], [right]), node)


def _logic(node: ast.expr, place: Place) -> Iterator[ast.expr]:
    match node:
        case ast.BoolOp(op, values):
            yield ast.copy_location(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values), node)
        case ast.Call(ast.Attribute(ast.Name("ops"), name, context) as function) if name in OPS:
            new = ast.copy_location(ast.Attribute(function.value, OPS[name], context), function)
            yield ast.copy_location(ast.Call(new, node.args, node.keywords), node)


def _aliased(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    match block[at]:
        case ast.Return(ast.expr() as value) if (
            isinstance(value, ast.Name) and value.id in {"a", "x", "self", "input", "tensor", "inp"}
        ) or _called(value) in VIEWS:
            if place.area in KERNELS:
                yield _with(block, at, [ast.copy_location(ast.Return(_made("A.clone()", value, value)), block[at])])
        case ast.Expr(value) if _called(value) in {"copy_", "copy", "mark_buffer_mutated", "realize", "copy_to"}:
            yield _with(block, at, [])


def _lost_gradients(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    match block[at]:
        case ast.Return(ast.Tuple(elements) as value) if place.about("backward"):
            for number, element in enumerate(elements):
                new = [*elements[:number], ast.copy_location(ast.Constant(None), element), *elements[number + 1 :]]
                made = ast.copy_location(ast.Tuple(new, ast.Load()), value)
                yield _with(block, at, [ast.copy_location(ast.Return(made), block[at])])


def _is_check(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _called(statement.value) in CHECKS


def _asserts(statement: ast.stmt) -> bool:
    """Whether it is a check that may become a run-time assertion: of sizes, not of ranks, dtypes and other types."""
    match statement:
        case ast.Expr(ast.Call(args=[condition, *_])) if _is_check(statement):
            return not any(word in ast.unparse(condition) for word in STATIC)
    return False


def _dropped(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    if _asserts(block[at]):
        yield _with(block, at, [])


def _moved(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    last = len(block) - isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
    if _asserts(block[at]) and at + 1 < last:
        yield [*block[:at], *block[at + 1 : last], block[at], *block[last:]]


def _stricter(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    match block[at]:
        case ast.Expr(ast.Call(function, [ast.Compare(left, [op], [right]) as condition, *rest]) as call) if _is_check(
            block[at]
        ) and isinstance(op, ast.Gt | ast.GtE | ast.Lt | ast.LtE):
            template = {ast.GtE: "A > B", ast.Gt: "A > B + 1", ast.LtE: "A < B", ast.Lt: "A + 1 < B"}[type(op)]
            made = ast.copy_location(
                ast.Call(function, [_made(template, condition, left, right), *rest], call.keywords), call
            )
            yield _with(block, at, [ast.copy_location(ast.Expr(made), block[at])])


def _steps(block: list[ast.stmt], at: int, place: Place) -> Iterator[list[ast.stmt]]:
    match block[at]:
        case ast.If(test) as branch:
            negated = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
            yield _with(block, at, [ast.copy_location(ast.If(negated, branch.body, branch.orelse), branch)])
        case ast.Expr(ast.Call() as call) if not _is_check(block[at]) and not _is_silent(_called(call)):
            yield _with(block, at, [])
        case ast.Return(ast.Constant(bool() as value) as old):
            new = ast.copy_location(ast.Constant(not value), old)
            yield _with(block, at, [ast.copy_location(ast.Return(new), block[at])])


def _with(block: list[ast.stmt], at: int, new: list[ast.stmt]) -> list[ast.stmt]:
    return [*block[:at], *(new or [ast.copy_location(ast.Pass(), block[at])]), *block[at + 1 :]]


EVERY: Final = frozenset(AREAS)
COMPILER: Final = EVERY - KERNELS

EXPRESSION_RULES: tuple[tuple[str, frozenset[str], Expressions], ...] = (
    ("wrong at one size", EVERY, _sizes(("torch.sym_max(A, 1)", "torch.sym_max(A, 2)", "A + A // 64"),
                                        ("A + A // 64",))),
    ("stride formula", EVERY, _stride),
    ("swapped operands", EVERY, _swap),
    ("off by one", EVERY, _index),
    ("hint for a symbol", EVERY, _sizes(("torch.fx.experimental.symbolic_shapes.optimization_hint(A, 4)",),
                                        ("V.graph.sizevars.optimization_hint(A, 4)",))),
    ("guard added", EVERY, _sizes(("(A if A == 4 else A)",), ("V.graph.sizevars.guard_int(A)",))),
    ("gradient term dropped", EVERY - INDUCTOR, _gradient),
    ("comparison changed", EVERY, _compare),
    ("lowering changed", INDUCTOR, _logic),
    ("step changed", COMPILER - INDUCTOR, _logic),
)  # fmt: skip
STATEMENT_RULES: tuple[tuple[str, frozenset[str], Statements], ...] = (
    ("assertion dropped", EVERY, _dropped),
    ("assertion moved", EVERY, _moved),
    ("assertion too strict", EVERY, _stricter),
    ("alias lost", EVERY, _aliased),
    ("gradient term dropped", EVERY - INDUCTOR, _lost_gradients),
    ("lowering changed", INDUCTOR, _steps),
    ("step changed", COMPILER - INDUCTOR, _steps),
)
"""The rules by class of mutant, with the areas in which they apply."""

RULES: Final = tuple(dict.fromkeys(name for name, _, _ in (*EXPRESSION_RULES, *STATEMENT_RULES)))

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def edits(function: Function, area: str) -> Iterator[Edit]:
    """Each possible change of a function, in a fixed order. Making one leaves the others without effect."""
    yield from _in_body(function, Place(area, (function.name,)))


def _in_body(owner: Any, place: Place) -> Iterator[Edit]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(owner, field, None)
        if not isinstance(block, list):
            continue
        for at, statement in enumerate(block):
            if isinstance(statement, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.ClassDef):
                continue
            if isinstance(statement, Function):
                if not _is_silent(statement.name):
                    yield from _in_body(statement, place._replace(functions=(*place.functions, statement.name)))
                continue
            if isinstance(statement, ast.Expr) and _is_silent(_called(statement.value)):
                continue
            yield from _of_statement(owner, field, block, at, place)
            yield from _in_body(statement, place)
            for handler in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                yield from _in_body(handler, place)


def _of_statement(owner: Any, field: str, block: list[ast.stmt], at: int, place: Place) -> Iterator[Edit]:
    statement, inner = block[at], place.functions[-1]
    for rule, areas, blocks in STATEMENT_RULES:
        if place.area in areas:
            for new in blocks(block, at, place):
                yield Edit(rule, inner, statement.lineno, statement.lineno, lambda new=new: setattr(owner, field, new))  # type: ignore[misc]
    assigned = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    place = place._replace(targets=" ".join(ast.unparse(one) for one in assigned if one is not None))
    for parent, name, index, node in _expressions(statement):
        for rule, areas, expressions in EXPRESSION_RULES:
            if place.area in areas:
                for made in expressions(node, place):
                    make = lambda p=parent, n=name, i=index, m=made: _put(p, n, i, m)  # noqa: E731
                    yield Edit(rule, inner, node.lineno, statement.lineno, make)


def _expressions(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    """The expressions of a statement that run with it, and where each is. Messages of checks and texts are left out."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "targets", "target", "type_comment"}:
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.expr) and not isinstance(child, ast.JoinedStr):
                if isinstance(child, ast.Lambda) and _called(node) in CHECKS:
                    continue
                yield node, name, index, child
                yield from _expressions(child)
            elif isinstance(child, ast.keyword | ast.comprehension | ast.withitem | ast.Slice):
                yield from _expressions(child)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.expr) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _is_silent(name: str) -> bool:
    return any(word in name for word in SILENT)


@cache
def torch_parent() -> Path:
    """The folder that contains torch, which is not imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise InputError("found no torch, expected one whose source has the mutants")
    return Path(spec.origin).parents[1]


@cache
def area_of() -> dict[str, str]:
    """The area of each file, as frames name it."""
    named = ((torch_parent() / one, area) for area, paths in AREAS.items() for one in paths)
    files = ((path, area) for one, area in named for path in (sorted(one.rglob("*.py")) if one.is_dir() else [one]))
    return {str(path.relative_to(torch_parent())): area for path, area in files if path.is_file()}


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((torch_parent() / file).read_text())


def functions_in(file: str) -> Iterator[tuple[str, Function]]:
    """The outermost functions of a file, with their qualified names; but not those that only report."""
    for top in _tree(file).body:
        for node in top.body if isinstance(top, ast.ClassDef) else [top]:
            if isinstance(node, Function) and not _is_silent(node.name):
                yield (f"{top.name}.{node.name}" if isinstance(top, ast.ClassDef) else node.name), node


def mutants_in(file: str) -> Iterator[Mutant]:
    """All mutants of a file. Functions of one name, such as a property's, are numbered together."""
    numbers: Counter[tuple[str, str]] = Counter()
    for name, function in functions_in(file):
        for edit in edits(function, area_of()[file]):
            yield Mutant(edit.rule, file, name, numbers[name, edit.rule], edit.inner, edit.line, edit.statement)
            numbers[name, edit.rule] += 1


def mutated(mutant: Mutant) -> tuple[Function, Function]:
    """The function as it is and with the change. Raises InputError if this torch has no such mutant."""
    functions = [(one, deepcopy(one)) for name, one in functions_in(mutant.file) if name == mutant.function]
    every = ((old, new, edit) for old, new in functions for edit in edits(new, area_of()[mutant.file]))
    of_rule = ((old, new, edit) for old, new, edit in every if edit.rule == mutant.rule)
    for old, new, edit in islice(of_rule, mutant.number, mutant.number + 1):
        edit.make()
        return old, new
    raise InputError(f"{mutant.name}: found no such mutant in this torch, expected one that `--draw` wrote")


def diff(mutant: Mutant) -> str:
    """The change, as a unified diff of the function as `ast.unparse` prints it."""
    before, after = (ast.unparse(one).splitlines() for one in mutated(mutant))
    return "\n".join(islice(difflib.unified_diff(before, after, lineterm="", n=1), 2, None))


Pairs: TypeAlias = dict[tuple[str, int], tuple[CodeType, CodeType]]


def exchange_of(mutant: Mutant) -> Pairs:
    """The code objects that the change changes, by qualified name and first line, as they are and changed.

    Empty if the change has no effect, or needs variables of an outer function that the old code has not.
    """
    before, after = (_compiled(mutant, one) for one in mutated(mutant))
    pairs = _pairs(before, after)
    if any(len(old.co_freevars) != len(new.co_freevars) for old, new in pairs.values()):
        return {}
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}


def _compiled(mutant: Mutant, function: Function) -> CodeType:
    owner, _, _ = mutant.function.rpartition(".")
    alone: ast.stmt = ast.ClassDef(owner, [], [], [function], []) if owner else function
    body = [one for one in _tree(mutant.file).body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    module = ast.fix_missing_locations(ast.Module([*body, alone], []))
    return compile(module, str(torch_parent() / mutant.file), "exec", dont_inherit=True)


def _pairs(before: CodeType, after: CodeType) -> Pairs:
    """Functions of two sources by qualified name and first line. Those that share both in one source are left out."""
    sources: list[dict[tuple[str, int], list[CodeType]]] = [{}, {}]
    for places, code in zip(sources, (before, after), strict=True):
        for inner in _codes_in(code):
            places.setdefault((inner.co_qualname, inner.co_firstlineno), []).append(inner)
    old, new = sources
    return {key: (codes[0], new[key][0]) for key, codes in old.items() if len(codes) == len(new.get(key, ())) == 1}


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _codes_in(const)


def live_functions(files: Iterable[str]) -> dict[str, list[FunctionType]]:
    """The function objects of this process by file of torch, whoever holds them: a registry, a wrapper, a closure."""
    gc.unfreeze()  # the fork server froze what it imported, which hides it
    names = {str(torch_parent() / file): file for file in files}
    functions: dict[str, list[FunctionType]] = {file: [] for file in names.values()}
    for held in gc.get_objects():
        if type(held) is FunctionType and held.__code__.co_filename in names:
            functions[names[held.__code__.co_filename]].append(held)
    gc.freeze()
    return functions


@contextmanager
def applied(mutant: Mutant) -> Iterator[int]:
    """Run with a mutant. Yields the number of function objects that have the changed code."""
    changed = _changed(mutant)
    kept = [(function, function.__code__) for function, _ in changed]
    try:
        for function, code in changed:
            function.__code__ = code
        yield len(changed)
    finally:
        for function, code in kept:
            function.__code__ = code


@lru_cache(maxsize=1)
def _changed(mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
    _import(mutant.file)
    pairs = exchange_of(mutant)
    functions = live_functions([mutant.file])[mutant.file]
    keys = [(one, (one.__code__.co_qualname, one.__code__.co_firstlineno)) for one in functions]
    return [(one, pairs[key][1]) for one, key in keys if key in pairs]


def _import(file: str) -> None:
    with suppress(ImportError):  # of a file that this machine does not run
        importlib.import_module(file.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))


HIT: Final = "ddefuzz_hit"


@cache
def statements() -> tuple[tuple[str, int], ...]:
    """The lines with statements that have mutants, by file. The counters number them in this order."""
    return tuple(dict.fromkeys((one.file, one.statement) for file in area_of() for one in mutants_in(file)))


@cache
def counters() -> set[int]:
    """The numbers of the statements that this process has run. It counts from the first call on."""
    hits: set[int] = set()
    numbers = {line: number for number, line in enumerate(statements())}
    for file, area in area_of().items():
        if area in INDUCTOR:
            _import(file)
    for file, functions in live_functions(area_of()).items():
        tree = deepcopy(_tree(file)) if functions else ast.Module([], [])
        for node in ast.walk(tree):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and not isinstance(node, ast.Module | ast.ClassDef):
                    counted = ((one, numbers.get((file, one.lineno))) for one in block if isinstance(one, ast.stmt))
                    setattr(node, field, [new for one, at in counted for new in _counting(one, at)])
        name = str(torch_parent() / file)
        new = compile(ast.fix_missing_locations(tree), name, "exec", dont_inherit=True)
        pairs = _pairs(compile(_tree(file), name, "exec", dont_inherit=True), new) if functions else {}
        for function in functions:
            pair = pairs.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if pair is not None:
                function.__globals__[HIT] = hits.add
                function.__code__ = pair[1]
    return hits


def _counting(statement: ast.stmt, number: int | None) -> list[ast.stmt]:
    if number is None:
        return [statement]
    call = ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(number)], [])
    made = ast.copy_location(ast.Expr(call), statement)
    for node in ast.walk(made):
        ast.copy_location(node, statement)
    return [made, statement]
