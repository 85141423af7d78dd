"""Changes of a user's code that are tried for `ddefuzz check`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ddefuzz.classify.classify import Classified
from ddefuzz.cli.check_runs import Target
from ddefuzz.errors import DdefuzzError, InputError
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import CallableSubject, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.execute.scratch import scratch_folder
from ddefuzz.files import read_text
from ddefuzz.ops import catalogue
from ddefuzz.report.advice import Advice, advise


def advise_case(pool: Pool, target: Target, failures: Sequence[Classified], timeout: float) -> Advice | None:
    """What happened in the first failure of a case, and what helps; None if the source cannot be read."""
    subject = target.subject
    if isinstance(subject, ProgramSubject):
        return advise(failures, target.file, subject.text, lambda text, stage: _try_program(pool, text, stage, timeout))
    try:
        source = read_text(Path(subject.path))
    except InputError:
        # The source has another encoding, or there is none. Changes are only tried in UTF-8.
        return None
    folder = Path(tempfile.mkdtemp(prefix="advice-", dir=scratch_folder()))
    try:
        return advise(
            failures, target.file, source, lambda text, stage: _try(pool, subject, folder, text, stage, timeout)
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try(pool: Pool, subject: CallableSubject, folder: Path, text: str, stage: Stage, timeout: float) -> Observation:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        copy = Path(own) / Path(subject.path).name
        copy.write_text(text, encoding="utf-8")
        return _run(pool, Run(msgspec.structs.replace(subject, path=str(copy)), stage), timeout)


def _try_program(pool: Pool, text: str, stage: Stage, timeout: float) -> Observation:
    try:
        catalogue.parse(text, "<program>")
    except InputError as error:
        return Observation(stage, Semantics(), "not-judged", str(error))
    return _run(pool, Run(ProgramSubject(text), stage), timeout)


def _run(pool: Pool, run: Run, timeout: float) -> Observation:
    """Run a changed source. One that cannot be loaded counts as not helping."""
    try:
        return pool.observe(run, timeout)
    except InputError:
        # A module that registers ops cannot be loaded twice in one process.
        try:
            return pool.observe_cold(run, timeout)
        except DdefuzzError as error:
            return Observation(run.stage, run.semantics, "not-judged", str(error))
