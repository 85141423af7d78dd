"""What `out=` costs over many sizes: compilations and seconds of the reference functions, with it and without."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import torch

from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.sweep.recompile_sequence import REFERENCES, sequenced

SMALLEST: Final = 5
"""The first of the sizes, which are consecutive."""


class OutCost(msgspec.Struct, frozen=True):
    """Compilations and CPU seconds of one function over all sizes. `ratio` is the seconds with out= over without."""

    op: str
    compilations: int
    compilations_out: int
    seconds: float
    seconds_out: float
    ratio: float


class RecompileBench(msgspec.Struct, frozen=True):
    """The result of the benchmark."""

    torch: str
    sizes: int
    rows: tuple[OutCost, ...]
    schema: str = "ddefuzz.bench.recompiles/1"


def measure_recompiles(sizes: int, tell: Callable[..., None]) -> RecompileBench:
    """Compile each reference function over this many sizes, without out= and with it in turn."""
    rows = []
    for op in REFERENCES:
        made = sequenced(op, tuple(range(SMALLEST, SMALLEST + sizes)), ("plain", "out"))
        (plain, seconds), (out, seconds_out) = (_timed(made[form].texts) for form in ("plain", "out"))
        rows.append(
            OutCost(
                op, plain, out, round(seconds, 2), round(seconds_out, 2), round(seconds_out / max(seconds, 1e-9), 1)
            )
        )
        tell(f"{len(rows)} of {len(REFERENCES)} functions", is_last=len(rows) == len(REFERENCES))
    return RecompileBench(str(torch.__version__), sizes, tuple(rows))


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
