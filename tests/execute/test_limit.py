from __future__ import annotations

import subprocess
import sys

import pytest

from ddefuzz.execute import limit

START = "from ddefuzz.execute.limit import check_children, limited\nimport subprocess, sys, time\n"
BURNS = "import time\nwhile time.process_time() < 0.3: pass"


def ended(code: str) -> int:
    return subprocess.run([sys.executable, "-c", START + code], check=False).returncode


@pytest.mark.parametrize(
    "code",
    [
        "with limited(0.1):\n    while True: pass",
        "with limited(0.1):\n    sum(range(10**12))",  # one call of C code, which holds the interpreter's lock
    ],
)
def test_a_process_ends_when_its_cpu_seconds_are_used_up(code: str) -> None:
    assert ended(code) == -limit.ENDS


@pytest.mark.parametrize(
    "code",
    [
        "with limited(0.2): time.sleep(0.5)",
        "with limited(0.2): pass\nwhile time.process_time() < 0.5: pass",
        "with limited(None):\n    while time.process_time() < 0.3: pass",
        "with limited(0.2): check_children()",
    ],
)
def test_time_that_is_slept_or_spent_outside_the_task_does_not_count(code: str) -> None:
    assert ended(code) == 0


@pytest.mark.parametrize(("seconds", "code"), [(0.2, -limit.ENDS), (60, 0)])
def test_children_count_once_they_have_ended(seconds: float, code: int) -> None:
    runs = f"    subprocess.run([sys.executable, '-c', {BURNS!r}])\n    check_children()"
    assert ended(f"with limited({seconds}):\n{runs}") == code


def test_the_seconds_of_a_task_are_those_of_its_children_too() -> None:
    before = limit.cpu_seconds()
    subprocess.run([sys.executable, "-c", BURNS], check=True)
    assert limit.cpu_seconds() - before >= 0.3


def test_children_of_earlier_tasks_do_not_count() -> None:
    runs = f"subprocess.run([sys.executable, '-c', {BURNS!r}])\n"
    assert ended(f"{runs}with limited(0.2): check_children()") == 0
