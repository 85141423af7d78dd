"""Shows what is wrong with custom ops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddefuzz.custom_ops.check import NOT_SEEN, verdict
from ddefuzz.custom_ops.model import CHECKS, OpReport, OpsReport, Problem
from ddefuzz.files import is_file
from ddefuzz.show.blocks import Block, Facts, Heading, Items, Span, Style, Table, TableRow, counted, prose, table
from ddefuzz.show.record import Report, Result, Rule
from ddefuzz.show.terminal import terminal


def ops_view(report: OpsReport) -> Iterator[Block]:
    """A row for each op if there are several, then each op that is wrong or not judged, then the result."""
    if len(report.ops) > 1:
        yield Heading(f"Custom ops (torch {report.torch})", 1)
        rows = [
            (one.op, Span(verdict(one), style=_style(one)), str(one.calls), f"{one.cpu_seconds:.1f}")
            for one in report.ops
        ]
        numbers = ("calls", "CPU s")
        yield table(("op", "result", *numbers), rows, right=numbers, code=("op",))
    for op in report.ops:
        if op.reason or op.problems or len(report.ops) == 1 or any(note.startswith(NOT_SEEN) for note in op.notes):
            yield from _op_view(op, is_alone=len(report.ops) == 1)
    yield prose("{}", _summary(report))


def _summary(report: OpsReport) -> str:
    judged = [one for one in report.ops if not one.reason]
    wrong = sum(bool(one.failing) for one in judged)
    left = len(report.ops) - len(judged)
    text = f"{wrong} of {counted(len(judged), 'op')} wrong" + (f", {left} not judged" if left else "")
    return text + (", interrupted" if report.interrupted else "")


def ops_report(report: OpsReport) -> Report:
    """A result for each problem of each op, and for each op without one."""
    return Report(
        title=f"ddefuzz check-op: {_summary(report)}",
        torch=report.torch,
        rules=tuple(Rule(name, meaning) for name, meaning in CHECKS.items()),
        results=tuple(result for op in report.ops for result in _results(op)),
        document=report,
        records=report.ops,
    )


def _results(op: OpReport) -> Iterator[Result]:
    for problem in op.problems:
        kernel, _, number_in_file = op.kernel.rpartition(":")
        places = [(one.file, one.line) for one in reversed(problem.frames)]
        places += [(kernel, int(number_in_file))] if number_in_file.isdecimal() else []
        path, line = next(filter(None, (_below(*place) for place in places)), ("", 0))
        yield Result(
            id=f"{op.op}/{problem.key}",
            rule=problem.check,
            outcome="known" if problem.accepted else "failed",
            title=f"{op.op}: {problem.why}",
            path=path,
            line=line,
            program=problem.call,
            facts=tuple(
                (name, text)
                for name, text in (
                    ("place", problem.place),
                    ("fake", problem.fake),
                    ("real", problem.real),
                    ("at sizes", "; ".join(problem.sizes)),
                    ("accepted", problem.accepted),
                )
                if text
            ),
        )
    if op.reason or not op.problems:
        title = f"{op.op}: {op.reason or verdict(op)}"
        yield Result(id=op.op, rule="runs", outcome="skipped" if op.reason else "passed", title=title)


def _below(file: str, line: int) -> tuple[str, int] | None:
    """The place in a file below the current folder."""
    path = Path(file).absolute()
    is_below = path.is_relative_to(Path.cwd()) and is_file(path)
    return (path.relative_to(Path.cwd()).as_posix(), line) if is_below else None


def _style(report: OpReport) -> Style:
    return "warn" if report.reason else "bad" if report.failing else "good"


def op_text(report: OpReport, width: int = 120) -> str:
    """The text of one op."""
    return terminal(tuple(_op_view(report, is_alone=True)), width)


def _op_view(report: OpReport, *, is_alone: bool) -> Iterator[Block]:
    yield Heading((Span(report.op, code=True), f": {verdict(report)}"))
    yield Facts(
        (
            ("not judged", report.reason),
            ("schema", Span(report.schema, code=True)),
            ("fake kernel", Span(report.kernel, code=True)),
            ("arguments", "\n".join(report.inputs)),
            ("real calls", _calls(report)),
            ("ends the process", "\n".join(report.crashes)),
            ("budget", "used up before all sizes, layouts, dtypes and options were tried" if report.is_cut else ""),
            ("notes", "\n".join(report.notes)),
            ("not tried", "" if is_alone else "\n".join(_skipped(report))),
        )
    )
    if is_alone and report.checks and not (report.reason and not report.problems):
        yield _checks_table(report)
    for problem in report.problems:
        yield Heading(f"{problem.check}{f', {problem.place}' if problem.place else ''}", 3)
        yield from _problem_view(problem)


def _checks_table(report: OpReport) -> Table:
    """A row for each check."""
    rows = []
    for check in report.checks:
        is_wrong = any(not problem.accepted for problem in check.problems)
        result = "wrong" if is_wrong else "accepted" if check.problems else "ok" if check.tried else "skipped"
        style: Style = "bad" if is_wrong else "good" if check.tried else "dim"
        meaning = CHECKS[check.name] + (f" ({check.skipped})" if check.skipped and not check.tried else "")
        tried = str(check.tried) if check.tried else "-"
        rows.append(TableRow((check.name, Span(result, style=style), tried, meaning)))
    return table(("check", "result", "tries", "meaning"), rows, right=("tries",), folding=("meaning",))


def _skipped(report: OpReport) -> list[str]:
    return [f"{check.name}: {check.skipped}" for check in report.checks if check.skipped and not check.tried]


def _calls(report: OpReport) -> str:
    refused = f", of which the real kernel refused {report.refused}" if report.refused else ""
    return f"{report.calls}{refused}" if report.calls else ""


def _problem_view(problem: Problem) -> Iterator[Block]:
    yield Items((problem.why,))
    more = problem.tried - len(problem.sizes)
    sizes = "\n".join(problem.sizes) + (f"\nand {counted(more, 'other call')}" if problem.sizes and more > 0 else "")
    yield Facts(
        (
            ("call", Span(problem.call, code=True)),
            ("at sizes", sizes),
            ("fake", Span(problem.fake, code=True)),
            ("real", Span(problem.real, code=True)),
            ("only where", f"{problem.apart} differ" if problem.apart else ""),
            ("accepted", problem.accepted),
            ("line", "\n".join(f"{one.file}:{one.line} {one.code}" for one in problem.frames)),
        )
    )
