"""Graph breaks are counted by op, by site and by cause."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click import UsageError

from ddefuzz.artifacts.model import Cause
from ddefuzz.cli.sweep import command
from ddefuzz.execute.pool import LostTask
from ddefuzz.findings.database import Database
from ddefuzz.show.markdown import markdown
from ddefuzz.show.terminal import terminal
from ddefuzz.sweep.breaks import BreakSite, OpBreaks, OpBreaksTask, breaks_view, census_of, count_breaks
from ddefuzz.sweep.sweep import Op
from ddefuzz.sweep.worker import run_breaks

ROLL = Cause("dde", "torch/_refs/__init__.py:roll", "a.numel() == 0", "avoidable", "Eq(u0, 0)", "")
EQUAL = Cause("data-dependent-output", "aten::equal", "", "python-value", "aten.equal.default", "")

ROWS = (
    OpBreaks("relu", "opinfo", 4, 0, 4),
    OpBreaks("equal", "opinfo", 4, 1, 4, (BreakSite(EQUAL, 1, "equal"),), {"Error: no": 2}),
    OpBreaks("roll", "opinfo", 4, 4, 0, (BreakSite(ROLL, 4, "roll"), BreakSite(EQUAL, 1, "equal"))),
    OpBreaks("torch.roll(x, n)", "catalogue", 2, 2, 0, (BreakSite(ROLL, 2, "roll"),)),
    OpBreaks("svd", "opinfo", lost="timeout: stopped after 300 s"),
)


def test_the_census_has_ops_sites_and_causes_in_order() -> None:
    census = census_of("2.13.0", (), 4, ROWS, interrupted=False)
    assert [row.op for row in census.rows] == ["roll", "torch.roll(x, n)", "equal", "relu", "svd"]
    assert [(group.site, group.ops) for group in census.groups] == [
        ("aten::equal", ("roll", "equal")),
        ("torch/_refs/__init__.py:roll", ("roll", "torch.roll(x, n)")),
    ]
    assert census.causes == {"avoidable": 2, "python-value": 2}
    assert census.rows[0].breaks == 5


def test_the_page_has_what_breaks_and_the_totals() -> None:
    page = terminal(breaks_view(census_of("2.13.0", (), 4, ROWS, interrupted=True)), 100)
    assert "4 of 4" in page
    assert "not counted: timeout: stopped after 300 s" in page
    assert "Error: no (2 programs)" in page
    assert "relu" not in page
    assert page.endswith(
        "5 ops, 14 programs\n"
        "with a graph break: 3 ops, 7 programs\n"
        "ops by the cause of their breaks: 2 avoidable, 2 python-value\n"
        "ending in an error although the graph may break: 1 op\n"
        "interrupted: what was counted is saved; the same command continues\n"
    )


def test_the_document_says_how_it_was_made_and_lists_sites_ops_and_errors() -> None:
    text = markdown(breaks_view(census_of("2.13.0", ("r*",), 4, ROWS, interrupted=False)))
    assert "`ddefuzz sweep --breaks --ops 'r*' --programs 4 --output markdown=FILE`" in text
    assert "| `aten::equal` |  | data-dependent-output | python-value | 2 | `roll`, `equal` |" in text
    assert (
        "| `roll` | opinfo | 4 of 4 | 5 | avoidable, python-value | `torch/_refs/__init__.py:roll`, `aten::equal`<br>"
        in text
    )
    assert (
        "| `equal` | opinfo | Error: no (2 programs) |\n"
        "| `svd` | opinfo | not counted: timeout: stopped after 300 s |\n" in text
    )
    assert "relu" not in text


def test_programs_needs_breaks() -> None:
    with pytest.raises(UsageError, match="found --programs without --breaks, expected both"):
        command.main(["--programs", "2"], standalone_mode=False)


def test_there_is_no_list_of_upstream_for_placements() -> None:
    with pytest.raises(UsageError, match="found --placements with --compare-upstream, expected it without"):
        command.main(["--placements", "--compare-upstream"], standalone_mode=False)


@pytest.mark.parametrize("words", [["--compare-upstream"], ["--placements"], ["--fail-on", "any"], ["--format", "csv"]])
def test_options_that_do_not_go_with_breaks_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="found --breaks with"):
        command.main(["--breaks", *words], standalone_mode=False)


@pytest.mark.slow
def test_ops_of_the_catalogue_are_compiled_and_counted() -> None:
    found = run_breaks(OpBreaksTask("torch.roll(x, n)", "catalogue", 2))
    assert (found.programs, found.broken) == (2, 2)
    (site,) = found.sites
    assert (site.cause.site, site.programs) == ("torch/_refs/__init__.py:roll", 2)
    assert "torch.roll" in site.program
    healthy = run_breaks(OpBreaksTask("torch.relu(x)", "catalogue", 2))
    assert (healthy.broken, healthy.sites, healthy.graphs) == (0, (), healthy.programs)


class _Future:
    def __init__(self, found: OpBreaks | LostTask) -> None:
        self.found = found

    def done(self) -> bool:
        return True

    def result(self) -> OpBreaks | LostTask:
        return self.found


class _Workers:
    jobs = 1

    def __init__(self) -> None:
        self.sent: list[str] = []

    def submit(self, function: Callable[[Any], Any], argument: Any, timeout: float, *, cold: bool = False) -> Any:
        del function, timeout, cold
        self.sent.append(argument.op)
        return _Future(
            LostTask("crash", "SIGSEGV") if argument.op == "svd" else OpBreaks(argument.op, argument.source, 2)
        )


def test_each_result_is_saved_and_only_lost_ops_are_counted_again(tmp_path: Path) -> None:
    ops = tuple((op, OpBreaksTask(op.name, op.source)) for op in (Op("relu", "opinfo"), Op("svd", "opinfo")))
    with Database.open(f"sqlite:///{tmp_path}/s.db") as database:
        workers = _Workers()
        done, interrupted = count_breaks(ops, "key", workers, database, lambda *_: None, lambda: False)
        assert ([one.op for one in done], done[1].lost, interrupted) == (["relu", "svd"], "crash: SIGSEGV", False)
        again = _Workers()
        count_breaks(ops, "key", again, database, lambda *_: None, lambda: False)
        assert (workers.sent, again.sent) == (["relu", "svd"], ["svd"])
        anew = _Workers()
        count_breaks(ops, "key", anew, database, lambda *_: None, lambda: False, fresh=True)
        assert anew.sent == ["relu", "svd"]
