"""The pytest items: one case in one stage, or one model of a repository, run in a worker process.

A known failure is expected to fail (xfail); a fixed one shows as XPASS. Each pytest process, also each of pytest-xdist,
has one worker. So a crash or a hang is one failed item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from ddefuzz.campaign.replay import (
    CASE_SECONDS,
    TRUSTED,
    KeptCase,
    ReplayResult,
    arrived,
    compare,
    program_cases,
    trial_of,
    trusted_cases,
    user_function,
)
from ddefuzz.checking.acceptance import ACCEPTED, holding, read_accepted
from ddefuzz.checking.check import SILENT, Options, check_targets, targets_of
from ddefuzz.cli import settings
from ddefuzz.errors import DdefuzzError
from ddefuzz.escape import shell_words, visible
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CallableSubject
from ddefuzz.oracles.program import judge_run

POOL = pytest.StashKey[Pool]()


class KnownFailure(Exception):  # noqa: N818 it is the expected outcome, not an error
    """The case fails as expected."""


class Mismatch(Exception):  # noqa: N818 shown to the user as the outcome of a case
    """The result of the case is not the expected one."""


def case_file(path: Path, parent: pytest.Collector, *, trusted: bool) -> CaseFile:
    """A collector for the cases in a file."""
    file: CaseFile = CaseFile.from_parent(parent, path=path)
    file.is_trusted = trusted
    return file


class CaseFile(pytest.File):
    """One program file, or one list of trusted modules."""

    is_trusted = False

    def collect(self) -> Iterator[CaseItem]:
        """The cases, sorted: one for each stage with an expectation."""
        programs = partial(program_cases, trust=self.is_trusted)
        cases_of: Callable[[Path], Iterator[KeptCase]] = trusted_cases if self.path.name == TRUSTED else programs
        try:
            cases = sorted(cases_of(self.path), key=lambda case: case.id)
        except DdefuzzError as error:
            raise self.CollectError(str(error)) from error
        for case in cases if self.is_trusted else (one for one in cases if not user_function(one)):
            yield CaseItem.from_parent(self, name=_name(case), case=case)


class CaseItem(pytest.Item):
    """One case in one stage."""

    def __init__(self, *, case: KeptCase, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.case = case
        if case.expect.kind is not None:
            reason = visible(case.finding or str(case.expect))
            # A known failure that is fixed shows as XPASS. With the setting xfail_strict that fails.
            self.add_marker(pytest.mark.xfail(reason=reason, raises=KnownFailure))

    def runtest(self) -> None:
        """Run the case in a worker and compare the result with the expectation."""
        result = _pool(self.config).submit(judge_run, trial_of(self.case), CASE_SECONDS).result()
        replayed = compare(self.case, arrived(self.case, result))
        match replayed.status:
            case "as expected" if self.case.expect.kind is not None:
                raise KnownFailure(_line(replayed))
            case "fails" | "fails otherwise" | "not judged":
                raise Mismatch(_line(replayed))
            case _:
                return

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """One line for a failure of the case; a traceback for any other error."""
        if isinstance(excinfo.value, KnownFailure | Mismatch):
            return visible(f"{excinfo.value}\nnext: {self._check_command()}")
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The location that pytest prints."""
        return self.path, 0, f"{self.path.name} {self.name}"

    def _check_command(self) -> str:
        match self.case.subject:
            case CallableSubject(path=path, case=case) if case is not None:
                return shell_words(["ddefuzz", "check", path, "--case", case])
            case _:
                return shell_words(["ddefuzz", "check", str(self.path)])


def model_file(path: Path, parent: pytest.Collector) -> ModelFile:
    """A collector for the models that a ddefuzz.toml names."""
    file: ModelFile = ModelFile.from_parent(parent, path=path)
    return file


class ModelFile(pytest.File):
    """The settings of a repository, which name its models."""

    def collect(self) -> Iterator[ModelItem]:
        """An item for each target."""
        if self.path.parent != Path.cwd():
            raise self.CollectError(f"{self.path}: found the current folder {Path.cwd()}, expected that of the file")
        try:
            targets = settings.read().get("targets", [])
            accepted = holding(read_accepted(ACCEPTED), datetime.now(UTC).date())
        except DdefuzzError as error:
            raise self.CollectError(str(error)) from error
        for target in targets:
            yield ModelItem.from_parent(self, name=target, options=Options(budget=None, accepted=accepted))


class ModelItem(pytest.Item):
    """One target of `ddefuzz check`, in its default stages."""

    def __init__(self, *, options: Options, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.options = options

    def runtest(self) -> None:
        """Check it in a worker. Accepted problems do not fail."""
        pool = _pool(self.config)
        report = check_targets(pool, self.name, targets_of(pool, self.name, None, ""), self.options, SILENT)
        if not report.ok or report.refused:
            raise Mismatch(report.text())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The report of the check; a traceback for an error of ddefuzz itself."""
        if isinstance(excinfo.value, Mismatch | DdefuzzError):
            return f"{excinfo.value}\nnext: {shell_words(['ddefuzz', 'check', self.name])}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The location that pytest prints."""
        return self.path, 0, self.name


def _name(case: KeptCase) -> str:
    """The item's part of the node id: the stage, with the name of the case before it for trusted modules."""
    stage = f"{case.expect.stage}/{case.expect.semantics}"
    match case.subject:
        case CallableSubject(path=path, case=name):
            return f"{Path(path).stem}:{name}@{stage}"
        case _:
            return stage


def _pool(config: pytest.Config) -> Pool:
    """The pool of the session. It starts with the first item and stops at the end."""
    pool = config.stash.get(POOL, None)
    if pool is None:
        pool = config.stash[POOL] = Pool(1)
        config.add_cleanup(lambda: pool.__exit__(None, None, None))
    return pool


def _line(replayed: ReplayResult) -> str:
    evidence = f" ({replayed.evidence})" if replayed.evidence else ""
    return f"{replayed.status}: expected {replayed.case.expect}, seen {replayed.seen}{evidence}"
