"""Read the run-time assertions of a captured graph, run it node by node, and make the digest of what was captured."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count, pairwise
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from ddefuzz.execute.kernels import difference_of
from ddefuzz.execute.metas import Reader, said_of
from ddefuzz.execute.preparation import PreparedSubject, UnbackedDim
from ddefuzz.execute.protocol import Form, FormName, NodeDifference, RuntimeAssertion
from ddefuzz.execute.stages import Capture, graph_text
from ddefuzz.instrument import torch_api

ASSERTION = re.compile(r"Runtime assertion failed for expression (.+?) on node", re.DOTALL)
"""The message of an assertion that torch makes (torch/fx/passes/runtime_assert.py)."""

_UNBACKED = re.compile(r"u\d+")  # an unbacked symbol alone, as torch prints it

_OF_ONE = re.compile(r"(?:Eq\()?(u\d+)(?: [<>]= |, )\d+\)?$")
"""An assertion that compares an unbacked symbol with a number."""

_SYMBOL = re.compile(r"\b[us]\d+\b")

_BINDS = re.compile(r"([us]\d+) = ")
_ASSERTS = re.compile(r"if not \((.+)\):")
_RAISES = re.compile(r"raise RuntimeError\('(.+)'\)")
_CALLS = re.compile(r"(?:buf\d+ = )?((?:cpp_fused|extern_kernels|torch\.ops)[\w.]*)\(")
"""Lines of inductor's Python code that bind a symbol, assert, and call a kernel."""

_WHOLE = re.compile(r"def (call|partition_\d+)\(")
"""The functions of the graph itself. Others are of branches and bodies (torch/_inductor/codegen/wrapper.py)."""

_NO_OP = ("placeholder", "get_attr", "output")


def result_nodes(program: ExportedProgram) -> tuple[Node | None, ...]:
    """The node of each part of an exported program's result, None for a constant."""
    by_name = {node.name: node for node in program.graph.nodes}
    return tuple(by_name.get(str(name)) for name in program.graph_signature.user_outputs)


def shape_env_of(graph: GraphModule) -> Any:
    """The ShapeEnv of the sizes that a graph has; None if it has no symbol."""
    values = (said_of(node) for node in graph.graph.nodes)
    sizes = (size for value in values for size in (value.shape if isinstance(value, torch.Tensor) else (value,)))
    return next((size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)), None)


class GraphRun(NamedTuple):
    """What a run of a graph showed: the values of the symbols that it binds, and the first assertion that failed.

    `condition` is empty if none failed. `node` is the first node of whose value the graph says something wrong.
    """

    symbols: tuple[tuple[str, int | float], ...]
    condition: str = ""
    node: NodeDifference | None = None


def run_nodes(graph: GraphModule, args: tuple[Any, ...]) -> GraphRun:
    """Run a graph node by node, past assertions that fail, as far as it goes."""
    reader = _Reader(graph)
    with suppress(Exception):  # an op may refuse the sizes: what was read before is known
        reader.run(*args)
    node = None if reader.wrong is None else difference_of(*reader.wrong)
    return GraphRun(tuple(sorted(reader.symbols.items())), reader.failed, node)


class _Reader(Reader):
    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph)
        self.symbols: dict[str, int | float] = {}
        self.failed = ""

    def run_node(self, n: Node) -> Any:
        """Run one node."""
        if n.target is torch_api.ASSERT_SCALAR.get():
            return self._assert(n)
        value = super().run_node(n)
        if n.op == "placeholder":
            # Before the bindings: of symbols that became one, these name that one alone, for the first of the dims.
            self._bind(said_of(n), value)
        for symbol, path in (n.meta.get(torch_api.UNBACKED_BINDINGS) or {}).items():
            bound = torch_api.bound(torch_api.KEY_GET)(value, path)
            self._note(str(symbol), bound)
        return value

    def _assert(self, n: Node) -> None:
        compared, condition = n.args[0], _OF_ONE.match(_condition(n))
        if condition is not None and isinstance(compared, Node) and compared.args:
            # A symbol that is replaced is bound by no node. A comparison of it with a number has its value.
            first = compared.args[0]
            value = self.env.get(first) if isinstance(first, Node) else None
            if isinstance(value, int | float):
                self._note(condition[1], value)
        try:
            super().run_node(n)
        except Exception:  # noqa: BLE001 it fails, and the ops after it tell more
            self.failed = self.failed or _condition(n) or "?"

    def _note(self, symbol: str, value: Any) -> None:
        """Note the value of a symbol that has none. Of a float that is not finite, conditions say nothing."""
        number = value if isinstance(value, float) else int(value)
        if isfinite(number):
            self.symbols.setdefault(symbol, number)

    def _bind(self, fake: Any, value: Any) -> None:
        """Note the symbols of an input with unbacked dims. Each has the size of its own dim, also if the bindings of an
        earlier input name it for a dim that became equal to it.
        """
        if isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
            for dim, size in zip(fake.shape, value.shape, strict=False):
                self._bind(dim, size)
        elif isinstance(value, int) and (symbol := _own_symbol(fake)):
            self.symbols[symbol] = value


