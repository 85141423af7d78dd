"""The fault matrix: each cell is a real command that is disturbed at one moment.

By default each fault is tried on one command; `pytest -m faults` tries it on each command at one moment, and with
`--all-moments` at all. What is seen is compared with `results.json`, of which docs/faults.md is made. `--write-faults`
writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest

from tests.faults.commands import COMMANDS, Place
from tests.faults.matrix import FAULTS, RESTARTED, Cell, cells, drawn, one_command_each
from tests.faults.page import PAGE, page, results, save
from tests.faults.trial import outcome_of, undisturbed
from tests.findings.servers import new_database, running_server
from tests.parameters import one_in

Whole: TypeAlias = Callable[[str], tuple[dict[str, str], dict[str, int]]]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short path: below it is the socket of a fork server."""
    with TemporaryDirectory(prefix="fault-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def whole() -> Whole:
    """What each command does if nothing happens."""

    @cache
    def of(name: str) -> tuple[dict[str, str], dict[str, int]]:
        with TemporaryDirectory(prefix="fault-", dir="/tmp") as folder:
            return undisturbed(COMMANDS[name], Place(Path(folder), f"sqlite:///{folder}/ddefuzz.db"))

    return of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The cells that were asked for."""
    if "cell" in metafunc.fixturenames:
        chosen = cells() if metafunc.config.getoption("--all-moments") else drawn(cells())
        if "faults" not in metafunc.config.getoption("markexpr"):
            chosen = one_command_each(chosen)
        names = [one.name.replace(" / ", "-").replace(" ", "_") for one in chosen]
        every = 1 if "faults" in metafunc.config.getoption("markexpr") else 2
        metafunc.parametrize("cell", one_in(every, chosen), ids=names)


@pytest.mark.slow
@pytest.mark.faults
def test_a_fault_is_one_clear_line_and_loses_nothing(
    cell: Cell, folder: Path, whole: Whole, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("server") if cell.fault.name == RESTARTED else ""
    url = new_database(server) if server else f"sqlite:///{folder / 'ddefuzz.db'}"
    seen = outcome_of(cell, Place(folder, url), server, whole(cell.command.name))
    if request.config.getoption("--write-faults"):
        save(cell.name, seen)
    assert seen == results().get(cell.name)


def test_the_page_is_made_of_the_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(results()), "run `python -m tests.faults.page`"


def test_there_are_results_of_all_faults_and_commands() -> None:
    assert {one.name for one in drawn(cells())} <= set(results()) <= {one.name for one in cells()}


def test_each_fault_says_why_it_is_not_done_elsewhere() -> None:
    for fault in FAULTS:
        assert (len(fault.commands) == len(COMMANDS) and len(fault.moments) == 3) == (not fault.elsewhere), fault.name
