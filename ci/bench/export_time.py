"""How the cost of an export grows with the number of unbacked symbols: the tables and the chart of a page of docs."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
import torch
from torch import Tensor

from ci.bench.command import Result, Session
from ddefuzz.campaign.plan import parse_budget
from ddefuzz.cost.report import chain_text
from ddefuzz.cost.sampling import CpuTimes, FunctionGrowth, Samples, fit, growing, sampled, times_of
from ddefuzz.errors import DdefuzzError, InputError, NothingRanError
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.pool import LostTask, Pool
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.files import read_text
from ddefuzz.instrument.counting import Counts, counting
from ddefuzz.oracles.growth import STEEP
from ddefuzz.show.blocks import Block, Heading, Inline, Picture, Span, TableRow, table

FIRST = 5
"""The smallest n."""

WAIT = 20
"""How many times the budget one export may take of the clock, on a machine that is busy."""

check: Callable[[object], None] = torch._check

Made = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its example arguments."""


class Workload(NamedTuple):
    """What there are n of, and what makes the function for n."""

    what: str
    make: Callable[[int], Made]


WORKLOADS: dict[str, Workload] = {}


def _workload(what: str) -> Callable[[Callable[[int], Made]], Callable[[int], Made]]:
    def added(make: Callable[[int], Made]) -> Callable[[int], Made]:
        WORKLOADS[make.__name__] = Workload(what, make)
        return make

    return added


@_workload("n data-dependent splits, flipped and concatenated")
def unbind_split_flip_cat(n: int) -> Made:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        sizes: list[int] = [length.item() for length in lengths.unbind()]  # type: ignore[misc]
        return torch.cat([part.flip(0) for part in torch.split(x, sizes)])

    return program, (torch.randn(2 * n), torch.full((n,), 2))


