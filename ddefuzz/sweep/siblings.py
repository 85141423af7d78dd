"""Lines of torch's Python source that compare sizes as the site of a finding does, in functions without a finding.

What one function should not ask, others often ask, too: `a.numel() == 0` is the call site of many findings. Two
comparisons are alike if they have the same form (`form_of`), which leaves out names, the order of the two sides, and
which dim is meant. Only comparisons that name a size count. The source is read with `ast`, and torch is not imported.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from ddefuzz import syntax
from ddefuzz.findings.inventory import source_of
from ddefuzz.findings.model import Finding, FindingSummary
from ddefuzz.instrument import torch_api
from ddefuzz.ops.opinfo import OPINFO
from ddefuzz.show.blocks import Block, Column, Commands, Invocation, Paragraph, Table, TableRow, counted

ATTRIBUTES: Final = frozenset({"shape", "size", "numel", "stride", "storage_offset"})
"""Attributes and methods of a tensor that are sizes, or made of sizes."""

_SIZE_NAME: Final = re.compile(r"(^|_)(size|shape|stride|numel|length)s?(_|$)")

_FLIPPED: Final[Mapping[type[ast.cmpop], str]] = MappingProxyType({ast.Gt: "<", ast.GtE: "<="})
_OPERATORS: Final[Mapping[type[ast.cmpop], str]] = MappingProxyType(
    {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<="}
)

_DEFERS: Final = re.compile(r"guard_or|statically_known|^sym_|^_check|^definitely|^expect_true|^check")
"""Functions whose argument is asked with a fallback, or becomes an assertion."""

_WHOLE: Final = re.compile(r"\.(shape|size\(\)|stride\(\))( |$)")
"""A shape that is compared as a whole: Python then asks for the truth of each pair, also in an argument."""

LEVELS: Final = 2
"""How many callers away the ops of a helper are looked for."""

SCHEMA: Final = "ddefuzz.sibling/1"


class LineAlike(msgspec.Struct, frozen=True, order=True):
    """One comparison. `file` is relative to the folder that holds torch.

    `ops` are the names of ATen that lead to the function, `samples` those of them that `ddefuzz sweep --ops` knows, and
    `findings` the IDs of the findings whose call sites have the same form.
    """

    file: str
    line: int
    function: str
    code: str
    ops: tuple[str, ...]
    samples: tuple[str, ...]
    findings: tuple[str, ...]


class _Comparison(NamedTuple):
    form: str
    line: int
    function: str
    code: str


def forms_of(code: str) -> frozenset[str]:
    """The forms of the comparisons of sizes in a piece of code, such as the anchor of a finding."""
    tree = syntax.parsed_expression(code)
    nodes = ast.walk(tree) if tree is not None else ()
    return frozenset(form for node in nodes if isinstance(node, ast.Compare) and (form := form_of(node)))


def form_of(node: ast.Compare) -> str:
    """The form of a comparison; empty if it has none, or names no size. `x.shape[0] > n` has `_ < _.shape[_]`."""
    if len(node.ops) != 1:
        return ""
    sides, operator = [_side(node.left), _side(node.comparators[0])], type(node.ops[0])
    if operator in _FLIPPED:
        sides.reverse()
    elif operator in (ast.Eq, ast.NotEq):
        sides.sort()
    sign = _FLIPPED.get(operator) or _OPERATORS.get(operator)
    is_sized = any("size" in side or "." in side for side in sides)
    return f"{sides[0]} {sign} {sides[1]}" if sign and is_sized else ""


def _side(node: ast.expr) -> str:
    match node:
        case ast.Constant(value) if value in (0, 1) or not isinstance(value, int | float):
            return repr(value)
        case ast.Constant():
            return "N"
        case ast.UnaryOp(ast.USub(), operand):
            return f"-{_side(operand)}"
        case ast.Name(name) if _SIZE_NAME.search(name):
            return "size"
        case ast.Attribute(_, attribute) if attribute in ATTRIBUTES:
            return f"_.{attribute}"
        case ast.Attribute(_, attribute) if _SIZE_NAME.search(attribute):
            return "size"
        case ast.Subscript(value, index):
            return f"{_side(value)}[{':' if isinstance(index, ast.Slice) else '_'}]"
        case ast.Call(ast.Attribute(_, method), arguments) if method in ATTRIBUTES:
            return f"_.{method}({', '.join('_' * len(arguments))})"
        case ast.BinOp(left, operator, right):
            return f"{_side(left)} {type(operator).__name__} {_side(right)}"
        case _:
            return "_"


def siblings(
    forms: Mapping[str, Sequence[str]], package: Path, known: Collection[tuple[str | None, str | None]]
) -> Iterator[LineAlike]:
    """The comparisons in the torch of a folder that have one of these forms, in order of place.

    `forms` has the findings of each form, and `known` the files and functions that are left out. Raises
    UnsupportedError if the source cannot be read.
    """
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package.parent).as_posix()
        if not any(file in row for row in torch_api.SHAPE_CODE):
            continue
        tree = source_of(path, file)
        alike = [one for one in _comparisons(tree, "<module>") if one.form in forms]
        if alike and (alike := [one for one in alike if (file, one.function) not in known]):
            ops = _Ops(file, tree)
            for form, line, function, code in alike:
                names = ops.leading_to(function)
                samples = tuple(dict.fromkeys(sample for name in names for sample in _samples(name)))
                yield LineAlike(file, line, function, code, names, samples, tuple(forms[form]))


def forms_of_findings(findings: Iterable[Finding | FindingSummary]) -> dict[str, list[str]]:
    """The IDs of the findings by the forms at their call sites in Python."""
    forms: dict[str, list[str]] = {}
    for finding in findings:
        if finding.signature.site.language == "Python":
            for form in sorted(forms_of(finding.signature.anchor)):
                forms.setdefault(form, []).append(finding.id)
    return forms


def siblings_view(rows: Sequence[LineAlike], call: Invocation) -> Iterator[Block]:
    """The table, and the command that runs the ops."""
    if not rows:
        yield Paragraph("no other function of torch compares sizes as these findings do")
        return
    columns = (*(Column(name, code=True, folding=True) for name in ("comparison", "function")), Column("as in"))
    yield Table(columns, tuple(map(_row, rows)))
    samples = dict.fromkeys(sample for row in rows for sample in row.samples)
    words = [word for sample in samples for word in ("--ops", sample)]
    if samples:
        yield Commands((call.command("sweep", *words),), f"{counted(len(rows), 'comparison')}. Next:")


def _row(line: LineAlike) -> TableRow:
    ops = f", of {', '.join(line.ops)}" if line.ops else ""
    first, *others = line.findings
    alike = f"{first} and {len(others)} more" if others else first
    return TableRow((line.code, line.function, alike), f"{line.file}:{line.line}{ops}")


def _comparisons(node: ast.AST, function: str, deferring: bool = False) -> Iterator[_Comparison]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Compare) and (form := form_of(child)) and (not deferring or _WHOLE.search(form)):
            yield _Comparison(form, child.lineno, function, ast.unparse(child))
        yield from _comparisons(child, inner, deferring or _defers(child))


def _defers(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and bool(_DEFERS.search(_name_of(node.func)))


def _name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


class _Ops:
    """Which ops the functions of a file implement, by their decorators, and by their names where these are public."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        self._own = {node.name: frozenset(_own_ops(file, node)) for node in functions}
        self._callers: defaultdict[str, set[str]] = defaultdict(set)
        for node in functions:
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and (name := _name_of(call.func)) != node.name:
                    self._callers[name].add(node.name)

    def leading_to(self, function: str) -> tuple[str, ...]:
        """The ops of a function; of a helper, those of the functions that call it."""
        names = {function}
        for _ in range(LEVELS + 1):
            if ops := frozenset[str]().union(*(self._own.get(name, frozenset()) for name in names)):
                return tuple(sorted(ops))
            names = set().union(*(self._callers[name] for name in names))
        return ()


def _own_ops(file: str, function: ast.FunctionDef) -> Iterator[str]:
    for node in (node for decorator in function.decorator_list for node in ast.walk(decorator)):
        if isinstance(node, ast.Attribute) and _name_of(node.value) == "aten":
            yield node.attr
    if any(file in row for row in torch_api.PUBLIC_CODE) and not function.name.startswith("_"):
        yield function.name


def _samples(name: str) -> Iterator[str]:
    """The names of OpInfo that an op of ATen may have."""
    plain = re.sub(r"_(forward|backward|out|copy)$", "", name.strip("_"))
    for spelling in dict.fromkeys((name, name.strip("_"), plain)):
        for prefix, place in _PLACES:
            sample = place + spelling.removeprefix(prefix)
            if spelling.startswith(prefix) and (f"torch.{sample}" in OPINFO or f"Tensor.{sample}" in OPINFO):
                yield sample


_PLACES: Final = (("", ""), ("", "nn.functional."), ("linalg_", "linalg."), ("fft_", "fft."), ("special_", "special."))
"""How names begin in ATen, and where torch has these functions."""
