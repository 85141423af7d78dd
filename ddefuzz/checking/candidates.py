"""The changes to try for one failure, the least harmful first.

The sizes in a guard are symbols (`u0`). A promise names them in the user's terms: `u0`, made by `kept = x[keep]`, is
`kept.shape[0]`.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddefuzz.checking.changes import InputDim, Interface
from ddefuzz.checking.conditions import holds, in_user_words, opposite
from ddefuzz.checking.edits import Edit, Place, function_at, inserted, locate, replaced, statements_at
from ddefuzz.checking.explain import NUMBERS, own_line
from ddefuzz.checking.owner import full_path
from ddefuzz.checking.rewrites import DECISIONS, REWRITES, SIZES, assume_size
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.site import USER_SITE
from ddefuzz.errors import InputError
from ddefuzz.files import leads_to_file, read_text
from ddefuzz.instrument.events import PROGRAM_FILE, Frame, Raised, SymbolOrigin

_SOURCE = re.compile(r"dim (?P<dim>\d+) of (?P<leaf>.+?)(, dim \d+ of .+)?")
"""An input's dim as `SymbolOrigin.source` has it: the first one, if several dims share a size."""

_NOT_ZERO = re.compile(r"^(\S+\.shape\[\d+\]) != 0$")

_BLOCKS = ast.If | ast.For | ast.While | ast.With

MOST_DIMS = 6
"""Up to this many input dims are tried where torch does not say which of them a symbol is."""


class Sources:
    """The texts of files: those that an attempt has changed, else as they are. No file is written."""

    def __init__(self, program: str = "", changed: Mapping[str, str] | None = None) -> None:
        self.program = program
        self.changed = dict(changed or {})
        self._read: dict[str, str | None] = {}

    def with_text(self, path: str, text: str) -> Sources:
        """The texts with another one of a file."""
        made = Sources(self.program, {**self.changed, path: text})
        made._read = self._read
        return made

    def text(self, path: str) -> str | None:
        """The text of a file. None if it cannot be read or is not Python."""
        return self.changed.get(path) or self.original(path)

    def original(self, path: str) -> str | None:
        """The text of a file as it is on disk, or of the cell of a notebook."""
        if path not in self._read:
            self._read[path] = self.program if path == PROGRAM_FILE else _python(path)
        return self._read[path]


class Proposal(NamedTuple):
    """An edit of a file, or a promise about inputs (without a file).

    `key` is that of the failure for which it was proposed, empty if that is not known any more.
    """

    path: str
    edit: Edit
    key: str = ""


def proposed(failure: Classified, sources: Sources, described: Interface) -> Iterator[Proposal]:
    """All changes that may help with a failure, those of least harm first."""
    raised, key = failure.failure.observation.raised, failure.signature.key
    frame = own_line(failure.failure.observation)
    file = full_path(frame.file) if frame is not None else ""
    question = raised.expression if raised is not None else ""
    place = _place(frame, question, sources) if frame is not None else None
    is_own = _at_own_line(failure)
    if place is not None:
        yield from (Proposal(file, edit, key) for row in REWRITES for edit in row(place))
    if raised is not None:
        yield from (Proposal("", edit, key) for edit in _about_inputs(raised, described))
    if place is not None and is_own:
        yield from (Proposal(file, edit, key) for row in DECISIONS for edit in row(place))
    if raised is not None and frame is not None:
        for path, inner in _inner_places(raised, frame, sources):
            rows = [row for row in SIZES if not (is_own and row is assume_size)]
            yield from (Proposal(path, edit, key) for row in rows for edit in row(inner))


def with_checks(sources: Sources, described: Interface, condition: str) -> Sources | None:
    """The sources with a check as the first statement of the subject's function. None if it cannot be found."""
    source, before = sources.text(described.file), sources.original(described.file)
    old = function_at(before, described.line) if before is not None else None
    if source is None or before is None or old is None:
        return None
    number = [one.lineno for one in _functions(before, old.name)].index(old.lineno)
    function = _functions(source, old.name)[number]
    body = [one for one in function.body if not _is_docstring(one)] or function.body
    if body[0].lineno == function.lineno:
        return None
    return sources.with_text(described.file, inserted(source, body[0], (f"torch._check({condition})",)))


