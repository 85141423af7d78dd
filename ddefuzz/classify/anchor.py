"""The anchor of a failure: which decision of its site failed, in text without line numbers and sympy's order. And the
guard's expression in words for people.
"""

from __future__ import annotations

import ast
import re
import textwrap
from itertools import dropwhile, islice

from ddefuzz import syntax
from ddefuzz.classify.site import WITHOUT_NAMESPACE, function_name, native_call
from ddefuzz.instrument.events import Frame, RaisedError
from ddefuzz.program.expressions import ROOTS, is_mapped
from ddefuzz.program.modules import MODULE_METHODS

_CXX_OPERATOR = re.compile(r"^c10::(?:Sym(?:Int|Float|Bool)::)?(operator(?:==|!=|<=|>=|<|>))$")
_HEADER_OPERATOR = re.compile(r"\bsym_(eq|ne|lt|le|gt|ge)\(")
_OPERATORS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_BOUND_OP = re.compile(r"^torch::autograd::THPVariable_(\w+)$|^at::_ops::(\w+)::")
_BLOCKS = ("if", "while", "for", "with", "def", "class", "try", "match")


def native_anchor(raised: RaisedError) -> str:
    """The SymNode method and the C++ operator, such as `guard_bool operator==`; the method alone if no operator
    was used.

    The operator is in the frame next to the guard. If the compiler inlined it, it is on the line of `SymInt.h`
    that called the guard. The expression itself is not used, because sympy may reverse a relation.
    """
    for frame in native_call(raised.native):
        match = _CXX_OPERATOR.match(function_name(frame.function))
        if match:
            return f"{raised.method} {match[1]}"
    header = _HEADER_OPERATOR.search(raised.header_line)
    return f"{raised.method} operator{_OPERATORS[header[1]]}" if header else raised.method


def bound_op(native: tuple[Frame, ...]) -> str:
    """The op whose Python binding contains the native call that guards, such as `chunk`; empty if there is none.

    A binding asks a tensor that is given for an int for its `__index__`: the op is that of the binding.
    """
    for frame in native_call(native):
        if op := _bound(frame):
            return (_around(native) or op) if op == _INDEX else op
    return ""


_INDEX = "index_scalar"


def _around(native: tuple[Frame, ...]) -> str:
    """The op whose binding asked a tensor for its `__index__`; empty if Python did."""
    outward = dropwhile(lambda frame: _bound(frame) != _INDEX, reversed(native))
    for frame in islice(outward, 1, None):
        if op := _bound(frame):
            return op
        if (name := function_name(frame.function)).isidentifier() and not name.startswith(WITHOUT_NAMESPACE):
            return ""  # a function of CPython
    return ""


def _bound(frame: Frame) -> str:
    match = _BOUND_OP.match(function_name(frame.function))
    return (match[1] or match[2]) if match else ""


def python_anchor(frame: Frame) -> str:
    """The source of the decision, as `ast.unparse` prints it.

    It is the smallest call or comparison at the frame's instruction, else the whole statement.
    """
    expression = _expression(frame.code)
    if expression is not None:
        return ast.unparse(_decided(expression))
    statement = _statement(frame.code)
    if statement is None:
        return " ".join(frame.code.split())
    value = _decision(statement)
    return ast.unparse(statement if value is None else _decided(value))


def short_anchor(frame: Frame) -> str:
    """The anchor with `…` in place of long strings and lambdas (messages of checks), which are no part of it."""
    anchor = python_anchor(frame)
    tree = syntax.parsed_expression(anchor)
    return anchor if tree is None else ast.unparse(_Shortener().visit(tree)).replace("'…'", "…")


class _Shortener(ast.NodeTransformer):
    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return ast.copy_location(ast.Constant("…"), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.copy_location(ast.Constant("…"), node)


def callee(frame: Frame, name: str = "") -> str:
    """What the frame's code calls, without receiver and arguments: `torch.arange`, `.chunk`. Without a call,
    its anchor.

    If `name` is given, the call of that function is preferred.
    """
    tree = _expression(frame.code) or _statement(frame.code)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call | ast.Subscript)] if tree is not None else []
    named = (call for call in calls if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(f".{name}"))
    call = next(named, calls[0] if calls else None) if name else next(iter(calls), None)
    match call:
        case ast.Subscript(ast.Call() as maker, ast.Constant(int())):  # one of several results
            call = maker
    while isinstance(call, ast.Call) and (made := _maker(call)) is not None:
        call = made
    match call:
        case ast.Call(ast.Attribute(value, attribute)) if not _is_module_path(value):
            return f".{attribute}"
        case ast.Call(function):
            return ast.unparse(function)
        case ast.Subscript():
            return ".__getitem__"
        case _:
            return python_anchor(frame)


def _maker(call: ast.Call) -> ast.Call | None:
    """The call that returns what is called: `torch.nn.Linear(4, 3)` of `torch.nn.Linear(4, 3).eval()(x)`."""
    match call.func:
        case ast.Call() as made if not is_mapped(made):
            return made
        case ast.Attribute(ast.Call() as module, attribute) if attribute in MODULE_METHODS:
            return module
        case _:
            return None


def _expression(code: str) -> ast.expr | None:
    return syntax.parsed_expression(f"({code.strip()}\n)") if code.strip() else None


def _statement(code: str) -> ast.stmt | None:
    """The code as one complete statement. A header gets an empty block, and `elif` is parsed as `if`."""
    source = _aligned(code)
    source = source.removeprefix("el" if source.startswith("elif") else "async ")
    for candidate in (source, f"{source}\n    pass", f"{source} pass" if source.startswith(_BLOCKS) else source):
        body = syntax.parsed_statements(textwrap.dedent(candidate))
        if body is not None:
            return body[0] if body else None
    return None


