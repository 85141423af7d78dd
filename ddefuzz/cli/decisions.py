"""The commands of `ddefuzz findings` that change what people decide: set, note, dup, undup, link, undo."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar, get_args

import rich_click as click

from ddefuzz.classify.signature import Cause
from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.options import db_option
from ddefuzz.cli.streams import say
from ddefuzz.errors import InputError
from ddefuzz.findings import decisions
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import By, changed, parse_date, text_of
from ddefuzz.findings.lifecycle import ROWS, STATES, State
from ddefuzz.findings.model import Finding, Priority
from ddefuzz.findings.typed import LABEL, VERSION, checked_url, labelled
from ddefuzz.findings.url import DatabaseUrl

Command = TypeVar("Command", bound=Callable[..., Any])


def by_options(command: Command) -> Command:
    """The options for what the history says of a change."""
    command = click.option("--why", default="", metavar="TEXT", help="The reason, for the history.")(command)
    return who_option(command)


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


def _versions(context: click.Context, parameter: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    for one in typed:
        if not VERSION.fullmatch(one):
            raise click.BadParameter(f"found {one!r}, expected a version of torch such as 2.14.0", context, parameter)
    return typed


def _labels(context: click.Context, parameter: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    for one in typed:
        if not LABEL.fullmatch(one):
            raise click.BadParameter(
                f"found {one!r}, expected a word such as backward or -backward", context, parameter
            )
    return typed


def _date(context: click.Context, parameter: click.Parameter, typed: str | None) -> str | None:
    try:
        return parse_date(typed).isoformat() if typed else typed
    except InputError as error:
        raise click.BadParameter(str(error), context, parameter) from error


@click.command("set")
@click.argument("finding_id", metavar="ID")
@click.argument(
    "state", metavar="[STATE]", type=click.Choice([one for one in STATES if one != "duplicate"]), required=False
)
@click.option(
    "--in",
    "fixed_in",
    multiple=True,
    metavar="VERSION",
    callback=_versions,
    help="With the state fixed: a version of torch in which it is fixed, such as 2.14.0. Can be repeated. If the "
    "finding is fixed already, the version is added. Default: all versions.",
)
@click.option("--cause", type=click.Choice(get_args(Cause)), metavar="CAUSE", help="Replace the cause.")
@click.option("--title", help="Replace the title.")
@click.option("--owner", metavar="NAME", help="Who works on it. Empty for nobody.")
@click.option("--priority", type=click.Choice(get_args(Priority)), metavar="P", help="high, medium, low, or empty.")
@click.option(
    "--label", "labels", multiple=True, metavar="L", callback=_labels, help="Add a label; -L removes it. Repeatable."
)
@click.option(
    "--expires",
    metavar="DATE",
    callback=_date,
    help="The last day on which the decision holds, such as 2027-01-31. A campaign then counts the finding as new. "
    "Empty for no end.",
)
@click.option(
    "--known-in",
    "known_in",
    multiple=True,
    metavar="VERSION",
    callback=_versions,
    help="A version of torch for which the decision holds. Can be repeated. Default: all versions.",
)
@db_option
@by_options
def set_(
    finding_id: str,
    state: State | None,
    fixed_in: tuple[str, ...],
    cause: Cause | None,
    title: str | None,
    owner: str | None,
    priority: Priority | None,
    labels: tuple[str, ...],
    expires: str | None,
    known_in: tuple[str, ...],
    db: DatabaseUrl,
    who: str,
    why: str,
) -> None:
    """Change what people decide about a finding: its state, cause, title, owner, priority and labels.

    The states are: new, triaged, reported, fix-pending, fixed, by-design, wont-fix, invalid and flaky. `findings dup`
    sets the state duplicate. Each change is kept in the history, with the value before it; `findings undo` reverses it.
    """
    given = {
        "cause": cause,
        "given_title": title,
        "owner": owner,
        "priority": priority,
        "expires": expires,
        "known_in": known_in or None,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    if state is None and not fields and not labels:
        raise click.UsageError("found nothing to set, expected a STATE, or an option such as --cause or --owner")
    if fixed_in and state != "fixed":
        raise click.UsageError("found --in, expected it with the state fixed: `findings set ID fixed --in VERSION`")
    by = By(who, now(), why)

    def decision(finding: Finding) -> Finding:
        if state is not None:
            finding = decisions.set_state(finding, state, by, fixed_in)
        return changed(finding, by, **fields, labels=labelled(finding.labels, labels))

    with Database.open(db, create=False) as database, database.transaction():
        before = resolve(database, finding_id)
        after = database.decide(before.id, decision)
    parts = [f"state {before.state} → {_state_of(after)}"] if state else []
    parts += [
        f"{name.removeprefix('given_')} {_shown(before, name)} → {_shown(after, name)}"
        for name in (*fields, *(("labels",) if labels else ()))
    ]
    _say(after.id, "; ".join(parts))


def _shown(finding: Finding, field: str) -> str:
    return text_of(getattr(finding, field)) or "-"


def _state_of(finding: Finding) -> str:
    """The state for people, with the versions in which it is fixed."""
    if finding.state != "fixed":
        return f"{finding.state} ({ROWS[finding.state].meaning})"
    if finding.fixed_in:
        return f"fixed in {', '.join(finding.fixed_in)} (a failure in one of them is a new finding)"
    return "fixed in all versions of torch (a failure in any is a new finding); name some with --in 2.14.0"


@click.command("note")
@click.argument("finding_id", metavar="ID")
@click.argument("text")
@db_option
@who_option
def note(finding_id: str, text: str, db: DatabaseUrl, who: str) -> None:
    """Add a note to a finding."""
    finding = _decided(db, finding_id, lambda finding: decisions.note(finding, text, By(who, now())))
    _say(finding.id, f"noted: {text}")


@click.command("dup")
@click.argument("finding_id", metavar="ID")
@click.argument("of", metavar="OF")
@db_option
@by_options
def dup(finding_id: str, of: str, db: DatabaseUrl, who: str, why: str) -> None:
    """Mark finding ID as a duplicate of finding OF."""
    with Database.open(db, create=False) as database, database.transaction():
        finding, original = resolve(database, finding_id), resolve(database, of)
        database.dup(finding.id, original.id, By(who, now(), why))
    _say(finding.id, f"a duplicate of {original.id}")


@click.command("undup")
@click.argument("finding_id", metavar="ID")
@db_option
@by_options
def undup(finding_id: str, db: DatabaseUrl, who: str, why: str) -> None:
    """Undo `findings dup`."""
    finding = _decided(db, finding_id, lambda finding: decisions.undup(finding, By(who, now(), why)))
    _say(finding.id, f"no duplicate any more; again {finding.state}")


@click.command("link")
@click.argument("finding_id", metavar="ID")
@click.argument("url")
@db_option
@by_options
def link(finding_id: str, url: str, db: DatabaseUrl, who: str, why: str) -> None:
    """Add the URL of an issue, pull request or commit to a finding."""
    finding = _decided(db, finding_id, lambda finding: decisions.link(finding, checked_url(url), By(who, now(), why)))
    _say(finding.id, f"linked to {url}")


@click.command("undo")
@click.argument("finding_id", metavar="ID")
@db_option
@who_option
def undo(finding_id: str, db: DatabaseUrl, who: str) -> None:
    """Reverse the latest decision on a finding. Repeat it to reverse the one before.

    The history keeps the decision and its reversal. Notes are not reversed.
    """
    finding = _decided(db, finding_id, lambda finding: decisions.undo(finding, By(who, now())))
    latest = max(entry.when for entry in finding.history)
    changes = [entry for entry in finding.history if entry.when == latest]
    _say(finding.id, "; ".join(f"{one.field} {one.before or '-'} → {one.after or '-'}" for one in changes))


def _decided(db: DatabaseUrl, finding_id: str, decision: Callable[[Finding], Finding]) -> Finding:
    with Database.open(db, create=False) as database, database.transaction():
        return database.decide(resolve(database, finding_id).id, decision)


def _say(finding_id: str, what: str) -> None:
    say(f"{finding_id}: {what}")


DECISIONS: tuple[click.Command, ...] = (set_, note, dup, undup, link, undo)
