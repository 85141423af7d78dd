"""What unbacked sizes cost under torch.compile: programs with unbacked, backed and static sizes under each backend.

A worker measures one program: what inductor makes of each version, and the time of first and later calls.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from itertools import product
from statistics import median, quantiles
from types import FunctionType
from typing import Any, Final, Literal, TypeAlias

import msgspec
import torch

from ci.bench.command import Result, Session
from ci.bench.compile_programs import PROGRAMS
from ddefuzz.artifacts.made import make
from ddefuzz.artifacts.model import Made, MakeTask, version
from ddefuzz.cli.output import stop_on_interrupt
from ddefuzz.errors import EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.pool import Lost, Pool, Stopped, first_answer, waited
from ddefuzz.execute.prepared import Prepared
from ddefuzz.execute.protocol import ProgramSubject, Run, Stage
from ddefuzz.execute.stages import mark
from ddefuzz.execute.subject import prepare
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting, sighting
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.instrument import torch_api
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import capture, lowering
from ddefuzz.oracles.kernels import Kernels, kernels_in, worse_in
from ddefuzz.oracles.program import Trial, judge_run
from ddefuzz.program.sizes import static
from ddefuzz.program.text import print_program
from ddefuzz.show.blocks import Block, Heading, Items, Span, counted, prose, table

START_SECONDS = 180.0
PROGRAM_SECONDS = 1200.0

JUDGED_IN: tuple[Stage, ...] = (lowering.STAGE.name, "inductor")
"""The stages in which the oracles judge a program that is listed."""

MEMORY_BYTES = 8_000_000_000
"""The C++ compiler runs in the worker's limits, too."""

SizeKind: TypeAlias = Literal["unbacked", "backed", "static"]
VERSIONS: tuple[SizeKind, ...] = ("unbacked", "backed", "static")

Backend: TypeAlias = Literal["eager", "aot_eager", "inductor"]
BACKENDS: tuple[Backend, ...] = ("eager", "aot_eager", "inductor")

SLOWER: Final = 1.5
"""The ratio of run times, unbacked over backed, from which a program is listed."""


class Lowered(msgspec.Struct, frozen=True):
    """What inductor made of a version. It is counted, and needs no clock.

    `dynamo_nodes` and `nodes` are those of dynamo's graph and of the graph that inductor lowers, `assertions` those of
    the code. `generated`, `extern` and `fallback` are its kernels by name, with the number of calls, and `vectorized`
    the lines of C++ that use vectors. `guards` are the undecided guards of inductor's own code, with their answers.
    `error` is the failure, if it was not lowered.
    """

    dynamo_nodes: int = 0
    nodes: int = 0
    assertions: int = 0
    generated: dict[str, int] = {}
    extern: dict[str, int] = {}
    fallback: dict[str, int] = {}
    vectorized: int = 0
    guards: tuple[str, ...] = ()
    error: str = ""

    @property
    def kernels(self) -> Kernels:
        """Its kernels."""
        return Kernels(self.generated, self.extern, self.fallback, self.vectorized)


class Timed(msgspec.Struct, frozen=True):
    """A version under a backend of torch.compile: CPU seconds of the first call, and microseconds of a later call in
    each round. Rounds are interleaved: one round measures every version under every backend. `agrees` says that the
    result is that of eager.
    """

    version: SizeKind
    backend: Backend
    first_seconds: float = 0.0
    rounds: tuple[float, ...] = ()
    agrees: bool = True
    error: str = ""


class ProgramCost(msgspec.Struct, frozen=True):
    """One program. `eager_rounds` are the microseconds without torch.compile, in the same rounds."""

    program: str
    eager_rounds: tuple[float, ...] = ()
    timed: tuple[Timed, ...] = ()
    lowered: dict[SizeKind, Lowered] = {}
    lost: str = ""

    def of(self, version: SizeKind, backend: Backend) -> Timed | None:
        """The times of a version under a backend; None if it did not run."""
        wanted = (version, backend)
        return next((one for one in self.timed if (one.version, one.backend) == wanted and one.rounds), None)

    def ratios(self, over: SizeKind, backend: Backend = "inductor") -> tuple[float, ...]:
        """The run times of the unbacked version over those of another one, round by round."""
        unbacked, other = self.of("unbacked", backend), self.of(over, backend)
        if unbacked is None or other is None:
            return ()
        return tuple(first / second for first, second in zip(unbacked.rounds, other.rounds, strict=True))


class Worse(msgspec.Struct, frozen=True):
    """A way in which the unbacked version is worse than the backed one: a kind of `worse_in`, `slower` or `does not
    compile`. `guards` are inductor's that were undecided in the unbacked version.
    """

    program: str
    kind: str
    evidence: str
    guards: tuple[str, ...] = ()


class CompileBench(msgspec.Struct, frozen=True):
    """The result of the benchmark."""

    torch: str
    date: str
    command: str
    rounds: int
    rows: tuple[ProgramCost, ...]
    worse: tuple[Worse, ...]
    interrupted: bool = False
    schema: str = "ddefuzz.bench.compile/1"


