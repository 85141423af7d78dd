"""What each optimization of torch's shape reasoning saves in an export: settings, patches in memory, and what torch has
already, undone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from statistics import median
from typing import Any, Literal, NamedTuple, TypeAlias
from unittest.mock import patch

import msgspec
import torch

from ci.bench.command import Result, Session
from ci.bench.export_time import WAIT, WORKLOADS, export_module
from ddefuzz.errors import DdefuzzError, InputError, NothingRanError
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.stages import graph_text
from ddefuzz.instrument.torch_api import SHAPES_CONFIG, SHAPES_PATCH, Api, changed_settings
from ddefuzz.show.blocks import Block, Heading, Inline, Span, prose, table

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_ENV = f"{_SHAPES}:ShapeEnv"

STACK_TRACES = Api("torch.fx.config:do_not_emit_stack_traces", "a setting: nodes have no stack traces")
FAST_COMPARISON = Api(f"{_ENV}._maybe_fast_eval_comparison", "sums of sizes are at least 0, without simplifying")
SKIP_STATIC = Api(f"{_ENV}._should_skip_static_eval", "a symbol of which nothing is known is not evaluated")
FLOOR_DIVISIONS = Api(f"{_ENV}.__init__", "axioms with floor divisions are simplified again only after new facts")
REPLACE = Api(f"{_ENV}.replace", "replaces symbols in an expression")
FIND = Api(f"{_ENV}._find", "what replaces a symbol")
EXPRESSION = Api("torch.fx.experimental.sym_node:SymNode.expr", "the expression of a symbolic number")
EVALUATE_STATIC = Api(f"{_ENV}._maybe_evaluate_static", "evaluates without guards")
FLAG = "_resimplify_floor_div_axioms"
NODE_VERSION = "_expr_ver"

How: TypeAlias = Literal["setting", "undone", "patch"]


class Optimization(NamedTuple):
    """An optimization, and a context in which it is on (a setting or a patch) or `undone`. `needs` are the names of
    torch without which there is none.
    """

    what: str
    how: How
    context: Callable[[], AbstractContextManager[Any]]
    needs: tuple[Api, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether this torch has it, or can be patched so."""
        try:
            for api in self.needs:
                api.get()
        except (DdefuzzError, AttributeError, ImportError):
            return False
        return True


def _guard_free(level: int) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: changed_settings(SHAPES_PATCH, {SHAPES_CONFIG: level})


def _without_stack_traces() -> AbstractContextManager[Any]:
    return patch.object(STACK_TRACES.owner(), STACK_TRACES.name, True)


def _answering(api: Api, answer: object) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(api.owner(), api.name, lambda *_: answer)


@contextmanager
def _always_simplified() -> Iterator[None]:
    """The flag that axioms have to be simplified again is always set."""

    def is_set(_: Any) -> bool:
        return True

    def ignored(_: Any, __: bool) -> None:
        return None

    with patch.object(FLOOR_DIVISIONS.owner(), FLAG, property(is_set, ignored), create=True):
        yield


@contextmanager
def _all_replaced() -> Iterator[None]:
    """Each symbol of an expression is replaced, also by itself."""
    inner = REPLACE.get()

    def replace(self: Any, expr: Any) -> Any:
        values = {symbol: FIND.get()(self, symbol) for symbol in expr.free_symbols}
        return inner(self, expr.xreplace(values)) if values else expr

    for name in ("cache_clear", "cache_info"):
        setattr(replace, name, getattr(inner, name))
    with patch.object(REPLACE.owner(), REPLACE.name, replace):
        yield


@contextmanager
def _expressions_not_kept() -> Iterator[None]:
    """Each symbolic number replaces the symbols of its expression whenever it is asked for it."""
    inner = EXPRESSION.get()

    def expr(self: Any) -> Any:
        setattr(self, NODE_VERSION, -1)
        return inner.fget(self)

    with patch.object(EXPRESSION.owner(), EXPRESSION.name, property(expr)):
        yield


