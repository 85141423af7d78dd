"""A PostgreSQL server for tests: Debian's, in a temporary folder, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

USER = "postgres"
_NAMES = count()


def programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`, None if there is no server."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return installed[-1].parent if installed else None


@contextmanager
def running_server() -> Iterator[str]:
    """A server that listens on a socket only: the URL up to the name of a database."""
    tools = programs()
    if tools is None:
        if os.environ.get("REQUIRE_POSTGRES"):
            pytest.fail("REQUIRE_POSTGRES is set and there is no PostgreSQL server")
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    user = USER if os.getuid() == 0 else None
    name = user or pwd.getpwuid(os.getuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user)

    try:
        _run(folder, tools / "initdb", "-D", "data", "-A", "trust", "-U", name, "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        _run(folder, tools / "pg_ctl", "-D", "data", "-w", "-t", "120", "-l", "log", "-o", options, "start")
        try:
            yield f"postgresql://{name}@/{{}}?host={folder}"
        finally:
            _run(folder, tools / "pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def restart(server: str) -> None:
    """Restart the server of this URL: its connections are closed."""
    tools = programs()
    assert tools is not None
    _run(
        Path(server.rpartition("host=")[2]), tools / "pg_ctl", "-D", "data", "-w", "-m", "fast", "-l", "log", "restart"
    )


def _run(folder: Path, *words: str | Path) -> None:
    user = USER if os.getuid() == 0 else None
    group = None if user is None else pwd.getpwnam(user).pw_gid
    nowhere = subprocess.DEVNULL
    subprocess.run(words, check=True, user=user, group=group, cwd=folder, stdout=nowhere, stderr=nowhere)


def new_database(server: str) -> str:
    """The URL of a new database of the server."""
    import psycopg  # noqa: PLC0415 an extra

    name = f"d{os.getpid()}_{next(_NAMES)}"
    with psycopg.connect(server.format("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return server.format(name)
