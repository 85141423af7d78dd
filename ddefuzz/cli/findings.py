"""`ddefuzz findings`: list, show and triage findings. It never imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import rich_click as click

from ddefuzz.classify.signature import Cause
from ddefuzz.cli.command import URL_OR_PATH, Output, argument, click_command, formats, option
from ddefuzz.cli.options import DB, WHO, WHY, capture_stage_option, now
from ddefuzz.cli.output import current_invocation, deliver, json_writers, page_writers, resolve
from ddefuzz.cli.streams import say, write_stdout
from ddefuzz.errors import InputError, RowError, refused
from ddefuzz.escape import block, shell_words
from ddefuzz.execute.protocol import Stage
from ddefuzz.findings import listing
from ddefuzz.findings.database import Database
from ddefuzz.findings.decisions import DECISIONS, FINDING, By, Decision, Value
from ddefuzz.findings.inventory import installed_package
from ddefuzz.findings.lifecycle import STATES, State
from ddefuzz.findings.listing import results
from ddefuzz.findings.merge import merged_site, only_observed, reclassified
from ddefuzz.findings.model import Finding, FindingSummary, as_document
from ddefuzz.findings.textform import as_decided, check_findings, read_findings, write_findings
from ddefuzz.findings.url import DatabaseUrl, without_passwords
from ddefuzz.oracles.capture import classify
from ddefuzz.oracles.table import kinds, severity_rank
from ddefuzz.show.blocks import (
    counted,
)
from ddefuzz.show.findings import (
    COLUMNS,
    OF_IMPACT,
    changes_view,
    impact,
    list_view,
    show_view,
)
from ddefuzz.sweep.siblings import SCHEMA as SIBLING
from ddefuzz.sweep.siblings import forms_of_findings, siblings_view
from ddefuzz.sweep.siblings import siblings as siblings_of
from ddefuzz.versions.model import status_by_version

SCHEMA = "ddefuzz.reclassify/1"


@click_command("reclassify")
def reclassify(
    write: bool = option("Save the changes."),
    drop_unobserved: bool = option(
        "Remove occurrences without a stored failure, except those of the smallest program."
    ),
    db: DatabaseUrl = DB,
    output: Output = formats("text", "markdown", "html", "json", "jsonl"),
) -> None:
    """Apply the current rules of classification to the stored failures, and print what changes.

    A finding can get another site and so another id, merge with another finding, split, or get another cause.
    Decisions, notes and links are kept. `findings show OLD_ID` still finds what an old id became. Without --write
    nothing is saved.
    """
    with Database.open(db, create=False) as database, database.transaction():
        before = database.findings()
        if write and refused():  # a finding that moves might replace one of them
            raise RowError(f"{refused()[0]}, expected a row that can be read, because all findings are written")
        kept = tuple(map(only_observed, before)) if drop_unobserved else before
        result = reclassified(kept, classify, datetime.now(UTC))
        if write:
            database.put(result.findings, result.gone)
    rows = [msgspec.to_builtins(change) for change in result.changes]
    document = {"schema": SCHEMA, "written": write, **msgspec.to_builtins(result.counts), "changes": rows}
    view = changes_view(result, written=write)
    pages = page_writers("Changes by the rules of classification", view, document, indent=True)
    deliver(json_writers(rows) | pages, output)


DEFAULT_TEXT = Path("findings")


@click.group("findings")
def command() -> None:
    """List, show and triage findings."""


@click_command("list", command)
def list_(
    db: DatabaseUrl = DB,
    states: tuple[State, ...] = option(f"Only findings in this state: {', '.join(STATES)}."),
    open_: bool = option(
        "Only findings with something left to do: not fixed yet in every version of torch in which findings of this "
        "database were seen."
    ),
    causes: tuple[str, ...] = option(
        f"Only findings with this cause: {', '.join(get_args(Cause))}. docs/causes.md explains them.",
        type_=get_args(Cause),
    ),
    kinds: tuple[str, ...] = option(f"Only findings of this kind: {', '.join(kinds())}.", type_=tuple(kinds())),
    ops: tuple[str, ...] = option("Only findings that this function reaches, such as torch.chunk."),
    all_: bool = option("Also list findings that do not depend on data. JSON always has them."),
    sort: Literal["severity", "impact"] = option(
        "severity, or impact: first what most models of `ddefuzz study --db` meet, then what most functions reach.",
        default="severity",
    ),
    output: Output = formats("text", "json", "jsonl"),
) -> None:
    """List the findings, the most severe first: wrong values before a wrong layout, and so on to what is only slow.

    A finding does not depend on data if its smallest program also fails in the same way with static sizes or with
    backed dynamic sizes. The table leaves such findings out and counts them. JSON has them, with "data_dependent":
    false.
    """
    query = listing.Query(states=states, open_only=open_, causes=causes, kinds=kinds)
    with Database.open(db, create=False) as database:
        number = database.read(listing.counts).total
        selected = database.read(lambda session: listing.selected(session, query))
        of_ops = sorted((one for one in selected if not ops or set(ops) & set(one.ops)), key=_order)
        if sort == "impact":
            of_ops.sort(key=impact)
        whole = database.read(lambda session: listing.whole(session, query)) if output.formats != {"text"} else {}
    documents = [as_document(whole[finding.id]) for finding in of_ops if finding.id in whole]
    listed = [finding for finding in of_ops if all_ or finding.data_dependent is not False]
    left_out = len(of_ops) - len(listed)
    typed = {"--state": states, "--cause": causes, "--kind": kinds, "--op": ops}
    words = [word for option, values in typed.items() for value in values for word in (option, value)]
    filters = shell_words([*["--open"] * open_, *map(without_passwords, words)])
    columns = OF_IMPACT if sort == "impact" else COLUMNS
    pages = page_writers("Findings", list_view(listed, current_invocation(), left_out, filters, number, columns))
    deliver(pages | json_writers(documents), output)


def _order(finding: FindingSummary) -> tuple[int | str, ...]:
    signature = finding.signature
    return (
        severity_rank(signature.kind),
        signature.kind,
        finding.cause,
        signature.site.language,
        str(signature.site),
        finding.id,
    )


@click_command("show", command)
def show(
    finding_id: str = argument("ID"),
    repro: bool = option(
        "Print a stand-alone script. It needs only torch, and exits with code 1 if this failure occurs."
    ),
    snippet: bool = option("Print at most 15 lines for an issue: the function, its inputs, one capture."),
    minimal: bool = option("Print the smallest program, as a case file for `check`."),
    original: bool = option("Print the program with which the failure was found."),
    stage: Stage | None = capture_stage_option(
        "Stage of the script. Default: the stage in which the smallest program was confirmed."
    ),
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json"),
) -> None:
    """Show one finding. The first characters of its ID are enough if no other ID begins with them."""
    with Database.open(db, create=False) as database:
        finding = resolve(database, finding_id)
        by_version = database.read(lambda session: results(session, finding.id))
        alike = database.read(lambda session: listing.of_same_program(session, finding))
    for former in finding.former:
        if finding_id in former and finding_id not in finding.id:
            say(f"{former} is now {finding.id}")
    if repro:
        # Imported here, because it imports black, which takes longer than the rest of the command.
        from ddefuzz.repro.finding import finding_script  # noqa: PLC0415

        write_stdout(block(finding_script(finding, stage)), is_document=True)
    elif snippet:
        # Imported here for the same reason: it imports the table of ops.
        from ddefuzz.repro.finding import finding_snippet  # noqa: PLC0415

        write_stdout(block(finding_snippet(finding, stage)), is_document=True)
    elif minimal or original:
        write_stdout(block(_program(finding, minimal=minimal)), is_document=True)
    else:
        view = show_view(finding, current_invocation(), status_by_version(finding, by_version), alike)
        deliver(page_writers(finding.id, view, as_document(finding)), output)


@click_command("siblings", command)
def siblings(
    ids: tuple[str, ...] = argument("[ID...]"),
    db: DatabaseUrl = DB,
    output: Output = formats("text", "json", "jsonl", "markdown"),
) -> None:
    """List where torch's Python source compares sizes as the call sites of findings do, but no finding is known.

    Names and dims may differ: `x.shape[0] == 1` is like `weight.shape[-1] == 1`. Functions that have a finding are left
    out, and comparisons that have a fallback or become an assertion. Default: all data-dependent errors. The next
    command sweeps the ops that lead to these functions.
    """
    with Database.open(db, create=False) as database:
        everything = database.read(lambda session: listing.selected(session, listing.Query()))
        chosen = [resolve(database, one) for one in ids]
    for finding in chosen:
        if not forms_of_findings([finding]):
            raise InputError(
                f"{finding.id}: found a call site that compares no sizes in Python, expected one that does"
            )
    forms = forms_of_findings(chosen or [one for one in everything if one.signature.kind == "dde"])
    known = {(one.signature.site.module, one.signature.site.function) for one in everything}
    rows = tuple(siblings_of(forms, installed_package(), known))
    documents = [{"schema": SIBLING, **msgspec.to_builtins(row)} for row in rows]
    deliver(json_writers(documents) | page_writers("Siblings", siblings_view(rows, current_invocation())), output)


def _program(finding: Finding, *, minimal: bool) -> str:
    text = finding.minimal if minimal else finding.original
    if text is None:
        missing = (
            "smallest program yet, expected one: run `ddefuzz minimize`" if minimal else "program: it is of user code"
        )
        raise InputError(f"{finding.id}: found no {missing}")
    return text


@click_command("export", command)
def export(
    folder: Path = argument(default=DEFAULT_TEXT),
    db: DatabaseUrl = DB,
) -> None:
    """Write the findings as text files for review.

    Each finding gets a folder in FOLDER (default: findings). FOLDER/known.toml has the decisions. Folders of findings
    that the database does not have are removed, unless one of its findings cannot be read.
    """
    with Database.open(db, create=False) as database:
        findings = database.transferable()
    number = write_findings(findings, folder, whole=not refused())
    say(f"{counted(number, 'finding')} written to {folder}")


@click_command("import", command)
def import_(
    folder: Path = argument(default=DEFAULT_TEXT),
    db: DatabaseUrl = DB,
) -> None:
    """Add findings from text files to the database.

    FOLDER is one that `findings export` wrote (default: findings). Importing it twice changes nothing.
    """
    findings = read_findings(folder, datetime.now(UTC))
    with Database.open(db) as database, database.transaction():
        database.merge(_as_decided(finding, database) for finding in findings)
    say(f"{counted(len(findings), 'finding')} read from {folder}")


def _as_decided(finding: Finding, database: Database) -> Finding:
    """The finding with the times of the decisions that were imported before (`textform.as_decided`)."""
    with suppress(InputError):  # it is new
        return as_decided(finding, database.get(finding.id))
    return finding


@click_command("merge", command)
def merge(
    others: tuple[DatabaseUrl, ...] = argument("URL...", type_=URL_OR_PATH),
    db: DatabaseUrl = DB,
) -> None:
    """Add the findings and guard sites of other databases.

    Use it to join the databases of shards. The order of URLs does not matter.
    """
    with ExitStack() as stack:
        opened = [(url, stack.enter_context(Database.open(url, create=False))) for url in others]
        database = stack.enter_context(Database.open(db))
        stack.enter_context(database.transaction())
        before = {finding.id for finding in database.findings()}
        for url, other in opened:
            findings = other.transferable(before)
            check_findings(str(url), findings, before)
            database.merge(findings)
            for version in other.torch_versions():
                database.add_sites(version, other.sites(version), merged_site)
        after = {finding.id for finding in database.findings()}
    say(f"{counted(len(after), 'finding')}, {len(after - before)} of them new")


def commands(rows: Sequence[Decision] = DECISIONS) -> Iterable[click.Command]:
    """`set`, with the states and an option for each field, and a command for each other decision."""
    yield _set(rows)
    yield from (_command(row) for row in rows if row.group == "command")


def _set(rows: Sequence[Decision]) -> click.Command:
    states = {row.name: row for row in rows if row.group == "state"}
    fields = [row for row in rows if row.group == "field"]
    options = [(row, row.value) for row in (*states.values(), *fields) if row.value is not None and row.value.option]

    @click_command("set", help=_SET_HELP.format(states=", ".join(states)))
    def decide(
        finding_id: str = argument("ID"),
        state: str | None = argument("[STATE]", type_=tuple(states)),
        why: str = WHY,
        who: str = WHO,
        db: DatabaseUrl = DB,
        **given: str | tuple[str, ...] | None,
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

    decide.params[2:2] = [_option(value) for _, value in options]
    return decide


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
    @click_command(row.name, help=row.help)
    def decide(
        finding_id: str = argument("ID"),
        text: str = "" if row.value is None else argument(row.value.metavar),
        who: str = WHO,
        why: str = WHY if row.has_reason else "",
        db: DatabaseUrl = DB,
    ) -> None:
        _decide(db, finding_id, [(row, None if row.value is None else text)], By(who, now(), why))

    return decide


def _decide(db: DatabaseUrl, finding_id: str, typed: Sequence[tuple[Decision, str | None]], by: By) -> None:
    with Database.open(db, create=False) as database, database.transaction():
        before = resolve(database, finding_id)
        known = [(row, resolve(database, text or "").id if row.value is FINDING else text) for row, text in typed]
        after = database.apply(before.id, known, by)
    rows = [row for row, _ in typed if len(typed) == 1 or (row.group, row.name) != ("state", before.state)]
    say(f"{after.id}: {'; '.join(row.sentence(before, after) for row in rows)}")


for decision in commands():
    command.add_command(decision)
command.add_command(reclassify)
