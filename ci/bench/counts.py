"""What specialization keys cost compared with a dict lookup, and what `out=` costs over many sizes."""

from __future__ import annotations

import time
import timeit
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
import torch

from ci.bench.command import Result, Session
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.keys.case import Options
from ddefuzz.keys.dispatch import Dispatch
from ddefuzz.keys.key import Key, paths
from ddefuzz.show.blocks import Block, prose, table
from ddefuzz.sweep.recompile_worker import REFERENCES, sequenced

ARGUMENTS: Final = (1, 2, 4, 8, 16)
DIMS: Final = (1, 2, 4)
REPEATS: Final = 7
CALLS: Final = 2_000

SMALLEST: Final = 5
"""The first of the sizes for `out=`, which are consecutive."""

POLICIES: Final[dict[str, Options]] = {
    "all sizes": Options(),
    "sizes 0, 1 and more": Options(sizes="01", strides="pattern", divisible=True),
}


TIMED: Final = ("fast", "safe", "lookup", "dispatch", "keyed")
RATIOS: Final = ("safe/fast", "dispatch/lookup", "keyed/lookup")


class KeyCost(msgspec.Struct, frozen=True):
    """Nanoseconds a call, the fastest of several runs. The ratios are of numbers measured side by side.

    `lookup_ns` is a dict lookup of a key that was made before. `dispatch_ns` is a call of the dispatch cache,
    `keyed_ns` one where no recent call fits: all keys are made, and looked up.
    """

    policy: str
    arguments: int
    dims: int
    fast_ns: float
    safe_ns: float
    lookup_ns: float
    dispatch_ns: float
    keyed_ns: float
    safe_over_fast: float
    dispatch_over_lookup: float
    keyed_over_lookup: float


class OutCost(msgspec.Struct, frozen=True):
    """Compilations and CPU seconds of one function over all sizes. `ratio` is the seconds with out= over without."""

    op: str
    compilations: int
    compilations_out: int
    seconds: float
    seconds_out: float
    ratio: float


def run_keys(session: Session) -> Result:
    """Measure every policy, number of arguments and number of dims."""
    costs = []
    for policy, options in POLICIES.items():
        for arguments in ARGUMENTS:
            for dims in DIMS:
                costs.append(_key_cost(policy, options, arguments, dims))
                session.live.update(f"{len(costs)} measurements")
    record = {"torch": str(torch.__version__), "rows": costs, "schema": "ddefuzz.bench.keys/1"}
    return Result(record, list(keys_view(costs)))


def keys_view(costs: Sequence[KeyCost]) -> Iterator[Block]:
    """A row for each policy, number of arguments and dims."""
    yield prose(
        "torch {}; ns a call; safe/fast has the target ≥ 3; lookup is a dict lookup of a key made before",
        torch.__version__,
    )
    titles = ("policy", "arguments", "dims", *TIMED, *RATIOS)
    rows = [
        (
            cost.policy,
            str(cost.arguments),
            str(cost.dims),
            *(f"{getattr(cost, f'{name}_ns'):.0f}" for name in TIMED),
            *(f"{getattr(cost, name.replace('/', '_over_')):.1f}" for name in RATIOS),
        )
        for cost in costs
    ]
    yield table(titles, rows, right=titles[1:])


def _key_cost(policy: str, options: Options, arguments: int, dims: int) -> KeyCost:
    tensors = tuple(torch.zeros([3 + number] * dims) for number in range(arguments))
    made = paths(options)
    ready: tuple[Key, ...] = tuple(map(made.key, tensors))
    table: dict[tuple[Key, ...], int] = {ready: 1}
    dispatch = Dispatch(lambda *_: 1, options)
    dispatch(*tensors)
    timed: dict[str, Callable[[], Any]] = {
        "fast": lambda: tuple(map(made.fast, tensors)),
        "safe": lambda: tuple(map(made.safe, tensors)),
        "lookup": lambda: table[ready],
        "dispatch": lambda: dispatch(*tensors),
        "keyed": lambda: table[tuple(map(made.key, tensors))],
    }
    # In turn, so that a slower moment of the machine meets all of them.
    calls = max(CALLS // arguments, 100)
    rounds = [{name: timeit.timeit(run, number=calls) for name, run in timed.items()} for _ in range(REPEATS)]
    ns = {name: min(one[name] for one in rounds) / calls * 1e9 for name in timed}
    over = {name: name.split("/") for name in RATIOS}
    return KeyCost(
        policy,
        arguments,
        dims,
        **{f"{name}_ns": round(value, 1) for name, value in ns.items()},
        **{name.replace("/", "_over_"): round(ns[one] / ns[other], 2) for name, (one, other) in over.items()},
    )


def run_recompiles(session: Session, sizes: int) -> Result:
    """Compile each reference function over this many sizes, without out= and with it in turn."""
    costs = []
    for op in REFERENCES:
        made = sequenced(op, tuple(range(SMALLEST, SMALLEST + sizes)), ("plain", "out"))
        (plain, seconds), (out, seconds_out) = (_timed(made[form].texts) for form in ("plain", "out"))
        ratio = round(seconds_out / max(seconds, 1e-9), 1)
        costs.append(OutCost(op, plain, out, round(seconds, 2), round(seconds_out, 2), ratio))
        session.live.update(f"{len(costs)} of {len(REFERENCES)} functions")
    version = str(torch.__version__)
    record = {"torch": version, "sizes": sizes, "rows": costs, "schema": "ddefuzz.bench.recompiles/1"}
    head = prose("torch {}, {} sizes, default settings; CPU seconds of all calls", version, sizes)
    titles = ("op", "compilations", "with out=", "CPU s", "with out= ", "ratio")
    rows = [tuple(map(str, msgspec.structs.astuple(cost))) for cost in costs]
    return Result(record, [head, table(titles, rows, right=titles[1:])])


def _timed(texts: Sequence[str]) -> tuple[int, float]:
    """The compilations and CPU seconds of a function called at each size, after a first compilation of another one."""
    prepared = [prepare(ProgramSubject(text)) for text in texts]
    graphs = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        nonlocal graphs
        del inputs
        graphs += 1
        return graph.forward

    limits = {api.key: len(texts) + 8 for api in torch_api.RECOMPILE_LIMITS}
    with torch_api.bound(torch_api.DYNAMO_CONFIG)(limits), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(2))
        torch_api.bound(torch_api.DYNAMO_RESET)()
        graphs = 0
        function = torch.compile(prepared[0].call, backend=backend)
        started = time.process_time()
        for one in prepared:
            function(*one.args)
        return graphs, time.process_time() - started
