"""`ddefuzz findings`: list, show and triage findings. It never imports torch."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import rich_click as click

from ddefuzz.classify.failure import Kind
from ddefuzz.classify.signature import Cause
from ddefuzz.cli.finding_id import resolve
from ddefuzz.cli.findings_page import list_page, show_page
from ddefuzz.cli.layout import counted
from ddefuzz.cli.options import db_option
from ddefuzz.cli.output import deliver, json_writers, output_options
from ddefuzz.cli.reclassify import command as reclassify
from ddefuzz.cli.streams import write_stdout
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CAPTURE_STAGES, Stage
from ddefuzz.findings.database import Database
from ddefuzz.findings.lifecycle import MEANING, STATES, State
from ddefuzz.findings.model import Finding, as_document
from ddefuzz.findings.textform import read_findings, write_findings

DEFAULT_TEXT = Path("findings")

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?(\.(post|dev)\d+)?(\+[\w.]+)?", re.ASCII)
"""A version of torch as `torch.__version__` has it."""

Command = TypeVar("Command", bound=Callable[..., Any])


def who_option(command: Command) -> Command:
    """The option for the name in the history."""
    return click.option(
        "--by", "who", default=_user, metavar="NAME", help="Name for the history. Default: your user name."
    )(command)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # some containers have no entry for the user
        return "unknown"


def _now() -> datetime:
    return datetime.now(UTC)


def _versions(context: click.Context, parameter: click.Parameter, typed: tuple[str, ...]) -> tuple[str, ...]:
    for one in typed:
        if not VERSION.fullmatch(one):
            raise click.BadParameter(f"found {one!r}, expected a version of torch such as 2.14.0", context, parameter)
    return typed


@click.group("findings")
def command() -> None:
    """List, show and triage findings."""


@command.command("list")
@db_option
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    metavar="STATE",
    multiple=True,
    help=f"Only findings in this state: {', '.join(STATES)}. Can be repeated.",
)
@click.option(
    "--cause",
    "causes",
    type=click.Choice(get_args(Cause)),
    metavar="CAUSE",
    multiple=True,
    help=f"Only findings with this cause: {', '.join(get_args(Cause))}. The README explains them. Can be repeated.",
)
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(get_args(Kind)),
    metavar="KIND",
    multiple=True,
    help=f"Only findings of this kind: {', '.join(get_args(Kind))}. Can be repeated.",
)
@click.option(
    "--op",
    "ops",
    multiple=True,
    metavar="OP",
    help="Only findings that this function reaches, such as torch.chunk. Can be repeated.",
)
@click.option(
    "--all", "all_", is_flag=True, help="Also list findings that do not depend on data. JSON always has them."
)
@output_options("text", "json", "jsonl")
def list_(
    db: str,
    states: tuple[str, ...],
    causes: tuple[str, ...],
    kinds: tuple[str, ...],
    ops: tuple[str, ...],
    all_: bool,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """List the findings.

    A finding does not depend on data if its smallest program also fails in the same way with static sizes or with
    backed dynamic sizes. The table leaves such findings out and counts them. JSON has them, with "data_dependent":
    false.
    """
    with Database.open(db, create=False) as database:
        everything = database.findings()
        found = [
            finding
            for finding in everything
            if (not states or finding.state in states)
            and (not causes or finding.cause in causes)
            and (not kinds or finding.kind in kinds)
            and (not ops or set(ops) & set(finding.ops))
        ]
    found.sort(key=lambda finding: (finding.kind, finding.cause, finding.site.language, str(finding.site), finding.id))
    listed = [finding for finding in found if all_ or finding.data_dependent is not False]
    left_out = len(found) - len(listed)
    documents = json_writers([as_document(one) for one in found])
    typed = {"--state": states, "--cause": causes, "--kind": kinds, "--op": ops}
    filters = shlex.join(word for option, values in typed.items() for value in values for word in (option, value))
    writers = {"text": lambda page: list_page(listed, page, left_out, filters, len(everything)), **documents}
    deliver(writers, format_, outputs)


@command.command("show")
@click.argument("finding_id", metavar="ID")
@click.option(
    "--repro",
    is_flag=True,
    help="Print a stand-alone script. It needs only torch, and exits with code 1 if this failure occurs.",
)
@click.option(
    "--snippet", is_flag=True, help="Print at most 15 lines for an issue: the function, its inputs, one capture."
)
@click.option("--minimal", is_flag=True, help="Print the smallest program, as a case file for `check`.")
@click.option("--original", is_flag=True, help="Print the program with which the failure was found.")
@click.option(
    "--stage",
    type=click.Choice(CAPTURE_STAGES),
    metavar="STAGE",
    help="Stage of the script. Default: the stage in which the smallest program was confirmed.",
)
@db_option
@output_options("text", "json")
def show(
    finding_id: str,
    repro: bool,
    snippet: bool,
    minimal: bool,
    original: bool,
    stage: Stage | None,
    db: str,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Show one finding. The first characters of its ID are enough if no other ID begins with them."""
    with Database.open(db, create=False) as database:
        finding = resolve(database, finding_id)
    for former in finding.former:
        if finding_id in former and finding_id not in finding.id:
            click.echo(f"{former} is now {finding.id}", err=True)
    if repro:
        # Imported here, because it imports black, which takes longer than the rest of the command.
        from ddefuzz.repro.finding import finding_script  # noqa: PLC0415

        write_stdout(finding_script(finding, stage))
    elif snippet:
        # Imported here for the same reason: it imports the table of ops.
        from ddefuzz.repro.snippet import finding_snippet  # noqa: PLC0415

        write_stdout(finding_snippet(finding, stage))
    elif minimal or original:
        write_stdout(_program(finding, minimal=minimal))
    else:
        one_line = json_writers([as_document(finding)])["jsonl"]
        writers = {"text": lambda page: show_page(finding, page), "json": one_line}
        deliver(writers, format_, outputs)


