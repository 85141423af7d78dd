"""`ddefuzz serve` as a command: what it prints, and what it refuses."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.cli.serve import command
from ddefuzz.errors import DatabaseError, UnsupportedError
from ddefuzz.findings.database import Database

SERVE = (sys.executable, "-c", "from ddefuzz.cli.main import main; main()", "serve", "--port", "0")


def printed_token(server: subprocess.Popen[str]) -> str:
    """What the server has printed up to its token."""
    assert server.stderr is not None
    said = ""
    while "/login: " not in said:
        said += server.stderr.readline()
    return said


def log_in_wrongly(address: str, said: str) -> None:
    """Send the token without the form it belongs to."""
    typed = said.rpartition("/login: ")[2].strip()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{address}login", data=f"token={typed}".encode())
    assert refused.value.code == 403
    assert typed not in refused.value.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize(("options", "token"), [((), False), (("--token",), True), (("--host", "0.0.0.0"), True)])
def test_it_prints_its_address_and_a_token_where_one_is_needed(
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
                assert b"<h1>Overview</h1>" in answer.read()
            said = printed_token(server) if token else ""
            if token:
                log_in_wrongly(address.replace("0.0.0.0", "127.0.0.1"), said)
            server.send_signal(signal.SIGINT)
            said += server.communicate(timeout=60)[1]
        finally:
            server.kill()
    assert ("token for decisions" in said) == token
    assert "Traceback" not in said
    assert all(said.count(found) == 1 for found in re.findall(r"/login: (\S+)", said)), "the token is printed once"
    assert server.returncode in (0, 130)


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="found no such file"):
        CliRunner().invoke(command, ["--db", f"sqlite:///{tmp_path / 'no.db'}"], catch_exceptions=False)


def test_the_extra_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UnsupportedError, match=r"pip install 'ddefuzz\[web\]'"):
        CliRunner().invoke(command, [], catch_exceptions=False)
