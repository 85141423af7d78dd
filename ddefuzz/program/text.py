"""The text form of a program, which is Python: printed, parsed and hashed here. Parsing never executes it.

    # ddefuzz program v1
    # expect: export/explicit dde at::native::chunk
    # inputs: mask = trues(4); x = normal, transposed, grad
    def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "u0=3 4"]):
        kept = x[mask]
        parts = torch.chunk(kept, 2)
        return parts[0]

`parse(print_program(p))` is `p` for every well-formed program, and printing a parsed program gives the canonical text.
Each name is assigned once, so a step can be moved or inlined without checking the steps between.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ddefuzz import syntax
from ddefuzz.errors import ProgramError
from ddefuzz.escape import one_line
from ddefuzz.files import MAX_PROGRAM, read_start
from ddefuzz.program.expressions import (
    EVERYTHING,
    Scope,
    is_name,
    print_expression,
    read_expression,
    refuse,
)
from ddefuzz.program.model import (
    DEFAULT_UNBACKED_SIZE,
    Dim,
    Expr,
    Input,
    Literal,
    Option,
    Program,
    Recipe,
    Step,
)
from ddefuzz.program.options import fault_in
from ddefuzz.program.recipes import ANNOTATIONS, ARRANGED, DTYPES, RECIPES, fault_of

HEADER: Final = "# ddefuzz program v1"
KEY_HEADER: Final = "# ddefuzz key v"  # and its version
_HEADERS_OF_ANY_VERSION: Final = ("# ddefuzz program v", "# ddefuzz key v")
"""Those of programs, and of cases of key functions (`keys.case`)."""
_BYTE_ORDER_MARK: Final = "\ufeff"

MAX_BYTES: Final = MAX_PROGRAM
MAX_LINE: Final = 32 * 1024
MAX_DEPTH: Final = 60
MAX_STEPS: Final = 2_000
MAX_INPUTS: Final = 100
MAX_RANK: Final = 16

_DIM: Final = re.compile(r"(u[0-9]{1,4})(?:=([0-9]{1,9}))?|([0-9]{1,9})")
_OPTION: Final = re.compile(r"(\w{1,40})(?:\((u[0-9]{1,4})(?:=([0-9]{1,9}))?\))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Case:
    """A program, and the expectations of its file, one entry for each `# expect:` line."""

    program: Program
    expect: tuple[str, ...] = ()


# Printing


def print_program(program: Program, expect: tuple[str, ...] = ()) -> str:
    """The canonical text of a program."""
    lines = [HEADER, *(f"# expect: {one_line(entry)}" for entry in expect)]
    if program.options:
        lines.append(f"# options: {'; '.join(map(str, program.options))}")
    if program.inputs:
        lines.append(f"# inputs: {'; '.join(map(_print_values, program.inputs))}")
    return "\n".join([*lines, print_function(program), ""])


def print_function(program: Program, others: Iterable[str] = ()) -> str:
    """The canonical text of the function alone, without a final newline. `others` are parameters after the inputs."""
    parameters = ", ".join([*map(_print_parameter, program.inputs), *others])
    body = [*map(_print_step, program.steps), f"return {print_expression(program.returns)}"]
    return "\n    ".join([f"def program({parameters}):", *body])


def digest(program: Program) -> str:
    """The identity of a program: the SHA-256 in hex of its canonical text, without its expectations."""
    return hashlib.sha256(print_program(program).encode()).hexdigest()


def _print_step(step: Step) -> str:
    value = print_expression(step.value)
    if not step.targets and not step.unpack:
        return value
    targets = ", ".join(step.targets)
    return f"({targets},) = {value}" if step.unpack and len(step.targets) == 1 else f"{targets} = {value}"


def _print_parameter(item: Input) -> str:
    dims = " ".join(map(_print_dim, item.shape))
    return f'{item.name}: {ANNOTATIONS[item.dtype]}[Tensor, "{dims}"]'


def _print_dim(dim: Dim) -> str:
    if dim.symbol is None:
        return str(dim.size)
    return dim.symbol if dim.size == DEFAULT_UNBACKED_SIZE else f"{dim.symbol}={dim.size}"


def _print_values(item: Input) -> str:
    recipe = item.recipe.kind
    arguments = ", ".join(map(repr, item.recipe.args))
    if recipe == "values":
        recipe = f"values([{arguments}])"
    elif item.recipe.args or RECIPES[recipe].variadic:
        recipe = f"{recipe}({arguments})"
    options = [item.layout] if item.layout != "contiguous" else []
    options += ["grad"] if item.requires_grad else []
    return f"{item.name} = {', '.join([recipe, *options])}"


# Parsing


def is_program(text: str) -> bool:
    """Whether a `.py` file is a stored case: its first line is the header of some version. Others are user code."""
    return text.removeprefix(_BYTE_ORDER_MARK).startswith(_HEADERS_OF_ANY_VERSION)


def is_key(text: str) -> bool:
    """Whether a text is a stored case of a key function (`keys.case`), which has another text form than programs."""
    return text.startswith(KEY_HEADER)


def read_program(path: Path) -> str | None:
    """The text of a program's file, not parsed yet; None for user code. Raises as `read_text`."""
    content = _read(path)
    return _decoded(content, path) if is_program(content[:MAX_LINE].decode(errors="replace")) else None


