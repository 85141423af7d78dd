"""Open a findings database: SQLite in WAL mode by default, or any SQLAlchemy URL. Creates its tables.

There is one schema. What a finding has can change without another one, because it is a document. A database of another
schema is refused with the way to convert it.

Every error is a `DatabaseError` of one line: which database, what was found, what was expected.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, inspect

from ddefuzz.errors import DatabaseError, InputError
from ddefuzz.files import is_file, kind_of, real_path
from ddefuzz.findings.schema import METADATA
from ddefuzz.findings.url import DatabaseUrl

BUSY_TIMEOUT_S = 30.0
SCHEMA_REVISION = "0016"
"""It rises when tables or columns change."""

EXTENDED = frozenset({"0014", "0015"})
"""Older schemas that lack only tables, which are added."""

_STEPS = 1_000_000
"""How many instructions of SQLite (about 10 ms) pass between two looks for signals."""

_REVISIONS = "alembic_version"
"""The table that has the revision. Databases up to 0013 were made by a tool of this name."""

_LOCK = 0x64646566
"""The number of the lock that writers of a PostgreSQL database take."""

_NO_SCHEMA = "found tables without one schema version, expected a database of ddefuzz"

HEADER_BYTES = 100
"""The header of an SQLite file."""

_LOST = ("the server ended the connection", "a server that keeps running")

_CAUSES = (
    ("disk is full", "the disk is full", "free space; nothing of this change was saved, all before it was"),
    ("disk i/o error", "a disk I/O error", "a disk that is not full and can be written"),
    ("readonly database", "it is read-only", "a database that can be written"),
    ("file is not a database", "the file is not an SQLite database", "one, or no file at all"),
    ("malformed", "the file is corrupt", "an intact database (`findings import` makes a new one of the text form)"),
    ("constraint", "its rows contradict each other", "a database that nothing but ddefuzz changes"),
    ("is locked", "another process holds it locked", f"it to be free within {BUSY_TIMEOUT_S:.0f} s"),
    (
        *("unable to open database file", "it cannot be opened"),
        "a folder that exists and can be written, and open files left (such as `ulimit -n 1024`)",
    ),
    ("connection refused", "no server answers", "a running server at this address"),
    ("terminating connection", *_LOST),
    ("server closed the connection", *_LOST),
)
"""Rows of (text in the driver's message, what was found, what was expected)."""


@contextmanager
def errors_of(url: DatabaseUrl) -> Iterator[None]:
    """Convert SQLAlchemy's errors about the database itself into `DatabaseError`s of one line."""
    try:
        yield
    except exc.PendingRollbackError as error:  # an inner transaction, after the connection of the outer one was lost
        raise DatabaseError(f"findings database {url}: {_LOST[0]}, expected {_LOST[1]}") from error
    except UnicodeEncodeError as error:  # of an argument that was typed
        raise InputError(f"found {str(error.object)[:80]!a}, expected text in UTF-8") from error
    except exc.DBAPIError as error:
        failure = _first_failure(error).orig
        if getattr(failure, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise KeyboardInterrupt from error  # a handler of a signal raised it within the query (`_on_connect`)
        message = " ".join(str(failure).split())
        for part, problem, expected in _CAUSES:
            if part in message.lower():
                raise DatabaseError(f"findings database {url}: {problem}, expected {expected}") from error
        raise DatabaseError(f"findings database {url}: {url.hidden_in(message)}") from error


def _first_failure(last: exc.DBAPIError) -> exc.DBAPIError:
    """What failed first. The rollback may fail after it: a full disk ends the whole transaction with its savepoints."""
    first, error = last, last.__context__
    while error is not None:
        first, error = error if isinstance(error, exc.DBAPIError) else first, error.__context__
    return first


def open_engine(url: DatabaseUrl, *, create: bool = True) -> Engine:
    """An engine for the database. Its tables are made if it is new, and it is created unless `create` is False.

    Raises `DatabaseError` if the database cannot be reached or is not one of this version of ddefuzz.
    """
    parsed = url.for_sqlalchemy()
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")  # the driver of the extra `postgres`
    _check_place(url, create=create)
    try:
        own: dict[str, Any] = {"connect_args": {"timeout": BUSY_TIMEOUT_S}, "json_deserializer": _json}
        # A server may have been restarted since the last transaction: its old connections are not used.
        with warnings.catch_warnings():
            warnings.simplefilter("error", exc.SAWarning)  # keys of the URL's query that the driver does not know
            engine = create_engine(parsed, **own if _is_sqlite(parsed) else {"pool_pre_ping": True})
    except (exc.NoSuchModuleError, ModuleNotFoundError) as error:
        raise DatabaseError(f"findings database {url}: found no driver for this kind of database: {error}") from error
    except (exc.ArgumentError, exc.SAWarning, ValueError) as error:  # it may quote the whole URL
        raise InputError(f"findings database {url}: found a URL that its driver does not take") from error
    event.listen(engine, "begin", _on_begin)
    if _is_sqlite(parsed):
        event.listen(engine, "connect", _on_connect)
    with errors_of(url):
        _check_schema(engine, url)
    return engine


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _check_place(url: DatabaseUrl, *, create: bool) -> None:
    path = url.path()
    if path is None:
        return
    if is_file(path):
        _check_file(url, path, create=create)
        return
    if kind := kind_of(path):
        raise DatabaseError(f"findings database {url}: found {kind}, expected a regular file")
    if not create:
        raise DatabaseError(
            f"findings database {url}: found no such file as {real_path(path)}, expected a database: "
            "`ddefuzz run` creates one, or give --db"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatabaseError(f"findings database {url}: its folder cannot be created: {error.strerror}") from error


def _check_file(url: DatabaseUrl, path: Path, *, create: bool) -> None:
    """Refuse a file that is no database of ddefuzz before SQLite changes it: it takes a file of one byte for a new one,
    and turns the journal of another program's database into WAL.
    """
    size = path.stat().st_size
    if size < HEADER_BYTES and not (create and size == 0):
        content = f"a file of {size} bytes" if size else "an empty file"
        raise DatabaseError(f"findings database {url}: found {content}, expected a database")
    if size:
        with errors_of(url), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            try:
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            except (sqlite3.Error, UnicodeDecodeError):  # what is wrong is said when it is opened
                return
        if tables and _REVISIONS not in tables:  # without any, another process may be making them
            raise DatabaseError(f"findings database {url}: {_NO_SCHEMA}")


def _json(stored: Any) -> Any:
    """What a JSON column has. What is no JSON stays as it is, and does not fit its record. So it ends no query."""
    try:
        return json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        return stored


def _text(stored: bytes) -> str | bytes:
    """What a text column has. What is no UTF-8 stays as it is, for the same reason."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def _on_connect(connection: Any, _record: object) -> None:
    # `_on_begin` begins transactions. The driver would begin them later, and deferred.
    connection.isolation_level = None
    connection.text_factory = _text
    # Python runs handlers of signals only when a function of Python runs. Without one, a query that never ends stays.
    connection.set_progress_handler(lambda: 0, _STEPS)
    # With WAL, committed data survives a kill of the process. With NORMAL, a power cut may lose the last commits.
    for pragma in ("foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
        try:
            connection.execute(f"PRAGMA {pragma}").close()
        except UnicodeDecodeError as error:  # the driver cannot decode its own message, which quotes a damaged schema
            raise sqlite3.DatabaseError("malformed database schema") from error


def _on_begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("reads", False)
    if connection.dialect.name == "sqlite":
        # A transaction that begins as a reader and then writes fails at once (SQLITE_BUSY) instead of waiting.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql" and not reads:
        # One writer at a time, as in SQLite: two that record the same signature would else both make a new finding.
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def _check_schema(engine: Engine, url: DatabaseUrl) -> None:
    with engine.connect().execution_options(reads=True) as connection:
        _check_tables(connection, url)
        if _revision(connection) == SCHEMA_REVISION:
            return
    with engine.begin() as connection:  # check again under the lock: another process may have made the tables
        revision = _revision(connection)
        if revision == SCHEMA_REVISION:
            return
        if revision in EXTENDED:
            METADATA.create_all(connection)
            connection.exec_driver_sql(f"UPDATE {_REVISIONS} SET version_num = '{SCHEMA_REVISION}'")
            return
        if revision is None and not inspect(connection).get_table_names():
            METADATA.create_all(connection)
            connection.exec_driver_sql(f"CREATE TABLE {_REVISIONS} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
            connection.exec_driver_sql(f"INSERT INTO {_REVISIONS} VALUES ('{SCHEMA_REVISION}')")
            return
    if revision is None:
        problem = _NO_SCHEMA
    elif revision > SCHEMA_REVISION:
        problem = (
            f"schema {revision} is newer than this ddefuzz ({SCHEMA_REVISION}): upgrade ddefuzz or give another --db"
        )
    else:
        problem = (
            f"schema {revision} is older than this ddefuzz ({SCHEMA_REVISION}): write it as text with the ddefuzz that "
            "made it (`ddefuzz findings export FOLDER`), then read that into a new database with this one "
            "(`ddefuzz findings import FOLDER --db NEW`)"
        )
    raise DatabaseError(f"findings database {url}: {problem}")


def _check_tables(connection: Connection, url: DatabaseUrl) -> None:
    """Refuse a file in which a query runs code that came with it: a view may never end, a trigger may delete rows."""
    if connection.dialect.name == "sqlite":
        names = connection.exec_driver_sql("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')")
        for kind, name in names:
            raise DatabaseError(f"findings database {url}: found the {kind} {str(name)[:80]!r}, expected tables only")


def _revision(connection: Connection) -> str | None:
    """The schema of the database, None if it has no table that says so."""
    if not inspect(connection).has_table(_REVISIONS):
        return None
    revisions = connection.exec_driver_sql(f"SELECT version_num FROM {_REVISIONS}").scalars().all()
    return str(revisions[0]) if len(revisions) == 1 else None


def check(url: DatabaseUrl) -> str:
    """The state of the database in one line, for `doctor`. Raises `DatabaseError` if it cannot be used."""
    engine = open_engine(url)
    with errors_of(url), engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            problems = [row[0] for row in connection.exec_driver_sql("PRAGMA quick_check(3)")]
            if problems != ["ok"]:
                raise DatabaseError(f"findings database {url}: the file is corrupt: {problems[0]}")
        findings = connection.exec_driver_sql("SELECT count(*) FROM findings").scalar_one()
    engine.dispose()
    return f"{url}: schema {SCHEMA_REVISION}, {findings} findings, writable"