def _aligned(code: str) -> str:
    """The code with its first line indented like the line that continues it (`else:`)."""
    first, _, rest = code.strip().partition("\n")
    continued = re.search(r"^([ \t]*)(?:elif|else|except|finally)\b", rest, re.MULTILINE)
    return textwrap.dedent(f"{continued[1]}{first}\n{rest}") if continued else code.strip()


def _decision(statement: ast.stmt) -> ast.expr | None:
    """The part of a statement that is evaluated first: its condition, or the value that it passes on."""
    match statement:
        case ast.If(test) | ast.While(test) | ast.Assert(test):
            return test
        case ast.For(_, iterated):
            return iterated
        case ast.Return(value) | ast.Expr(value) | ast.Assign(_, value) | ast.AugAssign(_, _, value):
            return value
        case ast.AnnAssign(_, _, value):
            return value
        case _:
            return None


def _decided(expression: ast.expr) -> ast.expr:
    """The condition of a branch inside an expression: the test of `a if test else b`.

    For a comparison with `min(…)` or `max(…)`, it is the call of `min` or `max`. Strict export compares inside
    of these functions. Non-strict export replaces them by functions that compare nothing, and the outer
    comparison guards.
    """
    if isinstance(expression, ast.IfExp):
        expression = expression.test
    if isinstance(expression, ast.Compare):
        return next(filter(_is_extremum, (expression.left, *expression.comparators)), expression)
    return expression


def _is_extremum(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}


def _is_module_path(node: ast.expr) -> bool:
    """Whether an attribute's owner looks like a module: `torch.nn.functional`, `F`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in {*ROOTS, "F", "aten", "prims", "_VF"}


_SYMBOL_OR_NUMBER = re.compile(r"(?<![a-z])[a-z]+\d+|\d+(?:\.\d+)?")
_KEPT = frozenset({"0", "1"})


def expression_shape(expression: str) -> str:
    """`Eq(u3*7, u0)` as `Eq(a*n, b)`: symbols in order of appearance, numbers other than 0 and 1 become `n`."""
    names: dict[str, str] = {}

    def plain(match: re.Match[str]) -> str:
        text = match[0]
        if text[0].isdigit():
            return text if text in _KEPT else "n"
        return names.setdefault(text, f"x{len(names)}")

    return _SYMBOL_OR_NUMBER.sub(plain, expression)


def relation(expression: str) -> str:
    """What kind of relation an expression is: `Eq`, `Ne`, `<` (for each of `<`, `<=`, `>` and `>=`, as sympy may print
    one as another), `or`, `and`; empty for anything else.
    """
    match syntax.parsed_expression(expression):
        case ast.Call(ast.Name("Eq" | "Ne" as name)):
            return name
        case ast.Compare(ops=[ast.Eq()]):
            return "Eq"
        case ast.Compare() | ast.Call(ast.Name("Lt" | "Le" | "Gt" | "Ge")):
            return "<"
        case ast.BinOp(op=ast.BitOr()):
            return "or"
        case ast.BinOp(op=ast.BitAnd()):
            return "and"
        case _:
            return ""


MOST = 72
"""The maximum number of characters of an expression or of code in a title."""

MOST_SAID = 200
"""The maximum number of characters in a title of what an oracle or a message says. Two shapes or strides always fit."""

COMPARISONS = {"Eq": "==", "Ne": "!="}
"""How sympy prints comparisons as functions, and the operator in Python."""

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

_NUMBER_FIRST = re.compile(r"(-?\d+) (<|<=|>|>=) ([^<>=&|]+)")
_COMPARISON = re.compile(r"(\w+)\((.*)\)")
_END = re.compile(r"[\s,&|)]+(?=\S)")
"""Where an expression or a message may be cut."""


def question(expression: str) -> str:
    """A guard's expression for people. `Eq(u1, 0)` becomes `u1 == 0`. Symbols keep the names of torch's
    message. Long expressions are cut.
    """
    return shortened(_compared(expression))


def _compared(expression: str) -> str:
    """The outermost comparison as Python writes it, with a number on its right."""
    flipped = _NUMBER_FIRST.fullmatch(expression)
    if flipped is not None:
        return f"{flipped[3]} {FLIPPED[flipped[2]]} {flipped[1]}"
    match = _COMPARISON.fullmatch(expression)
    operator = COMPARISONS.get(match[1]) if match else None
    if match is None or operator is None:
        return expression
    depth, commas = 0, []
    for at, char in enumerate(match[2]):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return expression  # `Eq(…) | Eq(…)`
        if char == "," and depth == 0:
            commas.append(at)
    if len(commas) != 1:
        return expression
    return f"{match[2][: commas[0]].strip()} {operator} {match[2][commas[0] + 1 :].strip()}"


def shortened(text: str) -> str:
    """One line of at most `MOST` characters, cut at the end of a word or a term."""
    line = " ".join(text.split())
    if len(line) <= MOST:
        return line
    ends = [match.start() for match in _END.finditer(line, 0, MOST) if match.start() > MOST // 2]
    return f"{line[: ends[-1] if ends else MOST - 2].rstrip()} …"


def abridged(text: str) -> str:
    """One line of at most `MOST_SAID` characters: the first sentences of what an oracle or a message says. Of a longer
    sentence the middle is left out, because it may begin with a long value and end with what is wrong with it.
    """
    line = " ".join(text.split())
    if len(line) <= MOST_SAID:
        return line
    if (sentences := line.rfind(". ", 0, MOST_SAID)) > 0:
        return line[:sentences]
    half = MOST_SAID // 2 - 2
    begin, end = line[:half], line[-half:]
    return f"{begin.rpartition(' ')[0] or begin} … {end.partition(' ')[2] or end}"