def _program(finding: Finding, *, minimal: bool) -> str:
    text = finding.minimal if minimal else finding.original
    if text is None:
        missing = (
            "smallest program yet, expected one: run `ddefuzz minimize`" if minimal else "program: it is of user code"
        )
        raise InputError(f"{finding.id}: found no {missing}")
    return text


@command.command("set")
@click.argument("finding_id", metavar="ID")
@click.argument("state", type=click.Choice([state for state in STATES if state != "dup"]), required=False)
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
@db_option
@who_option
def set_(
    finding_id: str,
    state: State | None,
    fixed_in: tuple[str, ...],
    cause: Cause | None,
    title: str | None,
    db: str,
    who: str,
) -> None:
    """Change the state, cause or title of a finding.

    Each change is kept in the history, with the value before it. To undo a change, set that value again; an empty
    --title sets the title that ddefuzz makes.
    """
    if state is None and cause is None and title is None:
        raise click.UsageError("found nothing to set, expected a STATE, --cause or --title")
    if fixed_in and state != "fixed":
        raise click.UsageError("found --in, expected it with the state fixed: `findings set ID fixed --in VERSION`")
    when = _now()
    with Database.open(db, create=False) as database, database.transaction():
        finding = resolve(database, finding_id)
        if state is not None:
            database.set_state(finding.id, state, who=who, when=when, fixed_in=fixed_in)
        if cause is not None:
            database.set_cause(finding.id, cause, who=who, when=when)
        if title is not None:
            database.set_title(finding.id, title, who=who, when=when)
        after = database.get(finding.id)
    parts = [
        f"{finding.state} → {_state_of(after)}" if state else "",
        f"cause {finding.cause} → {cause}" if cause else "",
        f"title {after.title}" if title is not None else "",
    ]
    _say(finding.id, "; ".join(part for part in parts if part))


def _state_of(finding: Finding) -> str:
    """The state for people, with the versions in which it is fixed."""
    if finding.state != "fixed":
        return f"{finding.state} ({MEANING[finding.state]})"
    if finding.fixed_in:
        return f"fixed in {', '.join(finding.fixed_in)} (a failure in one of them is a new finding)"
    return "fixed in all versions of torch (a failure in any is a new finding); name some with --in 2.14.0"


