"""`ddefuzz matrix` and `ddefuzz bisect`: findings and cases under several versions of torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import rich_click as click

from ddefuzz.cli.command import Output, argument, click_command, formats, option, output_file
from ddefuzz.cli.options import A_PYTHON, DB, JOBS, PYTHONS, TRUST
from ddefuzz.cli.output import (
    LiveLine,
    command_line,
    current_invocation,
    deliver,
    deliver_report,
    json_writers,
    resolve,
)
from ddefuzz.cli.replay import findings_in
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError, NothingRanError, UnsupportedError, refused
from ddefuzz.escape import shell_word
from ddefuzz.files import is_there
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import version_key
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.show.blocks import counted
from ddefuzz.show.table import NAMES
from ddefuzz.versions.bisect import bisected
from ddefuzz.versions.model import GONE_AFTER, Cell, Interpreter
from ddefuzz.versions.page import matrix_report, matrix_view, write_page
from ddefuzz.versions.run import Settings, closed, distinct, interpreters_of, scripts_under
from ddefuzz.versions.run import matrix as lines_under
from ddefuzz.versions.wheels import environment, wheels_in


@click_command("matrix")
def command(
    paths: tuple[Path, ...] = argument("[PATH]..."),
    pythons: tuple[str, ...] = PYTHONS,
    url: DatabaseUrl | None = option(
        "Run the findings of this database, instead of those in findings/. The results are saved in it. What has a "
        "result there is not run again.",
        "--db",
    ),
    fresh: bool = option("Ignore the results that the database of --db has."),
    ids: tuple[str, ...] = option("Only findings whose id begins with ID."),
    runs: int = option(
        "How often to run a finding again whose failure does not show, each time in a new process.",
        default=1,
        type_=click.IntRange(min=1),
        metavar="N",
    ),
    trust: bool = TRUST,
    close: bool = option(
        f"Close the findings of --db that pass in {GONE_AFTER} versions in a row after one in which they fail: they "
        "become fixed in these versions. One that fails in a version which has the fix is opened again."
    ),
    every: bool = option("Show all rows, not only those that are not the same in all versions.", "--all"),
    page: Path | None = option(
        "Also write a Markdown page with tables, and a plot next to it. It needs the extra `report`.",
        type_=output_file(),
    ),
    jobs: int = JOBS,
    output: Output = formats("text", *NAMES),
) -> None:
    """Run findings and cases under several versions of torch, and say in which they fail.

    The stand-alone script of each finding runs under every interpreter, in a child of a process that has imported
    torch. If the failure does not show, the script runs again in a new process. PATH is a folder of findings (default:
    findings), or of cases such as corpora/. Cases run by the ddefuzz of an interpreter. If it has none, they run as
    stand-alone scripts, which compare the kind of the failure and not its site.

    A finding is fixed if it passes after a version in which it fails, and regressed if it fails after one that passes.
    It has moved if another failure shows. In the table, - means not judged: this torch has no such op or stage. What
    has regressed comes first.

    Results are saved in the database of --db as they come, also before Ctrl-C. Exit code 1: some finding has regressed.
    """
    interpreters = interpreters_of(pythons)
    settings = Settings(jobs, runs, trust=trust, fresh=fresh)
    if close and url is None:
        raise InputError("--close: found no --db, expected the database whose findings are closed")
    with nullcontext() if url is None else Database.open(url) as database:
        findings, cases = _selected(paths, database, ids)
        with LiveLine(f"running {counted(len(findings), 'finding')} under {len(interpreters)} interpreters") as live:
            lines = lines_under(interpreters, findings, cases, database, settings, live)
        for name, line in closed(database, datetime.now(UTC)) if close and database is not None else ():
            say(f"{line}; `findings undo {name}` takes it back")
    if not lines and not refused():
        raise NothingRanError(f"{', '.join(map(str, cases))}: found no case, expected some")
    if page is not None:
        line = command_line()  # without the machine's paths of interpreters and of the database
        for interpreter in interpreters:
            line = line.replace(interpreter.python, "PATH")
        write_page(page, lines, interpreters, line if url is None else line.replace(shell_word(str(url)), "URL"))
    view = matrix_view(lines, interpreters, current_invocation().command, every=every)
    deliver_report(matrix_report(lines, interpreters), view, output)


def _selected(
    paths: tuple[Path, ...], database: Database | None, ids: tuple[str, ...]
) -> tuple[list[Finding], list[Path]]:
    """The findings to run, and the folders with other cases."""
    folders: list[Path] = []
    cases: list[Path] = []
    for path in paths or ((Path("findings"),) if database is None else ()):
        if not is_there(path):
            raise InputError(f"{path}: found no such file or folder, expected findings or cases")
        is_of_findings = is_there(path / FINDING) or any(path.glob(f"*/{FINDING}"))
        (folders if is_of_findings else cases).append(path)
    by_id = {one.id: one for one in findings_in(folders, None)}
    if database is not None:
        by_id |= {one.id: one for one in database.findings()}
    for name in ids:
        if not any(one.startswith(name) for one in by_id):
            raise InputError(f"--id: found {name!r}, expected the beginning of one of {counted(len(by_id), 'id')}")
    chosen = [by_id[name] for name in sorted(by_id) if not ids or name.startswith(ids)]
    if not chosen and not cases:
        raise NothingRanError("found no finding, expected some in the paths or the database")
    return chosen, cases


class _Version(NamedTuple):
    """A version of torch, and how its interpreter is had."""

    name: str
    torch: str
    opened: Callable[[], AbstractContextManager[Interpreter]]


def _given(interpreter: Interpreter) -> AbstractContextManager[Interpreter]:
    return nullcontext(interpreter)


@click_command("bisect")
def bisect(
    finding_id: str = argument("ID"),
    pythons: tuple[str, ...] = option(A_PYTHON, "--python", metavar="[NAME=]PATH"),
    folders: tuple[Path, ...] = option(
        "A folder with wheels of torch. A version is installed only if the search needs it, into an environment that "
        "is deleted afterwards. Nothing is downloaded.",
        "--wheels",
        metavar="DIR",
    ),
    trust: bool = TRUST,
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json", "jsonl"),
) -> None:
    """Find the two versions of torch between which a finding was fixed, moved or appeared.

    The versions are those of --python and --wheels. The finding's stand-alone script runs under the oldest and the
    newest. A binary search chooses among those between them. If one cannot be judged, its neighbours are.
    """
    with Database.open(db, create=False) as database:
        finding = resolve(database, finding_id)
    versions = [_Version(one.name, one.torch, partial(_given, one)) for one in interpreters_of(pythons)]
    for wheel in (wheel for folder in folders for wheel in wheels_in(folder)):
        versions.append(_Version(wheel.torch.partition("+")[0], wheel.torch, partial(environment, wheel)))
    versions.sort(key=lambda one: version_key(one.torch))
    distinct("--python, --wheels", [one.name for one in versions])
    if len(versions) < 2:
        raise InputError(f"--python, --wheels: found {counted(len(versions), 'version')}, expected at least two")
    with LiveLine(f"{finding.id} under {counted(len(versions), 'version')}") as live:

        def run(at: int) -> Cell:
            version, cells = versions[at], []
            live.update(f"{version.name}: starting")
            try:
                with version.opened() as interpreter:
                    scripts_under(interpreter, [finding], Settings(trust=trust), lambda _, cell: cells.append(cell))
            except UnsupportedError as error:
                cells.append(Cell("not judged", 0, 0, str(error)))
            reason = f": {cells[0].reason}" if cells[0].status == "not judged" and cells[0].reason else ""
            live.say(f"{version.name}: {cells[0].status}{reason}")
            return cells[0]

        bisection = bisected(finding.id, [one.name for one in versions], run)
    deliver({"text": f"{bisection}\n", **json_writers([msgspec.to_builtins(bisection)])}, output)
