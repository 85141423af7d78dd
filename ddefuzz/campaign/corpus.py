"""The cases kept on purpose: programs with what is expected of them, findings in their text form, trusted user code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import msgspec

from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import (
    EXPLICIT,
    STAGES,
    CallableSubject,
    ProgramSubject,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.files import read_bytes, read_toml
from ddefuzz.findings.lifecycle import recurs
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING, MINIMAL, ORIGINAL, read_finding
from ddefuzz.instrument.events import Mechanism
from ddefuzz.ops import catalogue
from ddefuzz.program.text import read_program

TRUSTED = "trusted.toml"
"""The list of user modules that replay may execute, in the folder that is replayed."""

EXPECTATION = re.compile(r"(?P<stage>[a-z-]+)/(?P<mechanism>[a-z0-9-]+) (?:ok|(?P<kind>[a-z-]+) at (?P<site>.+))")


class Expectation(msgspec.Struct, frozen=True):
    """What a case does in one stage: `kind` and `site` of its failure, or no kind where it has to pass."""

    stage: Stage
    semantics: Semantics = EXPLICIT
    kind: Kind | None = None
    site: str = ""
    anchor: str | None = None

    def __str__(self) -> str:
        ends = f"{self.kind} at {self.site}" if self.kind else "ok"
        return f"{self.stage}/{self.semantics} {ends}"


class KeptCase(msgspec.Struct, frozen=True):
    """One case of a corpus in one stage; `finding` is the known finding that it shows.

    `database` is the URL of the database that has the finding; without one the case is in a file.
    """

    id: str
    subject: Subject
    expect: Expectation
    finding: str = ""
    database: str = ""


class TrustedModule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `trusted.toml`: a module with a list `CASES`, and a JSON file of outcomes by case and stage."""

    path: str
    expected: str


class Trusted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`trusted.toml`: user code is executed to be read, so it has to be named here."""

    module: tuple[TrustedModule, ...]


class ExpectedOutcome(msgspec.Struct, frozen=True):
    """One stage of one case in the JSON file beside a trusted module."""

    outcome: str
    kind: Kind | None = None
    site: Site | None = None


def parse_expectation(text: str, where: str) -> Expectation:
    """`export/explicit dde at at::native::chunk` or `export/explicit ok`; raises `InputError`."""
    match = EXPECTATION.fullmatch(text.strip())
    if match and match["stage"] in STAGES and match["mechanism"] in get_args(Mechanism):
        kind, site = match["kind"], match["site"]
        if kind is None or kind in get_args(Kind):
            return msgspec.convert(
                {
                    "stage": match["stage"],
                    "semantics": {"mechanism": match["mechanism"]},
                    "kind": kind,
                    "site": site or "",
                },
                Expectation,
            )
    raise InputError(
        f"{where}: found the expectation {text.strip()!r}, expected STAGE/SEMANTICS ok or STAGE/SEMANTICS KIND at SITE"
    )


def kept_cases(paths: Iterable[Path], *, trust: bool = False) -> tuple[KeptCase, ...]:
    """All cases at or below the paths, sorted by id; raises `InputError` for a path or a case that cannot be read.

    Those of user modules are among them only with `trust`: the lists lie in the folders that they trust.
    """
    found: dict[str, KeptCase] = {}
    for path in paths:
        if not path.is_dir() and not path.is_file():
            raise InputError(f"{path}: found no such file or folder, expected a case file or a folder with case files")
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in filter(Path.is_file, files):
            found |= {case.id: case for case in program_cases(file)}
        for listed in trusted_lists(path) if trust else ():
            found |= {case.id: case for case in trusted_cases(listed)}
    return tuple(found[key] for key in sorted(found))


def trusted_lists(path: Path) -> list[Path]:
    """The lists of trusted modules below a path."""
    return sorted(filter(Path.is_file, path.rglob(TRUSTED))) if path.is_dir() else []


def trusted_modules(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The user modules that the lists below the paths name; raises `InputError`."""
    return tuple(module for path in paths for listed in trusted_lists(path) for module, _ in _read_trusted(listed))


def program_cases(file: Path) -> Iterator[KeptCase]:
    """The cases of a program file: by the finding beside it, else by its `# expect:` lines; other files have none."""
    text = read_program(file)
    if text is None:
        return
    case = catalogue.parse(text, str(file))
    beside = file.parent / FINDING
    if file.name in (MINIMAL, ORIGINAL) and beside.exists():
        finding = read_finding(file.parent)
        seen = finding.evidence if file.name == MINIMAL else finding.failure
        yield KeptCase(str(file), ProgramSubject(text), expectation_of(finding, seen), finding.id)
        return
    if not case.expect:
        raise InputError(f"{file}: found no line '# expect: …', expected one, such as '# expect: export/explicit ok'")
    for line in case.expect:
        expect = parse_expectation(line, str(file))
        yield KeptCase(f"{file}@{expect.stage}/{expect.semantics}", ProgramSubject(text), expect)


def finding_cases(findings: Iterable[Finding], database: str) -> tuple[KeptCase, ...]:
    """The programs of findings of a database, smallest and original as in a text form, sorted by id.

    A finding of the user's own code has no program and so no case. Raises `InputError` for a program that is none.
    """
    cases = []
    for finding in findings:
        for name, text, seen in (
            (MINIMAL, finding.minimal, finding.evidence),
            (ORIGINAL, finding.original, finding.failure),
        ):
            if text is not None:
                case = f"{finding.id}/{name}"
                catalogue.parse(text, case)
                cases.append(KeptCase(case, ProgramSubject(text), expectation_of(finding, seen), finding.id, database))
    return tuple(sorted(cases, key=lambda case: case.id))


def expectation_of(finding: Finding, seen: Failure | None) -> Expectation:
    """What a program of a finding does where it was seen to fail: one that is fixed in this torch has to pass."""
    if seen is None:
        raise InputError(
            f"{finding.id}: found no failure stored with this finding, expected one: it says in which stage to replay"
        )
    observation = seen.observation
    # From the package's metadata, because who selects cases must not have to import torch.
    if recurs(finding.state, finding.fixed_in, version("torch")):
        return Expectation(observation.stage, observation.semantics)
    return Expectation(observation.stage, observation.semantics, finding.kind, str(finding.site), finding.anchor)


def trusted_cases(listed: Path) -> Iterator[KeptCase]:
    """The cases of the modules in a list of trusted ones, by the outcomes beside them; nothing is executed for it."""
    for path, expected in _read_trusted(listed):
        try:
            outcomes = msgspec.json.decode(read_bytes(expected), type=dict[str, dict[Stage, ExpectedOutcome]])
        except (RecursionError, msgspec.DecodeError) as error:
            raise InputError(f"{expected}: {error}") from error
        for case, stages in outcomes.items():
            for stage, outcome in stages.items():
                expect = Expectation(stage, EXPLICIT, outcome.kind, str(outcome.site or ""))
                yield KeptCase(f"{path}:{case}@{stage}", CallableSubject(str(path), case=case), expect)


def _read_trusted(listed: Path) -> Iterator[tuple[Path, Path]]:
    """Each module of a list, with the file of its outcomes."""
    try:
        trusted = msgspec.convert(read_toml(listed), Trusted)
    except msgspec.ValidationError as error:
        raise InputError(f"{listed}: {error}") from error
    for module in trusted.module:
        path, expected = listed.parent / module.path, listed.parent / module.expected
        if not path.resolve().is_relative_to(listed.parent.resolve()):
            raise InputError(f"{listed}: found the module {module.path!r}, expected one below the folder of the list")
        yield path, expected