@command.command("note")
@click.argument("finding_id", metavar="ID")
@click.argument("text")
@db_option
@who_option
def note(finding_id: str, text: str, db: str, who: str) -> None:
    """Add a note to a finding."""
    with Database.open(db, create=False) as database, database.transaction():
        finding = resolve(database, finding_id)
        database.note(finding.id, text, who=who, when=_now())
    _say(finding.id, f"noted: {text}")


@command.command("dup")
@click.argument("finding_id", metavar="ID")
@click.argument("of", metavar="OF")
@db_option
@who_option
def dup(finding_id: str, of: str, db: str, who: str) -> None:
    """Mark finding ID as a duplicate of finding OF."""
    with Database.open(db, create=False) as database, database.transaction():
        finding, original = resolve(database, finding_id), resolve(database, of)
        database.dup(finding.id, original.id, who=who, when=_now())
    _say(finding.id, f"a duplicate of {original.id}")


@command.command("undup")
@click.argument("finding_id", metavar="ID")
@db_option
@who_option
def undup(finding_id: str, db: str, who: str) -> None:
    """Undo `findings dup`."""
    with Database.open(db, create=False) as database, database.transaction():
        finding = resolve(database, finding_id)
        database.undup(finding.id, who=who, when=_now())
        state = database.get(finding.id).state
    _say(finding.id, f"no duplicate of {finding.duplicate_of}; again {state}")


@command.command("link")
@click.argument("finding_id", metavar="ID")
@click.argument("url")
@db_option
@who_option
def link(finding_id: str, url: str, db: str, who: str) -> None:
    """Add the URL of an issue or pull request to a finding."""
    if not url.startswith(("https://", "http://")):
        raise InputError(f"URL: found {url!r}, expected one that starts with https://")
    with Database.open(db, create=False) as database, database.transaction():
        finding = resolve(database, finding_id)
        database.link(finding.id, url, who=who, when=_now())
    _say(finding.id, f"linked to {url}")


@command.command("export")
@click.argument("folder", type=click.Path(path_type=Path), default=DEFAULT_TEXT, required=False)
@db_option
def export(folder: Path, db: str) -> None:
    """Write the findings as text files for review.

    Each finding gets a folder in FOLDER (default: findings). FOLDER/known.toml has the decisions.
    """
    with Database.open(db, create=False) as database:
        found = database.findings()
    write_findings(found, folder)
    click.echo(f"{counted(len(found), 'finding')} written to {folder}", err=True)


@command.command("import")
@click.argument("folder", type=click.Path(path_type=Path), default=DEFAULT_TEXT, required=False)
@db_option
def import_(folder: Path, db: str) -> None:
    """Add findings from text files to the database.

    FOLDER is one that `findings export` wrote (default: findings). Importing it twice changes nothing.
    """
    found = read_findings(folder, _now())
    with Database.open(db) as database:
        database.merge(found)
    click.echo(f"{counted(len(found), 'finding')} read from {folder}", err=True)


@command.command("merge")
@click.argument("others", metavar="URL...", nargs=-1, required=True)
@db_option
def merge(others: tuple[str, ...], db: str) -> None:
    """Add the findings and guard sites of other databases.

    Use it to join the databases of shards. The order of URLs does not matter.
    """
    with Database.open(db) as database, database.transaction():
        before = {finding.id for finding in database.findings()}
        for url in others:
            with Database.open(url if "://" in url else f"sqlite:///{url}", create=False) as other:
                database.merge(other.findings())
                for version in other.torch_versions():
                    database.merge_sites(version, other.sites(version))
        after = {finding.id for finding in database.findings()}
    click.echo(f"{counted(len(after), 'finding')}, {len(after - before)} of them new", err=True)


command.add_command(reclassify)


def _say(finding_id: str, what: str) -> None:
    click.echo(f"{finding_id}: {what}", err=True)
