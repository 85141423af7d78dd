"""Runs the stand-alone scripts of findings, each in a process of its own, several at a time."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute.protocol import Outcome
from ddefuzz.files import write_atomically
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.capture import IN_CALL
from ddefuzz.repro.call_script import CALLING
from ddefuzz.repro.finding import finding_script
from ddefuzz.repro.processes import Cold, Forked

SECONDS: Final = 120.0
"""The time limit of one script. Most take 5 s, of which 4 s are the import of torch."""

ScriptStatus: TypeAlias = Literal["shows", "passes", "fails otherwise", "not judged"]
"""
shows            the failure is the finding's
passes           it can be captured
fails otherwise  another failure, or a script that dies or does not end
not judged       eager raises for the program, this torch has no such op or stage, or there is no script
"""


class ScriptResult(msgspec.Struct, frozen=True):
    """The result of one finding's script. `expected` and `seen` are what it printed; `reason` says why it
    printed nothing.
    """

    finding: str
    status: ScriptStatus
    torch: str = ""
    stage: str = ""
    expected: dict[str, str] | None = None
    seen: dict[str, str] | None = None
    reason: str = ""


class _Said(msgspec.Struct, frozen=True):
    """The JSON line that a script prints."""

    torch: str
    stage: str
    verdict: ScriptStatus
    expected: dict[str, str]
    seen: dict[str, str] | None


def torch_of(python: str) -> str:
    """The version of torch that an interpreter has. Raises `InputError` without an interpreter,
    `UnsupportedError` without torch.
    """
    code = "import torch; print(torch.__version__)"
    try:
        done = subprocess.run(
            [python, "-c", code], capture_output=True, text=True, errors="replace", check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        what = "one that does not answer" if isinstance(error, subprocess.TimeoutExpired) else error.strerror
        raise InputError(f"--python {python}: {what}, expected a Python interpreter that has torch") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UnsupportedError(f"--python {python}: {said}, expected a Python interpreter that has torch")
    return done.stdout.strip()


def run_scripts(
    findings: Iterable[Finding],
    python: str,
    jobs: int,
    listen: Callable[[ScriptResult], None],
    seconds: float = SECONDS,
    *,
    forked: bool = False,
) -> tuple[ScriptResult, ...]:
    """Run the findings' scripts, and return the results in order. `listen` is called with each as soon as it is
    known. With `forked` each runs in a child of a process that has imported torch (`fork_server`), else in a new
    process.
    """
    lock = Lock()
    with tempfile.TemporaryDirectory(prefix="ddefuzz-scripts-") as folder, ThreadPoolExecutor(jobs) as threads:
        place = Path(folder)
        processes = Forked(python, place, jobs, seconds) if forked else Cold(python, place, seconds)

        def result_of(finding: Finding) -> ScriptResult:
            result = _result_of(finding, processes, place, seconds)
            with lock:
                listen(result)
            return result

        try:
            return tuple(threads.map(result_of, findings))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            processes.stop()


def _result_of(finding: Finding, processes: Cold | Forked, folder: Path, seconds: float) -> ScriptResult:
    try:
        script = finding_script(finding)
    except InputError as error:
        return ScriptResult(finding.id, "not judged", reason=str(error))
    path = folder / f"{finding.id}.py"
    write_atomically(path, script)  # a finding may run twice at once
    ended = processes.run(path)
    if ended is None:
        return ScriptResult(finding.id, "not judged", reason="interrupted")
    if ended.code is None:
        status = _status_of_loss(finding, "timeout", ended.errors)
        return ScriptResult(finding.id, status, reason=f"no verdict within {seconds:g} s")
    return _result(finding, ended.code, ended.output, ended.errors)


def _status_of_loss(finding: Finding, outcome: Outcome, errors: str) -> ScriptStatus:
    """What a script shows that ended without a verdict: whether it did so in the capture or in the call of what was
    captured has to be as in the finding.
    """
    kind = IN_CALL[outcome] if CALLING in errors.splitlines() else outcome
    return "shows" if finding.kind == kind else "fails otherwise"


def _result(finding: Finding, code: int, output: str, errors: str) -> ScriptResult:
    lines = output.strip().splitlines()
    try:
        said = msgspec.json.decode(lines[-1] if lines else "", type=_Said)
    except msgspec.DecodeError:
        if code < 0:
            status = _status_of_loss(finding, "crash", errors)
            return ScriptResult(finding.id, status, reason=f"died of {signal.Signals(-code).name}")
        last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
        return ScriptResult(finding.id, "not judged", reason=last)
    return ScriptResult(finding.id, said.verdict, said.torch, said.stage, said.expected, said.seen)


STATUSES: Final[tuple[ScriptStatus, ...]] = get_args(ScriptStatus)