@_workload("a concatenation of n nonzero() results: sums of n symbols")
def cat(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        return torch.cat([torch.nonzero(mask).squeeze(1) for mask in masks.unbind()])

    return program, (torch.ones(n, 3, dtype=torch.bool),)


@_workload("n boolean masks, each of the result of the one before")
def masks(n: int) -> Made:
    def program(x: Tensor) -> Tensor:
        for bound in range(n):
            x = x[x > -bound - 10.0]
        return x

    return program, (torch.randn(8),)


@_workload("n nested narrow() of data-dependent lengths")
def narrow(n: int) -> Made:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        for size in sizes.unbind():
            length = size.item()
            check(length >= 0)
            check(length <= x.size(0))
            x = x.narrow(0, 0, length)  # type: ignore[arg-type]
        return x

    return program, (torch.randn(n + 4), torch.arange(n + 3, 3, -1))


@_workload("n tensors of a data-dependent size, each viewed twice")
def views(n: int) -> Made:
    def program(sizes: Tensor) -> Tensor:
        total = torch.zeros(())
        for size in sizes.unbind():
            length = size.item()
            check(length >= 0)
            grid = torch.ones(length, 2, 3).view(2 * length, 3)  # type: ignore[arg-type]
            total = total + grid.view(-1, 6).sum()
        return total

    return program, (torch.full((n,), 2),)


@_workload("n torch._check of one symbol")
def checks(n: int) -> Made:
    def program(size: Tensor) -> Tensor:
        length = size.item()
        for bound in range(n):
            check(length <= 1_000 + n - bound)
        check(length >= 0)
        return torch.ones(length)  # type: ignore[arg-type]

    return program, (torch.tensor(3),)


@_workload("n unbacked sizes that n - 1 torch._check make equal")
def shared(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        parts = [torch.nonzero(mask).squeeze(1) for mask in masks.unbind()]
        total = parts[0]
        for part in parts[1:]:
            check(part.size(0) == total.size(0))
            total = total + part
        return total

    return program, (torch.ones(n, 3, dtype=torch.bool),)


@_workload("n nonzero() results, each concatenated with all before it: sums of 1 to n symbols")
def totals(n: int) -> Made:
    def program(masks: Tensor) -> Tensor:
        total = torch.nonzero(masks[0]).squeeze(1)
        for mask in masks[1:].unbind():
            total = torch.cat([total, torch.nonzero(mask).squeeze(1)])
        return total

    return program, (torch.ones(n, 3, dtype=torch.bool),)


@_workload("n sizes, of which each partial sum is checked")
def sums(n: int) -> Made:
    def program(sizes: Tensor) -> Tensor:
        total: Any = 0
        for size in sizes.unbind():
            length = size.item()
            check(length >= 0)
            total = total + length
            check(total <= 1_000_000)
        return torch.ones(total)

    return program, (torch.full((n,), 2),)


@_workload("n views with a data-dependent size and a size that torch infers (-1)")
def inferred(n: int) -> Made:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        rows = [x.view(size.item(), -1).sum() for size in sizes.unbind()]  # type: ignore[arg-type]
        return torch.stack(rows)

    return program, (torch.randn(24), torch.full((n,), 4))


DRAWN = (
    """\
# ddefuzz program v1
# inputs: x0 = normal; x1 = trues(4)
def program(x0: Float32[Tensor, "8 4"], x1: Bool[Tensor, "8"]):
    t0 = x0.index_select(0, x1.nonzero().squeeze(1))
    t1 = t0[:-(t0.shape[0] // 2)]
    t2 = t1[..., 0]
    t3 = torch.outer(t2, t2)
    t5 = torch.mm(t1.t(), t1)
    return (t3, t5)
""",
    """\
# ddefuzz program v1
# inputs: x0 = sizes(3, 3, 5); x1 = normal, sliced
def program(x0: Int64[Tensor, "3"], x1: Float32[Tensor, "4 2 2"]):
    t0 = torch.repeat_interleave(x0)
    t1 = torch.stack((t0, t0))
    t2 = t1.select(1, -1)
    t3 = torch.ones((2, 4, t0.shape[0] - 1))
    t4 = torch.nn.functional.conv_transpose1d(t3, x1)
    return (t2, t4)
""",
)
"""Drawn with the profile `captures` and the seed 0, at the indices 0 and 9, without what returns plain numbers. The
texts are kept, so that another version of the generator measures the same.
"""


@_workload("n blocks, each one of two programs that the generator has drawn")
def drawn(n: int) -> Made:
    blocks = [prepare(ProgramSubject(text)) for text in DRAWN]
    split = len(blocks[0].args)

    def program(*args: Tensor) -> Tensor:
        total = torch.zeros(())
        for number in range(n):
            own = args[split:] if number % 2 else args[:split]
            for result in blocks[number % 2].call(*own):
                total = total + result.sum()
        return total

    return program, (*blocks[0].args, *blocks[1].args)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One export with n symbols.

    `seconds` are CPU seconds of the export alone. `counts` are calls by name, sympy objects made, and evaluations that
    were `repeated` with the same answer; empty if nothing was counted. `spent` says in which functions of torch the
    CPU time was, None if it was not sampled. `peak_mb` is the process's maximum resident
    memory in 10^6 bytes. `agrees` says whether the exported program returns what eager does. `patterns` are the
    expressions evaluated most: how often, and how often again with the same answer. `askers` are the functions that
    evaluated most.
    """

    workload: str
    n: int
    torch: str
    seconds: float
    peak_mb: float
    counts: dict[str, int]
    agrees: bool
    patterns: dict[str, tuple[int, int]]
    askers: dict[str, int]
    spent: CpuTimes | None = None


How: TypeAlias = Literal["timed", "counted", "sampled"]
HOW: tuple[How, ...] = get_args(How)


class MeasureTask(msgspec.Struct, frozen=True):
    """One export to measure: timed alone, counted, or sampled."""

    workload: str
    n: int
    how: How


MOST_PATTERNS = 12


def run_measure(task: MeasureTask) -> Point:
    """Export one workload. A small export before it has imported all that export imports."""
    program, arguments = WORKLOADS[task.workload].make(task.n)
    with captured_output():
        export_module(*WORKLOADS[task.workload].make(1))
        with (
            counting() if task.how == "counted" else nullcontext(Counts()) as counts,
            sampled() if task.how == "sampled" else nullcontext(Samples()) as samples,
        ):
            before = time.process_time()
            exported = export_module(program, arguments)
            seconds = time.process_time() - before
        agrees = torch.equal(program(*arguments), exported.module()(*arguments))
    counted = {**dict(sorted(counts.calls.items())), "sympy": counts.sympy, "repeated": counts.repeated()}
    return Point(
        workload=task.workload,
        n=task.n,
        torch=str(torch.__version__),
        seconds=round(seconds, 4),
        peak_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
        counts=counted if task.how == "counted" else {},
        agrees=agrees,
        patterns=dict(list(counts.patterns().items())[:MOST_PATTERNS]),
        askers=dict(counts.askers.most_common(MOST_PATTERNS)),
        spent=times_of(samples) if task.how == "sampled" else None,
    )


def export_module(program: Any, arguments: tuple[Any, ...]) -> Any:
    """The program exported, non-strict."""

    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return program(*args)

    return torch.export.export(Module(), arguments, strict=False)


class Growth(msgspec.Struct, frozen=True):
    """The fit `count ~ n ** exponent`, with its 95% interval. `interval` is None for fewer than three points."""

    of: str
    exponent: float
    interval: tuple[float, float] | None


def growth(of: str, points: Sequence[tuple[int, float]]) -> Growth | None:
    """The exponent of (n, count). None for fewer than two positive counts."""
    fitted = fit(points)
    return None if fitted is None else Growth(of, fitted.exponent, fitted.interval)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One workload: its points by n, and how seconds and counts grow.

    `steep` names the counts whose growth is above `STEEP` even at the lower end of the interval. `growing` are the
    functions whose own CPU time grows most.
    """

    torch: str
    workload: str
    points: tuple[Point, ...]
    growth: tuple[Growth, ...]
    steep: tuple[str, ...]
    growing: tuple[FunctionGrowth, ...] = ()

    @property
    def last(self) -> Point:
        """The point with the largest n."""
        return self.points[-1]


def series_of(points: Sequence[Point]) -> Series:
    """The series of points of one workload, by n."""
    ordered = tuple(sorted(points, key=lambda one: one.n))
    names = sorted({name for point in ordered for name in point.counts})
    fits = [growth("seconds", [(one.n, one.seconds) for one in ordered])]
    fits += [growth(name, [(one.n, one.counts.get(name, 0)) for one in ordered]) for name in names]
    known = tuple(fit for fit in fits if fit is not None)
    last = ordered[-1]
    sampled_points = {one.n: one.spent for one in ordered if one.spent is not None}
    return Series(
        torch=last.torch,
        workload=last.workload,
        points=ordered,
        growth=known,
        steep=tuple(one.of for one in known if one.of != "seconds" and one.interval and one.interval[0] > STEEP),
        growing=growing(sampled_points) if sampled_points else (),
    )


def longest(series: Sequence[Series]) -> tuple[Series, ...]:
    """The series that reaches the largest n, for each workload and version of torch."""
    by_length = sorted(series, key=lambda one: -one.last.n)
    keys = dict.fromkeys((one.workload, one.torch) for one in series)
    return tuple(next(one for one in by_length if (one.workload, one.torch) == key) for key in keys)


class Document(msgspec.Struct, frozen=True):
    """What is measured, and read of an earlier run."""

    series: tuple[Series, ...]
    schema: Literal["ddefuzz.bench.exporttime/3"] = "ddefuzz.bench.exporttime/3"


def run(session: Session, workloads: tuple[str, ...], budget: str, most: int, earlier: tuple[Path, ...]) -> Result:
    """Measure the workloads, or read what earlier runs measured. Raises NothingRanError if no export ended in time."""
    for name in set(workloads) - set(WORKLOADS):
        raise InputError(f"--workload: found {name!r}, expected one of {', '.join(WORKLOADS)}")
    if earlier:
        series = [of for path in earlier for of in _read(path).series]
    else:
        limit = parse_budget(budget)
        seconds = limit.cpu_seconds or limit.seconds
        if seconds is None:
            raise InputError(f"--budget: found {budget!r}, expected CPU seconds such as 60cpu")
        measured: dict[str, list[Point]] = {}
        with Pool(1, tasks_per_worker=1) as pool, suppress(KeyboardInterrupt):
            for workload in workloads or WORKLOADS:
                for point in _measured(session, pool, workload, most, seconds):
                    measured.setdefault(workload, []).append(point)
        series = list(map(series_of, measured.values()))
    if not series:
        raise NothingRanError(f"no export ended within {budget}, expected a longer --budget")
    return Result(Document(tuple(series)), view(series), chart(series))


def _measured(session: Session, pool: Pool, workload: str, most: int, seconds: float) -> Iterator[Point]:
    """The points of one workload. Each export is done three times: counting and sampling make the seconds longer."""
    spent, n = 0.0, FIRST
    while n <= most and spent < seconds:
        ended: list[Point] = []
        for how in HOW:
            answer = session.answer(pool.submit(run_measure, MeasureTask(workload, n, how), seconds * WAIT))
            if isinstance(answer, LostTask):
                if answer.outcome == "timeout":
                    return
                raise DdefuzzError(f"bench export-time: {workload} n={n}: {answer.reason}")
            ended.append(answer)
        session.live.update(f"{workload} n={n}: {ended[0].seconds:.2f} CPU s")
        timed, counted, of_samples = ended
        yield msgspec.structs.replace(counted, seconds=timed.seconds, peak_mb=timed.peak_mb, spent=of_samples.spent)
        spent += ended[0].seconds
        n *= 2


def _read(path: Path) -> Document:
    """An earlier document."""
    try:
        return msgspec.json.decode(read_text(path), type=Document)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}: found {error}, expected the JSON of `python ci/bench export-time`") from error


def chart(series: Sequence[Series]) -> dict[str, Any]:
    """CPU seconds by n on two logarithmic axes, a panel for each workload and a line for each version of torch."""
    points = [
        {"workload": of.workload, "torch": f"torch {of.torch}", "n": point.n, "seconds": point.seconds}
        for of in longest(series)
        for point in of.points
    ]
    log: dict[str, Any] = {"type": "log"}
    seconds = {"field": "seconds", "type": "quantitative", "title": "CPU seconds of the export", "scale": log}
    return {
        "data": {"values": points},
        "facet": {"field": "workload", "type": "nominal", "title": None},
        "columns": 3,
        "spec": {
            "width": 220,
            "height": 180,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {"field": "n", "type": "quantitative", "title": "n", "scale": {**log, "base": 2}},
                "y": seconds,
                "color": {"field": "torch", "type": "nominal", "title": None},
            },
        },
    }


