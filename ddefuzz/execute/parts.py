"""The parts of inductor that a run can leave out, to find the one by which a compiled program is wrong.

Importing this module does not import torch.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from ddefuzz.execute.protocol import Part
from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.torch_api import Api
from ddefuzz.instrument.truth import value_at


class Group(NamedTuple):
    """Parts of inductor of one kind. `whole` is the part that is blamed if no single one is.

    `settings` are changed if the group is left out, `hooks` are set also if a part of it is.
    """

    whole: Part
    settings: Mapping[Api, object] = {}
    hooks: Callable[[_Experiment], Iterator[tuple[Api, Callable[..., Any]]]] = lambda _experiment: iter(())

    @property
    def name(self) -> str:
        """What runs call it."""
        return self.whole.group


class _Experiment:
    """What a run leaves out: whole groups by their names, and parts by their text. `seen` are the parts that it met."""

    def __init__(self, out: tuple[str, ...], symbols: Mapping[str, int | float]) -> None:
        self.out, self.symbols = frozenset(out), symbols
        self.seen: dict[Part, None] = {}
        self.kept_whole = set[Any]()  # the ops that are not decomposed

    def leaves_out(self, part: Part) -> bool:
        """Whether the run leaves out a part that it has met."""
        self.seen[part] = None
        return part.group in self.out or str(part) in self.out

    def concerns(self, group: str) -> bool:
        """Whether it leaves out a group or a part of it."""
        return any(one == group or one.startswith(f"{group}: ") for one in self.out)


@contextmanager
def left_out(out: tuple[str, ...], symbols: Mapping[str, int | float]) -> Iterator[dict[Part, None]]:
    """Leave out parts of inductor, and yield those that are met of their groups. `symbols` are the sizes by which the
    group `known answers` answers.
    """
    experiment = _Experiment(out, symbols)
    with ExitStack() as stack:
        for group in GROUPS:
            if experiment.concerns(group.name):
                if group.name in out:
                    stack.enter_context(torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, group.settings))
                for api, hook in group.hooks(experiment):
                    stack.enter_context(api.replaced(hook))
        if experiment.concerns(VECTORS):
            _scalarize(experiment, stack)
        yield experiment.seen


def _part(group: str, function: Callable[..., Any], name: str = "") -> Part:
    """The part that a function is. Of a function that another one makes, it is the one that makes it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return Part(group, "", getattr(function, "__name__", ""), name)
    return _part_of(group, code, name)


def _part_of(group: str, code: CodeType, name: str) -> Part:
    return Part(group, frames.display_file(code.co_filename), code.co_qualname.partition(".<locals>")[0], name)


def _at(group: str, api: Api, name: str = "") -> Part:
    """The part that a row of torch's names is."""
    return Part(group, api.file, api.key, name)


def _optimization(_: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """The C++ compiler optimizes nothing in a kernel. Its headers stay as they were compiled."""
    original = torch_api.bound(torch_api.DEFINE_KERNEL)

    def define(scheduling: Any, src_code: str, *args: Any, **kwargs: Any) -> Any:
        unoptimized = f'#pragma GCC optimize("O0")\n{_EXTERN_C}'
        return original(scheduling, src_code.replace(_EXTERN_C, unoptimized, 1), *args, **kwargs)

    yield torch_api.DEFINE_KERNEL, define


_EXTERN_C = 'extern "C"'


def _scalarize(experiment: _Experiment, stack: ExitStack) -> None:
    """Ops of vectors are done for each element. Without any vectors, the ops of numbers tell which would be met."""
    vectors, scalars = torch_api.VECTOR_OPS.get(), torch_api.SCALAR_OPS.get()
    scalarized = torch_api.bound(torch_api.SCALARIZED)

    def hooks(name: str, vector: Callable[..., Any], scalar: Callable[..., Any]) -> Iterator[tuple[Any, Any]]:
        part = Part(VECTORS, torch_api.VECTOR_OPS.file, f"{torch_api.VECTOR_OPS.name}.{name}")
        for_each = scalarized(scalar)

        def of_vectors(*args: Any, **kwargs: Any) -> Any:
            if experiment.leaves_out(part):
                with suppress(Exception):  # it has numbers as arguments, or several types
                    return for_each(*args, **kwargs)
            return vector(*args, **kwargs)

        def of_numbers(*args: Any, **kwargs: Any) -> Any:
            experiment.seen[part] = None
            return scalar(*args, **kwargs)

        yield vectors, staticmethod(of_vectors)
        yield scalars, staticmethod(of_numbers)

    for name, method in tuple(vars(vectors).items()):
        scalar = vars(scalars).get(name)
        if isinstance(method, staticmethod) and isinstance(scalar, staticmethod) and name not in _OF_OTHER_TYPE:
            for owner, hook in hooks(name, method.__func__, scalar.__func__):
                stack.enter_context(patch.object(owner, name, hook))


_OF_OTHER_TYPE = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor", "where", "masked"}
    | {"to_dtype", "to_dtype_bitcast", "index_expr", "value_expr", "constant", "frexp"}
)
"""Ops whose results have another type than their arguments: there is no code that does them for each element."""


