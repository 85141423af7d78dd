"""What specialization keys cost: the fast path, the safe path, and a dispatch by them, compared with a plain dict
lookup.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any, Final

import msgspec
import torch

from ddefuzz.keys.dispatch import Dispatch
from ddefuzz.keys.key import Key, paths
from ddefuzz.keys.options import Options

ARGUMENTS: Final = (1, 2, 4, 8, 16)
DIMS: Final = (1, 2, 4)
REPEATS: Final = 7
CALLS: Final = 2_000

POLICIES: Final[dict[str, Options]] = {
    "all sizes": Options(),
    "sizes 0, 1 and more": Options(sizes="01", strides="pattern", divisible=True),
}


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


class KeyBench(msgspec.Struct, frozen=True):
    """The result of the benchmark."""

    torch: str
    rows: tuple[KeyCost, ...]
    schema: str = "ddefuzz.bench.keys/1"


def measure_keys(tell: Callable[..., None]) -> KeyBench:
    """Measure every policy, number of arguments and number of dims."""
    rows = []
    total = len(POLICIES) * len(ARGUMENTS) * len(DIMS)
    for policy, options in POLICIES.items():
        for arguments in ARGUMENTS:
            for dims in DIMS:
                rows.append(_measured(policy, options, arguments, dims))
                tell(f"{len(rows)} of {total} measurements", is_last=len(rows) == total)
    return KeyBench(str(torch.__version__), tuple(rows))


def _measured(policy: str, options: Options, arguments: int, dims: int) -> KeyCost:
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
    return KeyCost(
        policy,
        arguments,
        dims,
        fast_ns=round(ns["fast"], 1),
        safe_ns=round(ns["safe"], 1),
        lookup_ns=round(ns["lookup"], 1),
        dispatch_ns=round(ns["dispatch"], 1),
        keyed_ns=round(ns["keyed"], 1),
        safe_over_fast=round(ns["safe"] / ns["fast"], 2),
        dispatch_over_lookup=round(ns["dispatch"] / ns["lookup"], 2),
        keyed_over_lookup=round(ns["keyed"] / ns["lookup"], 2),
    )
