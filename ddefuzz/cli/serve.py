"""`ddefuzz serve`: the dashboard. It never imports torch."""

from __future__ import annotations

import importlib.util

import rich_click as click

from ddefuzz.cli.options import db_option, who_option
from ddefuzz.cli.streams import write_stdout
from ddefuzz.errors import UnsupportedError
from ddefuzz.findings import tokens
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl


@click.command("serve")
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen on. With any other than this machine's own (127.0.0.1, ::1), decisions need a token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=8000,
    show_default=True,
    help="The port to listen on; 0: one that is free.",
)
@click.option("--read-only", is_flag=True, help="Show findings, and accept no decisions.")
@click.option("--token", "with_token", is_flag=True, help="Ask for a token before decisions, on this machine too.")
@click.option(
    "--allow-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name by which the server may be called, such as fuzz.example.org. Addresses and localhost always may. "
    "Can be repeated.",
)
@db_option
@who_option
def command(
    host: str, port: int, read_only: bool, with_token: bool, hosts: tuple[str, ...], db: DatabaseUrl, who: str
) -> None:
    """Show the findings in a browser, and decide on them there.

    The dashboard reads the same database as the other commands, also while a campaign writes to it. It needs the
    extra `web`: pip install 'ddefuzz[web]'. Everyone who can reach the address can read. Ctrl-C ends the server.
    """
    check_extra()
    # Imported here, because importing FastAPI takes longer than most commands.
    from ddefuzz.web.app import listen, serve  # noqa: PLC0415
    from ddefuzz.web.security import Access, is_loopback  # noqa: PLC0415

    needs_token = not read_only and (with_token or not is_loopback(host))
    with Database.open(db, create=False) as database, listen(host, port) as bound:
        shown, used = bound.getsockname()[:2]
        access = Access(
            hosts=frozenset({"localhost", *(name.lower() for name in hosts)}),
            read_only=read_only,
            valid=(lambda: database.read(tokens.tokens)) if needs_token else None,
            by=who,
            cookie=f"ddefuzz-session-{used}",
        )
        address = f"[{shown}]" if ":" in shown else shown

        def begun() -> None:
            click.echo(f"{database.url}{', read only' if read_only else ''}; Ctrl-C ends", err=True)
            if access.valid is not None and not access.valid():
                click.echo("decisions need a token, and there is none: `ddefuzz tokens add NAME` makes one", err=True)
            write_stdout(f"http://{address}:{used}/\n")

        serve(database, access, bound, begun)


def check_extra() -> None:
    """Raise `UnsupportedError` unless the packages of the extra `web` are installed."""
    for package in ("fastapi", "uvicorn", "python_multipart"):
        if importlib.util.find_spec(package) is None:
            raise UnsupportedError(f"found no {package}, expected the extra `web`: pip install 'ddefuzz[web]'")
