"""The kept cases (programs with expected results, findings, trusted modules), and what they do when run again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import InputError, refuse
from ddefuzz.execute.pool import LostTask, Pool, lost_observation
from ddefuzz.execute.protocol import (
    EXPLICIT,
    CallableSubject,
    KeySubject,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
    Subject,
    subject_of,
)
from ddefuzz.files import files_below, is_folder, is_there, parse_json, read_bytes, read_toml, real_path
from ddefuzz.findings.inventory import installed_version
from ddefuzz.findings.ledger import Ledger, reached
from ddefuzz.findings.lifecycle import ROWS, recurs
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import FINDING, MINIMAL, ORIGINAL, read_finding
from ddefuzz.instrument.events import Mechanism
from ddefuzz.internal import guarded
from ddefuzz.ops import catalogue
from ddefuzz.oracles import table
from ddefuzz.oracles.keys import untrusted_function
from ddefuzz.oracles.program import CAPTURE, Trial, TriedRun, check_case, judge_run, tried_of
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import HEADER, Case, digest, is_key, print_program, read_program
from ddefuzz.records import record_of


class CaseFile(NamedTuple):
    """A program file of a corpus: its text, what it says, and what it expects."""

    path: Path
    text: str
    case: Case
    expect: tuple[Expectation, ...]

    @property
    def digest(self) -> str:
        """The program's digest, which does not depend on its expectations."""
        return digest(self.case.program)

    @property
    def canonical(self) -> str:
        """The canonical text."""
        return print_program(self.case.program, self.case.expect)

    @property
    def steps(self) -> int:
        """The number of steps of the program."""
        return len(self.case.program.steps)


class Coverage(NamedTuple):
    """What a case file covers: guard sites and signatures, each with its stage. `held` says why it has to stay."""

    file: CaseFile
    items: frozenset[tuple[str, str]]
    held: str = ""


def case_files(paths: Iterable[Path]) -> tuple[CaseFile, ...]:
    """The program files below the paths, sorted. Programs of findings are not among them. Files that cannot be read are
    refused (`refusals`), and so is a file that is named itself and is no case. Raises `InputError` for a path that is
    not there.
    """
    files = {case.path: case for path in paths for case in _usable(python_files(path), partial(_case_file, named=path))}
    return tuple(files[file] for file in sorted(files))


def _case_file(file: Path, named: Path) -> Iterator[CaseFile]:
    text = read_program(file)
    if text is None and file == named:
        raise InputError(f"{file}:1: found no case, expected {HEADER!r}")
    if text is not None and not is_there(file.parent / FINDING):
        case = catalogue.parse(text, str(file))
        yield CaseFile(file, text, case, tuple(parse_expectation(line, str(file)) for line in case.expect))


class Today(NamedTuple):
    """What a program or user code does in a stage now: as an expectation, and as the JSON of trusted modules has it."""

    stage: Stage
    seen: str
    outcome: ExpectedOutcome


def today(subject: Subject, stages: Iterable[Stage], jobs: int) -> tuple[tuple[Today, ...], tuple[str, ...]]:
    """What a subject does in each stage, and why the other stages do not judge it."""
    cases = [KeptCase(stage, subject, Expectation(stage)) for stage in stages]
    done, reasons = [], []
    with Pool(jobs) as pool:
        sent = [(case, pool.submit(judge_run, trial_of(case), CASE_SECONDS)) for case in cases]
        for case, future in sent:
            tried = arrived(case, future.result())
            result = compare(case, tried)
            if result.status == "not judged":
                reasons.append(f"{case.expect.stage}: {tried.observation.reason}")
            else:
                first = tried.failures[0].signature if tried.failures else None
                outcome = ExpectedOutcome("ok") if first is None else ExpectedOutcome("fail", first.kind, first.site)
                done.append(Today(case.expect.stage, result.seen, outcome))
    return tuple(done), tuple(reasons)


