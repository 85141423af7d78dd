"""What unbacked sizes cost under torch.compile: programs with unbacked, backed and static sizes under each backend.

A worker measures one program: the time of the first and of later calls.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import product
from statistics import median, quantiles
from types import FunctionType, MappingProxyType
from typing import Any

import msgspec
import torch

from ci.bench.command import Result, Session, in_turn
from ddefuzz.errors import InputError, NothingRanError
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.stages import mark
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.ops.catalogue import parse
from ddefuzz.program.sizes import static
from ddefuzz.program.text import print_program
from ddefuzz.show.blocks import Block, Heading, Items, table


def _program(inputs: str, parameters: str, *lines: str) -> str:
    values = "; ".join(one if "=" in one else f"{one} = normal" for one in inputs.split())
    body = "".join(f"    {line}\n" for line in lines)
    return f"# ddefuzz program v1\n# inputs: {values}\ndef program({parameters}):\n{body}"


def _tensor(name: str, shape: str, kind: str = "Float32") -> str:
    return f'{name}: {kind}[Tensor, "{shape}"]'


_ROWS = _tensor("x", "u0=2048 64")
_TWO = f"{_ROWS}, {_tensor('y', 'u0=2048 64')}"

PROGRAMS: MappingProxyType[str, str] = MappingProxyType(
    {
        "add_relu": _program("x y", _TWO, "return torch.relu(x + y)"),
        "pointwise_chain": _program(
            "x y", _TWO, "z = torch.sigmoid(x) * torch.tanh(y)", "return torch.exp(z) - torch.sin(x)"
        ),
        "broadcast_bias": _program("x b", f"{_ROWS}, {_tensor('b', '64')}", "return torch.relu(x * b + b)"),
        "row_sum": _program("x", _ROWS, "return torch.sum(x, 1)"),
        "column_sum": _program("x", _ROWS, "return torch.sum(x, 0)"),
        "full_sum": _program("x", _ROWS, "return torch.sum(x)"),
        "softmax_rows": _program("x", _ROWS, "return torch.softmax(x, 1)"),
        "softmax_columns": _program("x", _ROWS, "return torch.softmax(x, 0)"),
        "layer_norm": _program("x", _ROWS, "return torch.nn.functional.layer_norm(x, [64])"),
        "transpose_add": _program("x", _ROWS, "y = torch.transpose(x, 0, 1)", "return torch.exp(y) + y"),
        "neighbours": _program("x", _tensor("x", "u0=2048 65"), "return x[:, 1:] - x[:, :-1]"),
        "cat_two": _program("x y", f"{_ROWS}, {_tensor('y', 'u1=1024 64')}", "return torch.relu(torch.cat([x, y], 0))"),
        "flatten": _program("x", _ROWS, "return torch.sin(torch.reshape(x, (-1,)))"),
        "embedding": _program(
            "i=index(100) t",
            f"{_tensor('i', 'u0=2048', 'Int64')}, {_tensor('t', '100 64')}",
            "return torch.relu(torch.nn.functional.embedding(i, t))",
        ),
        "masked_rows": _program("x", _ROWS, "kept = x[torch.sum(x, 1) > 0]", "return torch.sigmoid(kept) * kept"),
        "sort_columns": _program("x", _tensor("x", "64 u0=512"), "return torch.sort(x, 1)"),
        "average_pool": _program(
            "x", _tensor("x", "4 8 u0=128 64"), "return torch.nn.functional.avg_pool2d(x, [3, 3], [2, 2])"
        ),
        "mlp": _program(
            "x w v",
            f"{_ROWS}, {_tensor('w', '256 64')}, {_tensor('v', '64 256')}",
            "h = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))",
            "return torch.nn.functional.linear(h, v)",
        ),
        "attention": _program(
            "q k v",
            ", ".join(_tensor(name, "4 u0=128 32") for name in "qkv"),
            "scores = torch.matmul(q, torch.transpose(k, 1, 2)) * 0.25",
            "return torch.matmul(torch.softmax(scores, 2), v)",
        ),
        "transformer_block": _program(
            "x a b c d e f",
            f"{_tensor('x', 'u0=8 128 64')}, "
            + ", ".join(_tensor(name, "64 64") for name in "abcd")
            + f", {_tensor('e', '256 64')}, {_tensor('f', '64 256')}",
            "n = torch.nn.functional.layer_norm(x, [64])",
            "q = torch.nn.functional.linear(n, a)",
            "k = torch.nn.functional.linear(n, b)",
            "v = torch.nn.functional.linear(n, c)",
            "scores = torch.softmax(torch.matmul(q, torch.transpose(k, 1, 2)) * 0.125, 2)",
            "y = x + torch.nn.functional.linear(torch.matmul(scores, v), d)",
            "m = torch.nn.functional.layer_norm(y, [64])",
            "h = torch.nn.functional.gelu(torch.nn.functional.linear(m, e))",
            "return y + torch.nn.functional.linear(h, f)",
        ),
    }
)
"""The text of each program by its name, smallest first."""

PROGRAM_SECONDS = 1200.0

MEMORY_BYTES = 8_000_000_000
"""The C++ compiler runs in the worker's limits, too."""