def _fusion(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """Kernels are not fused: by their outer loops, a kernel with one that reads its result, two others."""
    fuse, outer = (torch_api.bound(api) for api in (torch_api.CAN_FUSE, torch_api.CAN_FUSE_OUTER_LOOP))

    def can_fuse(scheduler: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> Any:
        answer = fuse(scheduler, node1, node2, *args, **kwargs)
        if not answer:
            return answer
        is_vertical = bool(node1.get_operation_names() & node2.ancestors)
        kind = "vertical" if is_vertical else "horizontal"
        return not experiment.leaves_out(_at("fusion", torch_api.CAN_FUSE, kind))

    def can_fuse_outer_loop(scheduling: Any, node1: Any, node2: Any) -> Any:
        part = _at("fusion", torch_api.CAN_FUSE_OUTER_LOOP)
        return outer(scheduling, node1, node2) and not experiment.leaves_out(part)

    yield torch_api.CAN_FUSE, can_fuse
    yield torch_api.CAN_FUSE_OUTER_LOOP, can_fuse_outer_loop


def _indexes(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """Expressions of indexes are not simplified, and loops not merged."""
    apis = torch_api.SIMPLIFY_INDEX, torch_api.MERGE_LOOPS
    ranges, loops = map(torch_api.bound, apis)
    simplifying, merging = (_at("indexes", api) for api in apis)

    def simplify(sizes: Any, expr: Any, var_ranges: Any) -> Any:
        simpler = ranges(sizes, expr, var_ranges)
        return expr if simpler != expr and experiment.leaves_out(simplifying) else simpler

    def merge(sizes: Any, index_vars: Any, lengths: Any, index_formulas: Any) -> Any:
        merged = loops(sizes, index_vars, lengths, index_formulas)
        if len(merged[0]) == len(lengths) or not experiment.leaves_out(merging):
            return merged
        return list(lengths), list, list

    yield torch_api.SIMPLIFY_INDEX, simplify
    yield torch_api.MERGE_LOOPS, merge


def _passes(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """Passes over the graph are not run, and patterns not replaced."""

    def run(api: Api) -> Callable[..., Any]:
        original = torch_api.bound(api)

        def apply(observer: Any, pass_fn: Callable[..., Any]) -> Any:
            name = str(observer.passname)
            needed = name.startswith(_NEEDED_PASSES) or hasattr(pass_fn, "__self__")
            if not needed and experiment.leaves_out(_part("passes", pass_fn, name)):
                return None
            return original(observer, pass_fn)

        return apply

    def replace(api: Api) -> Callable[..., Any]:
        original = torch_api.bound(api)

        def apply(entry: Any, match: Any, graph: Any, node: Any) -> None:
            handler = getattr(entry, "handler", None) or entry.normalize_args
            name = str(getattr(entry, "pattern_name", None) or node.target)
            if not experiment.leaves_out(_part("passes", handler, name)):
                original(entry, match, graph, node)

        return apply

    yield from ((api, run(api)) for api in torch_api.APPLY_PASS)
    yield from ((api, replace(api)) for api in torch_api.APPLY_PATTERN)


_NEEDED_PASSES = ("decompose_", "stable_sort", "fix_", "reinplace_")
"""The beginnings of the names of passes whose graph the rest of inductor needs."""


def _answers(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """What inductor asks about sizes, and may not know, is answered by the true sizes."""
    original = torch_api.bound(torch_api.KNOWN_TRUE)

    def known(sizes: Any, expr: Any) -> bool:
        answer = bool(original(sizes, expr))
        truth = value_at(str(expr), experiment.symbols)
        if truth is None or bool(truth) == answer:
            return answer
        asker = _asker(sys._getframe(1))
        return bool(truth) if experiment.leaves_out(_part_of(ANSWERS, asker.f_code, str(answer))) else answer

    yield torch_api.KNOWN_TRUE, known


def _asker(frame: FrameType) -> FrameType:
    """The innermost frame outside of the module whose functions ask for their callers."""
    while frame.f_back is not None and frame.f_code.co_filename.endswith(_QUESTIONS):
        frame = frame.f_back
    return frame


_QUESTIONS = torch_api.INDUCTOR_SIZES_FILE.path


def _lowerings(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """Ops of the graph are called as they are, without inductor's code for them."""
    unsupported, fallback = (torch_api.bound(api) for api in (torch_api.HAS_NO_CODE, torch_api.FALLBACK))
    lowerings = torch_api.LOWERINGS.get()

    def has_no_code(node: Any, *args: Any, **kwargs: Any) -> Any:
        op, lowering = node.target, lowerings.get(node.target)
        if lowering is None or hasattr(lowering, torch_api.IS_FALLBACK) or node.meta.get("unbacked_bindings"):
            return op in experiment.kept_whole or unsupported(node, *args, **kwargs)
        return experiment.leaves_out(_part(LOWERINGS, lowering, str(op))) or unsupported(node, *args, **kwargs)

    def fallback_or_code(op: Any, *args: Any, **kwargs: Any) -> Any:
        call = fallback(op, *args, **kwargs)

        def attempt(*inputs: Any, **options: Any) -> Any:
            try:
                return call(*inputs, **options)
            except Exception:  # noqa: BLE001 it cannot be called without knowing its sizes
                return torch_api.GRAPH_HANDLERS.get().graph.call_function(op, inputs, options)

        return attempt

    yield torch_api.HAS_NO_CODE, has_no_code
    yield torch_api.FALLBACK, fallback_or_code


def _decompositions(experiment: _Experiment) -> Iterator[tuple[Api, Callable[..., Any]]]:
    """Ops are not decomposed into others."""
    original = torch_api.bound(torch_api.DECOMPOSE)

    def decompose(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        table = mode.decomposition_table
        if op in table and experiment.leaves_out(_part(DECOMPOSITIONS, table[op], str(op))):
            experiment.kept_whole.add(op)
            return NotImplemented
        return original(mode, op, *args, **kwargs)

    yield torch_api.DECOMPOSE, decompose


VECTORS, ANSWERS, LOWERINGS, DECOMPOSITIONS = "vectors", "known answers", "lowerings", "decompositions"

GROUPS: tuple[Group, ...] = (
    Group(Part("optimization", "", "the C++ compiler"), hooks=_optimization),
    Group(_at("threads", torch_api.CPP_KERNEL), {torch_api.CPP_THREADS: 1}),
    Group(_at(VECTORS, torch_api.VECTOR_KERNEL), {torch_api.VECTOR_BITS: 1}),
    Group(_at("in-place", torch_api.DECIDE_IN_PLACE), {torch_api.IN_PLACE: False}),
    Group(_at("reuse", torch_api.PLAN_ALLOCATION), {torch_api.REUSE: False}),
    Group(_at("fusion", torch_api.FUSE_NODES), hooks=_fusion),
    Group(_at("indexes", torch_api.SIZE_ALLOCATOR), hooks=_indexes),
    Group(Part("passes", torch_api.INDUCTOR_PASSES.path, ""), hooks=_passes),
    Group(_at(ANSWERS, torch_api.SIZE_ALLOCATOR), hooks=_answers),
    Group(_at(LOWERINGS, torch_api.LOWERINGS), hooks=_lowerings),
    Group(_at(DECOMPOSITIONS, torch_api.DECOMPOSITIONS), hooks=_decompositions),
)
"""In the order in which the search adds them to what is left out: what works on the code of all ops before what makes
that code. A lowering that is left out leaves the parts before it nothing to do.
"""