def covered(files: Iterable[CaseFile], jobs: int, listen: Callable[[Path], None]) -> tuple[Coverage, ...]:
    """Run all cases, and say what each file covers.

    A file stays in any event if one of its cases is expected to pass, because it covers no failure and holds a fix, or
    if a case does not do what is expected.
    """
    with Pool(jobs) as pool:
        sent = [
            (file, [(case, pool.submit(judge_run, trial_of(case), CASE_SECONDS)) for case in program_cases(file.path)])
            for file in files
        ]
        results = []
        for file, runs in sent:
            items: set[tuple[str, str]] = set()
            held = "expected to pass" if any(one.kind is None for one in file.expect) else ""
            for case, future in runs:
                tried = arrived(case, future.result())
                if compare(case, tried).status in {*MISMATCHES, "gone"}:
                    held = "does not do what is expected"
                stage = tried.observation.stage
                items |= {(stage, one.signature.key) for one in tried.failures}
                items |= {(stage, one.name) for one in reached(tried.observation, tried.failures)}
            results.append(Coverage(file, frozenset(items), held))
            listen(file.path)
    return tuple(results)


def enough(all_: Iterable[Coverage]) -> tuple[tuple[Coverage, ...], Mapping[Path, tuple[Path, ...]]]:
    """The files that are enough to cover what all cover; and those that can go, with the files that cover theirs.

    Greedy: the file that covers most of what is left comes next, then the one with fewer steps, then by name.
    """
    everything = list(all_)
    kept = [one for one in everything if one.held]
    rest = [one for one in everything if not one.held]
    open_ = frozenset().union(*(one.items for one in everything)).difference(*(one.items for one in kept))
    while open_:
        best = min(rest, key=lambda one: (-len(one.items & open_), one.file.steps, str(one.file.path)))
        kept.append(best)
        rest.remove(best)
        open_ -= best.items
    covering = {
        one.file.path: tuple(other.file.path for other in kept if other.items & one.items)
        for one in sorted(rest, key=lambda one: one.file.path)
    }
    return tuple(sorted(kept, key=lambda one: one.file.path)), covering


Given = TypeVar("Given")
Record = TypeVar("Record")

TRUSTED = "trusted.toml"
"""The file name of a list of user modules that replay may execute."""

EXPECTATION = re.compile(r"(?P<stage>[a-z-]+)/(?P<mechanism>[a-z0-9-]+) (?:ok|(?P<kind>[a-z-]+) at (?P<site>.+))")


class Expectation(msgspec.Struct, frozen=True):
    """What a case does in one stage: the `kind` and `site` of its failure, or no kind if it has to pass.

    The captured program is called at the sizes `calls`. With `either` any result is accepted (`lifecycle.Expects`).
    """

    stage: Stage
    semantics: Semantics = EXPLICIT
    kind: Kind | None = None
    site: str = ""
    anchor: str | None = None
    calls: tuple[CallSize, ...] = ()
    either: bool = False

    @property
    def oracles(self) -> tuple[str, ...]:
        """The oracles that judge it. If nothing is called, only those of the capture and of the expected failure."""
        own = (table.oracle_of(self.kind).name,) if self.kind else ()
        return table.NAMES if self.calls else tuple(dict.fromkeys((*CAPTURE, *own)))

    def fits(self, signature: Signature) -> bool:
        """Whether a failure is the expected one."""
        same_site = not self.site or str(signature.site) == self.site
        return signature.kind == self.kind and same_site and self.anchor in (None, signature.anchor)

    def __str__(self) -> str:
        ends = f"{self.kind} at {self.site}" if self.kind else "ok"
        return f"{self.stage}/{self.semantics} {ends}"


class KeptCase(msgspec.Struct, frozen=True):
    """One case in one stage. `finding` is the id of the finding that it shows.

    `database` is the URL of the database with the finding. It is empty if the case is in a file.
    """

    id: str
    subject: Subject
    expect: Expectation
    finding: str = ""
    database: str = ""