def marked_sizes(capture: Capture, prepared: PreparedSubject) -> dict[str, tuple[UnbackedDim, int | None]]:
    """The dims that were marked unbacked, by the symbols that the graph has for them, with None.

    A dim for which the graph has a number and no symbol has a name (`size_0_of_input_1`) and that number.
    """
    sizes: dict[str, tuple[UnbackedDim, int | None]] = {}
    for place in prepared.unbacked:
        fake = capture.inputs.get(place.leaf)
        size = fake.shape[place.dim] if isinstance(fake, torch.Tensor) and place.dim < fake.dim() else None
        if isinstance(size, int):
            sizes[f"size_{place.dim}_of_input_{place.leaf}"] = place, size
        elif symbol := _own_symbol(size):
            sizes[symbol] = place, None
    return sizes


def _own_symbol(size: Any) -> str:
    """The unbacked symbol that a size was made as, also if the capture replaced it; empty if there is none."""
    made = str(getattr(size.node, torch_api.RAW_EXPRESSION)) if isinstance(size, torch.SymInt) else ""
    return made if _UNBACKED.fullmatch(made) else ""


def input_symbols(graph: GraphModule) -> Mapping[str, str]:
    """The unbacked symbols of the dims of a graph's inputs, by dims as torch.export names them: `args_0.size()[1]`."""
    inputs = ((node.name, said_of(node)) for node in graph.graph.nodes if node.op == "placeholder")
    return {
        f"{name}.size()[{dim}]": symbol
        for name, value in inputs
        if isinstance(value, torch.Tensor)
        for dim, size in enumerate(value.shape)
        if (symbol := _own_symbol(size))
    }


def forms_of(capture: Capture) -> tuple[Form, ...]:
    """The forms of a captured program that have assertions, or have lost them."""
    graphs: list[tuple[FormName, GraphModule]] = [
        ("traced", capture.graph),
        *(("lowered", graph) for graph in capture.lowered()),
    ]
    forms = [Form(name, tuple(assertions_of(graph))) for name, graph in graphs]
    forms += [Form("generated", tuple(generated_assertions(code))) for code in capture.generated()]
    return tuple(forms) if any(form.assertions for form in forms) else ()


def assertions_of(graph: GraphModule) -> Iterator[RuntimeAssertion]:
    """The assertions of a graph, in order."""
    nodes = list(graph.graph.nodes)
    bound = _bound(nodes)
    for place, node in enumerate(nodes):
        if node.target is torch_api.ASSERT_SCALAR.get() and _condition(node):
            yield RuntimeAssertion(
                _condition(node),
                str(node.args[1]),
                bool(node.meta.get(torch_api.USERS_OWN)),
                tuple(_users(nodes, place, bound)),
            )


def generated_assertions(code: str) -> Iterator[RuntimeAssertion]:
    """The assertions of inductor's Python code, in order: `if not (u0 >= 2):` and a line that raises.

    A line before it uses its sizes if it calls a kernel with the last symbol that was bound (`u0 = …`). The functions
    of branches and bodies have symbols of their own, and are left out.
    """
    bound: dict[str, int] = {}
    is_of_a_part = False
    lines = [line.strip() for line in code.splitlines()]
    for place, (line, following) in enumerate(pairwise(lines)):
        if line.startswith("def "):
            is_of_a_part = _WHOLE.match(line) is None
        if is_of_a_part:
            continue
        if (binds := _BINDS.match(line)) is not None:
            bound.setdefault(binds[1], place)
        asserted, raises = _ASSERTS.fullmatch(line), _RAISES.fullmatch(following)
        if asserted is None or raises is None:
            continue
        symbols = set(_SYMBOL.findall(asserted[1]))
        since = max((bound.get(symbol, place) for symbol in symbols), default=place)
        last = {symbol for symbol in symbols if bound.get(symbol) == since}
        calls = (
            (call[1], set(_SYMBOL.findall(one))) for one in lines[since + 1 : place] if (call := _CALLS.match(one))
        )
        yield RuntimeAssertion(asserted[1], raises[1], after=tuple(name for name, used in calls if used & last))


