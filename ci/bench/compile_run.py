"""Measures one program in a worker: what inductor makes of each version, and the time of first and later calls."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from itertools import product
from types import FunctionType
from typing import Any

import msgspec
import torch

from ci.bench.compile import BACKENDS, VERSIONS, Backend, CompileTask, Lowered, ProgramCost, SizeKind, Timed
from ddefuzz.artifacts.made import make
from ddefuzz.artifacts.model import Made, MakeTask
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.stages import mark
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.kernels import kernels_in
from ddefuzz.program.sizes import static
from ddefuzz.program.text import print_program

SLICE_SECONDS = 0.004
"""CPU seconds of the calls that one round measures of a version."""

WARM_UP = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=64 64"]):
    return torch.relu(x)
"""
"""The program whose compilation pays for what the first one in a process costs: imports, and C++ headers."""


def run_compile(task: CompileTask) -> ProgramCost:
    """Measure a program. What fails is an error of its version and backend."""
    subjects = subjects_of(task.text)
    lowered = {version: lowered_of(make(MakeTask(subject, "inductor"))) for version, subject in subjects.items()}
    if not task.rounds:
        return ProgramCost(task.program, lowered=lowered)
    with captured_output(), _settings():
        _warm_up()
        eager = _eager(prepare(subjects["static"]))
        expected, calls = eager(), [eager]
        timed: list[Timed] = []
        failed: list[Timed] = []
        for (version, subject), backend in product(subjects.items(), task.backends):
            try:
                first, call = _first_call(prepare(subject), version, backend, expected)
            except Exception as error:  # noqa: BLE001 a version that does not compile is a result
                said = str(error).strip().partition("\n")[0]
                failed.append(Timed(version, backend, error=f"{type(error).__name__}: {said}"))
            else:
                timed.append(first)
                calls.append(call)
        of_eager, *rounds = _interleaved(calls, task.rounds)
    times = [msgspec.structs.replace(one, rounds=of_one) for one, of_one in zip(timed, rounds, strict=True)]
    return ProgramCost(task.program, of_eager, (*times, *failed), lowered)


def subjects_of(text: str) -> dict[SizeKind, ProgramSubject]:
    """The three versions of a program."""
    fixed = print_program(static(parse(text, "<bench>").program))
    made = (ProgramSubject(text), ProgramSubject(text, backed=True), ProgramSubject(fixed))
    return dict(zip(VERSIONS, made, strict=True))


def lowered_of(made: Made) -> Lowered:
    """What is counted of the work of inductor. Only the forward graph is, since the inputs need no gradient."""
    guards = tuple(
        f"{one.place.file}:{one.place.line} {one.function}: {one.expression} taken as {one.fallback}"
        for one in made.fallbacks
        if one.place.file in torch_api.INDUCTOR_FILES
    )
    if made.failure is not None or made.graph is None:
        failure = made.failure
        said = f"{failure.kind} in {failure.site}: {failure.evidence}" if failure is not None else made.reason
        return Lowered(guards=guards, error=said or made.outcome)
    code = next((part for part in made.parts if part.kind == "code"), None)
    kernels = kernels_in(code.text if code is not None else "")
    dynamo = next((part.nodes for part in made.parts if part.name == "dynamo graph"), 0)
    return Lowered(
        dynamo_nodes=dynamo,
        nodes=made.graph.nodes,
        assertions=made.assertions,
        generated=kernels.generated,
        extern=kernels.extern,
        fallback=kernels.fallback,
        vectorized=kernels.vectorized,
        guards=guards,
    )


@contextmanager
def _settings() -> Iterator[None]:
    """torch's own settings, but for those without which programs are not captured whole."""
    with ExitStack() as stack:
        torch_api.bound(torch_api.DYNAMO_RESET)()
        stack.callback(torch_api.bound(torch_api.DYNAMO_RESET))
        stack.enter_context(
            torch_api.bound(torch_api.DYNAMO_CONFIG)(
                {torch_api.CAPTURE_SCALARS.key: True, torch_api.CAPTURE_DYNAMIC_SHAPES.key: True}
            )
        )
        stack.enter_context(torch_api.bound(torch_api.INDUCTOR_CONFIG)({torch_api.COMPILE_THREADS.key: 1}))
        stack.enter_context(torch.no_grad())
        yield


@cache
def _warm_up() -> None:
    for backend in BACKENDS:
        with suppress(Exception):  # what fails here fails again where it is measured
            prepared = prepare(ProgramSubject(WARM_UP))
            _first_call(prepared, "unbacked", backend, _eager(prepared)())


def _first_call(
    prepared: Prepared, version: SizeKind, backend: Backend, expected: Any
) -> tuple[Timed, Callable[[], Any]]:
    """Compile by a first call, with nothing in inductor's caches. Returns further calls. Raises what torch raises."""
    compiled = torch.compile(_own_code(prepared.call), backend=backend, fullgraph=True)
    mark(prepared)
    with torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)():
        before = _cpu_seconds()
        result = compiled(*prepared.args)
        seconds = _cpu_seconds() - before
    timed = Timed(version, backend, round(seconds, 3), agrees=_agrees(result, expected))
    return timed, lambda: compiled(*prepared.args)


def _own_code(call: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own, so that dynamo looks only through the graphs of this version."""
    assert isinstance(call, FunctionType)
    return FunctionType(call.__code__.replace(), call.__globals__, call.__name__, call.__defaults__, call.__closure__)


def _eager(prepared: Prepared) -> Callable[[], Any]:
    return lambda: prepared.call(*prepared.args)


def _agrees(result: Any, expected: Any) -> bool:
    """Whether tensors are equal, but for rounding: up to a thousandth of the largest value."""
    pairs = zip(_tensors(result), _tensors(expected), strict=True)
    return all(
        one.shape == other.shape and bool(((one - other).abs() <= 1e-3 * other.abs().max()).all())
        for one, other in pairs
    )


def _tensors(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else [one.double() for one in result]


def _cpu_seconds() -> float:
    """CPU seconds of this process, and of the C++ compilers that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _interleaved(calls: list[Callable[[], Any]], rounds: int) -> list[tuple[float, ...]]:
    """Microseconds of CPU a call, of every function in each round."""
    numbers = [_number(call) for call in calls]
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for at, (call, number) in enumerate(zip(calls, numbers, strict=True)):
            before = time.process_time()
            for _ in range(number):
                call()
            found[at].append(round((time.process_time() - before) / number * 1e6, 2))
    return list(map(tuple, found))


def _number(call: Callable[[], Any]) -> int:
    """How many calls take about `SLICE_SECONDS`."""
    call()
    before = time.process_time()
    call()
    return max(3, min(1000, int(SLICE_SECONDS / max(time.process_time() - before, 1e-6))))
