"""`ddefuzz bisect`: between which versions of torch a finding changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import rich_click as click

from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.interpreters import interpreters_of, pythons_option
from ddefuzz.cli.options import db_option, trust_option
from ddefuzz.cli.output import deliver, json_writers, output_options
from ddefuzz.cli.progress import LiveLine
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.versions.model import Cell, Interpreter
from ddefuzz.versions.run import bisected

SCHEMA = "ddefuzz.bisect/1"


@click.command("bisect")
@click.argument("finding_id", metavar="ID")
@pythons_option
@trust_option
@db_option
@output_options("text", "json", "jsonl")
def command(
    finding_id: str,
    pythons: tuple[str, ...],
    trust: bool,
    db: DatabaseUrl,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Find the two versions of torch between which a finding was fixed, moved or appeared.

    The finding's stand-alone script runs under the oldest and the newest interpreter. A binary search chooses among
    those between them.
    """
    with Database.open(db, create=False) as database:
        finding = resolve(database, finding_id)
    interpreters = interpreters_of(pythons)
    if len(interpreters) < 2:
        raise InputError("--python: found one interpreter, expected at least two")
    with LiveLine(f"{finding.id} under {len(interpreters)} interpreters") as live:

        def listen(interpreter: Interpreter, cell: Cell) -> None:
            live.say(f"{interpreter.name}: {cell.status}")

        document = {"schema": SCHEMA, **bisected(finding, interpreters, listen, trust=trust)}
    plain: dict[str, Any] = msgspec.to_builtins(document)
    deliver({"text": lambda _page: bisect_page(plain), **json_writers([plain])}, format_, outputs)


def bisect_page(document: dict[str, Any]) -> str:
    """What was found, in one sentence."""
    first, last = document["first"], document["last"]
    if document["before"] is None:
        return f"{document['finding']}: {first} in the oldest and in the newest: no change to look for\n"
    return (
        f"{document['finding']}: {first} up to {document['before']}, {document['runs'][document['after']]['status']} "
        f"from {document['after']} (newest: {last})\n"
    )