SLICE_SECONDS = 0.004
"""CPU seconds of the calls that one round measures of a version."""

VERSIONS = ("unbacked", "backed", "static")
BACKENDS = ("eager", "aot_eager", "inductor")


class Timing(msgspec.Struct, frozen=True):
    """A version under a backend: CPU seconds of the first call, and microseconds of a later call in each round. `error`
    is the failure, or says that the result is not that of eager.
    """

    first_seconds: float | None = None
    rounds: tuple[float, ...] = ()
    error: str = ""


class ProgramCost(msgspec.Struct, frozen=True):
    """One program: its times by version and backend, as `unbacked inductor`. `eager_rounds` are the microseconds
    without torch.compile, in the same rounds.
    """

    program: str
    eager_rounds: tuple[float, ...] = ()
    timed: dict[str, Timing] = {}
    lost: str = ""

    def of(self, version: str, backend: str = "inductor") -> Timing:
        """The times of a version under a backend."""
        return self.timed.get(f"{version} {backend}", Timing())

    def ratios(self, over: str, backend: str = "inductor") -> tuple[float, ...]:
        """The run times of the unbacked version over those of another one, round by round."""
        rounds = zip(self.of("unbacked", backend).rounds, self.of(over, backend).rounds, strict=False)
        return tuple(first / second for first, second in rounds)


class CompileTask(msgspec.Struct, frozen=True):
    """A program to measure, by name and text."""

    program: str
    text: str
    rounds: int


def run(session: Session, programs: tuple[str, ...], rounds: int) -> Result:
    """Measure the programs."""
    costs: list[ProgramCost] = []
    for name in set(programs) - set(PROGRAMS):
        raise InputError(f"--program: found {name!r}, expected one of {', '.join(PROGRAMS)}")
    tasks = [CompileTask(name, PROGRAMS[name], rounds) for name in programs or PROGRAMS]
    with Pool(1, memory_bytes=MEMORY_BYTES, samples=False) as pool, suppress(KeyboardInterrupt):
        for task, future in [(task, pool.submit(run_compile, task, PROGRAM_SECONDS)) for task in tasks]:
            answer = session.answer(future)
            if isinstance(answer, LostTask):
                answer = ProgramCost(task.program, lost=f"{answer.outcome}: {answer.reason}")
            costs.append(answer)
            ratio = answer.lost or f"unbacked over backed {_ratio(answer, 'backed')}"
            session.live.say(f"{len(costs)} of {len(tasks)}: {task.program}, {ratio}")
    if not costs:
        raise NothingRanError("interrupted before the first program ended")
    record = document(costs, rounds, interrupted=session.stopped())
    return Result(record, view(costs))


def document(costs: list[ProgramCost], rounds: int, *, interrupted: bool = False) -> dict[str, Any]:
    """The record for JSON, with the ratios of each program."""
    rows = [
        {
            **msgspec.to_builtins(cost),
            "ratios": {name: {over: _median(cost.ratios(over, name), 3) for over in VERSIONS[1:]} for name in BACKENDS},
        }
        for cost in costs
    ]
    head = {"torch": str(torch.__version__), "rounds": rounds, "interrupted": interrupted}
    return {**head, "rows": rows, "schema": "ddefuzz.bench.compile/2"}


def _median(values: tuple[float, ...], digits: int) -> float | None:
    return round(median(values), digits) if values else None


def _ratio(cost: ProgramCost, over: str) -> str:
    ratios = cost.ratios(over)
    if not ratios:
        return "-"
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return f"{median(ratios):.2f} ({low:.2f} to {high:.2f})"


