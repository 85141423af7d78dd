"""Run one cell of the fault matrix as a user would meet it, and say what became of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import msgspec
import psutil  # type: ignore[import-untyped]

from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import read_findings
from tests.campaign.real_campaign import PATIENCE_SECONDS, ROOT, all_gone, processes, wait_until
from tests.faults.commands import HELD, Browser, Command, Place, intact
from tests.faults.matrix import DEADLY, EIGHT, READ_ONLY, Cell, Trial
from tests.findings.arbitrary_findings import CHUNK

WHOLE: Final = "all: the result is that of an undisturbed command"
ONE_LESS: Final = "all but the case in progress"
BEFORE: Final = "what was recorded before; the same command then does the rest"
RESCUED: Final = "what was recorded before, as text; `ddefuzz findings import` reads it"
NOTHING: Final = "nothing was recorded before; the same command then does all"


class Outcome(msgspec.Struct, frozen=True):
    """What a user sees of a fault: the exit code, the last line of stderr that is ddefuzz's (with … for paths and
    numbers), and what is kept. `answers` are those of a dashboard.
    """

    exit: int
    said: str
    kept: str
    answers: tuple[str, ...] = ()


class Ended(msgspec.Struct, frozen=True):
    """A command that has ended."""

    exit: int
    stdout: str
    stderr: str
    answers: tuple[str, ...] = ()


def undisturbed(command: Command, place: Place) -> tuple[dict[str, str], dict[str, int]]:
    """What a command prints and records if nothing happens."""
    command.made(place)
    ended = _finished(command, place)
    assert ended.exit in (0, 1), ended.stderr
    return command.results(place, ended.stdout), place.recorded()


def outcome_of(cell: Cell, place: Place, server: str, whole: tuple[dict[str, str], dict[str, int]]) -> Outcome:
    """Bring the fault about, and observe. Raises AssertionError for what no fault may do."""
    fault, command = cell.fault, cell.command
    command.made(place)
    before, ended, started = _disturbed(cell, place, server)
    wait_until(lambda: all_gone(started))
    for wrong in ("Traceback", "internal error", "an error of ddefuzz"):
        assert wrong not in ended.stderr, ended.stderr
        assert not any(wrong in answer for answer in ended.answers), ended.answers
    said = _said(ended.stderr, place)
    rescued = next(place.folder.glob("*-rescued"), None)
    if fault.name != DEADLY:
        assert "leaked" not in ended.stderr, ended.stderr
        assert not _left(place), _left(place)
    fault.undo(place)
    if rescued is not None:
        assert set(before) - {name for name in before if "/" in name} <= {
            finding.id for finding in read_findings(rescued, datetime.now(UTC))
        } | set(place.recorded())
        return Outcome(ended.exit, said, RESCUED, ended.answers)
    after = place.recorded() if command.has_database else {}
    assert all(after.get(name, 0) >= count for name, count in before.items()), (before, after)
    if command.has_database and place.path.exists():
        assert intact(place.path)
    if ended.exit in (0, 1) and all(": 200" in answer for answer in ended.answers):
        result = command.results(place, ended.stdout), after
        if _same(result, whole):
            return Outcome(ended.exit, said, WHOLE, ended.answers)
        assert fault.loses_a_case, f"differs without a reason: {result}, undisturbed {whole}"
        return Outcome(ended.exit, said, ONE_LESS, ended.answers)
    again = _finished(command, place, again=True)
    assert again.exit in (0, 1), again.stderr
    assert _same((command.results(place, again.stdout), place.recorded() if command.has_database else {}), whole)
    assert not _left(place), _left(place)
    return Outcome(ended.exit, said, BEFORE if before else NOTHING, ended.answers)


def _same(result: tuple[dict[str, str], dict[str, int]], whole: tuple[dict[str, str], dict[str, int]]) -> bool:
    """Whether a command did what an undisturbed one does. A person may have added a note again."""
    notes = {CHUNK.key: 0}
    return (result[0], result[1] | notes) == (whole[0], whole[1] | notes)


def _disturbed(cell: Cell, place: Place, server: str) -> tuple[dict[str, int], Ended, list[psutil.Process]]:
    """What was recorded before the fault, how the command ended, and all processes that it had started."""
    fault, command = cell.fault, cell.command
    moment = "never" if fault.name in (READ_ONLY, EIGHT) else command.moments[cell.moment]
    read_only = Place(place.folder, f"sqlite:///file:{place.path}?mode=ro&uri=true")
    used = read_only if fault.name == READ_ONLY else place
    if fault.name == READ_ONLY:
        Database.open(place.url).close()
    with _begun(command, used, moment, *fault.words, **dict(fault.variables)) as process:
        if fault.name == EIGHT:
            os.sched_setaffinity(process.pid, sorted(os.sched_getaffinity(0))[:2])
        asking = _Asking(process, moment) if command.name == "serve" else None
        if moment != "never":
            wait_until(lambda: bool(_held(place)) or process.poll() is not None)
        if asking is not None and moment == "never" and fault.name != READ_ONLY:
            asking.ended.wait(PATIENCE_SECONDS)
        assert process.poll() is None or fault.name == READ_ONLY, process.communicate()[1]
        before = {} if cell.moment == "start" and command.has_workers else place.recorded()
        started = [] if process.poll() is not None else [psutil.Process(process.pid), *processes(process.pid)]
        held = psutil.Process(_held(place) or process.pid) if started else None
        if held is not None:
            fault.bring(trial := Trial(command, cell.moment, place, process, held, server))
        (place.folder / "go").touch()
        if asking is not None:
            answers = asking.answers_after(fault.name)
            stdout, stderr = asking.communicate()
        else:
            answers = ()
            stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
        if held is not None and trial.other is not None:
            trial.other.close()
    return before, Ended(_exit(process), stdout, stderr, answers), started


def _exit(process: subprocess.Popen[str]) -> int:
    """The exit code, 0 for the end by our own SIGTERM."""
    return 0 if process.returncode == 128 + signal.SIGTERM else process.returncode


class _Asking:
    """A person with a browser: adds a note as soon as the dashboard answers, and reads it after the fault."""

    def __init__(self, process: subprocess.Popen[str], moment: str) -> None:
        self.process = process
        self.moment = moment
        self.answers: list[str] = []
        self.ended = threading.Event()
        self.browser: Browser | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        assert self.process.stdout is not None
        address = self.process.stdout.readline().strip()
        if address:
            self.browser = Browser(address)
            self.answers.append(_answer("note", self.browser.note("seen in a model")))
        self.ended.set()

    def answers_after(self, fault: str) -> tuple[str, ...]:
        """What the person is answered; the dashboard is then ended by SIGTERM."""
        self.ended.wait(PATIENCE_SECONDS)
        if self.browser is not None and fault != DEADLY:
            self.answers.append(_answer("page", self.browser.read()))
            if self.moment == "never":
                self.answers.append(_answer("note", self.browser.note("seen again")))
        return tuple(self.answers)

    def communicate(self) -> tuple[str, str]:
        """End the dashboard, and return what it printed."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=PATIENCE_SECONDS)


