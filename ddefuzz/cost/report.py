"""Shows what unbacked sizes cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from ddefuzz.cost.model import QUESTION_KINDS, SIZES, VERSIONS, Cost, ExportCost, QuestionEffect, shown_ratio
from ddefuzz.show.blocks import Block, Code, Facts, Heading, Inline, Items, Span, TableRow, counted, prose, table


def costs_view(costs: Sequence[Cost]) -> Iterator[Block]:
    """The tables of all targets; a table of all before them if there are several."""
    compiled = [cost for cost in costs if cost.looks]
    if len(compiled) > 1:
        yield Heading(f"What unbacked sizes cost (torch {compiled[0].torch}, CPU)", 1)
        yield from _summary(compiled)
    exported = [(cost, cost.export) for cost in costs if cost.export is not None]
    if len(exported) > 1:
        yield Heading(f"What exports spend on shapes (torch {exported[0][0].torch})", 1)
        yield _export_summary(exported)
    for cost in costs:
        yield from _cost_view(cost)


def _export_summary(exported: Sequence[tuple[Cost, ExportCost]]) -> Block:
    """A row for each target, the steepest first by the lower end of the interval."""

    def steepness(pair: tuple[Cost, ExportCost]) -> float:
        fit = pair[1].fit
        return -fit.interval[0] if fit is not None and fit.interval is not None else 0.0

    rows = []
    for cost, export in sorted(exported, key=steepness):
        largest = f"{export.blocks[-1][0]}" if export.blocks else "-"
        seconds = f"{export.blocks[-1][1]:.2f}" if export.blocks else "-"
        first = export.growing[0].culprit if export.growing else export.error or "-"
        rows.append((cost.case, largest, seconds, str(export.fit or "-"), first))
    numbers = ("blocks", "CPU s", "exponent")
    return table(
        ("program", *numbers, "grows most"), rows, right=numbers, code=("grows most",), folding=("grows most",)
    )


def _summary(costs: Sequence[Cost]) -> Iterator[Block]:
    """A row for each target, the slowest first."""
    rows = []
    for cost in sorted(costs, key=lambda one: -_slower(one)):
        unbacked = cost.look("unbacked")
        codes = [look.code if look is not None else None for look in (cost.look(cost.measured), cost.look("backed"))]
        kernels = " / ".join("-" if code is None else str(code.calls) for code in codes)
        passes = " / ".join("-" if code is None else str(code.passes) for code in codes)
        ratios = (shown_ratio(cost.ratios(cost.measured, over, "example")) for over in ("backed", "static"))
        failure = unbacked.failure if unbacked is not None else None
        why: list[str] = []
        if failure is not None:
            with_bounds = "; the numbers are those with bounds" if cost.measured == "bounds" else ""
            why.append(f"does not compile: {failure.site}{with_bounds}")
        if problem := _problem_of_calls(cost):
            why.append(f"cannot be called: {problem}")
        decides = max(cost.decided, key=lambda one: one.recovered or 0.0, default=None)
        if decides is not None:
            why.append(_said(decides))
        rows.append(TableRow((cost.case, *ratios, kernels, passes), "; ".join(why)))
    numbers = ("unbacked / backed", "unbacked / static", "kernels", "passes")
    yield table(("program", *numbers), rows, right=numbers, code=("program",))
    yield prose(
        "Ratios are those of run times at the size of the example, medians (quartiles). Kernels and passes over memory "
        "are those of the unbacked and of the backed version. Below a program is a question whose answer changes the "
        "code (that which brings most run time back), or where it does not compile or run."
    )


def _problem_of_calls(cost: Cost) -> str:
    """Why calls of the measured version have no times."""
    timing = cost.timing(cost.measured)
    return "" if timing is None else timing.error or timing.errors.get("example", "")


def _slower(cost: Cost) -> float:
    ratios = cost.ratios(cost.measured, "backed", "example")
    return median(ratios) if ratios else 0.0


def _cost_view(cost: Cost) -> Iterator[Block]:
    """The tables of one target."""
    what = "what its export spends on shapes" if cost.export is not None else "what unbacked sizes cost"
    yield Heading(f"{cost.case}: {what} (torch {cost.torch}, CPU)")
    if cost.program:
        yield Code(cost.program)
    if cost.export is not None:
        yield from _export(cost.export)
        return
    yield Facts(tuple((name, meaning) for name, meaning in VERSIONS.items() if cost.look(name) is not None))
    yield from _code(cost)
    yield from _run_times(cost)
    yield from _compile_times(cost)
    yield from _questions(cost)
    problems = tuple(_problems(cost))
    if problems:
        yield Heading("Not measured", 3)
        yield Items(problems)


def _code(cost: Cost) -> Iterator[Block]:
    titles = ("version", "kernels", "library", "fallback", "passes", "vector lines", "guards", "assertions")
    rows: list[tuple[Inline, ...]] = []
    for look in cost.looks:
        if look.code is not None:
            code = look.code
            numbers = (code.generated, code.library, code.fallback, code.passes, code.vector_lines, code.guards)
            rows.append((look.version, *map(str, (*numbers, code.assertions))))
    if rows:
        yield Heading("Generated code", 3)
        yield table(titles, rows, right=titles[1:])
        yield prose(
            "Kernels are inductor's own, library and fallback are calls of libraries and of eager ops, passes are "
            "outermost loops over memory, guards are those over sizes."
        )


def _run_times(cost: Cost) -> Iterator[Block]:
    names = ["eager", *(look.version for look in cost.looks if cost.timing(look.version) is not None)]
    sizes = [size for size in SIZES if any(size in one.rounds for one in cost.timings)]
    if not sizes:
        return
    yield Heading("Run time: CPU microseconds of a call, medians", 3)
    rows = []
    for size in sizes:
        cells = (cost.timing(name) for name in names)
        rows.append((size, *(_median(one.rounds.get(size, ()) if one is not None else ()) for one in cells)))
    yield table(("size", *names), rows, right=names)
    yield Heading("Ratios of run times: medians (quartiles) of rounds side by side", 3)
    pairs = [(cost.measured, over) for over in ("backed", "static", "eager")]
    pairs += [(name, "unbacked") for name in ("hints", "shape-id", "bounds") if {name, "unbacked"} <= set(names)]
    titles = tuple(f"{one} / {over}" for one, over in pairs)
    yield table(
        ("size", *titles),
        [(size, *(shown_ratio(cost.ratios(one, over, size)) for one, over in pairs)) for size in sizes],
        right=titles,
    )


def _compile_times(cost: Cost) -> Iterator[Block]:
    timed = [one for one in cost.timings if one.first_seconds is not None]
    if not timed:
        return
    phases = list(dict.fromkeys(name for one in timed for name in one.phases))
    titles = ("CPU s", "of it C++", *(f"{name} s" for name in phases))
    rows = [
        (
            one.version,
            f"{one.first_seconds:.2f}",
            f"{one.compiler_seconds:.2f}",
            *(f"{one.phases.get(name, 0.0):.2f}" for name in phases),
        )
        for one in timed
    ]
    yield Heading("First call: CPU seconds, and seconds by the clock of each phase", 3)
    yield table(("version", *titles), rows, right=titles)


def _questions(cost: Cost) -> Iterator[Block]:
    unbacked = cost.look(cost.measured)
    if unbacked is None or unbacked.code is None:
        return
    with_bounds = " with bounds" if cost.measured == "bounds" else ""
    yield Heading(f"Questions that decide{with_bounds}", 3)
    tried = f"{cost.tried} of {cost.asked}" if cost.tried < cost.asked else f"{cost.asked}"
    if not cost.decided:
        yield prose("Tried {} questions about the sizes, one at a time. No answer changes the code.", tried)
        return
    yield prose(
        "Tried {} questions about the sizes, one at a time. The rows are those whose answer changes the code: what "
        "torch answers for unbacked sizes, what it answers for the sizes of the example, and the code then. Without an "
        "answer there are {} and {}.",
        tried,
        counted(unbacked.code.calls, "kernel"),
        counted(unbacked.code.passes, "pass", "passes"),
    )
    titles = (
        "question",
        "kind",
        "answer",
        "then",
        "kernels",
        "passes",
        "vector lines",
        "without / with",
        "recovered",
    )
    yield table(
        titles,
        [_question_row(one) for one in cost.decided],
        right=titles[4:],
        code=("question",),
        folding=("question",),
    )
    yield Items(
        tuple(f"{kind}: {meaning}" for kind, meaning in QUESTION_KINDS.items() if kind in _kinds(cost)), style="dim"
    )


def _kinds(cost: Cost) -> set[str]:
    return {question.kind for one in cost.decided for question in one.questions}


def _said(effect: QuestionEffect) -> str:
    return " and ".join(map(str, effect.questions))


def _question_row(effect: QuestionEffect) -> tuple[Inline, ...]:
    numbers = map(str, (effect.code.calls, effect.code.passes, effect.code.vector_lines))
    recovered = "-" if effect.recovered is None else f"{effect.recovered:.0%}"
    first, ratio = effect.questions[0], shown_ratio(effect.ratios)
    kinds = ", ".join(dict.fromkeys(one.kind for one in effect.questions))
    answers = (first.answer, first.wish) if len(effect.questions) == 1 else ("-", "-")
    return (_said(effect), kinds, *answers, *numbers, ratio, recovered)


def _problems(cost: Cost) -> Iterator[Inline]:
    for look in cost.looks:
        if look.failure is not None:
            yield (
                Span(f"{look.version} ", style="bad"),
                f"does not compile: {look.failure.evidence or look.reason} ",
                Span(look.failure.site, code=True),
            )
        elif look.outcome == "not-judged":
            yield f"{look.version}: {look.reason}"
        elif look.code is None:
            yield f"{look.version}: {look.outcome}, {look.reason}"
    for timing in cost.timings:
        if timing.error:
            yield f"{timing.version}: {timing.error}"
        for size, error in timing.errors.items():
            yield f"{timing.version}, size {size}: {error}"
    yield from cost.notes
    if cost.interrupted:
        yield "interrupted: what follows was not measured"


def _median(values: tuple[float, ...]) -> str:
    return f"{median(values):.1f}" if values else "-"


def _export(cost: ExportCost) -> Iterator[Block]:
    if cost.calls:
        calls = ", ".join(f"{name} {number:,}" for name, number in cost.calls.items() if name != "repeated")
        yield Facts(
            (
                ("export", f"{cost.seconds:.2f} CPU s"),
                ("calls", calls),
                ("repeated", f"{cost.calls['repeated']:,} evaluations of an expression again, with the same answer"),
            )
        )
        rows = [(one.what, f"{one.count:,}", f"{one.repeated:,}") for one in cost.expressions]
        if rows:
            yield Heading("Expressions evaluated most", 3)
            yield table(("expression", "times", "repeated"), rows, right=("times", "repeated"), code=("expression",))
        sites = [(one.what, f"{one.count:,}") for one in cost.sites]
        if sites:
            yield Heading("Functions that evaluate most", 3)
            yield table(("function", "times"), sites, right=("times",), code=("function",))
    if cost.blocks:
        chained = "each gets results of the one before" if cost.chained else "all with copies of the same inputs"
        yield Heading(f"Exports of n blocks of it ({chained})", 3)
        yield table(("n", "CPU s"), [(str(n), f"{seconds:.2f}") for n, seconds in cost.blocks], right=("n", "CPU s"))
        if cost.fit is not None:
            ratio = cost.blocks[-1][1] / max(cost.blocks[-2][1], 0.001)
            yield prose(
                "The CPU time grows as n^{}. After the last doubling it is {} times as long.", cost.fit, f"{ratio:.1f}"
            )
    if cost.blocks and len(cost.blocks) > 2:
        yield from _growing(cost)
    if cost.error:
        yield Heading("Not measured", 3)
        yield Items((cost.error,))


def chain_text(functions: tuple[str, ...]) -> str:
    """Functions, outermost first, each file once for those in it that follow."""
    shown, before = [], ""
    for function in functions:
        file, _, name = function.rpartition(":")
        shown.append(name if file == before else function)
        before = file
    return " > ".join(shown)


def _growing(cost: ExportCost) -> Iterator[Block]:
    n = cost.blocks[-1][0]
    yield Heading("Functions of torch that grow faster than n", 3)
    if not cost.growing:
        yield prose("None that is seen in {} blocks.", n)
        return
    rows = []
    for growth in cost.growing:
        loop = f"{growth.blamed} calls it more than n times; " if growth.blamed else ""
        share, chain = f"{growth.share:.0%}", growth.chain
        cells = (growth.culprit, growth.function, f"{growth.seconds:.2f}", share, str(growth.fit))
        rows.append(TableRow(cells, f"{loop}callers, outermost first: {chain_text(chain)}" if chain else ""))
    titles = ("look at", "own time grows in", f"CPU s, n={n}", "share", "exponent")
    yield table(titles, rows, right=titles[2:], code=titles[:2], folding=titles[1:2])
