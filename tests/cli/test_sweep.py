"""`ddefuzz sweep` with real workers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ddefuzz.findings.database import Database
from ddefuzz.show.blocks import Invocation
from ddefuzz.show.html import html
from ddefuzz.show.markdown import markdown
from ddefuzz.show.terminal import terminal
from ddefuzz.sweep.census import (
    Census,
    Difference,
    Upstream,
    census_document,
    census_view,
    rows_of,
    totals_of,
)
from ddefuzz.sweep.sweep import SweepProgress, progress_line
from tests.sweep.made_by_hand import ROLL, failed, swept
from tests.typed import typed

SWEPT = (
    swept("chunk", failed(), explicit="dde", size_oblivious="dde"),
    swept("a|b<c>", failed(ROLL), explicit="dde"),
    swept("add", rescued=("aten/src/ATen/ExpandUtils.cpp:34",), size_oblivious="dde"),
)
CENSUS = Census(
    torch="2.13.0",
    generator="sweep=1",
    selection=(),
    seconds=1.0,
    totals=totals_of(SWEPT),
    rows=rows_of(SWEPT),
    upstream=Upstream(
        3,
        2,
        1,
        (Difference("new", "upstream skips it", "at::f"),),
        (Difference("old", "stale", "7 samples"),),
        ("odd",),
    ),
)


def sweep(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    place = {"TMPDIR": str(folder), "COLUMNS": "160"}
    return typed("sweep", "--db", f"sqlite:///{folder}/ddefuzz.db", "-j", "1", *words, folder=folder, environment=place)


@pytest.mark.slow
def test_a_sweep_and_going_on_with_it(tmp_path: Path) -> None:
    first = sweep(tmp_path, "--ops", "chunk*", "--format", "json", "--output", f"markdown={tmp_path}/census.md")
    assert first.returncode == 0, first.stderr
    document: dict[str, Any] = json.loads(first.stdout)
    assert document["schema"] == "ddefuzz.sweep/2"
    assert {row["op"]: row["explicit"] for row in document["rows"]} == {"chunk": "dde", "torch.chunk(x, k, d)": "dde"}
    assert all(row["site"] == "at::native::chunk" for row in document["rows"])
    assert " at::native::chunk [" in (tmp_path / "census.md").read_text()
    with Database.open(f"sqlite:///{tmp_path}/ddefuzz.db") as database:
        assert "at::native::chunk" in [finding.site.function for finding in database.findings()]
        assert database.sites(document["torch"])
    again = sweep(tmp_path, "--ops", "chunk*", "--ops", "flip", "--fail-on", "any")
    assert again.returncode == 1, again.stderr
    assert "(2 from before)" in again.stderr
    assert "4 ops" in again.stdout or "3 ops" in again.stdout


@pytest.mark.slow
def test_a_glob_of_nothing(tmp_path: Path) -> None:
    done = sweep(tmp_path, "--ops", "chnk*")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("ddefuzz: --ops: found 'chnk*', which names none of ")
    assert done.stdout == ""


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_the_page_has_what_fails_and_fits(columns: int) -> None:
    page = terminal(census_view(CENSUS, Invocation()), columns)
    assert "at::native::chunk" in page
    assert "upstream skips it" in page
    assert "2 of 3 entries accounted for" in " ".join(page.split())
    assert page.index("new") < page.index("old") < page.index("a|b<c>")


def test_the_markdown_page() -> None:
    page = markdown(census_document(CENSUS))
    assert "| `chunk` | dde | dde | avoidable | export | 2 | 9 | `" in page
    assert "`a\\|b<c>`" in page
    assert "## Ops whose samples all trace (OpInfo)\n\n`add`" in page
    assert page.index("not on upstream's list") < page.index("Ops of OpInfo that fail")


def test_what_is_wrong_with_captured_programs_is_shown() -> None:
    signature = msgspec.structs.replace(ROLL, kind="over-strict")
    wrong = failed(signature, evidence="at size 1: Eq(u0, 2)", confirmed=())
    done = (swept("flip", called=4, wrong=(wrong,)), swept("add", called=3))
    census = msgspec.structs.replace(CENSUS, rows=rows_of(done), totals=totals_of(done), upstream=None)
    (row,) = [row for row in census.rows if row.wrong]
    assert (row.op, row.explicit, row.wrong[0].finding) == ("flip", "ok", signature.key)
    assert (census.totals.called, census.totals.wrong) == (7, {"over-strict": 1})
    text, document = terminal(census_view(census, Invocation()), 200), markdown(census_document(census))
    assert "1 op whose captured programs are wrong" in text
    assert all(word in text for word in (signature.key, "torch/_refs/__init__.py:roll", "at size 1: Eq(u0, 2)"))
    assert "called: 7 captured programs; ops by what is wrong: 1 over-strict" in text
    assert "| over-strict | `torch/_refs/__init__.py:roll` | `at size 1: Eq(u0, 2)` |" in document
    fine = msgspec.structs.replace(census, rows=rows_of(done[1:]))
    assert "at size 1" not in markdown(census_document(fine))
    assert signature.key in document


def test_the_html_page_stands_alone_and_escapes() -> None:
    page = html("Census", census_document(CENSUS))
    assert "a|b&lt;c&gt;" in page
    assert "<c>" not in page
    assert "http:" not in page
    assert "https:" not in page
    assert "src=" not in page


def test_the_remaining_time_is_that_of_what_is_left() -> None:
    now = SweepProgress(done=10, kept=5, left=30, seconds=20.0, findings=3, new=2)
    assert progress_line(now) == "15 of 45 ops (5 from before), about 60 s left, 3 findings, 2 new"
    assert "about 3 min left" in progress_line(SweepProgress(10, 0, 90, 20.0, 0, 0))
