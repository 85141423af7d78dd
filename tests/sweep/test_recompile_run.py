"""What a run of `ddefuzz recompiles` selects, keeps, groups and prints. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.cli import sweep as page
from ddefuzz.cli.sweep import recompiles as command
from ddefuzz.errors import InputError
from ddefuzz.files import append
from ddefuzz.show.markdown import markdown
from ddefuzz.sweep import recompile as run
from ddefuzz.sweep.recompile import (
    Form,
    OpRecompilations,
    Recompilations,
    RecompileTask,
    SequenceCount,
    document,
    recompiles_text,
    recompiles_view,
    sizes_text,
)
from ddefuzz.sweep.recompile import recompiles_report as report_of
from ddefuzz.sweep.recompile_reviewed import REVIEWED
from ddefuzz.sweep.sweep import matching

SIZES = (5, 7, 9, 11)
ASKED = RecompileTask("", SIZES, ("default",))


def row(op: str, compilations: int, frame: str, guard: str = "Eq(s0, 7)", out: bool = True) -> SequenceCount:
    form: Form = "out" if out else "plain"
    return SequenceCount(
        op, out, None, SIZES, compilations, 2, guard, frame, "torch", (SIZES,), 2 if out else None, form=form
    )


DONE = (
    OpRecompilations("topk", (row("topk", 2, "", "", out=False), row("topk", 4, "meta_topk"))),
    OpRecompilations("max", (row("max", 4, "meta_topk"), row("max", 2, ""))),
    OpRecompilations("sort", (row("sort", 3, "meta_sort"),)),
    OpRecompilations("eye", dropped="it has no sample"),
)


def test_rows_above_what_is_allowed_are_grouped_by_frame() -> None:
    groups = document("2.13.0", SIZES, DONE, interrupted=False).groups
    assert [(group.frame, group.ops) for group in groups] == [("meta_topk", ("max", "topk")), ("meta_sort", ("sort",))]


def test_ops_that_cannot_be_unbacked_are_grouped_too() -> None:
    failed = SequenceCount("eq", True, "unbacked", SIZES, 0, 1, "u0", "meta_eq", "torch", error="UserError: u0")
    (group,) = document("2.13.0", SIZES, [OpRecompilations("eq", (failed,))], interrupted=False).refused
    assert (group.frame, group.ops, group.guards) == ("meta_eq", ("eq",), ("u0",))


def test_the_document_is_rows_by_op() -> None:
    made = document("2.13.0", SIZES, DONE, interrupted=False)
    assert [one.op for one in made.rows] == ["max", "max", "sort", "topk", "topk"]
    assert made.dropped == {"eye": "it has no sample"}
    built = msgspec.to_builtins(made)
    assert {"op", "out", "dynamic", "sizes", "compilations", "allowed", "guard", "frame"} <= set(built["rows"][0])


def test_the_pages_name_op_count_guard_and_frame() -> None:
    made = document("2.13.0", SIZES, DONE, interrupted=False)
    text = recompiles_text(made)
    assert "   4 (2)  default       topk out=  Eq(s0, 7) at meta_topk (without out=: 2); one graph is right" in text
    assert "one graph is right for 5, 7, 9, 11" in text
    assert "not counted: eye: it has no sample" in text
    page = markdown(recompiles_view(made))
    assert "| `meta_topk` | torch | 2 | `Eq(s0, 7)` | max, topk |" in page
    assert "| topk | 2 / **4** |" in page
    assert "| it has no sample | 1 | eye |" in page


def test_every_format_of_reports_has_a_result_for_each_function() -> None:
    report = report_of(document("2.13.0", SIZES, DONE, interrupted=False))
    assert report.counts == {"failed": 3, "passed": 2}
    (first, *_) = report.of("failed")
    assert (first.id, first.site) == ("recompiles/max out=/default", "meta_topk")
    assert first.title == "max out= (default): 4 compilations, 2 allowed"
    result = CliRunner().invoke(command, ["--help"])
    assert all(name in result.output for name in ("html", "junit", "csv", "jsonl"))


def page_of(done: Iterable[OpRecompilations]) -> str:
    return markdown(recompiles_view(document("2.13.0", SIZES, done, interrupted=False)))


def test_what_was_read_in_the_source_is_on_the_page() -> None:
    frame, said = next(iter(REVIEWED.items()))
    done = [OpRecompilations("lu", (row("lu", 4, frame),))]
    assert f"- `{frame}` (1 op): {said}" in markdown(
        recompiles_view(document("2.13.0", SIZES, done, interrupted=False))
    )
    assert "None of them was read." in page_of(DONE)


def test_globs_select_ops() -> None:
    ops = ("bmm", "linalg.inv", "linalg.norm", "topk")

    def selected(*globs: str) -> tuple[str, ...]:
        return matching(ops, globs, fnmatchcase, "ops with out=", "'linalg.*'")

    assert selected("linalg.*", "topk") == ("linalg.inv", "linalg.norm", "topk")
    assert selected() == ops
    with pytest.raises(InputError, match="found 'conv', which names none of 4 ops with out="):
        selected("conv")


def test_results_are_kept_by_what_decides_them(tmp_path: Path) -> None:
    keep = tmp_path / "kept.jsonl"
    for one in DONE:
        stored = run.StoredResult("2.13.0", msgspec.structs.replace(ASKED, op=one.op), one)
        append(keep, msgspec.json.encode(stored) + b"\n")
    assert run._read(keep, "2.13.0", ASKED) == {one.op: one for one in DONE}
    assert not run._read(keep, "2.15.0", ASKED)
    assert not run._read(keep, "2.13.0", msgspec.structs.replace(ASKED, modes=("dynamic",)))
    keep.write_text("{}\n")
    with pytest.raises(InputError, match=r"kept.jsonl:1: found Object missing required field"):
        run._read(keep, "2.13.0", ASKED)


def test_consecutive_sizes_are_a_range() -> None:
    assert sizes_text(range(5, 105)) == "5 to 104"
    assert sizes_text((5, 7, 9, 11)) == "5, 7, 9, 11"


@pytest.mark.parametrize("sizes", ["5", "5,x", "5,1", "", "5,-7"])
def test_wrong_sizes_are_one_line(sizes: str) -> None:
    result = CliRunner().invoke(command, ["--sizes", sizes])
    assert result.exit_code == 2
    assert "expected sizes from 2 such as 5,7,9,11" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(("fail_on", "code"), [("never", 0), ("any", 1)])
def test_the_exit_code_says_whether_one_is_above(monkeypatch: pytest.MonkeyPatch, fail_on: str, code: int) -> None:
    def counted(*_: object) -> run.RecompileRun:
        return run.RecompileRun(document("2.13.0", SIZES, DONE, interrupted=False), ())

    monkeypatch.setattr(page, "count_compilations", counted)
    result = CliRunner().invoke(command, ["--format", "json", "--fail-on", fail_on])
    assert result.exit_code == code
    assert msgspec.json.decode(result.stdout, type=Recompilations).sizes == SIZES
