"""`ddefuzz triage` as a person uses it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli.output import Page
from ddefuzz.cli.triage import KEYS, command, parts_of, screen
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import STATES
from ddefuzz.show.evidence import site_lines
from tests.findings.arbitrary_findings import CHUNK, ROLL, START, sighting


@pytest.fixture
def url(tmp_path: Path) -> str:
    found = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(found) as database:
        for signature in (CHUNK, ROLL):
            database.record(sighting(signature), START)
    return found


FIRST, SECOND = sorted((CHUNK.key, ROLL.key))


def triage(url: str, keys: str, *args: str, columns: int = 80) -> Result:
    env: dict[str, Any] = {"COLUMNS": str(columns)}
    return CliRunner(env=env).invoke(command, [*args, "--db", url, "--by", "ada"], input=keys, catch_exceptions=False)


def states(url: str) -> dict[str, str]:
    with Database.open(url) as database:
        return {one.id: one.state for one in database.findings()}


def test_a_key_decides_and_shows_the_next(url: str) -> None:
    ended = triage(url, f"n seen in a model\nt\nd {FIRST[:9]}\n")
    assert (ended.exit_code, states(url)) == (0, {FIRST: "triaged", SECOND: "duplicate"})
    assert re.findall(r"\d of 2  (\S+)", ended.stdout) == [FIRST, FIRST, SECOND]
    assert "2 findings decided, 0 left" in ended.stderr
    with Database.open(url) as database:
        assert [(note.who, note.text) for note in database.get(FIRST).notes] == [("ada", "seen in a model")]


def test_reported_needs_the_url_of_the_issue(url: str) -> None:
    ended = triage(url, "r\nr https://github.com/pytorch/pytorch/issues/1\nq\n")
    assert "issue: found '', expected one that starts with https://" in ended.stderr
    with Database.open(url) as database:
        one = database.get(FIRST)
    assert (one.state, one.links) == ("reported", ("https://github.com/pytorch/pytorch/issues/1",))


def test_undo_goes_back_to_the_finding(url: str) -> None:
    ended = triage(url, "w\nb\nu\nu\nu\nq\n")
    assert set(states(url).values()) == {"new"}
    assert "found no decision since the start" in ended.stderr
    assert "0 findings decided, 2 left" in ended.stderr


def test_other_keys_decide_nothing(url: str) -> None:
    ended = triage(url, "x\ns\nz\ns\ns\n")
    assert set(states(url).values()) == {"new"}
    assert "found the key 'x', expected one of these:" in ended.stderr


def test_help_says_what_each_key_does(url: str) -> None:
    ended = triage(url, "?\nq\n")
    for key in (*KEYS, "s", "z", "u", "q"):
        assert re.search(rf"^  {re.escape(key)}  \w.*", ended.stderr, re.MULTILINE), key
    assert set(states(url).values()) == {"new"}


def test_the_queue_can_be_named(url: str) -> None:
    assert "1 finding decided, 0 left" in triage(url, "i\n", SECOND).stderr
    assert states(url)[SECOND] == "invalid"
    assert "0 findings decided, 0 left" in triage(url, "", "--state", "flaky").stderr


def test_every_state_has_a_key() -> None:
    assert {decision.name for decision in KEYS.values()} >= {*STATES, "dup"} - {"new", "duplicate"}


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_screen_has_what_a_person_needs_and_fits(url: str, columns: int) -> None:
    ended = triage(url, "q\n", CHUNK.key, columns=columns)
    assert max(map(len, ended.stdout.splitlines())) <= columns
    for part in ("at::native::chunk", "u0 == 0", "torch.chunk(x, 2)", "what to change", "not reviewed yet"):
        assert part in ended.stdout


def test_the_site_lines_a_python_site_is_shown(url: str) -> None:
    with Database.open(url) as database:
        roll = database.get(ROLL.key)
    shown = site_lines(roll)
    assert shown is not None
    assert (shown.path, shown.line) == ("torch/_refs/__init__.py", 4098)
    assert "a.numel() == 0" in shown.text.splitlines()[4098 - shown.first]
    assert "torch/_refs/__init__.py:4098" in triage(url, "q\n", ROLL.key).stdout


def test_lines_that_have_moved_are_not_shown(url: str) -> None:
    with Database.open(url) as database:
        roll = database.get(ROLL.key)
    assert roll.failure is not None
    assert roll.failure.observation.raised is not None
    raised = roll.failure.observation.raised
    frames = tuple(msgspec.structs.replace(frame, line=frame.line + 9) for frame in raised.python)
    observation = msgspec.structs.replace(
        roll.failure.observation, raised=msgspec.structs.replace(raised, python=frames)
    )
    failure = msgspec.structs.replace(roll.failure, observation=observation)
    assert site_lines(msgspec.structs.replace(roll, failure=failure)) is None


@pytest.fixture
def terminal(url: str) -> Iterator[int]:
    main, follower = pty.openpty()
    words = [sys.executable, "-m", "ddefuzz", "triage", "--db", url, "--by", "ada"]
    running = subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, close_fds=True)
    os.close(follower)
    yield main
    os.close(main)
    assert running.wait(timeout=60) == 0


def test_a_screen_that_is_too_high_has_parts(url: str) -> None:
    with Database.open(url) as database:
        whole = screen(database.get(ROLL.key), (), "1 of 1", Page(80))
    parts = parts_of(whole, 10)
    assert max(part.count("\n") for part in parts) <= 10
    assert "".join(parts).split() == whole.split()
    assert parts_of(whole, 100) == [whole.rstrip("\n") + "\n"]


@pytest.mark.slow
def test_the_space_bar_shows_the_next_part(url: str, terminal: int) -> None:
    termios.tcsetwinsize(terminal, (24, 80))
    seen = b""
    for key, until in ((b"s", b"quit"), (b" ", b"part 1 of 2"), (b" ", b"part 2 of 2"), (b"q", b"part 1 of 2")):
        while until not in seen or not seen.rstrip().endswith(b"quit"):
            seen += os.read(terminal, 4096)
        lines = seen.decode().rpartition("\x1b[2J")[2].splitlines()
        assert len(lines) <= 24
        seen = b""
        while termios.tcgetattr(terminal)[3] & termios.ICANON:
            time.sleep(0.01)
        os.write(terminal, key)
    while True:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
    assert b"0 findings decided, 2 left" in seen


@pytest.mark.slow
def test_on_a_terminal_a_key_needs_no_newline(url: str, terminal: int) -> None:
    seen = b""
    for key, until in ((b"t", b"quit"), (b"b", b"quit"), (b"q", b"no more findings"), (b"", b"0 left")):
        while until not in seen:
            seen += os.read(terminal, 4096)
        seen = b""
        while key and termios.tcgetattr(terminal)[3] & termios.ICANON:
            time.sleep(0.01)  # what is typed before a key is read is dropped
        os.write(terminal, key)
    assert states(url) == {FIRST: "triaged", SECOND: "by-design"}
