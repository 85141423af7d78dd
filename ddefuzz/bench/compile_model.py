"""The records of `ddefuzz bench compile`: programs with unbacked, backed and static sizes under each backend."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median, quantiles
from typing import Final, Literal, TypeAlias

import msgspec

from ddefuzz.execute.worker import late
from ddefuzz.oracles.kernels import Kernels, worse_in

SCHEMA = "ddefuzz.bench.compile/1"

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


class Row(msgspec.Struct, frozen=True):
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
        one, other = self.of("unbacked", backend), self.of(over, backend)
        return () if one is None or other is None else ratios(one.rounds, other.rounds)


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
    rows: tuple[Row, ...]
    worse: tuple[Worse, ...]
    interrupted: bool = False
    schema: str = SCHEMA


def ratios(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    """The quotients round by round."""
    return tuple(first / second for first, second in zip(one, other, strict=True))


def worse_of(row: Row) -> Iterator[Worse]:
    """How the unbacked version of a program is worse than the backed one.

    Kernels are counted. A slower run counts only if three quarters of the rounds have a ratio of `SLOWER` or more.
    """
    unbacked, backed = row.lowered.get("unbacked"), row.lowered.get("backed")
    if unbacked is None or backed is None or backed.error:
        return
    if unbacked.error:
        yield Worse(row.program, "does not compile", unbacked.error, unbacked.guards)
        return
    for kind, evidence in worse_in(unbacked.kernels, backed.kernels).items():
        yield Worse(row.program, kind, evidence, unbacked.guards)
    found = row.ratios("backed")
    if len(found) > 1 and quantiles(found, n=4)[0] >= SLOWER:
        evidence = f"{median(found):.2f} times the run time of the backed version"
        yield Worse(row.program, "slower", evidence, unbacked.guards)


class CompileTask(msgspec.Struct, frozen=True):
    """A program to measure, by name and text. Without rounds nothing is timed and no C++ is compiled."""

    program: str
    text: str
    rounds: int
    backends: tuple[Backend, ...] = BACKENDS


def run_compile(task: CompileTask) -> Row:
    """Measure a program."""
    result: Row = late("ddefuzz.bench.compile_run").run_compile(task)
    return result
