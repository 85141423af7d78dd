"""What `ci/bench compile` lists, from records made by hand; and a planted lowering that falls back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from ci.bench.compile import (
    CompileBench,
    CompileTask,
    Lowered,
    ProgramCost,
    SizeKind,
    Timed,
    document,
    run_compile,
    subjects_of,
    view,
    worse_of,
)
from ci.bench.compile_programs import PROGRAMS
from ddefuzz.show.markdown import markdown
from tests.bench.typed_bench import text_of
from tests.oracles.planted_lowering import falling_back

GUARD = "torch/_inductor/lowering.py:7723 sort_stable: u0 < 32767 taken as False"


def lowered(**fields: Any) -> Lowered:
    return Lowered(**{"nodes": 3, "generated": {"cpp_fused_add": 1}, **fields})


def row(unbacked: Lowered, backed: Lowered, times: tuple[float, ...] = ()) -> ProgramCost:
    of: tuple[SizeKind, SizeKind] = ("unbacked", "backed")
    timed = [Timed(of[0], "inductor", 1.0, times), Timed(of[1], "inductor", 1.0, tuple(10.0 for _ in times))]
    return ProgramCost(
        "sort", tuple(5.0 for _ in times), tuple(timed) if times else (), dict(zip(of, (unbacked, backed), strict=True))
    )


def kinds(one: ProgramCost) -> list[str]:
    return [worse.kind for worse in worse_of(one)]


def test_the_same_kernels_and_times_are_not_listed() -> None:
    assert kinds(row(lowered(), lowered(), (10.0, 11.0, 14.0, 10.0))) == []


def test_a_fallback_that_only_the_unbacked_version_calls_is_listed_with_the_guards() -> None:
    fallback = {"torch.ops.aten.sort.stable": 1}
    unbacked = lowered(generated={}, fallback=fallback, guards=(GUARD,))
    (found,) = worse_of(row(unbacked, lowered()))
    assert (found.kind, found.evidence, found.guards) == (
        "falls-back",
        "calls torch.ops.aten.sort.stable, not with backed sizes",
        (GUARD,),
    )
    assert kinds(row(unbacked, lowered(fallback=fallback))) == []


def test_more_calls_of_kernels_are_listed() -> None:
    (found,) = worse_of(row(lowered(generated={"cpp_fused_add": 1, "cpp_fused_relu": 1}), lowered()))
    assert (found.kind, found.evidence) == ("more-kernels", "2 calls of kernels, 1 with backed sizes: cpp_fused_relu")


@pytest.mark.parametrize(
    ("times", "listed"),
    [
        ((16.0, 16.0, 17.0, 16.0, 18.0), True),
        ((16.0, 10.0, 17.0, 11.0, 18.0), False),  # the median is above, but two of five rounds are not
        ((14.0, 14.0, 14.0, 14.0, 90.0), False),
    ],
)
def test_a_slower_run_is_listed_if_most_rounds_say_so(times: tuple[float, ...], listed: bool) -> None:
    assert kinds(row(lowered(), lowered(), times)) == (["slower"] if listed else [])


def test_what_does_not_compile_is_listed_unless_the_backed_version_does_not_either() -> None:
    fails = Lowered(error="dde at torch/_inductor/kernel/bmm.py: Eq(u0, 1)", guards=(GUARD,))
    assert kinds(row(fails, lowered())) == ["does not compile"]
    assert kinds(row(fails, fails)) == []


def test_the_pages_have_ratios_and_what_is_listed() -> None:
    one = row(
        lowered(generated={}, fallback={"torch.ops.aten.sort.stable": 2}, guards=(GUARD,)), lowered(), (20.0,) * 4
    )
    lost = ProgramCost("x", lost="crash: SIGKILL")
    command = "python ci/bench compile"
    found = CompileBench("2.13.0", "2026-01-31", command, 4, (one, lost), tuple(worse_of(one)))
    said = text_of(list(view(found)))
    assert "2.00 (2.00 to 2.00)" in said
    assert GUARD in said
    assert "x: crash: SIGKILL" in said
    page = markdown(view(found))
    assert "| sort | 5 | 20 | 10 | \\- | 2.00 (2.00 to 2.00) | \\- |" in page
    assert "sort** falls-back: calls torch.ops.aten.sort.stable" in page
    read = json.loads(msgspec.json.encode(document(found)))
    assert read["rows"][0]["ratios"]["inductor"] == {"backed": 2.0, "static": None}
    assert read["schema"] == "ddefuzz.bench.compile/1"


def test_there_are_twenty_programs_each_with_an_unbacked_size() -> None:
    assert len(PROGRAMS) == 20
    for text in PROGRAMS.values():
        subjects = subjects_of(text)
        assert "u0=" in subjects["unbacked"].text
        assert "u0" not in subjects["static"].text
        assert (subjects["backed"].text, subjects["backed"].backed) == (text, True)


@pytest.mark.slow
def test_a_planted_lowering_that_falls_back_for_unbacked_sizes_is_listed() -> None:
    with falling_back():
        found = run_compile(CompileTask("add_relu", PROGRAMS["add_relu"], 0))
    assert found.lowered["backed"].fallback == {}
    worse = {one.kind: one for one in worse_of(found)}
    assert worse["falls-back"].evidence == "calls torch.ops.aten.relu.default, not with backed sizes"
    (guard,) = worse["falls-back"].guards
    assert guard.startswith("torch/_inductor/lowering.py:")
    assert guard.endswith("planted: u0 < 1000000 taken as False")
