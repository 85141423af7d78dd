"""`ddefuzz serve` and `ddefuzz tokens` as commands: what they print, and what they refuse."""

from __future__ import annotations

import importlib.util
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.cli.serve import command
from ddefuzz.cli.serve import tokens as tokens_command
from ddefuzz.errors import DatabaseError, InputError, UnsupportedError
from ddefuzz.findings import tokens
from ddefuzz.findings.database import Database
from ddefuzz.web.app import listen

SERVE = (sys.executable, "-c", "from ddefuzz.cli.main import main; main()", "serve", "--port", "0")


@pytest.mark.slow
@pytest.mark.parametrize(("options", "token"), [((), False), (("--token",), True), (("--host", "0.0.0.0"), True)])
def test_it_prints_its_address_and_whether_a_token_is_missing(
    tmp_path: Path, options: tuple[str, ...], token: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Database.open(url).close()
    with subprocess.Popen(
        [*SERVE, "--db", url, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert re.fullmatch(r"http://[\d.]+:\d+/", address), address
            with urllib.request.urlopen(address.replace("0.0.0.0", "127.0.0.1")) as answer:
                page = answer.read()
            assert b"<h1>Overview</h1>" in page
            assert (b"Log in to decide" in page) == token
            server.send_signal(signal.SIGINT)
            said = server.communicate(timeout=60)[1]
        finally:
            server.kill()
    assert ("`ddefuzz tokens add NAME` makes one" in said) == token
    assert "Traceback" not in said
    assert server.returncode in (0, 130)


def run_tokens(url: str, *words: str) -> Result:
    return CliRunner().invoke(tokens_command, [*words, "--db", url], catch_exceptions=False)


def test_a_token_is_made_shown_once_listed_and_revoked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Database.open(url).close()
    assert "no tokens" in run_tokens(url, "list").stderr
    made = [run_tokens(url, "add", name) for name in ("bo", "ada")]
    ours = [one.stdout.strip() for one in made]
    assert len(set(ours)) == 2
    assert all(len(token) == 43 and made[at].output.count(token) == 1 for at, token in enumerate(ours))
    listed = run_tokens(url, "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["ada", "bo"]
    assert not any(token.encode() in path.read_bytes() for path in tmp_path.iterdir() for token in ours)
    with Database.open(url) as database:
        valid = database.read(tokens.tokens)
        assert [(found := tokens.of(valid, token)) and found.name for token in ours] == ["bo", "ada"]
        assert tokens.of(valid, "") is tokens.of(valid, valid[0].digest) is tokens.of(valid, "\udc80") is None
    run_tokens(url, "revoke", "bo")
    assert "bo" not in run_tokens(url, "list").stdout


def test_names_of_tokens_are_shown_on_one_line(tmp_path: Path) -> None:
    url, name = f"sqlite:///{tmp_path / 'a.db'}", "a\x1b[31m\nb"
    with Database.open(url) as database:
        database.write(lambda session: tokens.add(session, "ada", datetime.now(UTC)))
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE tokens SET name = ?", (name,))
    assert run_tokens(url, "list").stdout.startswith(r"a\x1b[31m\nb  20")
    assert run_tokens(url, "revoke", name).stderr == "token of a\\x1b[31m\\nb revoked; its sessions have ended\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "ada"), "found a token of 'ada' made 20"),
        (("add", ""), "expected 1 to 80 printable characters"),
        (("add", "a\nb"), "expected 1 to 80 printable characters"),
        (("add", " ada"), "expected 1 to 80 printable characters"),
        (("add", "x" * 81), "expected 1 to 80 printable characters"),
        (("revoke", "bo"), "found no token of 'bo'"),
    ],
)
def test_a_wrong_name_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Database.open(url).close()
    run_tokens(url, "add", "ada")
    with pytest.raises(InputError, match=said):
        run_tokens(url, *words)
    assert len(run_tokens(url, "list").stdout.splitlines()) == 1


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="found no such file"):
        CliRunner().invoke(command, ["--db", f"sqlite:///{tmp_path / 'no.db'}"], catch_exceptions=False)


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError, match=r"pip install --editable '.*\[web\]'"):
        CliRunner().invoke(command, [], catch_exceptions=False)


@pytest.mark.parametrize("host", ["a..b", ".", "x" * 64])
def test_a_host_that_is_no_name(host: str) -> None:
    with pytest.raises(InputError, match=r"^--host: found '.*', expected an address or a name$"):
        listen(host, 0)
