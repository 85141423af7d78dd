"""Reads graphs as torch prints them (`GraphModule.print_readable`): nodes, the user's lines, assertions, symbols,
and unified diffs of the graphs of two stages, semantics or versions of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff
from itertools import pairwise, product
from typing import NamedTuple

from ddefuzz.artifacts.model import Artifacts, Diff, StageOutput
from ddefuzz.execute.protocol import Stage

_NODE = re.compile(r'\s+(\w+)(?:: "([^"]*)")? = (.*?);?(?:  (?:\w+ = )+None)?$')
_SOURCE = re.compile(r"\s+# File: (.*?):(\d+) in .*?, code: (.*)$")
_PARAMETER = re.compile(r'\b(\w+): "([^"]*)"')
_SIGNATURE_ENDS = re.compile(r"\):\s*$")
_CALLED = re.compile(r"(?:torch\.ops\.)?([\w.]+)\(")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b")
"""A name that is no attribute of another."""

_SYMBOL = re.compile(r"\b[us]\d+\b")
_ON_NODE = re.compile(r" on node '[^']*'")
_LAYOUT = re.compile(r"(\])\[.*\]\S*$")
"""The strides and the device behind the shape: `f32[u0, 8][8, 1]cpu`."""

ASSERTING = re.compile(r"\b(?:_assert_scalar|_assert_async|sym_constrain_range|sym_constrain_range_for_size)\b")
"""Ops that check a condition on sizes or values when the graph runs."""


class GraphNode(NamedTuple):
    """A node: its name, what is printed of its value (`f32[u0, 8]`), its expression, and the user's line.

    `number` is the line of the text, from 1. Inputs have an empty expression.
    """

    name: str
    value: str
    expression: str
    number: int
    source: str = ""

    @property
    def op(self) -> str:
        """The function that the node calls; its expression if it calls none."""
        match = _CALLED.match(self.expression)
        return match[1] if match else self.expression

    @property
    def base(self) -> str:
        """A name for the node by what it does: `relu` for `aten.relu.default`, `value` for an operator."""
        if not self.expression:
            return "input"
        match = _CALLED.match(self.expression)
        if match is None:
            return "value"
        parts = match[1].split(".")
        return parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]


def nodes_of(text: str) -> Iterator[GraphNode]:
    """The inputs and nodes of a graph, in order."""
    source = ""
    in_signature = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("def forward("):
            in_signature, source = True, ""
        if in_signature:
            yield from (GraphNode(name, _shape(value), "", number) for name, value in _PARAMETER.findall(line))
            in_signature = not _SIGNATURE_ENDS.search(line.partition("  # ")[0])
        elif (match := _SOURCE.match(line)) is not None:
            source = f"{match[1]}:{match[2]} {match[3]}".rstrip()
        elif (node := _NODE.match(line)) is not None:
            yield GraphNode(node[1], _shape(node[2] or ""), node[3].rstrip(";"), number, source)


def count_of(text: str) -> int:
    """The number of nodes, without inputs."""
    return sum(bool(node.expression) for node in nodes_of(text))


def assertions_in(text: str) -> tuple[int, ...]:
    """The lines of a graph that check a condition when it runs."""
    return tuple(node.number for node in nodes_of(text) if ASSERTING.search(node.expression))


def normalized(text: str) -> str:
    """The graph with names by op, without comments, strides and devices. Equal for graphs that do the same.

    Names are counted for each op (`relu`, `relu_2`), so that a node more changes few other lines.
    """
    names: dict[str, str] = {}
    used: Counter[str] = Counter()
    lines = []
    for node in nodes_of(text):
        base = node.base
        used[base] += 1
        names[node.name] = base if used[base] == 1 else f"{base}_{used[base]}"
        value = f": {node.value}" if node.value else ""
        expression = _renamed(_ON_NODE.sub("", node.expression), names) if node.expression else "input"
        lines.append(f"{names[node.name]}{value} = {expression}")
    lines += [f"return {_renamed(said, names)}" for said in _returned(text)]
    return "\n".join(lines) + "\n"


def symbols_in(text: str) -> dict[str, GraphNode]:
    """The symbols in the values of a graph, each with the node that has it first."""
    nodes: dict[str, GraphNode] = {}
    for node in nodes_of(text):
        for symbol in _SYMBOL.findall(node.value):
            nodes.setdefault(symbol, node)
    return nodes


def _shape(value: str) -> str:
    return _LAYOUT.sub(r"\1", value)


def _renamed(expression: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: names.get(found[0], found[0]), expression)


def _returned(text: str) -> Iterator[str]:
    """What `return` says, in one line; AOTAutograd prints one value a line, with comments."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.strip().startswith("return"):
            continue
        value = line.strip().removeprefix("return").strip()
        if value == "(":
            parts = []
            for part in lines:
                if part.strip() == ")":
                    break
                parts.append(part.partition("  # ")[0].strip().rstrip(","))
            value = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        yield value


_ASSERTS = re.compile(r"\s*if not \(.+\):$")
_RAISES = re.compile(r"\s*raise (?:RuntimeError|AssertionError)\(")


def assertions_in_code(text: str) -> tuple[int, ...]:
    """The lines that check a condition: `if not (u0 >= 0):` with a line that raises."""
    lines = list(enumerate(text.splitlines(), 1))
    return tuple(
        number
        for (number, line), (_, following) in pairwise(lines)
        if _ASSERTS.match(line) and _RAISES.match(following)
    )


def diffs_of(
    here: Artifacts, pairs: Iterable[tuple[Stage, Stage]] = (), others: Iterable[tuple[str, Artifacts]] = ()
) -> Iterator[Diff]:
    """The graphs of pairs of stages, of each stage under the first semantics and each other, and under other torches,
    which have a name.
    """
    made = here.stages
    several = len({one.semantics for one in made}) > 1
    for first, second in pairs:
        for before, after in product(made, made):
            if (before.stage, after.stage) == (first, second) and before.semantics == after.semantics:
                suffix = f" ({before.semantics})" if several else ""
                yield diff_of(f"{first} to {second}{suffix}", before, after, first, second)
    firsts: dict[Stage, StageOutput] = {}
    for after in made:
        if (before := firsts.setdefault(after.stage, after)) is not after:
            name = f"{before.stage}: {before.semantics} to {after.semantics}"
            yield diff_of(name, before, after, before.semantics, after.semantics)
    for name, there in others:
        for before, after in product(made, there.stages):
            if (before.stage, before.semantics) == (after.stage, after.semantics):
                title = f"{before.stage}: torch {here.torch} to {name} ({there.torch})"
                yield diff_of(title, before, after, here.torch, there.torch)


def diff_of(name: str, old: StageOutput, new: StageOutput, first: str, second: str) -> Diff:
    """The diff of two graphs with positions for names, or why there is none."""
    file = f"diffs/{re.sub(r'[^a-zA-Z0-9.+-]+', '-', name).strip('-')}.diff"
    missing = [said for made, said in ((old, first), (new, second)) if made.graph is None]
    if old.graph is None or new.graph is None:
        return Diff(name, file, "", f"no graph: {', '.join(missing)}")
    before, after = (normalized(graph.text).splitlines(keepends=True) for graph in (old.graph, new.graph))
    text = "".join(unified_diff(before, after, first, second))
    return Diff(name, file, text, "" if text else "the same graph")
