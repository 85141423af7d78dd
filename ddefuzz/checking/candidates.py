"""The changes to try for one failure, the least harmful first."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddefuzz.checking.change_summary import own_line
from ddefuzz.checking.change_text import function_at, inserted, statements_at
from ddefuzz.checking.changes import Described, InputDim
from ddefuzz.checking.conditions import in_user_words, opposite
from ddefuzz.checking.diffs import full_path
from ddefuzz.checking.place import Edit, Place, locate
from ddefuzz.checking.rewrites import DECISIONS, REWRITES, SIZES, assume_size
from ddefuzz.checking.symbols import named
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.site import USER_SITE
from ddefuzz.errors import InputError
from ddefuzz.files import read_text
from ddefuzz.instrument.events import PROGRAM_FILE, Frame, Raised, SymbolOrigin

_SOURCE = re.compile(r"dim (?P<dim>\d+) of (?P<leaf>.+?)(, dim \d+ of .+)?")
"""An input's dim as `SymbolOrigin.source` has it: the first one, if several dims share a size."""

_NOT_ZERO = re.compile(r"^(\S+\.shape\[\d+\]) != 0$")

MOST_DIMS = 6
"""Up to this many input dims are tried where torch does not say which of them a symbol is."""


class Sources:
    """The texts of files: those that an attempt has changed, else as they are on disk. No file is written."""

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
        """The text of a file as it is on disk."""
        if path not in self._read:
            self._read[path] = self.program if path == PROGRAM_FILE else _python(path)
        return self._read[path]


def path_of(frame: Frame) -> str:
    """The file of a frame by its full path."""
    return frame.file if frame.file == PROGRAM_FILE else full_path(frame.file)


class Proposed(NamedTuple):
    """An edit of a file, or a promise about inputs (without a file)."""

    path: str
    edit: Edit


def proposed(failure: Classified, sources: Sources, described: Described) -> Iterator[Proposed]:
    """All changes that may help with a failure, those of least harm first."""
    frame = own_line(failure.failure.observation)
    raised = failure.failure.observation.raised
    question = raised.expression if raised is not None else ""
    place = _place(frame, question, sources) if frame is not None else None
    if frame is not None and place is not None:
        yield from (Proposed(path_of(frame), edit) for row in REWRITES for edit in row(place))
    if raised is not None:
        yield from (Proposed("", edit) for edit in _about_inputs(raised, described))
    if frame is None:
        return
    if place is not None and _at_own_line(failure):
        yield from (Proposed(path_of(frame), edit) for row in DECISIONS for edit in row(place))
    if raised is not None:
        yield from _inside(raised, frame, question, sources, own=_at_own_line(failure))


def with_checks(sources: Sources, described: Described, condition: str) -> Sources | None:
    """The sources with a check as the first statement of the subject's function. None if it cannot be found."""
    source = sources.text(described.file)
    before = sources.original(described.file)
    if source is None or before is None:
        return None
    old = function_at(before, described.line)
    if old is None:
        return None
    same = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == old.name]
    number = [
        node.lineno
        for node in ast.walk(ast.parse(before))
        if isinstance(node, ast.FunctionDef) and node.name == old.name
    ].index(old.lineno)
    function = same[number]
    body = [one for one in function.body if not _is_docstring(one)] or function.body
    if body[0].lineno == function.lineno:
        return None
    return sources.with_text(described.file, inserted(source, body[0], (f"torch._check({condition})",)))


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _place(frame: Frame, question: str, sources: Sources) -> Place | None:
    source = sources.text(path_of(frame))
    return locate(source, frame, python_anchor(frame), question, {}) if source is not None else None


def _at_own_line(failed: Classified) -> bool:
    """Whether the site is the user's own line, or an op that the line calls."""
    site = failed.signature.site
    called = site.language == "op" and failed.frame is not None and not is_framework(failed.frame)
    return site == USER_SITE or called


