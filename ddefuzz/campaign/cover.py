"""Corpora: what their cases do, what a new case is expected to do, and which cases are enough to cover the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ddefuzz.campaign.replay import (
    CASE_SECONDS,
    MISMATCHES,
    Expectation,
    KeptCase,
    arrived,
    compare,
    parse_expectation,
    program_cases,
    python_files,
    trial_of,
)
from ddefuzz.coverage.ledger import reached
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import ProgramSubject, Stage
from ddefuzz.files import is_there
from ddefuzz.ops import catalogue
from ddefuzz.oracles.program import judge_run
from ddefuzz.program.text import Case, digest, print_program, read_program
from ddefuzz.versions.observed import guard_seen


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


class Covered(NamedTuple):
    """What a case file covers: guard sites and signatures, each with its stage. `held` says why it has to stay."""

    file: CaseFile
    items: frozenset[tuple[str, str]]
    held: str = ""


def case_files(paths: Iterable[Path]) -> tuple[CaseFile, ...]:
    """The program files below the paths, sorted. Programs of findings are not among them. Raises `InputError`."""
    found: dict[Path, CaseFile] = {}
    for path in paths:
        for file in python_files(path):
            text = read_program(file)
            if text is None or is_there(file.parent / "finding.toml"):
                continue
            case = catalogue.parse(text, str(file))
            expect = tuple(parse_expectation(line, str(file)) for line in case.expect)
            found[file] = CaseFile(file, text, case, expect)
    return tuple(found[file] for file in sorted(found))


def expectations(text: str, stages: Iterable[Stage], jobs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a program does in each stage, as expectations; and why the other stages do not judge it."""
    cases = [KeptCase(stage, ProgramSubject(text), Expectation(stage)) for stage in stages]
    done, reasons = [], []
    with Pool(jobs) as pool:
        sent = [(case, pool.submit(judge_run, trial_of(case), CASE_SECONDS)) for case in cases]
        for case, future in sent:
            tried = arrived(case, future.result())
            result = compare(case, tried)
            if result.status == "not judged":
                reasons.append(f"{case.expect.stage}: {tried.observation.reason}")
            else:
                done.append(result.seen)
    return tuple(done), tuple(reasons)


def covered(files: Iterable[CaseFile], jobs: int, listen: Callable[[Path], None]) -> tuple[Covered, ...]:
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
                items |= {(stage, guard_seen(one).site) for one in reached(tried.observation, tried.failures)}
            results.append(Covered(file, frozenset(items), held))
            listen(file.path)
    return tuple(results)


def enough(all_: Iterable[Covered]) -> tuple[tuple[Covered, ...], Mapping[Path, tuple[Path, ...]]]:
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
