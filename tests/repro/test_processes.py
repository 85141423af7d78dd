"""The processes that run stand-alone scripts: how a script ends, and that nothing is left running."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddefuzz.errors import UnsupportedError
from ddefuzz.repro import run
from ddefuzz.repro.run import Cold, ForkServers, ScriptEnd


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that finds no torch, so that it starts at once."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(params=[Cold, ForkServers])
def processes(request: pytest.FixtureRequest, python: str, tmp_path: Path) -> Iterator[Cold | ForkServers]:
    made: Cold | ForkServers = (
        Cold(python, tmp_path, 2.0) if request.param is Cold else ForkServers(python, tmp_path, jobs=1, seconds=2.0)
    )
    yield made
    made.stop()


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "code", "output"),
    [
        ("print('said')", 0, "said\n"),
        ("import sys\nprint(__name__, sys.argv[0][-9:])\nsys.exit(3)", 3, "__main__ script.py\n"),
        ("import sys\nsys.exit()", 0, ""),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("import os\nos.write(1, b'\\xff')", 0, "\ufffd"),
        ("import sys\nprint(repr(sys.stdin.read()))", 0, "''\n"),
        pytest.param("while True: pass", None, "", marks=pytest.mark.slow),
    ],
)
def test_how_a_script_ends(
    processes: Cold | ForkServers, tmp_path: Path, text: str, code: int | None, output: str
) -> None:
    assert processes.run(script(tmp_path, text)) == ScriptEnd(code, output, "")


def test_an_exception_is_in_the_errors(processes: Cold | ForkServers, tmp_path: Path) -> None:
    ended = processes.run(script(tmp_path, "raise ValueError('why')"))
    assert ended is not None
    assert (ended.code, ended.errors.splitlines()[-1]) == (1, "ValueError: why")


def test_scripts_share_nothing(processes: Cold | ForkServers, tmp_path: Path) -> None:
    text = "import sys\nprint(hasattr(sys, 'mark'))\nsys.mark = 1"
    assert [processes.run(script(tmp_path, text)) for _ in range(2)] == [ScriptEnd(0, "False\n", "")] * 2


def test_stop_ends_a_running_script(processes: Cold | ForkServers, tmp_path: Path) -> None:
    started = tmp_path / "pid"
    text = f"import os, pathlib, time\npathlib.Path({str(started)!r}).write_text(str(os.getpid()))\ntime.sleep(60)"
    path = script(tmp_path, text)
    ended: list[ScriptEnd | None] = []
    thread = threading.Thread(target=lambda: ended.append(processes.run(path)))
    thread.start()
    while not (started.exists() and started.read_text()):
        time.sleep(0.02)
    processes.stop()
    thread.join()
    assert ended == [None]
    assert not _runs(int(started.read_text()))
    assert processes.run(path) is None


def _runs(process: int) -> bool:
    """Whether a process is there and no zombie."""
    for _ in range(50):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state == "Z":
            return False
        os.sched_yield()
        time.sleep(0.02)
    return True


def test_an_interpreter_that_ends_is_said(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\necho 'no torch here' >&2\nexit 9\n")
    path.chmod(0o755)
    processes = ForkServers(str(path), tmp_path, jobs=2, seconds=2.0)
    with pytest.raises(UnsupportedError, match="the process that runs the scripts ended: no torch here"):
        processes.run(script(tmp_path, ""))
    processes.stop()


def test_lines_that_an_interpreter_prints_first_are_not_answers(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\necho welcome\necho 5\necho {{}}\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    processes = ForkServers(str(path), tmp_path, jobs=1, seconds=2.0)
    assert processes.run(script(tmp_path, "print('said')")) == ScriptEnd(0, "said\n", "")
    processes.stop()


@pytest.mark.parametrize("line", ["5", "{}", ""])
def test_an_interpreter_that_gives_no_answer_is_ended(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "START_SECONDS", 0.1)
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\necho {line}\nexec sleep 600\n")
    path.chmod(0o755)
    processes = ForkServers(str(path), tmp_path, jobs=1, seconds=0.1)
    with pytest.raises(UnsupportedError, match=r"gives no answer within 0\.2 s"):
        processes.run(script(tmp_path, ""))
    processes.stop()