def _bound(nodes: list[Node]) -> Mapping[str, int]:
    bound: dict[str, int] = {}
    for place, node in enumerate(nodes):
        symbols = map(str, node.meta.get(torch_api.UNBACKED_BINDINGS) or ())
        for symbol in (*symbols, *(_symbols(said_of(node)) if node.op == "placeholder" else ())):
            bound.setdefault(symbol, place)
    return bound


def _users(nodes: list[Node], place: int, bound: Mapping[str, int]) -> Iterator[str]:
    """The ops before an assertion that use the last of its symbols that is bound."""
    symbols = _SYMBOL.findall(_condition(nodes[place]))
    if not symbols or not all(symbol in bound for symbol in symbols):
        return
    since = max(bound[symbol] for symbol in symbols)
    last = {symbol for symbol in symbols if bound[symbol] == since}
    needed = _needed(nodes[place])
    for node in nodes[since + 1 : place]:
        if node.op in _NO_OP or node in needed or not _computes(node):
            continue
        if not last.isdisjoint({symbol for arg in (*node.all_input_nodes, node) for symbol in _symbols(said_of(arg))}):
            yield str(node.target)


def _needed(node: Node) -> set[Node]:
    needed: set[Node] = set()
    left = list(node.all_input_nodes)
    while left:
        needing = left.pop()
        if needing not in needed:
            needed.add(needing)
            left += needing.all_input_nodes
    return needed


def _computes(node: Node) -> bool:
    """Whether a node computes tensors. Arithmetic of sizes reads no data."""
    return isinstance(said_of(node), torch.Tensor | list | tuple) and not str(node.target).endswith("getitem>")


def _condition(node: Node) -> str:
    """The condition of an assertion, if possible by its message: the node's value is simplified by what it asserts.

    `torch.cond` and its like capture functions with symbols of their own, so a message may be about another `u0`.
    """
    asserted = ASSERTION.search(str(node.args[1]))
    value = said_of(node.args[0]) if isinstance(node.args[0], Node) else None
    if asserted is not None:
        sizes = [said_of(one) for one in _needed(node)]
        own = {symbol for size in sizes for symbol in _raw_symbols(size)}
        if not own or own.intersection(_SYMBOL.findall(asserted[1])):
            return asserted[1]
    return str(value) if isinstance(value, torch.SymBool) else ""


def _raw_symbols(size: Any) -> Iterator[str]:
    """The symbols of a size, before and after the capture replaced some."""
    if isinstance(size, torch.SymInt):
        yield from _SYMBOL.findall(f"{size} {getattr(size.node, torch_api.RAW_EXPRESSION)}")


def _symbols(value: Any) -> Iterator[str]:
    match value:
        case torch.Tensor() if value.layout == torch.strided:
            for size in value.shape:
                yield from _symbols(size)
        case torch.SymInt():
            yield from _SYMBOL.findall(str(value))
        case list() | tuple():
            for item in value:
                yield from _symbols(item)
        case _:
            return


_UNREAD = count()


def digest_of(capture: Capture) -> str:
    """The digest of the graphs with their constants, of inductor's code, and of the ranges that an export checks."""
    graphs = (capture.graph, *capture.lowered())
    values = (*capture.constants(), *(value for graph in graphs for value in _read_by(graph)))
    texts = (*map(graph_text, graphs), *map(_shown, values), *capture.generated(), *capture.ranges())
    return hashlib.sha256("\n".join(texts).encode(errors="backslashreplace")).hexdigest()


def _read_by(graph: GraphModule) -> Iterator[object]:
    """The values that a graph reads by name, apart from other graphs."""
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            value: object = graph
            for name in str(node.target).split("."):
                value = getattr(value, name, None)
            if not isinstance(value, GraphModule):
                yield value


def _shown(value: object) -> str:
    """A value as text. One that cannot be read (a tensor of torch.func, a subclass) is like no other."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    try:
        return _read(value)
    except RuntimeError:
        return f"{type(value).__name__} {next(_UNREAD)}"


def _read(value: torch.Tensor) -> str:
    plain_kind = type(value) in {torch.Tensor, torch.nn.Parameter} and value.layout == torch.strided
    if not plain_kind or value.is_quantized or value.device.type != "cpu":
        return str(value)
    plain = value.detach().resolve_conj().resolve_neg().contiguous().flatten().view(torch.uint8)
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(plain.numpy().tobytes()).hexdigest()}"
