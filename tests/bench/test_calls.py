"""The cost of calling captured programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.bench.throughput import view_calls
from tests.bench.typed_bench import bench, text_of


def test_the_ratios_are_over_all_stages() -> None:
    seconds = {
        "capture": {"aot": 1.0, "export": 3.0, "compile": 0.0},
        "agreement": {"aot": 1.5, "export": 3.0, "compile": 0.0},
        "all": {"aot": 2.0, "export": 4.0, "compile": 0.0},
    }
    head = {"torch": "2.13.0", "profile": "captures", "seed": 0, "cases": 5, "called": {"aot": 3}}
    lines = [line.strip().split("  ", 1) for line in text_of(view_calls(head, seconds)).splitlines()]
    assert [[cell.strip() for cell in line] for line in lines if len(line) == 2 and "." in line[0]] == [
        ["1.12", "CPU seconds with calls and agreement over capture alone (target ≤ 1.5)"],
        ["1.50", "CPU seconds with calls and all oracles over capture alone"],
        ["2.00", "aot, all oracles: 2.0 / 1.0; 1.5 programs called for each CPU second"],
        ["1.33", "export, all oracles: 4.0 / 3.0; 0.0 programs called for each CPU second"],
    ]


@pytest.mark.slow
@pytest.mark.long
def test_calls_as_typed(tmp_path: Path) -> None:
    done = bench("calls", "--cases", "4", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["profile"], found["cases"]) == ("ddefuzz.bench.calls/3", "captures", 4)
    assert sum(found["called"].values()) > 0
    assert all(sum(found["seconds"][side].values()) > 0 for side in ("capture", "agreement", "all"))