def _cell(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def view(costs: list[ProgramCost]) -> Iterator[Block]:
    """The tables of docs/results/compile.md, which says how they are measured."""
    timed = [cost for cost in costs if cost.timed]
    yield Heading("Run time with inductor, CPU microseconds a call (medians; ratios with quartiles)")
    titles: tuple[str, ...] = ("program", "eager", *VERSIONS, "unbacked / backed", "unbacked / static")
    rows: list[tuple[str, ...]] = []
    for cost in timed:
        rounds = (cost.eager_rounds, *(cost.of(kind).rounds for kind in VERSIONS))
        times = (_cell(_median(values, 1)) for values in rounds)
        rows.append((cost.program, *times, _ratio(cost, "backed"), _ratio(cost, "static")))
    yield table(titles, rows, right=titles[1:])
    yield Heading("First call, CPU seconds")
    keys = [(backend, kind) for backend in BACKENDS for kind in VERSIONS]
    titles = ("program", *map(" ".join, keys))
    first = [(cost.program, *(_cell(cost.of(kind, of).first_seconds, 2) for of, kind in keys)) for cost in timed]
    yield table(titles, first, right=titles[1:])
    problems = [f"{cost.program}: {cost.lost}" for cost in costs if cost.lost]
    problems += [f"{cost.program}, {of}: {one.error}" for cost in costs for of, one in cost.timed.items() if one.error]
    if problems:
        yield Heading("Not measured, or not the result of eager")
        yield Items(tuple(problems))


def run_compile(task: CompileTask) -> ProgramCost:
    """Measure a program. What fails is an error of its version and backend."""
    subjects = subjects_of(task.text)
    with captured_output(), _settings():
        _warm_up()
        eager = _eager(prepare(subjects["static"]))
        expected, calls = eager(), [eager]
        timed: dict[str, Timing] = {}
        for (kind, subject), backend in product(subjects.items(), BACKENDS):
            try:
                timed[f"{kind} {backend}"], call = _first_call(prepare(subject), backend, expected)
                calls.append(call)
            except Exception as error:  # noqa: BLE001 a version that does not compile is a result
                reason = str(error).strip().partition("\n")[0]
                timed[f"{kind} {backend}"] = Timing(error=f"{type(error).__name__}: {reason}")
        spent = in_turn(calls, task.rounds, list(map(_number, calls)), cpu_clock=time.thread_time)
    of_eager, *rounds = (tuple(round(one.cpu_seconds * 1e6, 2) for one in of) for of in spent)
    compiled = [key for key, one in timed.items() if one.first_seconds is not None]
    timed |= {key: msgspec.structs.replace(timed[key], rounds=of) for key, of in zip(compiled, rounds, strict=True)}
    return ProgramCost(task.program, of_eager, timed)


def subjects_of(text: str) -> dict[str, ProgramSubject]:
    """The three versions of a program."""
    fixed = print_program(static(parse(text, "<bench>").program))
    made = (ProgramSubject(text), ProgramSubject(text, backed=True), ProgramSubject(fixed))
    return dict(zip(VERSIONS, made, strict=True))


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
    """Pay for what the first compilation in a process costs: imports, and C++ headers."""
    for backend in BACKENDS:
        with suppress(Exception):  # what fails here fails again where it is measured
            prepared = prepare(ProgramSubject(_program("x", _tensor("x", "u0=64 64"), "return torch.relu(x)")))
            _first_call(prepared, backend, _eager(prepared)())


def _first_call(prepared: PreparedSubject, backend: str, expected: Any) -> tuple[Timing, Callable[[], Any]]:
    """Compile by a first call, with nothing in inductor's caches. Returns further calls. Raises what torch raises."""
    call = prepared.call
    assert isinstance(call, FunctionType)
    # A code object of its own, so that dynamo looks only through the graphs of this version.
    own = FunctionType(call.__code__.replace(), call.__globals__, call.__name__, call.__defaults__, call.__closure__)
    compiled = torch.compile(own, backend=backend, fullgraph=True)
    mark(prepared)
    with torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)():
        before = _cpu_seconds()
        result = compiled(*prepared.args)
        seconds = _cpu_seconds() - before
    error = "" if _agrees(result, expected) else "another result than eager"
    return Timing(round(seconds, 3), error=error), lambda: compiled(*prepared.args)


def _eager(prepared: PreparedSubject) -> Callable[[], Any]:
    return partial(prepared.call, *prepared.args)


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


def _number(call: Callable[[], Any]) -> int:
    """How many calls take about `SLICE_SECONDS`."""
    call()
    before = time.thread_time()
    call()
    return max(3, min(1000, int(SLICE_SECONDS / max(time.thread_time() - before, 1e-6))))
