"""The changes to try for one failure, the least harmful first.

The sizes in a guard are symbols (`u0`). A promise names them in the user's terms: `u0`, made by `kept = x[keep]`, is
`kept.shape[0]`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

import msgspec

from ddefuzz.checking.edits import (
    Edit,
    Place,
    Rewrite,
    Sources,
    bound_within,
    fixes_a_size,
    function_at,
    holds,
    in_user_words,
    inserted,
    locate,
    opposite,
    statements_at,
    tested,
)
from ddefuzz.checking.patch import InputDim, Interface
from ddefuzz.checking.problems import NUMBERS, full_path, own_line
from ddefuzz.checking.rewrites import REWRITES, select_index
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.signature import Site
from ddefuzz.classify.site import USER_SITE
from ddefuzz.instrument.events import Frame, RaisedError, SymbolOrigin
from ddefuzz.syntax import lines_of, replaced

_TRUTH_OF_A_TENSOR = re.compile(r"|Eq\([uz]\w*, 1\)|Ne\([uz]\w*, 0(\.0)?\)")
"""Expressions of a branch on a tensor: torch evaluates its `item()`. Empty: dynamo rejects it before that."""


def assume(place: Place) -> Iterator[Edit]:
    """`torch._check` of the branch's own condition, or of its opposite, before the branch."""
    if not isinstance(place.expression, ast.Compare) or len(place.expression.ops) != 1 or bound_within(place):
        return
    for condition in (place.expression, opposite(place.expression)):
        yield checked(place, ast.unparse(condition))


def assume_question(place: Place) -> Iterator[Edit]:
    """`torch._check` of the guard's expression, or of its opposite, with the user's own expressions for the sizes."""
    condition = in_user_words(place.question, place.sizes)
    for promise in (opposite(condition), condition) if condition is not None else ():
        yield checked(place, ast.unparse(promise))


def assume_size(place: Place) -> Iterator[Edit]:
    """`torch._check` that a size is not one of the special ones."""
    for symbol, size in place.sizes.items():
        if re.search(rf"\b{symbol}\b", place.question):
            for condition in (f"{size} != 0", f"{size} > 0", f"{size} != 1", f"{size} > 1"):
                yield checked(place, condition)


def decide_tensor(place: Place) -> Iterator[Edit]:
    """For a branch on a tensor: read its value once, and assert what it is."""
    if tested(place) is None or not _TRUTH_OF_A_TENSOR.fullmatch(place.question):
        return
    condition = ast.unparse(place.expression)
    for promise, words in (("decided", condition), ("torch.sym_not(decided)", f"not {condition}")):
        lines = (f"decided = ({condition}).item()", f"torch._check({promise})")
        yield Edit(
            inserted(replaced(place.source, place.expression, "decided"), place.statement, lines),
            "inside-promise",
            f"read the condition once and assert that {words}",
            words,
        )


DECISIONS: tuple[Rewrite, ...] = (assume, decide_tensor)  # what the code can assert about its own decision

SIZES: tuple[Rewrite, ...] = (assume_question, assume_size)
"""What it can assert about sizes that have names, in order of increasing assumptions."""


def checked(place: Place, condition: str) -> Edit:
    """`torch._check(condition)` before the statement."""
    source = inserted(place.source, place.statement, (f"torch._check({condition})",))
    return Edit(source, "inside-promise", f"assert {condition}", condition)


_SOURCE = re.compile(r"dim (?P<dim>\d+) of (?P<leaf>.+?)(, dim \d+ of .+)?")
"""An input's dim as `SymbolOrigin.source` has it: the first one, if several dims share a size."""

_NOT_ZERO = re.compile(r"^(\S+\.shape\[\d+\]) != 0$")

_BLOCKS = ast.If | ast.For | ast.While | ast.With

LONGEST = 60  # characters of a condition that reads well: longer ones are tried last

MOST_DIMS = 6  # up to this many input dims are tried where torch does not say which of them a symbol is


class Proposal(NamedTuple):
    """An edit of a file, or a promise about inputs (without a file).

    `key` is that of the failure for which it was proposed, empty if that is not known any more. `question` is the
    condition that capture could not decide then.
    """

    path: str
    edit: Edit
    key: str = ""
    question: str = ""


def is_subscript(site: Site) -> bool:
    """Whether a failure is that of a subscript: an op may take indices that it does not."""
    return str(site.function) == "Tensor.__getitem__" or str(site.function).startswith("at::indexing::")