def _functions(source: str, name: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name]


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _place(frame: Frame, question: str, sources: Sources) -> Place | None:
    source = sources.text(full_path(frame.file))
    return locate(source, frame, python_anchor(frame), question, {}) if source is not None else None


def _at_own_line(failed: Classified) -> bool:
    """Whether the site is the user's own line, or an op that the line calls."""
    site = failed.signature.site
    called = site.language == "op" and failed.frame is not None and not is_framework(failed.frame)
    return site == USER_SITE or called


def _about_inputs(raised: Raised, described: Interface) -> Iterator[Edit]:
    """Promises about the sizes of inputs that a guard is about."""
    groups: dict[str, list[InputDim]] = {}
    for dim in described.dims:
        if dim.symbol:
            groups.setdefault(dim.symbol, []).append(dim)
    sizes = {str(dim): dim.size for dim in described.dims}
    symbols = [origin for origin in raised.symbols if origin.source or origin.frame is None]
    if not symbols or not groups:
        return
    seen: set[str] = set()
    mapping = _mapping(symbols)
    known = [mapping] if mapping is not None else []
    guesses = [{symbols[0].symbol: str(dims[0])} for dims in list(groups.values())[:MOST_DIMS]]
    for one in known or (guesses if len(symbols) == 1 else []):
        for condition in _conditions(raised.expression, one, data=len(symbols) < len(raised.symbols)):
            if condition not in seen and holds(condition, sizes) is not False:
                seen.add(condition)
                yield _promise(condition)
    for first, second in combinations([dims[0] for dims in groups.values()], 2):
        condition = f"{first} == {second}"
        if first.size == second.size and condition not in seen:
            yield _promise(condition)


def _promise(condition: str) -> Edit:
    return Edit("", "input-promise", f"promise that {condition}", condition)


def _mapping(symbols: list[SymbolOrigin]) -> dict[str, str] | None:
    """The user's expression for each symbol. None if the input of one is not known."""
    found = {one.symbol: _SOURCE.fullmatch(one.source) for one in symbols}
    known = {symbol: f"{dim['leaf']}.shape[{dim['dim']}]" for symbol, dim in found.items() if dim is not None}
    return known if len(known) == len(symbols) else None


def _conditions(question: str, mapping: dict[str, str], *, data: bool) -> Iterator[str]:
    if len(mapping) > 1:
        yield from (f"{one} == {other}" for one, other in combinations(mapping.values(), 2))
    condition = None if data else in_user_words(question, mapping)
    bounds = list(_bounds(mapping))
    if condition is None:
        yield from bounds
        return
    # torch takes more from `> 0` than from `!= 0`, and for a size they mean the same.
    told = [_NOT_ZERO.sub(r"\1 > 0", ast.unparse(one)) for one in (opposite(condition), condition)]
    if len(mapping) > 1 and _is_computed(condition) and question.endswith(", 0)"):
        # A product of sizes is 0 where one of them is: that is easier to read than the product.
        yield from (f"{dim} > 0" for dim in mapping.values())
    yield from told
    yield from bounds


def _bounds(mapping: dict[str, str]) -> Iterator[str]:
    for bound in ("!= 1", "> 0", "> 1"):
        yield from (f"{dim} {bound}" for dim in mapping.values())
        if len(mapping) > 1:
            yield " and ".join(f"{dim} {bound}" for dim in mapping.values())


def _is_computed(condition: ast.expr) -> bool:
    return any(isinstance(node, ast.BinOp) for node in ast.walk(condition))


def _inner_places(raised: Raised, frame: Frame, sources: Sources) -> Iterator[tuple[str, Place]]:
    """Where sizes of data have names: the failing line, and after the line that makes them. With the file of each."""
    made = [one for one in raised.symbols if one.frame and not one.source and not is_framework(one.frame)]
    by_file: dict[str, list[tuple[SymbolOrigin, Frame]]] = {}
    for origin in made:
        if origin.frame is not None:
            by_file.setdefault(full_path(origin.frame.file), []).append((origin, origin.frame))
    for path, origins in by_file.items():
        source = sources.text(path)
        last = max(maker.line for _, maker in origins)
        if source is None or last > len(source.splitlines()):
            continue
        known = name_sizes(source, origins)
        if path == full_path(frame.file) and all(maker.function == frame.function for _, maker in origins):
            moved = msgspec.structs.replace(frame, line=known.line(frame.line))
            place = locate(known.source, moved, python_anchor(frame), raised.expression, known.sizes)
        else:
            place = _after(known, known.line(last), raised.expression)
        if place is not None:
            yield path, place


