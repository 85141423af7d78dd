"""`ddefuzz diff`: the same programs under two versions of torch, side by side."""

from __future__ import annotations

from pathlib import Path

import msgspec
import rich_click as click
from rich.console import Group

from ddefuzz import __version__
from ddefuzz.campaign.plan import Budget, parse_budget
from ddefuzz.campaign.replay import kept_cases
from ddefuzz.cli.layout import Detailed, counted, table
from ddefuzz.cli.options import db_option, jobs_option, stages_option
from ddefuzz.cli.output import Page, deliver, output_options, plain, rendered
from ddefuzz.cli.progress import LiveLine
from ddefuzz.cli.reports import command_line, rules, writers_of
from ddefuzz.errors import EXIT_FOUND, EXIT_INTERRUPTED, InputError, NothingRanError
from ddefuzz.execute.protocol import ProgramSubject, Stage
from ddefuzz.files import check_folder, write_files
from ddefuzz.findings.database import Database
from ddefuzz.findings.url import DatabaseUrl, parse_url, without_passwords
from ddefuzz.generate.profiles import PROFILES
from ddefuzz.show.record import Outcome, Report, Result
from ddefuzz.show.table import NAMES
from ddefuzz.versions.diff import Compared, Difference, Kind, compared
from ddefuzz.versions.observed import Ask, read_saved, saved_text
from ddefuzz.versions.run import interpreter_of
from ddefuzz.versions.side_by_side import Side, run_both
from ddefuzz.versions.stored import Stored, differences, stored, unlike

SCHEMA = "ddefuzz.diff/1"

OUTCOMES: dict[Kind, Outcome] = {
    "new finding": "failed",
    "gone finding": "passed",
    "moved finding": "known",
    "new guard site": "known",
    "gone guard site": "passed",
    "changed answer": "known",
}