def read_text(path: Path) -> str:
    """The text of a program's file. Raises ProgramError if it cannot be one, InputError if it cannot be read."""
    return _decoded(_read(path), path)


def read_case(path: Path, callables: Container[str]) -> Case:
    """The case in a file. Raises ProgramError if it is not one, InputError if it cannot be read."""
    return parse(read_text(path), str(path), callables)


def _read(path: Path) -> bytes:
    """The bytes of a file, up to the limit at which it is too long."""
    return read_start(path, MAX_BYTES + 1)


def _decoded(content: bytes, path: Path) -> str:
    if len(content) > MAX_BYTES:
        raise ProgramError(str(path), 1, f"more than {MAX_BYTES} bytes", f"at most {MAX_BYTES}")
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ProgramError(str(path), line, f"the byte {content[error.start]:#04x}", "text in UTF-8") from error


def parse(text: str, path: str, callables: Container[str] = EVERYTHING) -> Case:
    """Parse the text of a case. `path` is used in messages, `callables` are the catalogue's functions.

    Raises ProgramError for everything that is malformed, unknown or not allowed in a program.
    """
    text = text.replace("\r\n", "\n")
    _check_size(text, path)
    header = _parse_header(text.split("\n"), path)
    function = _parse_function(text, path)
    inputs = _read_inputs(function, header.values, path)
    options = _read_options(header.options, inputs, path)
    steps, returns = _read_body(function, Scope(path, callables, {item.name for item in inputs}))
    return Case(Program(inputs, steps, returns, options), tuple(header.expect))


def _check_size(text: str, path: str) -> None:
    """Reject a text that is too long before anything parses it, so that a hostile file costs nothing."""
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        raise ProgramError(path, 1, f"more than {MAX_BYTES} bytes", f"at most {MAX_BYTES}")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE:
            raise ProgramError(path, number, f"a line of {len(line)} characters", f"at most {MAX_LINE}")


@dataclass(frozen=True, slots=True)
class _Values:
    """The entry of one input in the `# inputs:` line."""

    line: int
    recipe: Recipe
    layout: str
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class _Header:
    """The lines before the function: expectations, options with their lines' numbers, and the values of inputs."""

    expect: list[str]
    options: list[tuple[int, str]]
    values: dict[str, _Values]


def _parse_header(lines: list[str], path: str) -> _Header:
    if lines[0].startswith(_BYTE_ORDER_MARK):
        raise ProgramError(path, 1, "a byte order mark", f"a file that begins with {HEADER!r}")
    if lines[0].rstrip() != HEADER:
        raise ProgramError(path, 1, repr(lines[0][:60]), repr(HEADER))
    header = _Header([], [], {})
    for number, line in enumerate(lines[1:], 2):
        if not line.startswith("#"):
            break
        key, _, content = line.removeprefix("# ").partition(":")
        entry = " ".join(content.split())
        if key == "expect" and entry:
            if one_line(entry) != entry:
                raise ProgramError(path, number, repr(line[:60]), "an expectation of printable characters")
            header.expect.append(entry)
        elif key == "options":
            header.options.extend((number, option.strip()) for option in content.split(";"))
        elif key == "inputs":
            for item in content.split(";"):
                name, value = _parse_values(item, number, path)
                if name in header.values:
                    raise ProgramError(path, number, f"the values of {name!r} twice", "one entry for each input")
                header.values[name] = value
        else:
            raise ProgramError(path, number, repr(line[:60]), "'# expect: …', '# options: …' or '# inputs: …'")
    return header


