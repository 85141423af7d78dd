"""The CPU time of `ddefuzz check` compared with a plain script that does the same captures in one process."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from ci.bench.command import Result, Session, ratios
from ddefuzz.errors import InputError, UnsupportedError
from ddefuzz.execute.protocol import Stage
from ddefuzz.show.blocks import Table

PLAIN = Path(__file__).with_name("plain.py")
"""The script. It is not imported: it imports torch."""

_PR_SET_CHILD_SUBREAPER = 36


class ProcessCost(msgspec.Struct, frozen=True):
    """What a process and all its descendants took, in CPU seconds and seconds of the clock.

    `first_seconds` are those of the clock until the result of the first capture is printed.
    """

    cpu_seconds: float
    seconds: float
    first_seconds: float = 0.0


class CheckCost(msgspec.Struct, frozen=True):
    """One target, measured side by side: the plain script, then check. `outcomes` are those of the plain script."""

    target: str
    stages: tuple[Stage, ...]
    plain: ProcessCost
    check: ProcessCost
    outcomes: dict[str, str]


def run(session: Session, targets: tuple[str, ...], stages: tuple[Stage, ...]) -> Result:
    """Measure each target."""
    costs = []
    for target in targets:
        session.live.update(f"measuring {target}")
        costs.append(measure(target, stages))
    return Result({"schema": "ddefuzz.bench.check/1", "costs": costs}, [view(costs)])


def view(costs: list[CheckCost]) -> Table:
    """Two rows for each target."""
    rows = []
    for cost in costs:
        check, plain = cost.check, cost.plain
        first, cpu = (check.first_seconds, plain.first_seconds), (check.cpu_seconds, plain.cpu_seconds)
        to_first = "seconds to the first result over those of plain captures (target ≤ 1.5): {:.1f} / {:.1f}"
        of_cpu = (
            "CPU seconds of check over plain captures (target ≤ 1.3): {:.1f} / {:.1f}; by the clock {:.1f} / {:.1f} s"
        )
        rows += [
            (first[0] / first[1], to_first.format(*first), cost.target),
            (cpu[0] / cpu[1], of_cpu.format(*cpu, check.seconds, plain.seconds), cost.target),
        ]
    return ratios(rows, "target")


def measure(target: str, stages: tuple[Stage, ...]) -> CheckCost:
    """Measure FILE:NAME. Only on Linux, where the CPU time of processes that outlive their parent can be read."""
    file, _, name = target.rpartition(":")
    if not file or not name:
        raise InputError(f"found {target!r}, expected FILE:NAME")
    if not Path(file).is_file():
        raise InputError(f"{file}: found no such file, expected one with {name}")
    if sys.platform != "linux":
        raise UnsupportedError(f"{sys.platform}: found no way to read the CPU time of all processes, expected Linux")
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    bare, printed = _spent([sys.executable, str(PLAIN), file, name, *stages], {0}, f"{stages[0]} ")
    words = [word for stage in stages for word in ("--stage", stage)]
    command = [sys.executable, "-m", "ddefuzz", "check", target, "--no-advice", "--format", "json", *words]
    checked, _ = _spent(command, {0, 1}, f"{name}: {stages[0]} ")
    return CheckCost(target, stages, bare, checked, json.loads(printed))


def _spent(command: list[str], expected: set[int], first: str) -> tuple[ProcessCost, str]:
    """Run a command. `first` begins the line of stderr that has the first result."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    first_seconds, last = 0.0, "it says nothing"
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as running,
    ):
        for line in running.stderr or ():
            last = line.strip() or last
            if line.startswith(first) and not first_seconds:
                first_seconds = time.perf_counter() - started
        code = running.wait()
        seconds = time.perf_counter() - started
        out.seek(0)
        printed = out.read()
    if code not in expected:
        raise InputError(f"{' '.join(command)}: found exit code {code} ({last}), expected one of {expected}")
    while True:  # the processes that outlived it: their CPU time counts when they are waited for
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ProcessCost(round(cpu, 2), round(seconds, 2), round(first_seconds or seconds, 2)), printed
