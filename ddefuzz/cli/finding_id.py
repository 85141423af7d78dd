"""Find the finding whose id a user typed."""

from __future__ import annotations

from ddefuzz.cli.invocation import current_invocation
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, UnknownFindingError


def resolve(database: Database, typed: str) -> Finding:
    """The finding. The error for an unknown id names the command that lists the ids of this database."""
    try:
        return database.resolve(typed)
    except UnknownFindingError as error:
        raise InputError(f"{error}; `{current_invocation().command('findings', 'list')}` shows all") from error
