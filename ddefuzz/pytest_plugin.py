"""Case files as pytest items: known findings are expected failures, what got fixed shows as XPASS.

`pytest corpora findings` collects every program file there. Items run in processes of their own, one pool a pytest
process, so that a crash or a hang is one failed item; under pytest-xdist each worker has its pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddefuzz.campaign.corpus import KeptCase, program_cases
from ddefuzz.campaign.replay import CASE_SECONDS, Replayed, arrived, compare, run_of
from ddefuzz.errors import DdefuzzError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.worker import observe_run
from ddefuzz.program.text import HEADER

POOL = pytest.StashKey[Pool]()


class KnownFailure(Exception):  # noqa: N818 it is the expected outcome, not an error
    """The case fails as it is known to."""


class Mismatch(Exception):  # noqa: N818 shown to the user as the outcome of a case
    """The case does something else than what is expected of it."""


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Take the files that are programs; other Python files are pytest's own business."""
    if file_path.suffix != ".py":
        return None
    with file_path.open("rb") as file:
        if file.read(len(HEADER)) != HEADER.encode():
            return None
    collected: CaseFile = CaseFile.from_parent(parent, path=file_path)
    return collected


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the workers."""
    pool = config.stash.get(POOL, None)
    if pool is not None:
        pool.__exit__(None, None, None)


class CaseFile(pytest.File):
    """One program file."""

    def collect(self) -> Iterator[CaseItem]:
        """Its cases: one for each stage that something is expected of."""
        try:
            cases = sorted(program_cases(self.path), key=lambda case: case.id)
        except DdefuzzError as error:
            raise self.CollectError(str(error)) from error
        for case in cases:
            yield CaseItem.from_parent(self, name=f"{case.expect.stage}/{case.expect.semantics}", case=case)


class CaseItem(pytest.Item):
    """One case in one stage."""

    def __init__(self, *, case: KeptCase, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.case = case
        if case.expect.kind is not None:
            reason = case.finding or str(case.expect)
            self.add_marker(pytest.mark.xfail(reason=reason, raises=KnownFailure, strict=False))

    def runtest(self) -> None:
        """Run it in a worker and hold what was seen against what is expected."""
        pool = self.config.stash.get(POOL, None)
        if pool is None:
            pool = self.config.stash[POOL] = Pool(1)
        result = pool.submit(observe_run, run_of(self.case), CASE_SECONDS).result()
        replayed = compare(self.case, arrived(self.case, result))
        match replayed.status:
            case "as expected" if self.case.expect.kind is not None:
                raise KnownFailure(_line(replayed))
            case "fails" | "fails otherwise" | "not judged":
                raise Mismatch(_line(replayed))
            case _:
                return

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """One line for what is about the case; a traceback for what is not."""
        if isinstance(excinfo.value, KnownFailure | Mismatch):
            return f"{excinfo.value}\nnext: ddefuzz check {self.path}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where pytest says it is."""
        return self.path, 0, f"{self.path.name} {self.case.expect.stage}"


def _line(replayed: Replayed) -> str:
    evidence = f" ({replayed.evidence})" if replayed.evidence else ""
    return f"{replayed.status}: expected {replayed.case.expect}, seen {replayed.seen}{evidence}"