def _about_inputs(raised: Raised, described: Described) -> Iterator[Edit]:
    """Promises about the sizes of inputs that a guard is about."""
    groups = _groups(described)
    symbols = [origin for origin in raised.symbols if origin.source or origin.frame is None]
    if not symbols or not groups:
        return
    seen: set[str] = set()
    mapping = _mapping(symbols)
    known = [mapping] if mapping is not None else []
    guesses = [{symbols[0].symbol: str(dims[0])} for dims in list(groups.values())[:MOST_DIMS]]
    for one in known or (guesses if len(symbols) == 1 else []):
        for condition in _conditions(raised.expression, one, data=len(symbols) < len(raised.symbols)):
            if condition not in seen and _fits_example(condition, described):
                seen.add(condition)
                yield _promise(condition)
    for first, second in combinations([dims[0] for dims in groups.values()], 2):
        condition = f"{first} == {second}"
        if first.size == second.size and condition not in seen:
            yield _promise(condition)


def _fits_example(condition: str, described: Described) -> bool:
    """Whether the sizes of the example keep a promise. True if that cannot be told from sizes alone."""
    sizes = {str(dim): ast.Constant(dim.size) for dim in described.dims}
    tree = _WithSizes(sizes).visit(ast.parse(condition, mode="eval"))
    if any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for node in ast.walk(tree)):
        return True
    try:
        return bool(eval(compile(ast.fix_missing_locations(tree), "<promise>", "eval"), {"__builtins__": {}}))
    except ArithmeticError:
        return True


class _WithSizes(ast.NodeTransformer):
    """Puts the sizes of an example in place of `ids.shape[1]`."""

    def __init__(self, sizes: Mapping[str, ast.Constant]) -> None:
        self.sizes = sizes

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.sizes.get(ast.unparse(node), node)


def _promise(condition: str) -> Edit:
    return Edit("", "input-promise", f"promise that {condition}", condition)


def _groups(described: Described) -> dict[str, list[InputDim]]:
    """The unbacked dims of inputs by symbol."""
    groups: dict[str, list[InputDim]] = {}
    for dim in described.dims:
        if dim.symbol:
            groups.setdefault(dim.symbol, []).append(dim)
    return groups


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


def _inside(raised: Raised, frame: Frame, question: str, sources: Sources, *, own: bool) -> Iterator[Proposed]:
    """Promises about data, where the sizes have names: at the failing line, and after the line that makes them."""
    made = [one for one in raised.symbols if one.frame and not one.source and not is_framework(one.frame)]
    for path in dict.fromkeys(path_of(origin.frame) for origin in made if origin.frame is not None):
        source = sources.text(path)
        origins = [origin for origin in made if origin.frame is not None and path_of(origin.frame) == path]
        if source is None or not _are_there(source, origins):
            continue
        known = named(source, origins)
        same = [one for one in origins if one.frame is not None and one.frame.function == frame.function]
        if path == path_of(frame) and len(same) == len(origins):
            moved = msgspec.structs.replace(frame, line=known.line(frame.line))
            place = locate(known.source, moved, python_anchor(frame), question, known.sizes)
        else:
            place = _after(
                known.source, max(known.line(o.frame.line) for o in origins if o.frame), question, known.sizes
            )
        if place is not None:
            rows = [row for row in SIZES if not (own and row is assume_size)]
            yield from (Proposed(path, edit) for row in rows for edit in row(place))


def _after(source: str, line: int, question: str, sizes: Mapping[str, str]) -> Place | None:
    """The place after the statement that makes a size: a `pass` there stands for what follows."""
    around = [
        one for one in statements_at(source, line) if not isinstance(one, ast.If | ast.For | ast.While | ast.With)
    ]
    if not around:
        return None
    statement = max(around, key=lambda one: one.lineno)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        return Place(source, statement, ast.Constant(None), question, sizes)
    end = statement.end_lineno or statement.lineno
    following = [one for one in _all(source) if one.lineno > end]
    nearest = min(following, key=lambda one: one.lineno, default=None)
    return None if nearest is None else Place(source, nearest, ast.Constant(None), question, sizes)


def _all(source: str) -> list[ast.stmt]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


def _are_there(source: str, origins: list[SymbolOrigin]) -> bool:
    """Whether the lines that make the sizes are lines of the source."""
    lines = len(source.splitlines())
    return all(one.frame is not None and one.frame.line <= lines for one in origins)


def _python(path: str) -> str | None:
    if not path.endswith(".py"):
        return None
    try:
        text = read_text(Path(path))
        ast.parse(text)
    except (InputError, SyntaxError, ValueError):
        return None
    return text