def _after(known: NamedSizes, line: int, question: str) -> Place | None:
    """The place after the statement that makes a size: a `pass` there stands for what follows."""
    around = [one for one in statements_at(known.source, line) if not isinstance(one, _BLOCKS)]
    if not around:
        return None
    statement = max(around, key=lambda one: one.lineno)
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        end = statement.end_lineno or statement.lineno
        statements = (node for node in ast.walk(ast.parse(known.source)) if isinstance(node, ast.stmt))
        later = (node for node in statements if node.lineno > end)
        nearest = min(later, key=lambda one: one.lineno, default=None)
        if nearest is None:
            return None
        statement = nearest
    return Place(known.source, statement, ast.Constant(None), question, known.sizes)


def _python(path: str) -> str | None:
    """The text of a file, else of the cell of a notebook that has this name. None if it is not Python."""
    try:
        text = read_text(Path(path)) if path.endswith(".py") and leads_to_file(Path(path)) else ""
        text = text or "".join(linecache.getlines(path))
        ast.parse(text)
    except (InputError, SyntaxError, ValueError):
        return None
    return text or None


class NamedSizes(NamedTuple):
    """A source in which every new symbol has a name.

    `added` are the lines of the original in front of which a line was inserted.
    """

    source: str
    sizes: dict[str, str]
    added: tuple[int, ...]

    def line(self, line: int) -> int:
        """The number, in this source, of a line of the original."""
        return line + sum(at <= line for at in self.added)


def name_sizes(source: str, origins: Iterable[tuple[SymbolOrigin, Frame]]) -> NamedSizes:
    """Name the symbols by the variables that hold them. If no variable holds a symbol, a line that assigns one is
    added. Each origin comes with its frame.
    """
    named = NamedSizes(source, {}, ())
    for origin, frame in origins:
        around = statements_at(named.source, named.line(frame.line))
        if not around:
            continue
        statement = max(around, key=lambda node: node.lineno)
        code = python_anchor(frame)
        expressions = (node for node in ast.walk(statement) if isinstance(node, ast.expr))
        maker = next((node for node in expressions if ast.unparse(node) == code), None)
        if maker is None:
            continue
        held = _held(statement, maker, origin, named.sizes)
        if held is not None:
            named = named._replace(sizes={**named.sizes, origin.symbol: held})
        else:
            named = _hoisted(named, origin, statement, maker)
    return named


def _held(statement: ast.stmt, maker: ast.expr, origin: SymbolOrigin, sizes: dict[str, str]) -> str | None:
    """The size in terms of the variable that the statement assigns."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    number = origin.op in NUMBERS
    match statement.targets[0], statement.value:
        case ast.Name(name), value if value is maker:
            return name if number else f"{name}.shape[0]"
        case ast.Name(name), ast.Call(func=ast.Attribute(value, "size")) if value is maker:
            return name
        case ast.Name(name), ast.Subscript(value=ast.Attribute(value, "shape")) if value is maker:
            return name
        case ast.Tuple(elts), value if value is maker and all(isinstance(element, ast.Name) for element in elts):
            names = [ast.unparse(element) if number else f"{ast.unparse(element)}.shape[0]" for element in elts]
            return next((name for name in names if name not in sizes.values()), None)
        case _:
            return None


def _hoisted(so_far: NamedSizes, origin: SymbolOrigin, statement: ast.stmt, maker: ast.expr) -> NamedSizes:
    name = f"made_{origin.symbol}"
    source = inserted(replaced(so_far.source, maker, name), statement, (f"{name} = {ast.unparse(maker)}",))
    size = name if origin.op in NUMBERS else f"{name}.shape[0]"
    return NamedSizes(source, {**so_far.sizes, origin.symbol: size}, (*so_far.added, statement.lineno))
