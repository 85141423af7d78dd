"""Run findings and cases under several interpreters: by stand-alone scripts, or by an interpreter's own ddefuzz.

Results are saved in a database as they come, so that what has one is not run again.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import asdict

from ddefuzz.campaign.replay import kept_cases
from ddefuzz.errors import EXIT_FOUND, EXIT_OK, EXIT_USAGE, InputError, UnsupportedError, refuse
from ddefuzz.execute.protocol import EXPLICIT
from ddefuzz.files import files_below, parse_json, read_bytes
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, set_state
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.listing import results
from ddefuzz.findings.model import Finding, Result, stamp
from ddefuzz.oracles.keys import untrusted_function
from ddefuzz.repro.run import ScriptResult, ScriptSource, located, run_scripts, torch_of
from ddefuzz.repro.script import case_script
from ddefuzz.show.blocks import counted
from ddefuzz.versions.model import (
    Cell,
    Interpreter,
    Line,
    Status,
    cell_of,
    cell_of_result,
    fails_again,
    fixed_since,
    in_order,
    lines_of,
    program_key,
)

T = TypeVar("T")

REPLAY_SECONDS: Final = 3 * 3600.0

_CELLS: Final[Mapping[str, Status]] = {
    "as expected": "fails",
    "gone": "passes",
    "fails": "fails",
    "fails otherwise": "moved",
    "not judged": "not judged",
}
"""The status of a replayed case by what replay says of it. A case that is expected to pass and does is left out."""


class Live(Protocol):
    """Where progress goes: permanent lines, and one that changes."""

    def say(self, line: str) -> None: ...
    def update(self, line: str, *, is_last: bool = False) -> None: ...


class Settings(NamedTuple):
    """How often what does not show runs again, by how many processes, whether the user's code is executed, and whether
    stored results are ignored.
    """

    jobs: int = 1
    runs: int = 1
    trust: bool = False
    fresh: bool = False


class _ReplayLine(msgspec.Struct, frozen=True):
    """A line of `ddefuzz replay --format jsonl`."""

    case: str
    status: str
    expected: str
    seen: str


PROBE_SECONDS = 120.0  # how long an interpreter may take to import ddefuzz


def interpreter_of(typed: str) -> Interpreter:
    """The interpreter `[NAME=]PATH` with its torch, and whether it has ddefuzz. Raises `InputError`."""
    name, _, path = typed.rpartition("=")
    torch, python = torch_of(path), located(path)
    code = "import ddefuzz.cli.main, ddefuzz.execute.protocol"
    try:
        command = [python, "-P", "-c", code]
        full = not subprocess.run(command, capture_output=True, check=False, cwd="/", timeout=PROBE_SECONDS).returncode
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(f"--python {path}: found none that answers, expected a Python") from error
    return Interpreter(name or torch.partition("+")[0], python, torch, full)


def interpreters_of(typed: Iterable[str]) -> tuple[Interpreter, ...]:
    """The interpreters, by version of torch. Raises `InputError` for two with the same name."""
    interpreters = in_order(map(interpreter_of, typed))
    distinct("--python", [interpreter.name for interpreter in interpreters])
    return interpreters


def distinct(options: str, names: Sequence[str]) -> None:
    """Raise `InputError` if two versions have the same name."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"{options}: found two named {twice[0]!r}, expected different names: NAME=PATH")