def _read_options(entries: list[tuple[int, str]], inputs: tuple[Input, ...], path: str) -> tuple[Option, ...]:
    """The options of the lines `# options: dynamic; min(u0=2)`."""
    options: dict[tuple[str, str | None], Option] = {}
    for line, entry in entries:
        match = _OPTION.fullmatch(entry)
        if match is None:
            raise ProgramError(path, line, f"the option {entry[:60]!r}", "one such as 'dynamic' or 'min(u0=2)'")
        name, symbol, number = match.groups()
        option = Option(name, symbol, None if number is None else int(number))
        if (fault := fault_in(option, inputs)) is not None:
            raise ProgramError(path, line, *fault)
        if options.setdefault((name, symbol), option) != option:
            raise ProgramError(path, line, f"the option {entry} beside {options[name, symbol]}", "one of them")
    return tuple(options.values())


def _parse_values(item: str, line: int, path: str) -> tuple[str, _Values]:
    """Parse one entry of the `# inputs:` line: `x = normal, transposed, grad`."""
    name, equals, source = item.partition("=")
    expected = "'name = recipe', then a layout and 'grad' where wanted, entries divided by ';'"
    if not equals:
        raise ProgramError(path, line, repr(item.strip()[:60]), expected)
    node = _parse_python(source.strip(), "eval", path, line)
    assert isinstance(node, ast.Expression)
    first, *options = node.body.elts if isinstance(node.body, ast.Tuple) and node.body.elts else [node.body]
    layout, requires_grad = "contiguous", False
    for option in options:
        match option:
            case ast.Name("grad") if not requires_grad:
                requires_grad = True
            case ast.Name(id) if id in ARRANGED and layout == "contiguous":
                layout = id
            case _:
                refuse(option, path, f"'grad' or one of the layouts {', '.join(ARRANGED)}")
    return name.strip(), _Values(line, _read_recipe(first, path), layout, requires_grad)


def _read_recipe(node: ast.expr, path: str) -> Recipe:
    match node:
        case ast.Name(kind) if kind in RECIPES and not RECIPES[kind].variadic:
            return Recipe(kind)
        case ast.Call(ast.Name("values"), [ast.List(arguments)], []):
            return Recipe("values", tuple(_read_number(argument, path) for argument in arguments))
        case ast.Call(ast.Name(kind), arguments, []) if kind in RECIPES and kind != "values":
            return Recipe(kind, tuple(_read_number(argument, path) for argument in arguments))
        case _:
            refuse(node, path, f"one of the recipes {', '.join(RECIPES)}")


def _read_number(node: ast.expr, path: str) -> int | float | bool:
    match read_expression(node, Scope(path, (), ())):
        case Literal(bool() | int() | float() as value):
            return value
        case _:
            refuse(node, path, "a number")


