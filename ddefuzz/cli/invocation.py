"""How the user calls ddefuzz, so that the commands that a page prints work when pasted."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import rich_click as click
from click.core import ParameterSource

from ddefuzz.cli.command import DEFAULT_DB
from ddefuzz.errors import InputError
from ddefuzz.escape import shell_word
from ddefuzz.files import is_there, real_path
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, UnknownFindingError
from ddefuzz.findings.url import parse_url
from ddefuzz.show.blocks import Invocation


def current_invocation() -> Invocation:
    """The invocation of this process and of the command that it runs."""
    context = click.get_current_context(silent=True)
    program = program_words(sys.argv[0], sys.executable, Path.cwd(), os.environ.get("PATH", ""))
    python = _shortest(Path(sys.executable), Path.cwd(), os.environ.get("PATH", ""))
    return Invocation(program, python, typed_db(context) if context is not None else "")


def program_words(called: str, python: str, folder: Path, search: str) -> str:
    """The words that start ddefuzz again in `folder`, shell-quoted.

    `called` is `sys.argv[0]`: the path of the script `ddefuzz`, or of a module if Python was called with one. In the
    second case the script next to Python is named, if there is one.
    """
    script = Path(called)
    if script.name != "ddefuzz":
        script = Path(python).parent / "ddefuzz"
        if not is_there(script):
            return "ddefuzz"
    elif not script.is_absolute():
        return shell_word(called)
    return _shortest(script, folder, search)


def _shortest(program: Path, folder: Path, search: str) -> str:
    """The bare name if PATH leads to this program, else its path, relative if it is below `folder`."""
    on_path = shutil.which(program.name, path=search)
    # Folders are compared, because the python of a virtual environment is a link to another one.
    if on_path is not None and real_path(Path(on_path).parent) == real_path(program.parent):
        return program.name
    below = program.is_relative_to(folder)
    return shell_word(str(program.relative_to(folder) if below else program))


def typed_db(context: click.Context) -> str:
    """The database that was typed, if a command without `--db` would use another one."""
    if context.get_parameter_source("db") is not ParameterSource.COMMANDLINE:
        return ""
    db = context.params.get("db")
    return "" if db == (context.lookup_default("db") or parse_url(DEFAULT_DB)) else str(db or "")


def resolve(database: Database, typed: str) -> Finding:
    """The finding of a typed id. The error for an unknown one names the command that lists those of this database."""
    try:
        return database.resolve(typed)
    except UnknownFindingError as error:
        raise InputError(f"{error}; `{current_invocation().command('findings', 'list')}` shows all") from error
