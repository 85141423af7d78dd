"""The cost of a check, measured beside a plain script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ci.bench.check import CheckCost, ProcessCost, measure, view
from ddefuzz.errors import InputError
from tests.bench.typed_bench import text_of

MEASURE = """\
import sys, msgspec
from ci.bench.check import measure
print(msgspec.json.encode(measure(sys.argv[1], ("export",))).decode())
"""

SUBJECTS = Path(__file__).parents[1] / "cli" / "check_subjects.py"


def test_a_line_has_the_ratio_and_both_sides() -> None:
    cost = CheckCost(
        "model.py:f", ("export",), ProcessCost(4.0, 5.0, 2.0), ProcessCost(5.0, 6.0, 3.0), {"export": "ok"}
    )
    text = text_of([view([cost])])
    assert "1.50  seconds to the first result over those of plain captures (target ≤ 1.5): 3.0 / 2.0" in text
    assert "1.25  CPU seconds of check over plain captures (target ≤ 1.3): 5.0 / 4.0; by the clock 6.0 / 5.0 s" in text


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("none.py:f", r"none\.py: found no such file, expected one with f"),
        (__file__, "found .*, expected FILE:NAME"),
    ],
)
def test_a_target_that_is_none_is_said(target: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        measure(target, ("export",))


@pytest.mark.slow
@pytest.mark.long
def test_both_sides_are_measured() -> None:
    # In a process of its own: all child processes of the caller are waited for.
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, f"{SUBJECTS}:branch"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    cost = msgspec.json.decode(done.stdout.splitlines()[-1], type=CheckCost)
    assert cost.outcomes == {"export": "fail: GuardOnDataDependentSymNode"}
    assert min(cost.plain.cpu_seconds, cost.check.cpu_seconds) > 0.5
    assert 0 < cost.check.first_seconds < cost.check.seconds