def worse_of(cost: ProgramCost) -> Iterator[Worse]:
    """How the unbacked version of a program is worse than the backed one.

    Kernels are counted. A slower run counts only if three quarters of the rounds have a ratio of `SLOWER` or more.
    """
    unbacked, backed = cost.lowered.get("unbacked"), cost.lowered.get("backed")
    if unbacked is None or backed is None or backed.error:
        return
    if unbacked.error:
        yield Worse(cost.program, "does not compile", unbacked.error, unbacked.guards)
        return
    for kind, evidence in worse_in(unbacked.kernels, backed.kernels).items():
        yield Worse(cost.program, kind, evidence, unbacked.guards)
    found = cost.ratios("backed")
    if len(found) > 1 and quantiles(found, n=4)[0] >= SLOWER:
        evidence = f"{median(found):.2f} times the run time of the backed version"
        yield Worse(cost.program, "slower", evidence, unbacked.guards)


class CompileTask(msgspec.Struct, frozen=True):
    """A program to measure, by name and text. Without rounds nothing is timed and no C++ is compiled."""

    program: str
    text: str
    rounds: int
    backends: tuple[Backend, ...] = BACKENDS


def run(session: Session, programs: tuple[str, ...], rounds: int, db: DatabaseUrl | None) -> Result:
    """Measure the programs, and record what is worse in a database, if one is given."""
    costs: list[ProgramCost] = []
    interrupted = False
    unknown = [name for name in programs if name not in PROGRAMS]
    if unknown:
        raise InputError(f"--program: found {unknown[0]!r}, expected one of {', '.join(PROGRAMS)}")
    names = programs or tuple(PROGRAMS)
    live = session.live
    with stop_on_interrupt() as stopped, Pool(1, memory_bytes=MEMORY_BYTES, samples=False) as pool:
        torch = first_answer(pool.submit(version, "torch", START_SECONDS), stopped)
        futures = [
            (name, pool.submit(run_compile, CompileTask(name, PROGRAMS[name], rounds), PROGRAM_SECONDS))
            for name in names
        ]
        try:
            for name, future in futures:
                answer = waited(future, stopped)
                if isinstance(answer, Lost):
                    answer = ProgramCost(name, lost=f"{answer.outcome}: {answer.reason}")
                costs.append(answer)
                ratio = f", unbacked over backed {_ratio(costs[-1], 'backed')}" if costs[-1].timed else ""
                live.say(f"{len(costs)} of {len(names)}: {name}{f', {costs[-1].lost}' if costs[-1].lost else ratio}")
            if db is not None:
                listed = [cost.program for cost in costs if any(worse_of(cost))]
                live.say(_recorded(db, _sightings(pool, listed, torch, stopped)))
        except KeyboardInterrupt:
            interrupted = True
    if not costs:
        raise NothingRanError("interrupted before the first program ended")
    words = ["python ci/bench compile", *(f"--program {name}" for name in programs), f"--rounds {rounds}"]
    date = datetime.now(UTC).date().isoformat()
    worse = tuple(way for cost in costs for way in worse_of(cost))
    bench = CompileBench(torch, date, " ".join(words), rounds, tuple(costs), worse, interrupted)
    return Result(document(bench), list(view(bench)), exit_code=EXIT_INTERRUPTED if interrupted else 0)


def _sightings(pool: Pool, names: list[str], torch: str, stopped: Stopped) -> Iterator[Sighting]:
    """What the oracles say about these programs: lowering about inductor's code, capture if there is none."""
    for name in names:
        for stage in JUDGED_IN:
            trial = Trial(Run(ProgramSubject(PROGRAMS[name]), stage), (lowering.ORACLE.name, capture.ORACLE.name), ())
            tried = waited(pool.submit(judge_run, trial, PROGRAM_SECONDS), stopped)
            for failure in tried.failures if not isinstance(tried, Lost) else ():
                yield sighting(failure, PROGRAMS[name], "", torch)


def _recorded(url: DatabaseUrl, sightings: Iterable[Sighting]) -> str:
    """Record the sightings, and say which findings they are."""
    made, now = list(sightings), datetime.now(UTC)
    with Database.open(url) as database, database.transaction():
        ids = sorted({database.record(each, now).finding_id for each in made})
    return f"{counted(len(ids), 'finding')} in {url}{': ' if ids else ''}{', '.join(ids)}"


def document(bench: CompileBench) -> dict[str, Any]:
    """The record for JSON, with the ratios of each program."""
    whole: dict[str, Any] = msgspec.to_builtins(bench)
    for cost, built in zip(bench.rows, whole["rows"], strict=True):
        built["ratios"] = {
            backend: {over: _median(cost.ratios(over, backend), 3) for over in VERSIONS[1:]} for backend in BACKENDS
        }
        built["run_us"] = {backend: {kind: _run_us(cost, kind, backend) for kind in VERSIONS} for backend in BACKENDS}
    return whole


