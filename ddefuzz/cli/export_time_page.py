"""What `ddefuzz bench export-time` prints: a table for a terminal, or a page for `docs/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group
from rich.text import Text

from ddefuzz.cli.layout import Detailed, folded, table
from ddefuzz.cli.output import Page, plain, rendered
from ddefuzz.escape import markdown_code, markdown_table, markdown_text
from ddefuzz.export_time.model import WORKLOADS, Growth, Point, Series, longest
from ddefuzz.oracles.growth import STEEP


def export_time_page(series: list[Series], page: Page) -> str:
    """A table of seconds and growth, the ratios of knobs, and the expressions evaluated most."""
    rows = []
    for one in series:
        last = one.points[-1]
        seconds = next((fit for fit in one.growth if fit.of == "seconds"), None)
        asked = next((fit for fit in one.growth if fit.of == "evaluate_expr"), None)
        cells = (
            one.workload,
            one.knobs,
            str(last.n),
            f"{last.seconds:.2f}",
            "" if seconds is None else f"{seconds.exponent:.2f}",
            str(last.counts.get("evaluate_expr", "")),
            "" if asked is None else f"{asked.exponent:.2f}",
            f"{last.counts.get('repeated', 0) / max(last.counts.get('evaluate_expr', 1), 1):.0%}",
            f"{last.peak_mb:.0f}",
            "yes" if last.agrees else "NO",
        )
        detail = [f"steep: {', '.join(one.steep)}; asked most by {one.site}: {one.pattern}"] if one.steep else []
        if ratio := _ratio(one, series):
            detail.append(ratio)
        rows.append(Detailed([plain(cell) for cell in cells], plain("\n".join(detail), style="dim")))
    titles = ("workload", "knobs", "n", "CPU s", "exponent", "asked", "exponent of it", "repeated", "MB", "agrees")
    shown = rendered(Group(table(titles, rows, page.width, folding=("knobs",)), Text("")), page)
    said = (
        "CPU s: of the export with the largest n. asked: calls of evaluate_expr; repeated: the share of them that was "
        f"evaluated before with the same answer. steep: the lower end of the exponent's interval is above {STEEP:g}."
    )
    return f"{shown}{folded(said, page.width)}\n"


def _ratio(one: Series, series: list[Series]) -> str:
    """The CPU seconds over those of the default knobs at the same n, and what else differs."""
    default = next((other for other in series if (other.workload, other.knobs) == (one.workload, "default")), None)
    if default is None or default is one:
        return ""
    here, there = one.points[-1], default.points[-1]
    differs = _difference(here, there)
    return f"{here.seconds / there.seconds:.2f} x default{f': {differs}' if differs != '-' else ''}"


def export_time_markdown(series: Sequence[Series], hottest: Mapping[str, Mapping[str, float]]) -> str:
    """The page: time and counts by workload and version, most frequent expressions, hot functions, settings."""
    default = longest(series)
    parts = [
        "# Export time by the number of unbacked symbols",
        "This page is written by `ddefuzz bench export-time`, from the JSON of one run for each version of torch "
        "(`--from`).",
        _MEASURED,
        markdown_table(("workload", "what there are n of"), WORKLOADS.items()),
        "![CPU seconds by n](export-time.svg)",
        "## Time and evaluations",
        _SAID,
        markdown_table(_HEAD, map(_cells, default)),
        "## Counts",
        "Exponents of n with their 95% intervals. A count that is 0 or does not grow has none.",
        _counts(default),
        "## Expressions evaluated most",
        "At the largest n. Repeated: evaluated before in the same export, with the same answer. A perfect cache would "
        "save these.",
        markdown_table(("workload", "torch", "expression", "evaluated", "repeated"), _evaluated(default)),
        "## Functions that evaluate most",
        "Calls of `evaluate_expr` at the largest n, by the innermost Python function outside of shape reasoning.",
        markdown_table(("workload", "torch", "function", "calls"), _callers(default)),
    ]
    if hottest:
        rows = [
            (markdown_text(name), markdown_code(function), f"{share:.0%}")
            for name, shares in hottest.items()
            for function, share in shares.items()
        ]
        parts += [
            "## Where the time goes",
            "Shares of the samples of one export (`--speedscope FILE` writes them all), by innermost function.",
            markdown_table(("export", "function", "time"), rows),
        ]
    knobs = [one for one in series if len({other.knobs for other in _same(one, series)}) > 1]
    if knobs:
        parts += ["## Settings of torch", _KNOBS, markdown_table(_KNOB_HEAD, _knob_rows(knobs))]
    return "\n\n".join(parts) + "\n"


_MEASURED = """Each workload is a function with n unbacked symbols, exported by `torch.export.export(strict=False)` in a
process of its own that has exported nothing but the same function with n = 1. n is doubled from 5 until a budget of CPU
seconds is used. The seconds are CPU seconds of the export alone, without counting; the counts are of a second export.
The exponent is that of the power of n that fits best, by least squares of the logarithms."""

_SAID = f"""`evaluate_expr` is called each time code needs the value of an expression over sizes. A count is steep if
its exponent is above {STEEP:g} even at the lower end of its interval. MB is the largest resident memory of the
process."""

_KNOBS = """All settings are measured at one n before the next n, so the ratios are of one run, at the largest n.
`guard-free` is the setting `aggressive_guard_free_semantics` of symbolic shapes, `no-stack-traces` is
`torch.fx.config.do_not_emit_stack_traces`, `no-fake-cache` is dynamo's `fake_tensor_cache_enabled = False`.
The graph and its assertions are compared with those of the default settings, the result with eager: with `-` all are
the same. The report that names these settings says 264 s without and 87 s with them for a workload of the shape of
`unbind_split_flip_cat`, a ratio of 0.33, at an n of its own."""

_HEAD = (
    "workload",
    "torch",
    "n",
    "CPU s",
    "exponent",
    "evaluate_expr",
    "exponent",
    "repeated",
    "MB",
    "steep",
    "agrees",
)


def _cells(one: Series) -> tuple[str, ...]:
    last = one.points[-1]
    asked = last.counts.get("evaluate_expr", 0)
    return (
        *_of(one),
        str(last.n),
        f"{last.seconds:.2f}",
        _exponent(one, "seconds"),
        str(asked),
        _exponent(one, "evaluate_expr"),
        f"{last.counts.get('repeated', 0) / max(asked, 1):.0%}",
        f"{last.peak_mb:.0f}",
        markdown_text(", ".join(one.steep)) or "-",
        "yes" if all(point.agrees for point in one.points) else "NO",
    )


def _of(one: Series) -> tuple[str, str]:
    return markdown_text(one.workload), markdown_text(one.torch)


def _exponent(one: Series, of: str) -> str:
    fit: Growth | None = next((fit for fit in one.growth if fit.of == of), None)
    if fit is None or len({point.counts.get(of) for point in one.points} if of != "seconds" else {0, 1}) < 2:
        return "-"
    return f"{fit.exponent:.2f}" + (f" ({fit.interval[0]:.2f} to {fit.interval[1]:.2f})" if fit.interval else "")


def _counts(series: Sequence[Series]) -> str:
    names = list(dict.fromkeys(name for one in series for name in one.points[-1].counts))
    rows = ((*_of(one), *(_counted(one, name) for name in names)) for one in series)
    return markdown_table(("workload", "torch", *map(markdown_text, names)), rows)


def _counted(one: Series, name: str) -> str:
    count = one.points[-1].counts.get(name)
    return f"{count}: {_exponent(one, name)}" if count is not None else "not counted"


def _evaluated(series: Iterable[Series]) -> Iterator[tuple[str, ...]]:
    for one in series:
        for expression, (number, again) in list(one.points[-1].patterns.items())[:3]:
            yield *_of(one), markdown_code(expression), str(number), str(again)


def _callers(series: Iterable[Series]) -> Iterator[tuple[str, ...]]:
    for one in series:
        for function, number in list(one.points[-1].askers.items())[:2]:
            yield *_of(one), markdown_code(function), str(number)


def _same(one: Series, series: Iterable[Series]) -> list[Series]:
    """The series of the same workload and version whose exports were measured at the same n."""
    return [
        other
        for other in series
        if (other.workload, other.torch) == (one.workload, one.torch) and other.points[-1].n == one.points[-1].n
    ]


_KNOB_HEAD = ("workload", "torch", "n", "settings", "CPU s", "over default", "evaluate_expr", "what differs")


def _knob_rows(series: Sequence[Series]) -> Iterator[tuple[str, ...]]:
    for one in series:
        default = next((other for other in _same(one, series) if other.knobs == "default"), None)
        if default is None:
            continue
        here, there = one.points[-1], default.points[-1]
        yield (
            *_of(one),
            str(here.n),
            markdown_text(one.knobs),
            f"{here.seconds:.2f}",
            f"{here.seconds / max(there.seconds, 1e-9):.2f}",
            str(here.counts.get("evaluate_expr", 0)),
            _difference(here, there),
        )


def _difference(here: Point, there: Point) -> str:
    differs = ["another graph"] if here.graph != there.graph else []
    differs += [f"{here.assertions} assertions, not {there.assertions}"] if here.assertions != there.assertions else []
    differs += [] if here.agrees else ["another result than eager"]
    return ", ".join(differs) or "-"