def _answer(what: str, answer: tuple[int, str]) -> str:
    status, text = answer
    try:
        error = msgspec.json.decode(text).get("error", "")
    except (msgspec.DecodeError, AttributeError):
        error = ""
    return f"{what}: {status or 'no answer'}" + (f" `{_holes(error)}`" if error else "")


@contextmanager
def _begun(
    command: Command, place: Place, moment: str, *more: str, **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own; nothing of it is left running."""
    place.temporary.mkdir(exist_ok=True)
    for name in ("held", "go", "back"):
        (place.folder / name).unlink(missing_ok=True)
    held = {"FAULT_FOLDER": str(place.folder), "FAULT_MOMENT": moment, "TMPDIR": str(place.temporary)}
    process = subprocess.Popen(
        [*HELD, *(word.format(url=place.url) for word in (*command.words, *more))],
        cwd=place.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **held, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                for child in processes(process.pid):
                    child.kill()
                process.kill()


def _finished(command: Command, place: Place, *, again: bool = False) -> Ended:
    words = command.again if again and place.recorded_campaign() else ()
    with _begun(command, place, "never", *words) as process:
        if command.name != "serve":
            stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
            return Ended(process.returncode, stdout, stderr)
        asking = _Asking(process, "writing")
        answers = asking.answers_after("")
        stdout, stderr = asking.communicate()
        return Ended(_exit(process), stdout, stderr, answers)


def _left(place: Place) -> list[str]:
    """The temporary files and folders that are left behind."""
    return [
        f"{path.relative_to(place.temporary)} {path.read_text(errors='replace') if path.is_file() else ''}".rstrip()
        for path in place.temporary.rglob("*")
    ]


def _held(place: Place) -> int:
    """The process that waits at the moment, 0 if none does yet."""
    path = place.folder / "held"
    return int(path.read_text() or 0) if path.exists() else 0


def _said(stderr: str, place: Place) -> str:
    ours = (line for line in stderr.splitlines() if line.startswith("ddefuzz: "))
    lines = [line for line in ours if not line.endswith("stopped by SIGTERM")]  # which ends a dashboard here
    return _holes(lines[-1].removeprefix("ddefuzz: ").replace(str(place.folder), "…")) if lines else ""


def _holes(text: str) -> str:
    """The text with paths, addresses and numbers of processes as holes."""
    text = re.sub(r" \(…?/[^\s()]+\)| \([\w.-]+\.\w+\)", "", text)  # the name of a file
    text = re.sub(r"^(user\.py|rows\.jsonl):", "…:", text)
    text = re.sub(r"(sqlite|postgresql\S*)://\S+?(?=[:,;]? )", "…", text)
    text = re.sub(r"(?<!\w)(/[\w.-]+)+|…/\S+?(?=[:,;`]|$| )", "…", text)
    text = re.sub(r"`[^`]*`( reads them)?", "…", text)
    return re.sub(r"\d{4,}|(?<=\()\d+(?=\))", "…", text)