def _parse_python(source: str, mode: str, path: str, line: int) -> ast.AST:
    """The syntax tree of `source`, at most MAX_DEPTH deep. `line` is where it starts, for messages."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # warnings, such as for an invalid escape, are errors
            tree = ast.increment_lineno(syntax.parse(source, path, mode=mode), line - 1)
    except SyntaxError as error:
        at = line - 1 + (error.lineno or 1)
        raise ProgramError(path, at, f"a syntax error ({error.msg})", "Python") from error
    except (RecursionError, MemoryError) as error:
        raise ProgramError(path, line, "code nested too deeply", f"at most {MAX_DEPTH} levels") from error
    except ValueError as error:  # null bytes, ints of thousands of digits
        raise ProgramError(path, line, f"code that Python does not parse ({error})", "Python") from error
    level: list[ast.AST] = [tree]
    for _ in range(MAX_DEPTH + 3):  # above the expressions are the module, the function and the statement
        if not (level := [child for node in level for child in ast.iter_child_nodes(node)]):
            return tree
    at = getattr(level[0], "lineno", line)
    raise ProgramError(path, at, "code nested too deeply", f"at most {MAX_DEPTH} levels")


def _parse_function(text: str, path: str) -> ast.FunctionDef:
    tree = _parse_python(text, "exec", path, 1)
    assert isinstance(tree, ast.Module)
    if not tree.body:
        raise ProgramError(path, text.count("\n") + 1, "no function", "def program(…):")
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name != "program" or node is not tree.body[0]:
            refuse(node, path, "one function, def program(…):")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    if function.decorator_list or function.returns or getattr(function, "type_params", None):
        refuse(function, path, "def program(…): without decorators, type parameters or a return annotation")
    return function


def _read_inputs(function: ast.FunctionDef, values: dict[str, _Values], path: str) -> tuple[Input, ...]:
    arguments = function.args
    if arguments.posonlyargs or arguments.vararg or arguments.kwonlyargs or arguments.kwarg or arguments.defaults:
        refuse(function, path, "plain parameters without defaults")
    if len(arguments.args) > MAX_INPUTS:
        raise ProgramError(path, function.lineno, f"{len(arguments.args)} parameters", f"at most {MAX_INPUTS}")
    inputs: dict[str, Input] = {}
    symbols: dict[str, int] = {}
    for argument in arguments.args:
        name = argument.arg
        if not is_name(name) or name in inputs:
            raise ProgramError(path, argument.lineno, repr(name), "a new name without leading '__', not reserved")
        if name not in values:
            raise ProgramError(path, argument.lineno, f"no values for {name!r}", f"'# inputs: {name} = …'")
        dtype, shape = _read_annotation(argument, path)
        for dim in shape:
            if dim.symbol is not None and symbols.setdefault(dim.symbol, dim.size) != dim.size:
                sizes = f"the sizes {symbols[dim.symbol]} and {dim.size} of {dim.symbol}"
                raise ProgramError(path, argument.lineno, sizes, "one size for each symbol")
        given = values[name]
        item = Input(name, dtype, shape, given.recipe, given.layout, given.requires_grad)
        if (fault := fault_of(item)) is not None:
            raise ProgramError(path, given.line, f"{fault[0]} for {name!r}", fault[1])
        inputs[name] = item
    for name, given in values.items():
        if name not in inputs:
            raise ProgramError(path, given.line, f"values for {name!r}", f"one of the parameters {', '.join(inputs)}")
    return tuple(inputs.values())


def _read_annotation(argument: ast.arg, path: str) -> tuple[str, tuple[Dim, ...]]:
    expected = f"""an annotation such as Float32[Tensor, "u0 4"], of {", ".join(DTYPES)}"""
    match argument.annotation:
        case ast.Subscript(ast.Name(annotation), ast.Tuple([ast.Name("Tensor"), ast.Constant(str() as dims)])) if (
            annotation in DTYPES
        ):
            parts = dims.split()
            if len(parts) > MAX_RANK:
                raise ProgramError(path, argument.lineno, f"{len(parts)} dims", f"at most {MAX_RANK}")
            return DTYPES[annotation], tuple(_read_dim(part, argument.lineno, path) for part in parts)
        case _:
            refuse(argument, path, expected)


def _read_dim(text: str, line: int, path: str) -> Dim:
    match = _DIM.fullmatch(text)
    if match is None:
        raise ProgramError(
            path,
            line,
            f"the dim {text[:60]!r}",
            "a size such as '3', or a symbol such as 'u0' or 'u0=3' (with its example size)",
        )
    symbol, unbacked_size, size = match.groups()
    if symbol is None:
        return Dim(int(size))
    return Dim(DEFAULT_UNBACKED_SIZE if unbacked_size is None else int(unbacked_size), symbol)


def _read_body(function: ast.FunctionDef, scope: Scope) -> tuple[tuple[Step, ...], Expr]:
    *statements, last = function.body
    if len(statements) > MAX_STEPS:
        raise ProgramError(scope.path, function.lineno, f"{len(statements)} steps", f"at most {MAX_STEPS}")
    known = {argument.arg for argument in function.args.args}
    scope = replace(scope, names=known)
    steps: list[Step] = []
    for statement in statements:
        step = _read_step(statement, scope)
        for target in step.targets:
            if not is_name(target) or target in known or target in scope.ever:
                expected = "a new name without leading '__', not reserved"
                raise ProgramError(scope.path, statement.lineno, f"the target {target!r}", expected)
            known.add(target)
        steps.append(step)
    if not isinstance(last, ast.Return) or last.value is None:
        refuse(last, scope.path, "a value returned at the end")
    return tuple(steps), read_expression(last.value, scope)


def _read_step(statement: ast.stmt, scope: Scope) -> Step:
    match statement:
        case ast.Assign([ast.Name(target)], value):
            return Step((target,), read_expression(value, scope))
        case ast.Assign([ast.Tuple(targets)], value) if targets:
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if len(names) < len(targets):
                refuse(statement, scope.path, "names to unpack into")
            return Step(tuple(names), read_expression(value, scope), unpack=True)
        case ast.Expr(ast.Call() as call):
            return Step((), read_expression(call, scope))
        case _:
            refuse(statement, scope.path, "an assignment, an unpacking or a call")