@click.command("diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.argument("paths", metavar="[PATH]...", type=click.Path(path_type=Path), nargs=-1)
@db_option
@click.option(
    "--budget",
    default="300x",
    show_default=True,
    metavar="TIME|Nx",
    help="How long to run (TIME), or how many cases to draw (Nx).",
)
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", default=0, show_default=True, help="Seed of the drawn cases."
)
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    default="default",
    metavar="NAME",
    show_default=True,
    help=f"Kind of programs to generate: {', '.join(PROFILES)}.",
)
@stages_option
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the results to OLD.jsonl and NEW.jsonl in this folder.",
)
@jobs_option
@output_options("text", *NAMES)
def command(
    old: str,
    new: str,
    paths: tuple[Path, ...],
    db: DatabaseUrl,
    budget: str,
    seed: int,
    profile: str,
    stages: tuple[Stage, ...],
    save: Path | None,
    jobs: int,
    format_: str,
    outputs: tuple[tuple[str, Path], ...],
) -> None:
    """Compare what the same programs do under two versions of torch.

    OLD and NEW are each [NAME=]PATH of an interpreter that has torch and ddefuzz, or of a file that --save wrote. The
    programs are the case files below PATH. Without PATH they are the cases of a uniform campaign, drawn under OLD and
    given to NEW as text. Each case runs in one of the stages: the first case in the first stage, and so on in turn.

    The output lists findings that are new, gone, or moved (the same program fails at another site). It also lists guard
    sites that only one version reaches, and guards whose fallback answer differs in the same program.

    OLD and NEW can also be stored campaigns. Then nothing is run. Give the URL of a database such as sqlite:///PATH. If
    it has several versions of torch, add #VERSION or #CAMPAIGN. A number alone is a campaign of --db. A database keeps
    findings and guard sites, and not the result of each case. So compare campaigns that ran the same cases: those with
    the same seed, budget and options, and with --uniform.

    Ctrl-C ends the runs and shows the cases that ran under both versions. Exit code 1: there is a new finding.
    """
    if any(map(_is_stored, (old, new))):
        _diff_stored(old, new, paths, db, format_, outputs)
        return
    limit = parse_budget(budget)
    if limit.cpu_seconds is not None:
        raise InputError(f"--budget: found {budget!r}, expected a time such as 10m, or a number of cases such as 300x")
    sides = _side(old), _side(new)
    if sides[0].name == sides[1].name:
        raise InputError(f"{old}, {new}: found two sides named {sides[0].name!r}, expected different names: NAME=PATH")
    if not sides[0].interpreter and (paths or limit.seconds):
        raise InputError(f"{old}: found saved results and also programs or a time, expected neither: its cases are run")
    asks = _of_files(paths, stages) if paths else _drawn(limit, seed, profile, stages)
    saved = [f"{side.name}.jsonl" for side in sides]
    if save is not None:
        check_folder(save, saved)
    with LiveLine(f"running under {sides[0].name} and {sides[1].name}") as live:
        was, now, finished = run_both(
            *sides,
            asks,
            max(1, jobs // 2) if sides[0].interpreter and sides[1].interpreter else jobs,
            limit.seconds,
            lambda one, other: live.update(f"{one} cases done under {sides[0].name}, {other} under {sides[1].name}"),
        )
    if save is not None:
        write_files(save, dict(zip(saved, map(saved_text, (was, now)), strict=True)))
    found = compared(was, now)
    if not found.cases:
        raise NothingRanError("found no program that both versions judged, expected some")
    report = diff_report(found, *sides)
    deliver({"text": lambda page: diff_page(found, *sides, page), **writers_of(report)}, format_, outputs)
    if not finished and limit.seconds is None:
        raise SystemExit(EXIT_INTERRUPTED)
    if found.counts["new finding"]:
        raise SystemExit(EXIT_FOUND)


def _side(typed: str) -> Side:
    """An interpreter, or results of before."""
    name, _, path = typed.rpartition("=")
    if "/" in name:
        raise InputError(f"{typed}: found the name {name!r}, expected one without a slash")
    if path.endswith(".jsonl"):
        saved = read_saved(Path(path))
        return Side(name or Path(path).stem, saved[0].torch, saved=saved)
    interpreter = interpreter_of(name, path)
    if not interpreter.full:
        raise InputError(f"{path}: found an interpreter without ddefuzz, expected one that can import it")
    return Side(interpreter.name, interpreter.torch, interpreter)


def _is_stored(typed: str) -> bool:
    return "://" in typed or typed.isdigit()


def _diff_stored(
    old: str, new: str, paths: tuple[Path, ...], db: DatabaseUrl, format_: str, outputs: tuple[tuple[str, Path], ...]
) -> None:
    """Compare two databases or campaigns."""
    shown = f"{without_passwords(old)} {without_passwords(new)}"
    if paths or not (_is_stored(old) and _is_stored(new)):
        raise InputError(f"{shown}: found stored campaigns and also something to run, expected two stored ones")
    was, now = _stored(old, db), _stored(new, db)
    if not (was.findings or was.sites or was.campaigns) or not (now.findings or now.sites or now.campaigns):
        raise NothingRanError(f"{shown}: found a side without campaigns, findings and guard sites")
    note = unlike(was, now)
    found = Compared(differences(was, now), min(was.cases, now.cases), (note,) if note else ())
    report = diff_report(found, was, now)
    deliver({"text": lambda page: diff_page(found, was, now, page), **writers_of(report)}, format_, outputs)
    if found.counts["new finding"]:
        raise SystemExit(EXIT_FOUND)


def _stored(typed: str, db: DatabaseUrl) -> Stored:
    """The database or campaign that was typed."""
    name, separator, rest = typed.partition("=")
    named = separator and "://" in rest and "/" not in name
    text, _, which = (rest if named else typed).partition("#") if "://" in typed else ("", "", typed)
    shown = without_passwords(typed)
    with Database.open(parse_url(text) if text else db, create=False) as database:
        return stored(database, which, name if named else shown, shown)


MOST_DRAWN = 20_000
"""The number of cases that are drawn at most if the budget is a time."""


def _drawn(limit: Budget, seed: int, profile: str, stages: tuple[Stage, ...]) -> list[Ask]:
    number = MOST_DRAWN if limit.cases is None else limit.cases
    return [Ask(index, stages[index % len(stages)], profile=profile, seed=seed) for index in range(number)]


def _of_files(paths: tuple[Path, ...], stages: tuple[Stage, ...]) -> list[Ask]:
    texts = {case.subject.text: None for case in kept_cases(paths) if isinstance(case.subject, ProgramSubject)}
    return [Ask(index, stages[index % len(stages)], text) for index, text in enumerate(texts)]


def diff_page(found: Compared, old: Side | Stored, new: Side | Stored, page: Page) -> str:
    """The table, and the counts. What is stored has no numbers of cases."""
    numbered = isinstance(old, Side)
    rows = [
        Detailed(
            [
                plain(row.kind),
                plain(str(row.cases)),
                *([plain(str(row.number))] if numbered else []),
                plain(_what(row)),
            ],
            plain(_change(row), style="dim"),
        )
        for row in found.differences
    ]
    columns = ("change", "cases", *(["first"] if numbered else []), "what")
    shown = rendered(Group(table(columns, rows, page.width, folding=("what",)), ""), page)
    return (shown if rows else "") + "\n".join(_totals(found, old, new)) + "\n"


def _what(row: Difference) -> str:
    return row.what or row.old


def _change(row: Difference) -> str:
    if row.kind == "moved finding":
        return f"now {row.new}"
    return f"{row.old} before, {row.new} now" if row.old or row.new else ""


def _totals(found: Compared, old: Side | Stored, new: Side | Stored) -> list[str]:
    counts = ", ".join(f"{number} {kind}" for kind, number in found.counts.items() if number) or "no difference"
    if isinstance(old, Stored) or isinstance(new, Stored):
        lines = [f"{one.name} (torch {one.torch}): {_kept(one)}" for one in (old, new) if isinstance(one, Stored)]
        return [*lines, *found.not_judged, counts]
    lines = [
        f"{old.name} (torch {old.torch}) and {new.name} (torch {new.torch}): {counted(found.cases, 'program')} compared"
    ]
    if found.not_judged:
        lines.append(f"{len(found.not_judged)} not judged by one of them, such as {found.not_judged[0]}")
    return [*lines, counts]


def _kept(one: Stored) -> str:
    return (
        f"{counted(one.cases, 'case')} in {counted(len(one.campaigns), 'campaign')}, "
        f"{counted(len(one.findings), 'finding')}, {counted(len(one.sites), 'guard site')}"
    )


def diff_report(found: Compared, old: Side | Stored, new: Side | Stored) -> Report:
    """The differences as a report. A new finding failed."""
    documents = tuple(msgspec.to_builtins(row) for row in found.differences)
    return Report(
        command=command_line(),
        title=f"ddefuzz diff: torch {old.torch} and {new.torch}",
        version=__version__,
        torch=f"{old.torch}, {new.torch}",
        rules=rules(),
        results=tuple(
            Result(
                id=f"{row.kind}: {row.id}",
                rule=row.id.partition(" ")[0].rpartition("-")[0] if "finding" in row.kind else "dde",
                outcome=OUTCOMES[row.kind],
                title=f"{row.kind}: {_what(row)}",
                message=_change(row),
                program=row.program,
                facts=(("cases", str(row.cases)), ("first case", str(row.number))),
            )
            for row in found.differences
        ),
        facts=tuple(_totals(found, old, new)),
        document={
            "schema": SCHEMA,
            "old": {"name": old.name, "torch": old.torch},
            "new": {"name": new.name, "torch": new.torch},
            "cases": found.cases,
            "not_judged": found.not_judged,
            "counts": found.counts,
            "differences": documents,
        },
        records=documents,
    )