_OF = ("workload", "torch")


def view(series: Sequence[Series]) -> Iterator[Block]:
    """The tables of docs/results/export-time.md, which says how they are measured."""
    default = longest(series)
    yield table(("workload", "what there are n of"), [(name, of.what) for name, of in WORKLOADS.items()])
    yield Picture("CPU seconds by n", "export-time.svg")
    yield Heading("Time and evaluations")
    columns = (*_OF, "n", "CPU s", "exponent", "evaluate_expr", "exponent", "repeated", "MB", "steep", "agrees")
    yield table(columns, map(_time_cells, default))
    yield Heading("Counts")
    names = list(dict.fromkeys(name for of in default for name in of.last.counts))
    yield table((*_OF, *names), [(of.workload, of.torch, *(_counted(of, name) for name in names)) for of in default])
    yield Heading("Expressions evaluated most")
    evaluated = [
        (of.workload, of.torch, expression, str(number), str(again))
        for of in default
        for expression, (number, again) in list(of.last.patterns.items())[:3]
    ]
    yield table((*_OF, "expression", "evaluated", "repeated"), evaluated, code=("expression",))
    yield Heading("Functions whose own CPU time grows most")
    grown = [
        TableRow(
            (of.workload, of.torch, one.culprit, one.function, f"{one.share:.0%}", str(one.fit)),
            f"called by {chain_text(one.chain)}" if one.chain else "",
        )
        for of in default
        for one in of.growing[:2]
    ]
    yield table(
        (*_OF, "look at", "own time grows in", "share", "exponent"),
        grown,
        code=("look at", "own time grows in"),
        right=("share", "exponent"),
    )
    yield Heading("Functions that evaluate most")
    callers = [
        (of.workload, of.torch, function, str(number))
        for of in default
        for function, number in list(of.last.askers.items())[:2]
    ]
    yield table((*_OF, "function", "calls"), callers, code=("function",))


def _time_cells(of: Series) -> tuple[Inline, ...]:
    evaluated = of.last.counts.get("evaluate_expr", 0)
    return (
        of.workload,
        of.torch,
        str(of.last.n),
        f"{of.last.seconds:.2f}",
        _exponent(of, "seconds"),
        str(evaluated),
        _exponent(of, "evaluate_expr"),
        f"{of.last.counts.get('repeated', 0) / max(evaluated, 1):.0%}",
        f"{of.last.peak_mb:.0f}",
        ", ".join(of.steep) or "-",
        "yes" if all(point.agrees for point in of.points) else Span("NO", style="bad"),
    )


def _exponent(series: Series, of: str) -> str:
    fit = next((fit for fit in series.growth if fit.of == of), None)
    if fit is None or len({point.counts.get(of) for point in series.points} if of != "seconds" else {0, 1}) < 2:
        return "-"
    return f"{fit.exponent:.2f}" + (f" ({fit.interval[0]:.2f} to {fit.interval[1]:.2f})" if fit.interval else "")


def _counted(of: Series, name: str) -> str:
    count = of.last.counts.get(name)
    return f"{count}: {_exponent(of, name)}" if count is not None else "not counted"