def proposed(failure: Classification, sources: Sources, described: Interface) -> Iterator[Proposal]:
    """All changes that may help with a failure, those of least harm first. A promise that a size is that of the example
    is none: it exports a model for the example only.
    """
    raised = failure.failure.observation.raised
    question = raised.expression if raised is not None else ""
    for proposal in _every(failure, sources, described):
        if not fixes_a_size(proposal.edit.condition):
            yield proposal._replace(question=question)


def _every(failure: Classification, sources: Sources, described: Interface) -> Iterator[Proposal]:
    raised, key = failure.failure.observation.raised, failure.signature.key
    frame = own_line(failure.failure.observation)
    file = full_path(frame.file) if frame is not None else ""
    question = raised.expression if raised is not None else ""
    place = _place(frame, question, sources) if frame is not None else None
    site = failure.signature.site
    called = site.language == "op" and failure.frame is not None and not is_framework(failure.frame)
    is_own = site == USER_SITE or called
    if place is not None:
        rewrites = (select_index, *REWRITES) if is_subscript(site) else REWRITES
        yield from (Proposal(file, edit, key) for row in rewrites for edit in row(place))
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
    body = function.body[ast.get_docstring(function) is not None :] or function.body
    if body[0].lineno == function.lineno:
        return None
    return sources.with_text(
        described.file, inserted(source, body[0], (f"torch._check({described.stated(condition)})",))
    )


def _functions(source: str, name: str) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name]


def _place(frame: Frame, question: str, sources: Sources) -> Place | None:
    source = sources.text(full_path(frame.file))
    return locate(source, frame, python_anchor(frame), question, {}) if source is not None else None


def _about_inputs(raised: RaisedError, described: Interface) -> Iterator[Edit]:
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
    for names in known or (guesses if len(symbols) == 1 else []):
        for condition in _conditions(raised.expression, names, data=len(symbols) < len(raised.symbols)):
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
    places = {one.symbol: _SOURCE.fullmatch(one.source) for one in symbols}
    known = {symbol: f"{dim['leaf']}.shape[{dim['dim']}]" for symbol, dim in places.items() if dim is not None}
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
    if (
        len(mapping) > 1
        and any(isinstance(node, ast.BinOp) for node in ast.walk(condition))
        and question.endswith(", 0)")
    ):
        # A product of sizes is 0 where one of them is: that is easier to read than the product.
        yield from (f"{dim} > 0" for dim in mapping.values())
    yield from (one for one in told if len(one) <= LONGEST)
    yield from bounds
    yield from (one for one in told if len(one) > LONGEST)


def _bounds(mapping: dict[str, str]) -> Iterator[str]:
    for bound in ("!= 1", "> 0", "> 1"):
        yield from (f"{dim} {bound}" for dim in mapping.values())
        if len(mapping) > 1:
            yield " and ".join(f"{dim} {bound}" for dim in mapping.values())


def _inner_places(raised: RaisedError, frame: Frame, sources: Sources) -> Iterator[tuple[str, Place]]:
    """Where sizes of data have names: the failing line, and after the line that makes them. With the file of each."""
    made = [one for one in raised.symbols if one.frame and not one.source and not is_framework(one.frame)]
    by_file: dict[str, list[tuple[SymbolOrigin, Frame]]] = {}
    for origin in made:
        if origin.frame is not None:
            by_file.setdefault(full_path(origin.frame.file), []).append((origin, origin.frame))
    for path, origins in by_file.items():
        source = sources.text(path)
        last = max(maker.line for _, maker in origins)
        if source is None or last > len(lines_of(source)):
            continue
        is_here = path == full_path(frame.file) and all(maker.function == frame.function for _, maker in origins)
        scalars = [name for name, value in raised.variables if is_here and value.startswith("()")]
        tried: set[str] = set()
        for scalar in scalars or [""]:
            known = name_sizes(source, origins, scalar)
            if known.source in tried:
                continue
            tried.add(known.source)
            if is_here:
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


