"""A signal ends a command with one line and an exit code of 128 plus its number, and `finally` clauses run."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ddefuzz import __main__
from ddefuzz.cli import main
from ddefuzz.cli.streams import AGAIN_SECONDS


@pytest.mark.parametrize(
    ("number", "said", "code"),
    [
        (signal.SIGTERM, "stopped by SIGTERM", 143),
        (signal.SIGHUP, "stopped by SIGHUP", 129),
        (signal.SIGINT, "interrupted", 130),
    ],
)
def test_a_signal_ends_a_command_in_one_line(
    number: signal.Signals,
    said: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "scratch"

    def works(**_: object) -> None:
        folder.mkdir()
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            folder.rmdir()

    monkeypatch.setattr(main.cli, "main", works)
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(number, usual)  # nohup ignores SIGHUP
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == code
    assert capsys.readouterr().err == f"ddefuzz: {said}\n"
    assert not folder.exists()
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)] == before
    signal.signal(number, inherited)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "stopped by SIGTERM"), (signal.SIGHUP, "stopped by SIGHUP")],
)
def test_a_signal_during_the_first_imports_ends_the_command_in_one_line(
    number: signal.Signals, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(number, usual)
    ran = []

    def imported(_name: str) -> SimpleNamespace:
        os.kill(os.getpid(), number)
        return SimpleNamespace(main=lambda: ran.append("command"))

    monkeypatch.setattr(__main__, "import_module", imported)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 128 + number
    assert capsys.readouterr().err == f"ddefuzz: {said}\n"
    assert (ran, signal.getsignal(number)) == ([], usual)
    signal.signal(number, inherited)


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        monkeypatch.setattr(main.cli, "main", lambda **_: os.kill(os.getpid(), signal.SIGHUP))
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert ended.value.code is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_waits_until_torch_is_imported(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None)
    steps = []

    def works(**_: object) -> None:
        vars(module.__spec__)["_initializing"] = True
        with suppress(KeyboardInterrupt):
            for _count in range(3):  # only one is sent again
                os.kill(os.getpid(), number)
            time.sleep(3 * AGAIN_SECONDS)
            steps.append("imported")
        vars(module.__spec__)["_initializing"] = False
        try:
            time.sleep(60)
        finally:
            time.sleep(3 * AGAIN_SECONDS)
            steps.append("ended")

    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(main.cli, "main", works)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, steps) == (128 + number, ["imported", "ended"])
