"""`ddefuzz corpus`: the program files that replay runs, kept small and in one form."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import rich_click as click
import tomli_w

from ddefuzz.campaign.replay import (
    TRUSTED,
    CaseFile,
    Today,
    TrustFile,
    case_files,
    covered,
    enough,
    expectation_of,
    today,
)
from ddefuzz.cli.command import Output, PathType, argument, click_command, formats, option
from ddefuzz.cli.options import IN_STAGES, JOBS
from ddefuzz.cli.output import LiveLine, Writer, deliver, page_writers
from ddefuzz.cli.streams import write_line
from ddefuzz.errors import EXIT_FOUND, InputError
from ddefuzz.escape import json_text
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Stage, Subject
from ddefuzz.files import check_writable, is_folder, is_there, read_toml, real_path, write_atomically
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Finding, named
from ddefuzz.findings.textform import read_findings
from ddefuzz.findings.url import DatabaseUrl
from ddefuzz.ops import catalogue
from ddefuzz.program.text import digest, print_program, read_program
from ddefuzz.records import record_of
from ddefuzz.show.blocks import Block, Items, Span, TableRow, counted, table

FINDINGS = Path("findings")
REGRESSION = Path("corpora/regression")

FINDINGS_OF = option("Take findings from this database, instead of the folder findings/.", "--db")


@click.group("corpus")
def command() -> None:
    """Work on folders of case files: add, promote, prune, fmt, list.

    A case file is a program with lines `# expect: STAGE/SEMANTICS ok` or `# expect: STAGE/SEMANTICS KIND at SITE`.
    `ddefuzz replay` runs them.
    """


@click_command("add", command)
def add(
    corpus: Path = argument(type_=PathType(file_okay=False)),
    programs: tuple[str, ...] = argument("PROGRAM..."),
    stages: tuple[Stage, ...] = IN_STAGES,
    url: DatabaseUrl | None = FINDINGS_OF,
    jobs: int = JOBS,
) -> None:
    """Add programs to a corpus. What they do today is what they are expected to do.

    PROGRAM is a program file, or the ID of a finding: its smallest program is added. Each program is run in the stages.
    A program that is already in the corpus is rejected.

    PROGRAM may also be your own model in a file below CORPUS: FILE:NAME, as for `ddefuzz check`. It is executed. Two
    files are written: trusted.toml, which lists the model, and FILE.NAME.json, what it does in each stage. `ddefuzz
    replay CORPUS --trust` runs it.
    """
    own = [typed for typed in programs if ".py:" in typed]
    new = _own_models(corpus, own, stages, jobs)
    there = _there(corpus)
    taken: dict[Path, tuple[str, str]] = {}
    for typed in (one for one in programs if one not in own):
        text = _text(typed, url)
        name = Path(typed).stem if typed.endswith(".py") else typed
        place = _taken(corpus / f"{name}.py", digest(catalogue.parse(text, typed).program), there)
        taken[place] = (typed, text)
    for place, (typed, text) in taken.items():
        done = _today(typed, ProgramSubject(text), stages, jobs)
        new[place] = print_program(catalogue.parse(text, typed).program, tuple(one.seen for one in done))
    _write(new)


def _today(typed: str, subject: Subject, stages: tuple[Stage, ...], jobs: int) -> tuple[Today, ...]:
    done, reasons = today(subject, stages, jobs)
    if not done:
        raise InputError(f"{typed}: no stage judges it ({'; '.join(reasons)}), expected one that does")
    return done


def _own_models(corpus: Path, models: Iterable[str], stages: tuple[Stage, ...], jobs: int) -> dict[Path, str]:
    """The files that a corpus gets for models of the user, FILE:NAME."""
    listed = corpus / TRUSTED
    text = listed.read_text(encoding="utf-8") if is_there(listed) else ""
    known = {(one.path, one.name) for one in record_of(read_toml(listed), TrustFile, listed).module} if text else set()
    new: dict[Path, str] = {}
    for typed in models:
        file, _, name = typed.rpartition(":")
        if not name.isidentifier():
            raise InputError(f"{typed}: found the name {name[:80]!r}, expected that of a function or model in {file}")
        if not is_there(Path(file)):
            raise InputError(f"{file}: found no such file, expected one with the model {name!r}")
        if not real_path(Path(file)).is_relative_to(real_path(corpus)):
            raise InputError(
                f"{file}: found a file that is not below {corpus}, expected one: {TRUSTED} lists no others"
            )
        path = real_path(Path(file)).relative_to(real_path(corpus))
        expected = path.with_suffix(f".{name}.json")
        if (str(path), name) in known or is_there(corpus / expected):
            raise InputError(f"{typed}: found it in {corpus}, expected a model that the corpus does not have")
        known.add((str(path), name))
        done = _today(typed, CallableSubject(file, name=name), stages, jobs)
        new[corpus / expected] = json_text({name: {one.stage: one.outcome for one in done}}, indent=True) + "\n"
        row = {"path": str(path), "expected": str(expected), "name": name}
        text = f"{(text or OWN).rstrip()}\n\n[[module]]\n{tomli_w.dumps(row)}"
    if not new:
        return new
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{listed}: found an inline list of modules, expected tables [[module]]") from error
    return new | {listed: text}


OWN: Final = """\
# Models that `ddefuzz replay --trust` executes, and the files with what each does in each stage. Written by
# `ddefuzz corpus add`.
"""


@click_command("promote", command)
def promote(
    ids: tuple[str, ...] = argument("ID..."),
    corpus: Path = option(
        "The folder to which the cases are added.",
        default=REGRESSION,
        type_=PathType(file_okay=False),
        metavar="FOLDER",
    ),
    url: DatabaseUrl | None = FINDINGS_OF,
) -> None:
    """Make regression cases of the smallest programs of findings.

    A case expects the failure of its finding in the finding's stage. If the finding is fixed in this torch, the case
    is expected to pass. Nothing is run.
    """
    there = _there(corpus)
    new: dict[Path, str] = {}
    for typed in ids:
        finding = _finding(typed, url)
        program = catalogue.parse(_program(finding), finding.id).program
        place = _taken(corpus / f"{finding.id}.py", digest(program), there)
        new[place] = print_program(program, (str(expectation_of(finding, finding.evidence)),))
    _write(new)


@click_command("prune", command)
def prune(
    corpora: tuple[Path, ...] = argument("CORPUS..."),
    dry_run: bool = option("List the files that would be deleted, and delete nothing."),
    jobs: int = JOBS,
    output: Output = formats("text", "json", "markdown"),
) -> None:
    """Delete case files that are not needed to reach all guard sites and to show all signatures.

    Each case is run. A file is always kept if one of its cases is expected to pass, or does not do what is expected.
    """
    files = case_files(corpora)
    with LiveLine(f"running {counted(len(files), 'case file')}") as live:
        tick = live.counter(len(files), "case file")
        seen = covered(files, jobs, lambda path: tick(f" ({path})"))
    kept, gone = enough(seen)
    document = {
        "schema": "ddefuzz.prune/1",
        "kept": [str(one.file.path) for one in kept],
        "held": {str(one.file.path): one.held for one in kept if one.held},
        "gone": {str(path): [str(one) for one in others] for path, others in gone.items()},
        "items": len(frozenset().union(*(one.items for one in seen))),
        "dry_run": dry_run,
    }
    if not dry_run:
        for path in gone:
            path.unlink()
    verb = "would go" if dry_run else "deleted"
    lines = [f"{verb}: {path} (the same in {', '.join(map(str, others)) or 'no run'})" for path, others in gone.items()]
    total = f"{counted(len(files), 'case file')}: {len(kept)} stay, {len(gone)} {'would go' if dry_run else 'are gone'}"
    total += f"; {document['items']} guard sites and signatures, by stage, are covered as before"
    listed = "".join(f"- {line}\n" for line in lines)
    writers: dict[str, Writer] = {
        "text": "".join(f"{line}\n" for line in [*lines, total]),
        "json": json_text(document, indent=True) + "\n",
        "markdown": f"## ddefuzz corpus prune\n\n{total}\n\n{listed}",
    }
    deliver(writers, output)


@click_command("fmt", command)
def fmt(
    corpora: tuple[Path, ...] = argument("CORPUS..."),
    check: bool = option("Change nothing. Exit code 1 if a file is in another form."),
) -> None:
    """Rewrite case files in the canonical text form."""
    other = {file.path: file.canonical for file in case_files(corpora) if file.text != file.canonical}
    if not check:
        _write(other, "rewrote:")
        return
    for path in other:
        write_line(f"not in the canonical form: {path}")
    if other:
        raise SystemExit(EXIT_FOUND)


@click_command("list", command)
def list_(
    corpora: tuple[Path, ...] = argument("[CORPUS]..."),
    output: Output = formats("text", "json"),
) -> None:
    """List the case files (default: below corpora/) and what each expects."""
    files = case_files(corpora or (Path("corpora"),))
    document = [
        {"path": str(one.path), "digest": one.digest, "steps": one.steps, "expect": [str(e) for e in one.expect]}
        for one in files
    ]
    deliver(page_writers("Case files", _list_view(files), document, indent=True), output)


def _list_view(files: tuple[CaseFile, ...]) -> Iterator[Block]:
    if files:
        rows = (
            TableRow((str(file.path), str(file.steps)), Span("\n".join(map(str, file.expect)), style="dim"))
            for file in files
        )
        yield table(("file", "steps"), rows, right=("steps",))
    yield Items((counted(len(files), "case file"),))


def _there(corpus: Path) -> dict[str, Path]:
    """The files of a corpus by the digests of their programs. Empty if the folder does not exist yet."""
    return {file.digest: file.path for file in case_files([corpus])} if is_there(corpus) else {}


def _taken(place: Path, of: str, there: dict[str, Path]) -> Path:
    """The place, which is added to the files that are there. Raises `InputError` if it or its program is among them."""
    if of in there:
        raise InputError(f"{there[of]}: found the same program there, expected one that the corpus does not have")
    if is_there(place) or place in there.values():
        raise InputError(f"{place}: found this file, expected none there")
    there[of] = place
    return place


def _write(new: dict[Path, str], verb: str = "wrote") -> None:
    for path in new:
        check_writable(path)
    for path, text in new.items():
        write_atomically(path, text)
        write_line(f"{verb} {path}")


def _text(typed: str, url: DatabaseUrl | None) -> str:
    """The text of the program."""
    if not typed.endswith(".py"):
        return _program(_finding(typed, url))
    path = Path(typed)
    if not is_there(path):
        raise InputError(f"{path}: found no such file, expected a program file or the id of a finding")
    text = read_program(path)
    if text is None:
        raise InputError(f"{path}: found no line '# ddefuzz program v1', expected a program file")
    return text


def _finding(typed: str, url: DatabaseUrl | None) -> Finding:
    if url is not None:
        with Database.open(url, create=False) as database:
            return database.resolve(typed)
    if not is_folder(FINDINGS):
        raise InputError(f"{typed}: found no folder findings/ here, expected one, or --db")
    by_id = {one.id: one for one in read_findings(FINDINGS, datetime.now(UTC))}
    return by_id[named(typed, {name: one.former for name, one in by_id.items()})]


def _program(finding: Finding) -> str:
    text = finding.minimal or finding.original
    if text is None:
        raise InputError(f"{finding.id}: found no program, expected a finding of a generated program")
    return text
