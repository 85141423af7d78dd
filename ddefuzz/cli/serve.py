"""`ddefuzz serve`, and `ddefuzz tokens` of who may decide there. They never import torch."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime

import rich_click as click

from ddefuzz.cli.command import argument, click_command, option
from ddefuzz.cli.options import DB, WHO
from ddefuzz.cli.streams import say, write_line, write_stdout
from ddefuzz.errors import UnsupportedError
from ddefuzz.escape import visible
from ddefuzz.files import to_install
from ddefuzz.findings import tokens as stored
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl


@click_command("serve")
def command(
    host: str = option(
        "The address to listen on. With any other than this machine's own (127.0.0.1, ::1), decisions need a token.",
        default="127.0.0.1",
        metavar="ADDRESS",
    ),
    port: int = option(
        "The port to listen on; 0: one that is free.", default=8000, type_=click.IntRange(0, 65535), metavar="N"
    ),
    read_only: bool = option("Show findings, and accept no decisions."),
    with_token: bool = option("Ask for a token before decisions, on this machine too.", "--token"),
    hosts: tuple[str, ...] = option(
        "A name by which the server may be called, such as fuzz.example.org. Addresses and localhost always may.",
        "--allow-host",
        metavar="NAME",
    ),
    filters: tuple[str, ...] = option(
        "A filter that the list of findings has a link for, such as 'mine?owner=ada&sort=last'. QUERY is what the "
        "address of a list has after its ?. `serve.filters` in ddefuzz.toml is a list of them.",
        "--filter",
        metavar="NAME?QUERY",
    ),
    db: DatabaseUrl = DB,
    who: str = WHO,
) -> None:
    """Show the findings in a browser, and decide on them there.

    The dashboard reads the same database as the other commands, also while a campaign writes to it. It needs the
    extra `web`: pip install 'ddefuzz[web]'. Everyone who can reach the address can read. Ctrl-C ends the server.
    """
    for package in ("fastapi", "uvicorn", "python_multipart"):
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(f"found no {package}, expected the extra `web`: {to_install('web')}")
    # Imported here, because importing FastAPI takes longer than most commands.
    from ddefuzz.web.app import listen, serve  # noqa: PLC0415
    from ddefuzz.web.findings import saved_filter  # noqa: PLC0415
    from ddefuzz.web.security import Access, is_loopback  # noqa: PLC0415

    named = dict(map(saved_filter, filters))
    needs_token = not read_only and (with_token or not is_loopback(host))
    with Database.open(db, create=False) as database, listen(host, port) as bound:
        shown, used = bound.getsockname()[:2]
        access = Access(
            hosts=frozenset({"localhost", *(name.lower() for name in hosts)}),
            read_only=read_only,
            valid=(lambda: database.read(stored.tokens)) if needs_token else None,
            by=who,
            cookie=f"ddefuzz-session-{used}",
        )
        address = f"[{shown}]" if ":" in shown else shown

        def begun() -> None:
            say(f"{database.url}{', read only' if read_only else ''}; Ctrl-C ends")
            if access.valid is not None and not access.valid():
                say("decisions need a token, and there is none: `ddefuzz tokens add NAME` makes one")
            write_stdout(f"http://{address}:{used}/\n")

        serve(database, access, bound, begun, named)


@click.group("tokens")
def tokens() -> None:
    """Make, list and revoke the tokens with which people decide in the dashboard.

    Each person has a token of their own, and the history names its owner. All servers of a database accept its tokens.
    """


@click_command("add", tokens)
def add(
    name: str = argument(),
    db: DatabaseUrl = DB,
) -> None:
    """Make a token for NAME, and print it. It is not stored, so it cannot be shown again."""
    with Database.open(db, create=False) as database:
        token = database.write(lambda session: stored.add(session, name, datetime.now(UTC)))
    write_stdout(f"{token}\n")
    say(f"token of {name}, to type at /login; it is not shown again")


@click_command("list", tokens)
def list_(
    db: DatabaseUrl = DB,
) -> None:
    """List the names that have a token, and when it was made."""
    with Database.open(db, create=False) as database:
        tokens_ = database.read(stored.tokens)
    names = [visible(token.name, "") for token in tokens_]
    width = max(map(len, names), default=0)
    for name, token in zip(names, tokens_, strict=True):
        write_line(f"{name:{width}}  {token.made}")
    if not tokens_:
        say("no tokens; `ddefuzz tokens add NAME` makes one")


@click_command("revoke", tokens)
def revoke(
    name: str = argument(),
    db: DatabaseUrl = DB,
) -> None:
    """Make the token of NAME invalid. All sessions that logged in with it end at once, on all servers."""
    with Database.open(db, create=False) as database:
        database.write(lambda session: stored.revoke(session, name))
    say(f"token of {name} revoked; its sessions have ended")