class TrustedModule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `trusted.toml`: a module, and a JSON file of outcomes by case and stage. The cases are those of the
    module's list `CASES`, or the function or model `name` alone.
    """

    path: str
    expected: str
    name: str | None = None


class TrustFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `trusted.toml`. Loading a user module executes it, so each module has to be listed here."""

    module: tuple[TrustedModule, ...]


class ExpectedOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The expected outcome of one case in one stage, from the JSON file of a trusted module."""

    outcome: str
    kind: Kind | None = None
    site: Site | None = None


def parse_expectation(text: str, where: str) -> Expectation:
    """Parse `export/explicit dde at at::native::chunk` or `export/explicit ok`. Raises `InputError`."""
    match = EXPECTATION.fullmatch(text.strip())
    if match and match["stage"] in table.stages() and match["mechanism"] in get_args(Mechanism):
        kind, site = match["kind"], match["site"]
        if kind is None or kind in table.kinds():
            return msgspec.convert(
                {
                    "stage": match["stage"],
                    "semantics": {"mechanism": match["mechanism"]},
                    "kind": kind,
                    "site": site or "",
                    "calls": table.oracle_of(kind).calls if kind else (),
                },
                Expectation,
            )
    raise InputError(
        f"{where}: found the expectation {text.strip()!r}, expected STAGE/SEMANTICS ok or STAGE/SEMANTICS KIND at SITE"
    )


def python_files(path: Path) -> list[Path]:
    """The file, or those below the folder. Raises `InputError` if it is not there."""
    if not is_there(path):
        raise InputError(f"{path}: found no such file or folder, expected a case file or a folder with case files")
    return files_below(path, "*.py")


def kept_cases(paths: Iterable[Path], *, trust: bool = False) -> tuple[KeptCase, ...]:
    """All cases at or below the paths, sorted by id. Raises `InputError` for a path that is not there. Files that
    cannot be read are refused (`refusals`).

    Cases of user modules are included only with `trust`, because a downloaded folder can contain a list. Cases of other
    key functions than `KEY_FUNCTIONS` are included without it, but they do not run.
    """
    cases: dict[str, KeptCase] = {}
    for path in paths:
        programs = _usable(python_files(path), partial(program_cases, trust=trust))
        listed = _usable(trusted_lists(path) if trust else (), trusted_cases)
        cases |= {case.id: case for case in chain(programs, listed)}
    return tuple(cases[key] for key in sorted(cases))


def _usable(given: Iterable[Given], read: Callable[[Given], Iterable[Record]]) -> Iterator[Record]:
    """What is read from each. One that cannot be used is refused."""
    for item in given:
        try:
            yield from tuple(read(item))
        except InputError as error:
            refuse(error)


def user_function(case: KeptCase) -> str:
    """The function that a case of a key function calls only with --trust. Empty for other cases."""
    return untrusted_function(case.subject.text) if isinstance(case.subject, KeySubject) else ""


def trusted_lists(path: Path) -> list[Path]:
    """The lists of trusted modules below a path."""
    return files_below(path, TRUSTED) if is_folder(path) else []


def trusted_modules(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The user modules in the lists below the paths. Raises `InputError`."""
    lists = chain.from_iterable(map(trusted_lists, paths))
    return tuple(dict.fromkeys(module for module, _, _ in _usable(lists, _read_trusted)))


def program_cases(file: Path, *, trust: bool = False) -> Iterator[KeptCase]:
    """The cases of a program file. Other files have none.

    The expectation comes from the finding in the same folder, else from the `# expect:` lines. With `trust`, any key
    function is called.
    """
    text = read_program(file)
    if text is None:
        return
    expectations = check_case(text, str(file))
    folder_finding = file.parent / FINDING
    if file.name in (MINIMAL, ORIGINAL) and is_there(folder_finding):
        finding = read_finding(file.parent)
        seen = finding.evidence if file.name == MINIMAL else finding.failure
        yield KeptCase(str(file), subject_of(text, trust=trust), expectation_of(finding, seen), finding.id)
        return
    if is_key(text):
        raise InputError(f"{file}: found a case of a key function alone, expected one with its {FINDING} beside it")
    if not expectations:
        raise InputError(f"{file}: found no line '# expect: …', expected one, such as '# expect: export/explicit ok'")
    for line in expectations:
        expect = parse_expectation(line, str(file))
        yield KeptCase(f"{file}@{expect.stage}/{expect.semantics}", subject_of(text), expect)


