"""What `ci/bench compile` shows, from records made by hand; and a small run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.bench.compile import PROGRAMS, ProgramCost, Timing, document, subjects_of, view
from ddefuzz.show.markdown import markdown
from tests.bench.typed_bench import text_of, typed

COST = ProgramCost(
    "sort",
    (5.0,) * 4,
    {
        "unbacked inductor": Timing(1.0, (20.0,) * 4),
        "backed inductor": Timing(1.0, (10.0,) * 4),
        "static eager": Timing(error="TypeError: no"),
    },
)


def test_the_pages_have_ratios_and_errors() -> None:
    costs = [COST, ProgramCost("x", lost="crash: SIGKILL")]
    said = text_of(list(view(costs)))
    assert "2.00 (2.00 to 2.00)" in said
    assert "x: crash: SIGKILL" in said
    assert "sort, static eager: TypeError: no" in said
    assert "| sort | 5 | 20 | 10 | \\- | 2.00 (2.00 to 2.00) | \\- |" in markdown(view(costs))
    read = document(costs, 4)
    assert read["rows"][0]["ratios"]["inductor"] == {"backed": 2.0, "static": None}
    assert read["schema"] == "ddefuzz.bench.compile/2"


def test_there_are_twenty_programs_each_with_an_unbacked_size() -> None:
    assert len(PROGRAMS) == 20
    for text in PROGRAMS.values():
        subjects = subjects_of(text)
        assert "u0=" in subjects["unbacked"].text
        assert "u0" not in subjects["static"].text
        assert (subjects["backed"].text, subjects["backed"].backed) == (text, True)


@pytest.mark.slow
def test_every_version_is_timed_under_every_backend(tmp_path: Path) -> None:
    done = typed("compile", "--program", "row_sum", "--rounds", "2", "--format", "json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert len(row["timed"]) == 9
    assert all((one["error"], len(one["rounds"])) == ("", 2) for one in row["timed"].values())
    assert row["ratios"]["inductor"]["backed"] > 0