@contextmanager
def _kept_until_its_symbols_change() -> Iterator[None]:
    """What an expression was evaluated to is kept until the range or the replacement of one of its symbols changes, or
    an assertion is added. torch forgets all results then (`_lru_cache`), also after a change of another symbol.
    """
    inner = EVALUATE_STATIC.get()

    def evaluate(self: Any, expr: Any, **how: Any) -> Any:
        if how.get("axioms") or how.get("var_to_range") or how.get("compute_hint"):
            return inner(self, expr, **how)
        known: dict[Any, Any] = vars(self).setdefault("kept", {})
        facts = (
            self.num_deferred_runtime_asserts,
            len(self.divisible),
            *((self.var_to_range.get(one), self.replacements.get(one)) for one in sorted(expr.free_symbols, key=str)),
        )
        key = expr, tuple(sorted(how.items()))
        before = known.get(key)
        if before is not None and before[0] == facts:
            return before[1]
        answer = inner(self, expr, **how)
        known[key] = facts, answer
        return answer

    for name in ("cache_clear", "cache_info"):
        setattr(evaluate, name, getattr(inner, name))
    with patch.object(EVALUATE_STATIC.owner(), EVALUATE_STATIC.name, evaluate):
        yield


BASE = "none"

OPTIMIZATIONS: dict[str, Optimization] = {
    "no-stack-traces": Optimization(
        "torch.fx.config.do_not_emit_stack_traces", "setting", _without_stack_traces, (STACK_TRACES,)
    ),
    "guard-free-1": Optimization("aggressive_guard_free_semantics = 1", "setting", _guard_free(1), (SHAPES_CONFIG,)),
    "guard-free-2": Optimization("aggressive_guard_free_semantics = 2", "setting", _guard_free(2), (SHAPES_CONFIG,)),
    "fast-comparisons": Optimization(
        "sums of sizes are at least 0, without simplifying them",
        "undone",
        _answering(FAST_COMPARISON, None),
        (FAST_COMPARISON,),
    ),
    "skip-evaluation": Optimization(
        "a check of a symbol of which nothing is known is not evaluated",
        "undone",
        _answering(SKIP_STATIC, False),
        (SKIP_STATIC,),
    ),
    "floor-divisions": Optimization(
        "axioms with floor divisions are simplified again only after new facts", "undone", _always_simplified
    ),
    "replace-less": Optimization(
        "only symbols that something replaces are substituted", "undone", _all_replaced, (REPLACE, FIND)
    ),
    "keep-expressions": Optimization(
        "a symbolic number keeps its expression until a replacement is made",
        "undone",
        _expressions_not_kept,
        (EXPRESSION,),
    ),
    "keep-evaluations": Optimization(
        "an evaluation is kept until a fact about its own symbols changes",
        "patch",
        _kept_until_its_symbols_change,
        (EVALUATE_STATIC,),
    ),
    "all": Optimization("all settings and patches together", "patch", nullcontext),
}
"""By name. `all` is made of those that are settings, with the highest level of guard-free semantics, and patches."""


@contextmanager
def _all_on() -> Iterator[None]:
    with ExitStack() as stack:
        for name in ("no-stack-traces", "guard-free-2", "keep-evaluations"):
            if OPTIMIZATIONS[name].is_there:
                stack.enter_context(OPTIMIZATIONS[name].context())
        yield


OPTIMIZATIONS["all"] = OPTIMIZATIONS["all"]._replace(context=_all_on)


class AblationTask(msgspec.Struct, frozen=True):
    """One export of a workload under an optimization (or `none`)."""

    workload: str
    n: int
    optimization: str


class AblationPoint(msgspec.Struct, frozen=True):
    """An export: its CPU seconds, its graph, the number of assertions in it, and the ranges of its symbols."""

    seconds: float
    graph: str
    assertions: int
    ranges: tuple[str, ...]


class AblationRow(msgspec.Struct, frozen=True):
    """An optimization in a workload of n: the CPU seconds without and with the change, by round, and what differs."""

    workload: str
    n: int
    optimization: str
    base: tuple[float, ...]
    changed: tuple[float, ...]
    differs: str = ""

    @property
    def gains(self) -> tuple[float, ...]:
        """How many times as long the export takes without the optimization, by round."""
        pairs = zip(self.base, self.changed, strict=True)
        is_undone = OPTIMIZATIONS[self.optimization].how == "undone"
        return tuple(changed / base if is_undone else base / changed for base, changed in pairs)


class Ablation(msgspec.Struct, frozen=True):
    """All rows. `lacking` are the optimizations that this torch does not have."""

    torch: str
    rows: tuple[AblationRow, ...]
    lacking: tuple[str, ...] = ()
    schema: Literal["ddefuzz.bench.ablation/1"] = "ddefuzz.bench.ablation/1"