def finding_cases(findings: Iterable[Finding], database: str, *, trust: bool = False) -> tuple[KeptCase, ...]:
    """The smallest and the original program of each finding of a database, sorted by id.

    A finding in the user's own code has no program and so no case. Refuses a finding with an invalid program.
    """

    def cases_of(finding: Finding) -> Iterator[KeptCase]:
        for name, text, seen in (
            (MINIMAL, finding.minimal, finding.evidence),
            (ORIGINAL, finding.original, finding.failure),
        ):
            if text is not None:
                case = f"{finding.id}/{name}"
                check_case(text, case)
                subject = subject_of(text, trust=trust)
                yield KeptCase(case, subject, expectation_of(finding, seen), finding.id, database)

    return tuple(sorted(_usable(findings, cases_of), key=lambda case: case.id))


def expectation_of(finding: Finding, seen: Failure | None) -> Expectation:
    """What a program of a finding has to do in the stage where it failed: pass, if it is fixed in this torch."""
    if seen is None:
        raise InputError(
            f"{finding.id}: found no failure stored with this finding, expected one: it says in which stage to replay"
        )
    observation = seen.observation
    calls = tuple(call.size for call in observation.calls)
    # The version is read from a file, so that selecting cases does not import torch.
    if recurs(finding.state, finding.fixed_in, installed_version()):
        return Expectation(observation.stage, observation.semantics, calls=calls)
    stage, semantics = observation.stage, observation.semantics
    either = ROWS[finding.state].expects == "either"
    return Expectation(stage, semantics, finding.kind, str(finding.site), finding.anchor, calls, either)


def trusted_cases(listed: Path) -> Iterator[KeptCase]:
    """The cases of the modules in a list, by the JSON files of their outcomes. Nothing is executed."""
    for path, expected, name in _read_trusted(listed):
        of_cases = dict[str, dict[Stage, ExpectedOutcome]]
        outcomes: of_cases = parse_json(read_bytes(expected), of_cases, expected, "the outcomes of cases by stage")
        for case, stages in outcomes.items():
            subject = CallableSubject(str(path), case=case)
            if name is not None:
                subject = CallableSubject(str(path), name=name)
            for stage, outcome in stages.items():
                expect = Expectation(stage, EXPLICIT, outcome.kind, str(outcome.site or ""))
                yield KeptCase(f"{path}:{case}@{stage}", subject, expect)


def _read_trusted(listed: Path) -> Iterator[tuple[Path, Path, str | None]]:
    """The path of each module in a list, that of the file with its outcomes, and the name in the module."""
    trusted = record_of(read_toml(listed), TrustFile, listed)
    for module in trusted.module:
        if "\0" in module.path:
            raise InputError(f"{listed}: found the module {module.path!r}, expected a path")
        path, expected = listed.parent / module.path, listed.parent / module.expected
        if not real_path(path).is_relative_to(real_path(listed.parent)):
            raise InputError(f"{listed}: found the module {module.path!r}, expected one below the folder of the list")
        yield path, expected, module.name


CASE_SECONDS = 60.0

Status: TypeAlias = Literal["as expected", "gone", "fails", "fails otherwise", "not judged"]
"""
as expected      passes as expected, or fails as expected, or no result is expected
gone             was expected to fail and passes
fails            was expected to pass
fails otherwise  fails with another kind, site or anchor than expected
not judged       this torch has no such op or stage, or eager fails, or the case cannot be built
"""

