"""`ddefuzz tokens`: who may decide in the dashboard. It never imports torch."""

from __future__ import annotations

from datetime import UTC, datetime

import rich_click as click

from ddefuzz.cli.options import db_option
from ddefuzz.cli.streams import write_stdout
from ddefuzz.findings import tokens
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl


@click.group("tokens")
def command() -> None:
    """Make, list and revoke the tokens with which people decide in the dashboard.

    Each person has a token of their own, and the history names its owner. All servers of a database accept its tokens.
    """


@command.command("add")
@click.argument("name")
@db_option
def add(name: str, db: DatabaseUrl) -> None:
    """Make a token for NAME, and print it. It is not stored, so it cannot be shown again."""
    with Database.open(db, create=False) as database:
        token = database.write(lambda session: tokens.add(session, name, datetime.now(UTC)))
    write_stdout(f"{token}\n")
    click.echo(f"token of {name}, to type at /login; it is not shown again", err=True)


@command.command("list")
@db_option
def list_(db: DatabaseUrl) -> None:
    """List the names that have a token, and when it was made."""
    with Database.open(db, create=False) as database:
        found = database.read(tokens.tokens)
    width = max((len(token.name) for token in found), default=0)
    write_stdout("".join(f"{token.name:{width}}  {token.made}\n" for token in found))
    if not found:
        click.echo("no tokens; `ddefuzz tokens add NAME` makes one", err=True)


@command.command("revoke")
@click.argument("name")
@db_option
def revoke(name: str, db: DatabaseUrl) -> None:
    """Make the token of NAME invalid. All sessions that logged in with it end at once, on all servers."""
    with Database.open(db, create=False) as database:
        database.write(lambda session: tokens.revoke(session, name))
    click.echo(f"token of {name} revoked; its sessions have ended", err=True)