def run_ablation(task: AblationTask) -> AblationPoint:
    """Export one workload. A small export before it has imported all that export imports."""
    program, arguments = WORKLOADS[task.workload].make(task.n)
    with captured_output():
        export_module(*WORKLOADS[task.workload].make(1))
        context = nullcontext() if task.optimization == BASE else OPTIMIZATIONS[task.optimization].context()
        with context:
            before = time.process_time()
            exported = export_module(program, arguments)
            seconds = time.process_time() - before
    text = graph_text(exported.graph_module)
    ranges = tuple(f"{symbol} {bounds}" for symbol, bounds in exported.range_constraints.items())
    return AblationPoint(round(seconds, 4), text, text.count("_assert_scalar"), ranges)


def run(session: Session, workloads: tuple[str, ...], sizes: tuple[int, ...], rounds: int, seconds: int) -> Result:
    """Measure all optimizations in the workloads, each in turn with an export without any."""
    for name in set(workloads) - set(WORKLOADS):
        raise InputError(f"--workload: found {name!r}, expected one of {', '.join(WORKLOADS)}")
    there = [name for name, one in OPTIMIZATIONS.items() if one.is_there]
    rows: list[AblationRow] = []
    with Pool(1, tasks_per_worker=1) as pool, suppress(KeyboardInterrupt):
        for workload in workloads:
            for n in sizes:
                rows += _rows(session, pool, workload, n, there, rounds, seconds)
    if not rows:
        raise NothingRanError(f"no export ended within {seconds} CPU seconds, expected smaller --n")
    lacking = tuple(name for name in OPTIMIZATIONS if name not in there)
    measured = Ablation(str(torch.__version__), tuple(rows), lacking)
    return Result(measured, view(measured))


def _rows(
    session: Session, pool: Pool, workload: str, n: int, names: Sequence[str], rounds: int, seconds: int
) -> Iterator[AblationRow]:
    points: dict[str, list[AblationPoint]] = {name: [] for name in (BASE, *names)}
    for number in range(rounds):
        for name, of_name in points.items():
            session.live.update(f"{workload} n={n}: round {number + 1} of {rounds}, {name}")
            answer = session.answer(pool.submit(run_ablation, AblationTask(workload, n, name), seconds * WAIT))
            if not isinstance(answer, LostTask):
                of_name.append(answer)
            elif answer.outcome != "timeout":
                raise DdefuzzError(f"bench ablation: {workload} n={n} {name}: {answer.reason}")
            elif name == BASE:
                return
    base = points[BASE]
    for name in names:
        changed = points[name]
        if len(changed) == len(base):
            before, after = (tuple(point.seconds for point in of) for of in (base, changed))
            yield AblationRow(workload, n, name, before, after, _difference(base[0], changed[0]))


def _difference(base: AblationPoint, changed: AblationPoint) -> str:
    """What of the exported program differs, in words; empty if nothing does."""
    names = ("graph", "assertions", "ranges")
    return ", ".join(name for name in names if getattr(base, name) != getattr(changed, name))


def view(measured: Ablation) -> Iterator[Block]:
    """The table of docs/results/export-time.md."""
    yield Heading("What each optimization saves")
    yield prose(
        "The gain is how many times as long the export takes without the optimization: the median (least to most) of "
        "rounds side by side. A setting and a patch in memory were switched on; what torch has already was undone."
    )
    columns = ("workload", "n", "optimization", "how", "without", "with", "gain", "exported program")
    yield table(columns, map(_cells, measured.rows), right=("n", "without", "with", "gain"))
    rows = [(name, one.what) for name, one in OPTIMIZATIONS.items()]
    yield table(("optimization", "what it does"), rows)
    if measured.lacking:
        yield prose("Not in torch {}: {}.", measured.torch, ", ".join(measured.lacking))


def _cells(row: AblationRow) -> tuple[Inline, ...]:
    how = OPTIMIZATIONS[row.optimization].how
    without, with_it = (row.changed, row.base) if how == "undone" else (row.base, row.changed)
    gain = f"{median(row.gains):.2f} ({min(row.gains):.2f} to {max(row.gains):.2f})"
    same: Inline = Span(f"differs: {row.differs}", style="bad") if row.differs else "equal"
    seconds = (f"{median(one):.2f} s" for one in (without, with_it))
    return (row.workload, str(row.n), row.optimization, how, *seconds, gain, same)
