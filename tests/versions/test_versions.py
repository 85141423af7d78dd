"""What follows from results under several versions of torch. No program is run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddefuzz.errors import EXIT_USAGE, refusals
from ddefuzz.findings.lifecycle import version_key
from ddefuzz.findings.model import Finding, Result
from ddefuzz.versions.model import Cell, Interpreter, Line, Status, cell_of, changes, fixed_since, in_order, program_key
from ddefuzz.versions.page import write_page
from ddefuzz.versions.run import printed
from tests.findings.arbitrary_findings import CHUNK

SHORT: dict[str, Status] = {"f": "fails", "p": "passes", "s": "sometimes", "m": "moved", "-": "not judged"}


def line(signs: str) -> Line:
    return Line("dde-1", "a title", {str(at): Cell(SHORT[sign]) for at, sign in enumerate(signs)})


@pytest.mark.parametrize(
    ("signs", "change"),
    [
        ("fff", "fails"),
        ("ffp", "fixed"),
        ("fp-", "fixed"),
        ("fpf", "regressed"),
        ("pff", "regressed"),
        ("-ff", "new"),
        ("-fp", "fixed"),
        ("-pf", "regressed"),
        ("ffm", "moved"),
        ("ffs", "sometimes"),
        ("ppp", "never"),
        ("---", "never"),
        ("f--", "fails"),
        ("mfp", "fixed"),
    ],
)
def test_what_has_become_of_a_finding(signs: str, change: str) -> None:
    assert line(signs).change == change


def test_the_versions_of_each_change() -> None:
    one = line("-fpfm-")
    assert one.where("fails") == ("1", "3")
    assert (one.fixed_in, one.regressed_in, one.could_not_be_made_in) == (("2",), ("3",), ("0",))
    assert changes([one, line("ff"), line("fff")]) == {"fails": 2, "moved": 1}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["shows"] * 3, Cell("fails", 3, 3)),
        (["shows", "passes", "shows"], Cell("sometimes", 2, 3)),
        (["passes", "fails otherwise"], Cell("moved", 0, 2)),
        (["passes", "not judged"], Cell("passes", 0, 2)),
        (["not judged"], Cell("not judged", 0, 1)),
    ],
)
def test_the_runs_of_one_finding(statuses: list[str], expected: Cell) -> None:
    assert cell_of(statuses) == expected


def test_a_damaged_version_has_a_place_in_the_order() -> None:
    some = ["2.15.0", "2.15.0a0+git3f1c2d4", f"2.{'9' * 5_000}.0", "2.15.0.dev20260102", "not one", "2.9.1+cpu"]
    in_time = sorted(some[:2] + some[3:4] + some[5:], key=version_key)
    assert in_time == ["2.9.1+cpu", "2.15.0.dev20260102", "2.15.0a0+git3f1c2d4", "2.15.0"]
    assert {*sorted(some, key=version_key)[:2]} == {some[2], "not one"}


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ({"2.13.0": "fails", "2.14.1": "passes", "2.15.0": "passes"}, ("2.14.1", "2.15.0")),
        ({"2.15.0": "passes", "2.13.0": "fails", "2.14.1": "passes"}, ("2.14.1", "2.15.0")),
        ({"2.13.0": "fails", "2.14.1": "not judged", "2.15.0": "passes", "2.16.0": "passes"}, ("2.15.0", "2.16.0")),
        ({"2.13.0": "fails", "2.14.1": "passes"}, ()),
        ({"2.13.0": "fails", "2.14.1+cpu": "passes", "2.14.1+cu130": "passes"}, ()),  # one version
        ({"2.14.1": "passes", "2.15.0": "passes"}, ()),  # nothing has shown it
        ({"2.13.0": "fails", "2.14.1": "passes", "2.15.0": "moved"}, ()),
        ({"2.13.0": "fails", "2.14.1": "sometimes", "2.15.0": "passes", "2.16.0": "passes"}, ("2.15.0", "2.16.0")),
    ],
)
def test_a_finding_is_fixed_after_two_versions_without_it(statuses: dict[str, str], expected: tuple[str, ...]) -> None:
    finding = Finding(id="dde-1", signature=CHUNK, cause="avoidable", minimal="program")
    key = program_key(finding)
    ran = [Result("dde-1", torch, key, status, 0, 1, "", "") for torch, status in statuses.items()]
    older = Result("dde-1", "2.12.0", "another program", "fails", 1, 1, "", "")
    assert fixed_since(finding, [*ran, older]) == expected


def test_interpreters_are_in_order_of_their_torch() -> None:
    some = [Interpreter(name, "", name) for name in ("2.15.0", "2.6.0+cpu", "2.13.0+cu128", "2.13.0")]
    assert [one.name for one in in_order(some)] == ["2.6.0+cpu", "2.13.0", "2.13.0+cu128", "2.15.0"]


@pytest.mark.slow
def test_the_page_has_categories_counts_and_what_differs(tmp_path: Path) -> None:
    names = ("2.6.0", "2.13.0", "2.15.0")

    def of(id_: str, signs: str, *, finding: bool = True) -> Line:
        cells = {name: Cell(SHORT[sign]) for name, sign in zip(names, signs, strict=True)}
        return Line(id_, "a | title" if finding else "", cells, id_ if finding else "")

    lines = [
        of("dde-aa", "ffp"),
        of("dde-bb", "-ff"),
        of("crash-cc", "pff"),
        of("dde-dd", "fff"),
        of("corpora/reported/cases.py:a@export", "-fp", finding=False),
    ]
    write_page(tmp_path / "versions.md", lines, [Interpreter(name, "", name) for name in names], "ddefuzz matrix")
    page = (tmp_path / "versions.md").read_text()
    tables = [
        [row.strip("| ").split(" | ") for row in part.splitlines()] for part in page.split("\n\n") if "---" in part
    ]
    categories, counts, differing = ({row[0]: row[1:] for row in rows} for rows in tables)
    assert categories["findings: dde"] == ["2 of 2", "3 of 3", "2 of 3"]
    assert categories["findings: crash"] == ["0 of 1", "1 of 1", "1 of 1"]
    assert categories["reported: export"] == ["\\-", "1 of 1", "0 of 1"]
    assert (counts["fails"], counts["fixed"]) == (["2", "5", "3"], ["0", "0", "2"])
    assert (counts["regressed"], counts["not judged"]) == (["0", "1", "1"], ["2", "0", "0"])
    assert [(name.split()[0], row[-1]) for name, row in differing.items() if name.startswith("`")] == [
        ("`dde-aa`", "fixed"),
        ("`corpora/reported/cases.py:a@export`", "fixed"),
        ("`crash-cc`", "regressed"),
        ("`dde-bb`", "new"),
    ]
    assert "`dde-aa` a \\| title" in page
    assert "<svg" in (tmp_path / "versions.svg").read_text()


def test_rows_that_an_interpreter_leaves_out_are_left_out_here(tmp_path: Path) -> None:
    text = (
        '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0"]):\n    return torch.relu(x)\n'
    )
    (tmp_path / "good.py").write_text(text)
    (tmp_path / "bad.py").write_text(text.replace("torch.relu(x)", "os.getcwd()"))
    words = ["corpus", "list", str(tmp_path), "--format", "json"]
    with refusals() as left_out:
        (case,) = json.loads(printed(sys.executable, words, 60, EXIT_USAGE))
    assert case["path"] == str(tmp_path / "good.py")
    assert [line.partition(":")[0] for line in left_out] == [str(tmp_path / "bad.py")]
