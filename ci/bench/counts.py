"""What specialization keys cost compared with a dict lookup, and what `out=` costs over many sizes."""

from __future__ import annotations

import itertools
import time
import timeit
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from ci.bench.command import Result, Session
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.keys.case import Options
from ddefuzz.keys.key import Dispatch, Key, paths
from ddefuzz.show.blocks import prose, table
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


def run_keys(session: Session) -> Result:
    """Measure every policy, number of arguments and number of dims.

    The numbers are nanoseconds a call, the fastest of several runs, and ratios of those that were measured side by
    side. `lookup` is a dict lookup of a key that was made before, `dispatch` a call of the dispatch cache, `keyed` one
    where no recent call fits: all keys are made, and looked up.
    """
    rows: list[dict[str, Any]] = []
    for policy, arguments, dims in itertools.product(POLICIES, ARGUMENTS, DIMS):
        ns = _key_cost(POLICIES[policy], arguments, dims)
        ratios = {name: (name.split("/")[0], name.split("/")[1]) for name in RATIOS}
        rows.append(
            {
                "policy": policy,
                "arguments": arguments,
                "dims": dims,
                **{f"{name}_ns": round(value, 1) for name, value in ns.items()},
                **{f"{one}_over_{other}": round(ns[one] / ns[other], 2) for one, other in ratios.values()},
            }
        )
        session.live.update(f"{len(rows)} measurements")
    titles = ("policy", "arguments", "dims", *TIMED, *RATIOS)
    digits = (*[None] * 3, *[0] * len(TIMED), *[1] * len(RATIOS))
    cells = [
        tuple(str(value) if to is None else f"{value:.{to}f}" for value, to in zip(row.values(), digits, strict=True))
        for row in rows
    ]
    head = "torch {}; ns a call; safe/fast has the target ≥ 3; lookup is a dict lookup of a key made before"
    record = {"torch": str(torch.__version__), "rows": rows, "schema": "ddefuzz.bench.keys/1"}
    return Result(record, [prose(head, torch.__version__), table(titles, cells, right=titles[1:])])


def _key_cost(options: Options, arguments: int, dims: int) -> dict[str, float]:
    """Nanoseconds a call of what `TIMED` names."""
    tensors = tuple(torch.zeros([3 + number] * dims) for number in range(arguments))
    made = paths(options)
    ready: tuple[Key, ...] = tuple(map(made.key, tensors))
    known: dict[tuple[Key, ...], int] = {ready: 1}
    dispatch = Dispatch(lambda *_: 1, options)
    dispatch(*tensors)
    timed: dict[str, Callable[[], Any]] = {
        "fast": lambda: tuple(map(made.fast, tensors)),
        "safe": lambda: tuple(map(made.safe, tensors)),
        "lookup": lambda: known[ready],
        "dispatch": lambda: dispatch(*tensors),
        "keyed": lambda: known[tuple(map(made.key, tensors))],
    }
    # In turn, so that a slower moment of the machine meets all of them.
    calls = max(CALLS // arguments, 100)
    rounds = [{name: timeit.timeit(run, number=calls) for name, run in timed.items()} for _ in range(REPEATS)]
    return {name: min(one[name] for one in rounds) / calls * 1e9 for name in TIMED}


def run_recompiles(session: Session, sizes: int) -> Result:
    """Compile each reference function over this many sizes, without out= and with it in turn."""
    rows: list[dict[str, Any]] = []
    for op in REFERENCES:
        made = sequenced(op, tuple(range(SMALLEST, SMALLEST + sizes)), ("plain", "out"))
        (plain, seconds), (out, seconds_out) = (_timed(made[form].texts) for form in ("plain", "out"))
        rows.append(
            {
                "op": op,
                "compilations": plain,
                "compilations_out": out,
                "seconds": round(seconds, 2),
                "seconds_out": round(seconds_out, 2),
                "ratio": round(seconds_out / max(seconds, 1e-9), 1),
            }
        )
        session.live.update(f"{len(rows)} of {len(REFERENCES)} functions")
    version = str(torch.__version__)
    record = {"torch": version, "sizes": sizes, "rows": rows, "schema": "ddefuzz.bench.recompiles/1"}
    head = prose("torch {}, {} sizes, default settings; CPU seconds of all calls", version, sizes)
    titles = ("op", "compilations", "with out=", "CPU s", "with out= ", "ratio")
    return Result(record, [head, table(titles, [tuple(map(str, row.values())) for row in rows], right=titles[1:])])


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