def printed(python: str, words: Sequence[str], seconds: float, *codes: int) -> bytes:
    """What a command of an interpreter's own ddefuzz prints. Its exit code may be 0 or one of `codes`: with 2, the rows
    that it left out are refused here (`refusals`).

    Raises `UnsupportedError` if it does not end so, and `InputError` if it says that the input is wrong.
    """
    name = said_of(python, words)
    try:
        command = [python, "-P", "-m", "ddefuzz", *words]
        ran = subprocess.run(command, capture_output=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise UnsupportedError(f"{name} still runs, expected it to end within {seconds:.0f} s") from error
    except OSError as error:
        raise UnsupportedError(f"{name} does not start: {error.strerror}") from error
    if ran.returncode not in (EXIT_OK, *codes) or not ran.stdout:  # Python, too, ends with 1
        reason = (ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ran.returncode}"])[-1]
        raise (InputError if ran.returncode == EXIT_USAGE else UnsupportedError)(f"{name} ended with {reason}")
    if ran.returncode == EXIT_USAGE:
        for line in ran.stderr.decode(errors="replace").splitlines():
            if left_out := _LEFT_OUT.fullmatch(line):
                refuse(InputError(left_out[1]))
    return ran.stdout


_LEFT_OUT = re.compile(r"ddefuzz: left out \(\d+ of \d+\): (.*)")


def said_of(python: str, words: Sequence[str]) -> str:
    """How errors name a command of another interpreter."""
    return f"--python {python}: its `ddefuzz {words[0]}`"


def decoded(name: str, text: bytes, type_: type[T], what: str) -> T:
    """A document that was printed. Raises `UnsupportedError`."""
    start = text[:80].decode(errors="replace")
    try:
        document: T = parse_json(text, type_, f"{name} printed {start!r}", what)
    except InputError as error:
        raise UnsupportedError(str(error)) from error
    return document


def matrix(
    interpreters: Sequence[Interpreter],
    findings: Sequence[Finding],
    paths: Sequence[Path],
    database: Database | None,
    settings: Settings,
    live: Live,
) -> list[Line]:
    """A line for each finding, and for each case below the paths. An interpreter that cannot run them is refused
    (`refusals`): the results of the others stay.
    """
    cells: dict[str, dict[str, Cell]] = {interpreter.name: {} for interpreter in interpreters}
    for interpreter in interpreters:
        try:
            cells[interpreter.name] |= _of_findings(interpreter, findings, database, settings, live)
            if paths:
                cells[interpreter.name] |= _of_cases(interpreter, paths, database, settings, live)
        except UnsupportedError as error:
            refuse(error)
    return lines_of(cells, {finding.id: finding.title for finding in findings})


def _of_findings(
    interpreter: Interpreter, findings: Sequence[Finding], database: Database | None, settings: Settings, live: Live
) -> dict[str, Cell]:
    """The cells of the findings, those with a result for the same program first."""
    by_id = {finding.id: finding for finding in findings}
    keys = {name: program_key(finding) for name, finding in by_id.items()}
    cells = {} if settings.fresh else _stored(database, interpreter, lambda one: keys.get(one.case) == one.program)
    left = [finding for finding in findings if finding.id not in cells]
    if cells:
        live.say(f"{interpreter.name}: {counted(len(cells), 'result')} kept, {counted(len(left), 'finding')} to run")

    def listen(name: str, cell: Cell) -> None:
        cells[name] = cell
        if settings.trust or not untrusted_function(by_id[name].minimal or by_id[name].original or ""):
            _save(database, interpreter, {name: cell}, keys[name])
        progress = f"{interpreter.name}: {len(cells)} of {counted(len(findings), 'finding')}"
        live.update(progress, is_last=len(cells) == len(findings))

    if left:
        scripts_under(interpreter, left, settings, listen)
    return cells


def _of_cases(
    interpreter: Interpreter, paths: Sequence[Path], database: Database | None, settings: Settings, live: Live
) -> dict[str, Cell]:
    """The cells of the cases: stored ones, if the files are the same."""
    key = files_key(paths, trust=settings.trust)
    cells = {} if settings.fresh else _stored(database, interpreter, lambda one: one.program == key)
    if cells:
        live.say(f"{interpreter.name}: results of {counted(len(cells), 'case')} kept")
        return cells
    if interpreter.full:
        live.say(f"{interpreter.name}: running the cases")
        cells = cases_under(interpreter, paths, settings)
    else:
        live.say(f"{interpreter.name}: has no ddefuzz, so the cases run as stand-alone scripts there")
        scripts = []
        for case in kept_cases(paths, trust=settings.trust):
            if not case.finding and case.expect.semantics == EXPLICIT:
                kind = case.expect.kind or ""
                script = partial(case_script, case.subject, case.expect.stage, kind, case.id)
                scripts.append(ScriptSource(case.id, kind, script))

        def listen(name: str, cell: Cell) -> None:
            cells[name] = cell
            progress = f"{interpreter.name}: {len(cells)} of {counted(len(scripts), 'case')}"
            live.update(progress, is_last=len(cells) == len(scripts))

        scripts_under(interpreter, scripts, Settings(settings.jobs), listen)
    _save(database, interpreter, cells, key)
    return cells


def _stored(database: Database | None, interpreter: Interpreter, is_same: Callable[[Result], bool]) -> dict[str, Cell]:
    stored = () if database is None else database.read(results)
    return {one.case: cell_of_result(one) for one in stored if one.torch == interpreter.torch and is_same(one)}


def _save(database: Database | None, interpreter: Interpreter, cells: Mapping[str, Cell], program: str) -> None:
    when = stamp(datetime.now(UTC))
    if database is not None:
        database.save_results(
            Result(name, interpreter.torch, program, when=when, **asdict(cell)) for name, cell in cells.items()
        )


def files_key(paths: Iterable[Path], *, trust: bool) -> str:
    """What identifies the cases below the paths: the content of all files there that may have one or list modules."""
    digest = hashlib.sha256(repr(trust).encode())
    for path in paths:
        for file in (file for file in files_below(path, "*") if file.suffix in (".py", ".toml") or file == path):
            digest.update(f"\0{file}\0".encode() + read_bytes(file))
    return digest.hexdigest()[:16]


def scripts_under(
    interpreter: Interpreter,
    scripts: Sequence[Finding | ScriptSource],
    settings: Settings,
    listen: Callable[[str, Cell], None],
) -> None:
    """Call `listen` with the cell of each finding or case, as soon as it is known.

    Each script runs once in a child of a process that has imported torch, which is cheap. What does not end there as
    expected runs `runs` times, each in a new process, and only these runs count. A script compares the kind of the
    failure of a case, not its site.
    """
    by_name = {script.name if isinstance(script, ScriptSource) else script.id: script for script in scripts}
    again: dict[str, list[ScriptResult]] = {}

    def cell(ran: Sequence[ScriptResult]) -> Cell:
        passes = not by_name[ran[0].finding].kind
        statuses = ["shows" if passes and one.status == "fails otherwise" else one.status for one in ran]
        return cell_of(statuses, list(map(_reason, ran)))

    def once(result: ScriptResult) -> None:
        if result.status in ("not judged", "shows" if by_name[result.finding].kind else "passes"):
            listen(result.finding, cell([result]))
        else:
            again[result.finding] = []

    def cold(result: ScriptResult) -> None:
        ran = again[result.finding]
        ran.append(result)
        if len(ran) == settings.runs:
            listen(result.finding, cell(ran))

    run_scripts(scripts, interpreter.python, settings.jobs, once, forked=True, trust=settings.trust)
    repeated = [script for name, script in by_name.items() if name in again for _ in range(settings.runs)]
    run_scripts(repeated, interpreter.python, settings.jobs, cold, trust=settings.trust)


def _reason(result: ScriptResult) -> str:
    return result.reason or ", ".join(f"{name} {value}" for name, value in (result.seen or {}).items())


def cases_under(interpreter: Interpreter, paths: Iterable[Path], settings: Settings) -> dict[str, Cell]:
    """The cell of each case below the paths, by the interpreter's own `ddefuzz replay`."""
    words = ["replay", *map(str, paths), "-j", str(settings.jobs), "--format", "jsonl", *["--trust"] * settings.trust]
    cells: dict[str, Cell] = {}
    for line in printed(interpreter.python, words, REPLAY_SECONDS, EXIT_FOUND, EXIT_USAGE).splitlines():
        replayed = decoded(said_of(interpreter.python, words), line, _ReplayLine, "the result of a case")
        passes = replayed.expected.endswith(" ok") and replayed.status == "as expected"
        status: Status = "passes" if passes else _CELLS.get(replayed.status, "not judged")
        reason = replayed.seen if status in ("moved", "not judged") else ""
        cells[replayed.case] = Cell(status, int(status == "fails"), 1, reason)
    return cells


def closed(database: Database, now: datetime) -> Iterator[tuple[str, str]]:
    """Make the findings of the database fixed that pass in the latest versions of their results (`fixed_since`), and
    open those again that fail in a version which has the fix. Says which, and why. A decision that a person has made
    otherwise stays.
    """
    by_finding: dict[str, list[Result]] = {}
    for result in database.read(results):
        by_finding.setdefault(result.case, []).append(result)
    findings = database.findings()
    latest = {one.signature.key: one.id for one in sorted(findings, key=lambda one: (len(one.id), one.id))}
    for finding in findings:
        own = by_finding.get(finding.id, ())
        versions, failing = fixed_since(finding, own), fails_again(finding, own)
        if versions and finding.state in CLOSING:
            by = By(CLOSER, now, f"passes in {', '.join(versions)}")
            database.decide(finding.id, partial(set_state, state="fixed", by=by, fixed_in=versions))
            yield finding.id, f"closed: {finding.id} {by.why}"
        elif failing and latest[finding.signature.key] == finding.id:  # else the return is a finding of its own
            by = By(CLOSER, now, f"fails in {', '.join(failing)}")
            database.decide(finding.id, partial(set_state, state="triaged", by=by))
            yield finding.id, f"reopened: {finding.id} {by.why}"


CLOSER: Final = "ddefuzz matrix"
"""Who closes findings without a person, in their history."""

CLOSING: Final[tuple[State, ...]] = ("new", "triaged", "reported", "fix-pending")
"""The states of findings that are closed without a person."""