def _median(values: tuple[float, ...], digits: int) -> float | None:
    return round(median(values), digits) if values else None


def _run_us(cost: ProgramCost, kind: SizeKind, backend: Backend) -> float | None:
    timed = cost.of(kind, backend)
    return _median(timed.rounds, 1) if timed is not None else None


def _ratio(cost: ProgramCost, over: SizeKind) -> str:
    ratios = cost.ratios(over)
    if not ratios:
        return "-"
    low, _, high = quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return f"{median(ratios):.2f} ({low:.2f} to {high:.2f})"


def _cell(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


RUN_TITLES = ("program", "eager", *VERSIONS, "unbacked / backed", "unbacked / static")
FIRST_TITLES = ("program", *(f"{backend} {kind}" for backend in BACKENDS for kind in VERSIONS))
SIZE_TITLES = ("program", "version", "dynamo nodes", "lowered nodes", "assertions", "generated", "library", "fallback",
               "vector lines", "undecided guards")  # fmt: skip


def _run_cells(cost: ProgramCost) -> tuple[str, ...]:
    """Microseconds of a later call with inductor, and the ratios with their quartiles."""
    times = (_cell(_run_us(cost, kind, "inductor")) for kind in VERSIONS)
    return cost.program, _cell(_median(cost.eager_rounds, 1)), *times, _ratio(cost, "backed"), _ratio(cost, "static")


def _first_cells(cost: ProgramCost) -> tuple[str, ...]:
    """CPU seconds of the first call."""
    first = (cost.of(kind, backend) for backend in BACKENDS for kind in VERSIONS)
    return cost.program, *(_cell(None if timed is None else timed.first_seconds, 2) for timed in first)


def _size_cells(program: str, kind: SizeKind, lowered: Lowered) -> tuple[str, ...]:
    """Sizes of graphs and kinds of kernels."""
    kernels = (sum(calls.values()) for calls in (lowered.generated, lowered.extern, lowered.fallback))
    counts = (lowered.dynamo_nodes, lowered.nodes, lowered.assertions, *kernels, lowered.vectorized)
    return program, kind, *("-" if lowered.error else str(count) for count in (*counts, len(lowered.guards)))


def view(bench: CompileBench) -> Iterator[Block]:
    """The page."""
    timed = [cost for cost in bench.rows if cost.timed]
    yield Heading("What unbacked sizes cost under torch.compile", 1)
    yield prose(
        "The tables are those of a run of `{}` on {}, with torch {}. Other work ran on the machine: compare ratios, "
        "not seconds.",
        bench.command,
        bench.date,
        bench.torch,
    )
    yield prose(
        "Each program of `ci/bench/compile_programs.py` is compiled three times: with its sizes unbacked, dynamic "
        "and backed (`maybe_mark_dynamic`), and static. The first call compiles, with nothing in inductor's caches. "
        "Its CPU seconds include those of the C++ compiler, but not of compiling torch's headers, which is done once"
        " before. Later calls are measured in interleaved rounds: each round measures all versions under all "
        "backends, so that a ratio compares what ran side by side. Generated kernels are those that inductor writes,"
        " library kernels are calls such as `extern_kernels.mm`, and fallbacks are eager ops that the code calls. "
        "Undecided guards are those of inductor's own code that took their fallback."
    )
    yield prose(
        "A program is listed if its unbacked version calls a fallback that the backed one does not, calls more "
        "kernels, has no vector instructions, does not compile, or has {} times the run time or more in three "
        "quarters of the rounds. The guards below it are those of inductor that were undecided in the unbacked "
        "version. With `--db` what is listed for its code is recorded as findings of the oracle `lowering` "
        "([oracles.md](oracles.md)), with the guard that decided.",
        f"{SLOWER:g}",
    )
    if timed:
        yield Heading("Run time with inductor, CPU microseconds a call (medians; ratios with quartiles)")
        yield table(RUN_TITLES, map(_run_cells, timed), right=RUN_TITLES[1:])
        yield Heading("First call, CPU seconds")
        yield table(FIRST_TITLES, map(_first_cells, timed), right=FIRST_TITLES[1:])
    yield Heading("Graphs and kernels")
    sizes = (_size_cells(cost.program, kind, of) for cost in bench.rows for kind, of in cost.lowered.items())
    yield table(SIZE_TITLES, sizes, right=SIZE_TITLES[2:])
    yield Heading(f"Worse with unbacked than with backed sizes: {len(bench.worse)}")
    for way in bench.worse:
        yield prose("**{}** {}: {}", way.program, way.kind, way.evidence)
        yield Items(tuple(Span(guard, code=True) for guard in way.guards))
    problems = [f"{cost.program}: {cost.lost}" for cost in bench.rows if cost.lost]
    problems += [
        f"{cost.program}, {one.version}, {one.backend}: {one.error or 'another result than eager'}"
        for cost in bench.rows
        for one in cost.timed
        if one.error or not one.agrees
    ]
    if problems:
        yield Heading("Not measured, or not the result of eager")
        yield Items(tuple(problems))


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
