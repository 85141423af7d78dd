"""The commands of `ddefuzz findings` that decide, made from the table of decisions. Options of the history."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import rich_click as click

from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.options import db_option
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, FINDING, By, Decision, Value
from ddefuzz.findings.url import DatabaseUrl

Command = TypeVar("Command", bound=Callable[..., Any])

why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the history.")


def who_option(command: Command) -> Command:
    """The option for the name in the history."""
    return click.option(
        "--by", "who", default=user, metavar="NAME", help="Name for the history. Default: your user name."
    )(command)


def user() -> str:
    """The name of who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # some containers have no entry for the user
        return "unknown"


def now() -> datetime:
    """The time of a decision."""
    return datetime.now(UTC)


def commands(rows: Sequence[Decision] = DECISIONS) -> Iterable[click.Command]:
    """`set`, with the states and an option for each field, and a command for each other decision."""
    yield _set(rows)
    yield from (_command(row) for row in rows if row.group == "command")


def _set(rows: Sequence[Decision]) -> click.Command:
    states = {row.name: row for row in rows if row.group == "state"}
    fields = [row for row in rows if row.group == "field"]
    options = [(row, row.value) for row in (*states.values(), *fields) if row.value is not None and row.value.option]

    def decide(
        finding_id: str, state: str | None, db: DatabaseUrl, who: str, why: str, **given: str | tuple[str, ...] | None
    ) -> None:
        typed = {
            row.name: " ".join(text) if isinstance(text, tuple) else text
            for row, value in options
            if (text := given[value.name]) not in (None, ())
        }
        for row, value in options:
            if row.group == "state" and row.name in typed and row.name != state:
                raise click.UsageError(
                    f"found {value.option}, expected it with the state {row.name}: "
                    f"`findings set ID {row.name} {value.option} {value.metavar}`"
                )
        chosen = [*([] if state is None else [states[state]]), *(row for row in fields if row.name in typed)]
        if not chosen:
            raise click.UsageError("found nothing to set, expected a STATE, or an option such as --cause or --owner")
        _decide(db, finding_id, [(row, typed.get(row.name)) for row in chosen], By(who, now(), why))

    command = click.command("set", help=_SET_HELP.format(states=", ".join(states)))(why_option(who_option(decide)))
    command.params[:0] = [
        click.Argument(["finding_id"], metavar="ID"),
        click.Argument(["state"], metavar="[STATE]", type=click.Choice(list(states)), required=False),
        *(_option(value) for _, value in options),
    ]
    return db_option(command)


_SET_HELP = """\
Change what people decide about a finding: its state, cause, title, owner, priority and labels.

The states are: {states}. `findings dup` sets the state duplicate. Each change is kept in the history, with the value
before it; `findings undo` reverses it.
"""


def _option(value: Value) -> click.Option:
    def check(context: click.Context, parameter: click.Parameter, typed: Any) -> Any:
        try:
            for text in typed if value.many else filter(None, [typed]):
                value.check(text)
        except InputError as error:
            raise click.BadParameter(str(error), context, parameter) from error
        return typed

    return click.Option(
        [value.option, value.name],
        type=click.Choice(value.choices) if value.choices else None,
        multiple=value.many,
        metavar=value.metavar,
        callback=check,
        help=value.help,
    )


def _command(row: Decision) -> click.Command:
    def decide(finding_id: str, db: DatabaseUrl, who: str, why: str = "", **given: str) -> None:
        _decide(db, finding_id, [(row, next(iter(given.values()), None))], By(who, now(), why))

    options = who_option(why_option(decide) if row.has_reason else decide)
    command = click.command(row.name, help=row.help)(options)
    value = [] if row.value is None else [click.Argument([row.value.name], metavar=row.value.metavar)]
    command.params[:0] = [click.Argument(["finding_id"], metavar="ID"), *value]
    return db_option(command)


def _decide(db: DatabaseUrl, finding_id: str, typed: Sequence[tuple[Decision, str | None]], by: By) -> None:
    with Database.open(db, create=False) as database, database.transaction():
        before = resolve(database, finding_id)
        known = [(row, resolve(database, text or "").id if row.value is FINDING else text) for row, text in typed]
        after = database.apply(before.id, known, by)
    say(f"{after.id}: {'; '.join(row.said(before, after) for row, _ in typed)}")