MISMATCHES: frozenset[Status] = frozenset({"fails", "fails otherwise", "not judged"})
"""The statuses that make a replay fail. `gone`, a known failure that no longer occurs, does not."""

_WORST_FIRST: tuple[Status, ...] = ("fails otherwise", "fails", "not judged", "gone", "as expected")


class ReplayResult(msgspec.Struct, frozen=True):
    """The result of one case. `seen` is what it did, in the form of an expectation."""

    case: KeptCase
    status: Status
    seen: str
    evidence: str = ""


def compare(case: KeptCase, seen: TriedRun) -> ReplayResult:
    """Compare the result with what is expected of the case."""
    observation = seen.observation
    run = f"{observation.stage}/{observation.semantics}"
    if observation.outcome == "not-judged":
        return ReplayResult(
            case, "as expected" if case.expect.either else "not judged", f"{run} not judged", observation.reason
        )
    if not seen.failures:
        return ReplayResult(case, "gone" if case.expect.kind else "as expected", f"{run} ok")
    match = next((one for one in seen.failures if case.expect.fits(one.signature)), None)
    first = match or seen.failures[0]
    status: Status = "fails" if case.expect.kind is None else "fails otherwise" if match is None else "as expected"
    if case.expect.either:
        status = "as expected"
    return ReplayResult(case, status, f"{run} {first.signature.kind} at {first.signature.site}", first.failure.evidence)


def replay(
    cases: Iterable[KeptCase],
    jobs: int,
    listen: Callable[[ReplayResult], None] = lambda _: None,
    ledger: Ledger | None = None,
) -> tuple[ReplayResult, ...]:
    """Run every case in a worker and compare. The results are in the order of the cases.

    The guard sites that the cases reach with explicit semantics are added to `ledger`.
    """
    with Pool(jobs) as pool:
        sent = [(case, pool.submit(judge_run, trial_of(case), CASE_SECONDS)) for case in cases]
        results = []
        for case, future in sent:
            reason = ""
            try:
                with guarded(case.id) as guard:
                    seen = arrived(case, future.result())
                    results.append(compare(case, seen))
                    if ledger is not None and seen.observation.semantics == EXPLICIT:
                        text = case.subject.text if isinstance(case.subject, ProgramSubject) else ""
                        ledger.add([(seen.observation.stage, reached(seen.observation, seen.failures))], text)
                reason = guard.reason
            except InputError as error:  # the case cannot be built
                refuse(InputError(f"{case.id}: {error}"))
                reason = str(error)
            if reason and (not results or results[-1].case is not case):
                results.append(ReplayResult(case, "not judged", f"{case.expect.stage} not judged", reason))
            listen(results[-1])
    return tuple(results)


def statuses(results: Iterable[ReplayResult]) -> dict[Status, int]:
    """The number of cases with each status that occurs, in the order of `Status`."""
    return _counted(result.status for result in results)


def statuses_of_findings(results: Iterable[ReplayResult]) -> dict[Status, int]:
    """The number of findings with each status: the worst of their programs. Other cases are not counted."""
    by_finding: dict[str, set[Status]] = {}
    for result in results:
        if result.case.finding:
            by_finding.setdefault(result.case.finding, set()).add(result.status)
    return _counted(next(status for status in _WORST_FIRST if status in seen) for seen in by_finding.values())


def _counted(seen: Iterable[Status]) -> dict[Status, int]:
    counts = Counter(seen)
    return {status: counts[status] for status in get_args(Status) if counts[status]}


def trial_of(case: KeptCase) -> Trial:
    """The run of a case, and the oracles that judge it."""
    expect = case.expect
    return Trial(Run(case.subject, expect.stage, expect.semantics, calls=expect.calls), expect.oracles)


def arrived(case: KeptCase, result: TriedRun | LostTask) -> TriedRun:
    """The judged run. If the worker was lost, one that says so."""
    if isinstance(result, TriedRun):
        return result
    return tried_of(lost_observation(trial_of(case).run, result))