def name_sizes(source: str, origins: Iterable[tuple[SymbolOrigin, Frame]], scalar: str = "") -> NamedSizes:
    """Name the symbols by the variables that hold them; those without one by an added line. Each has its frame.

    `scalar` is a variable that holds a tensor without dims. Where torch takes it for a number, the added line reads it.
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
        name = f"made_{origin.symbol}"
        given = [] if origin.op not in NUMBERS or _reads_number(maker) else _given(statement, maker, scalar)
        held = None if given else _held(statement, maker, origin, named.sizes)
        if not given and held is None and origin.op in NUMBERS and _is_tensor(maker):
            continue
        if held is not None:
            named = named._replace(sizes={**named.sizes, origin.symbol: held})
            continue
        uses: list[ast.expr] = [*given] or [maker]
        value = f"{given[0].id}.item()" if given else ast.unparse(maker)
        size = name if origin.op in NUMBERS else f"{name}.shape[{_dim_of(maker)}]"
        changed = named.source
        for use in sorted(uses, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            changed = replaced(changed, use, name)
        hoisted = inserted(changed, statement, (f"{name} = {value}",))
        named = NamedSizes(hoisted, {**named.sizes, origin.symbol: size}, (*named.added, statement.lineno))
    return named


def _given(statement: ast.stmt, code: ast.expr, scalar: str) -> list[ast.Name]:
    """The uses in code of the variable that holds a tensor without dims. If none is known, that is the only variable
    which a subscript has as an index. There is none if it exists within the statement only, or changes there.
    """
    names = [node for node in ast.walk(code) if isinstance(node, ast.Name)]
    if not scalar and isinstance(code, ast.Subscript):
        indices = code.slice.elts if isinstance(code.slice, ast.Tuple) else [code.slice]
        variables = {node.id for node in indices if isinstance(node, ast.Name)}
        scalar = variables.pop() if len(variables) == 1 else ""
    if isinstance(statement, ast.While) or scalar in _bound_inside(statement):
        return []
    return [node for node in names if node.id == scalar]


def _is_tensor(code: ast.expr) -> bool:
    """Whether code gives a tensor: a subscript, or a call of torch. What torch read of its arguments has no name."""
    return isinstance(code, ast.Subscript) or (
        isinstance(code, ast.Call) and not _reads_number(code) and ast.unparse(code.func).startswith(("torch.", "F."))
    )


def _bound_inside(statement: ast.stmt) -> set[str]:
    """The names that a statement binds before it ends: arguments of lambdas, targets of loops and of `:=`."""
    assigned = {id(node) for node in getattr(statement, "targets", ()) if isinstance(node, ast.Name)}
    nodes = list(ast.walk(statement))
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    stored = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return names | {node.id for node in stored if id(node) not in assigned}


def _reads_number(maker: ast.expr) -> bool:
    """Whether code gives the number of a tensor itself. Other code is given the tensor, and torch reads its number."""
    match maker:
        case ast.Call(ast.Attribute(attr=("item" | "tolist" | "__index__" | "__int__" | "_local_scalar_dense"))):
            return True
        case ast.Call(ast.Name("int" | "float" | "bool" | "round")):
            return True
        case _:
            return not isinstance(maker, ast.Call | ast.Subscript)


def _dim_of(maker: ast.expr) -> int:
    """The dim whose size is made: that of the first index that is no whole dim (`x[:, mask]`, `x[None, :, :n]`)."""
    match maker:
        case ast.Subscript(slice=ast.Tuple(items)):
            dim = 0
            for item in items:
                match item:
                    case ast.Constant(None) | ast.Slice(None, None, None):
                        dim += 1
                    case ast.Constant(int()):
                        pass
                    case _:
                        return -1 if ast.unparse(item) == "..." else dim
            return 0
        case ast.Call(ast.Attribute(_, "index_select"), [ast.Constant(int(dim)), *_]):
            return dim
        case _:
            return 0


def _held(statement: ast.stmt, maker: ast.expr, origin: SymbolOrigin, sizes: dict[str, str]) -> str | None:
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    number = origin.op in NUMBERS
    match statement.targets[0], statement.value:
        case ast.Name(name), value if value is maker:
            return name if number else f"{name}.shape[{_dim_of(maker)}]"
        case (
            ast.Name(name),
            ast.Call(func=ast.Attribute(value, "size")) | ast.Subscript(value=ast.Attribute(value, "shape")),
        ) if value is maker:
            return name
        case ast.Tuple(elts), value if value is maker and all(isinstance(element, ast.Name) for element in elts):
            names = [ast.unparse(element) if number else f"{ast.unparse(element)}.shape[0]" for element in elts]
            return next((name for name in names if name not in sizes.values()), None)
        case _:
            return None
