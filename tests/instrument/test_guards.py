"""Tests of the guard hooks: fallbacks, errors, and the results of size-oblivious semantics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, guard_or_false, guard_or_true

from ddefuzz.instrument import frames, torch_api
from ddefuzz.instrument.events import Guard, Mechanism, Place
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder
from ddefuzz.internal import exception_chain

MECHANISMS: tuple[Mechanism, ...] = ("explicit", "size-oblivious", "aggressive-1", "aggressive-2")


@contextmanager
def fake_input() -> Iterator[torch.Tensor]:
    """A fake tensor of shape (u0, 4), with its mode entered."""
    with torch_api.bound(torch_api.FAKE_MODE)(shape_env=ShapeEnv()) as mode:
        mode.allow_scalar_outputs = True
        yield torch.ones(6).nonzero().expand(-1, 4)


def guards_of_this_file(recorder: Recorder) -> list[Guard]:
    """The guards that this file evaluated itself, not through an operator."""
    return [guard for guard in recorder.guards() if guard.place.file.endswith("test_guards.py")]


def caught(recorder: Recorder, call: Callable[[], Any]) -> Any:
    with pytest.raises(GuardOnDataDependentSymNode) as info:
        call()
    return recorder.raised([info.value])


def test_a_second_site_counts_although_torch_uses_its_cache() -> None:
    with watch() as recorder, fake_input() as x:
        size = x.shape[0]
        guard_or_false(size == 5)
        guard_or_false(size == 5)
        for _ in range(3):
            guard_or_false(size == 5)
        guards = guards_of_this_file(recorder)
    first = guards[0].place.line
    assert [guard.place.line - first for guard in guards] == [0, 1, 3]
    assert [guard.count for guard in guards] == [1, 1, 3]


def test_a_guard_that_is_decided_takes_no_fallback() -> None:
    with watch() as recorder, fake_input() as x:
        assert guard_or_false(x.shape[0] >= 0)
        torch._check(x.shape[0] >= 3)  # type: ignore[no-untyped-call]
        assert not guard_or_true(x.shape[0] == 2)
        assert guards_of_this_file(recorder) == []


def test_each_counterfactual() -> None:
    with watch() as recorder, fake_input() as x:
        size = x.shape[0]
        guard_or_false(size == 1)
        guard_or_true(size == 1)
        guard_or_false(size == 5)
        seen = [(guard.method, guard.fallback, guard.counterfactual) for guard in guards_of_this_file(recorder)]
    assert seen == [
        ("guard_or_false", False, "same"),
        ("guard_or_true", True, "other"),
        ("guard_or_false", False, "undecided"),
    ]


def test_size_oblivious_semantics_raise_where_they_cannot_decide() -> None:
    with watch("size-oblivious") as recorder, fake_input() as x:
        size = x.shape[0]
        assert guard_or_true(size == 1) is False
        raised = caught(recorder, lambda: guard_or_true(size == 5))
        assert recorder.guards() == ()
    assert (raised.method, raised.expression, raised.withheld) == ("guard_or_true", "Eq(u0, 5)", False)


def test_a_withheld_fallback_raises_at_its_place_alone() -> None:
    with watch() as recorder, fake_input() as x:
        guard_or_false(x.shape[0] == 5)
        place = guards_of_this_file(recorder)[0].place
    planted = Place(place.language, place.file, 2 + watched_twice.__code__.co_firstlineno)
    with watch("explicit", [planted]) as recorder, fake_input() as x:
        raised = caught(recorder, lambda: watched_twice(x))
    assert raised.place == planted
    assert raised.withheld


def watched_twice(x: torch.Tensor) -> None:
    guard_or_false(x.shape[0] == 5)
    guard_or_false(x.shape[0] == 5)


def test_a_raise_that_torch_catches_does_not_count() -> None:
    with watch() as recorder, fake_input() as x:
        env = x.shape[0].node.shape_env  # type: ignore[attr-defined]
        assert not env.has_guarding_hint(x.shape[0].node.expr)  # type: ignore[attr-defined]
        assert recorder.raised([RuntimeError("another failure")]) is None


def test_torch_still_names_the_caller_as_the_cause() -> None:
    with watch(), fake_input() as x, pytest.raises(GuardOnDataDependentSymNode, match=r"Caused by: .*test_guards\.py"):
        bool(x.shape[0] == 5)


def test_the_place_and_stacks_of_a_guard_in_python() -> None:
    with watch() as recorder, fake_input() as x:
        raised = caught(recorder, lambda: bool(x.shape[0] == 5))
    assert raised.place.language == "Python"
    assert raised.place.file.endswith("test_guards.py")
    assert (raised.method, raised.native) == ("guard_bool", ())
    frame = next(frame for frame in reversed(raised.python) if not frame.file.startswith("torch/"))
    assert (frame.function, frame.code, frame.exact) == (
        "test_the_place_and_stacks_of_a_guard_in_python",
        "bool(x.shape[0] == 5)",
        True,
    )
    assert [(origin.symbol, origin.op) for origin in raised.symbols] == [("u0", "nonzero")]
    assert raised.symbols[0].frame.code == "torch.ones(6).nonzero()"


@pytest.mark.parametrize(
    ("call", "function"),
    [
        (lambda x: torch.chunk(x, 2), "at::native::chunk("),
        (lambda x: torch.diff(x, dim=0), "at::native::diff_helper("),
        (lambda x: torch.fft.rfft(x.float(), n=3, dim=0), "at::native::(anonymous namespace)::resize_fft_input("),
    ],
)
def test_the_place_and_stacks_of_a_guard_in_cpp(call: Callable[[torch.Tensor], object], function: str) -> None:
    with watch() as recorder, fake_input() as x:
        raised = caught(recorder, lambda: call(x))
    assert raised.place.language == "C++"
    assert raised.place.file == "c10/core/SymInt.h"
    assert "guard_bool(__FILE__, __LINE__)" in raised.header_line
    assert any(frame.function.startswith(function) for frame in raised.native)
    assert all("PyEval" not in frame.function for frame in raised.native)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_hooks_are_removed_at_the_end(mechanism: Mechanism) -> None:
    rows = (torch_api.EVALUATE_EXPR, torch_api.LOG_SUPPRESSED, torch_api.SHAPES_CONFIG, *torch_api.GUARD_METHODS)
    before = [row.get() for row in rows]
    with watch(mechanism):
        during = [row.get() for row in rows]
    assert [row.get() for row in rows] == before
    assert during != before


@pytest.mark.parametrize(("mechanism", "level"), [("aggressive-1", 1), ("aggressive-2", 2)])
def test_the_aggressive_levels_are_torchs(mechanism: Mechanism, level: int) -> None:
    with watch(mechanism) as recorder, fake_input() as x:
        assert torch_api.SHAPES_CONFIG.get() == level
        guard_or_false(x.shape[0] == 5)
        assert len(guards_of_this_file(recorder)) == 1


def clauses(x: torch.Tensor, decide: Callable[[Any], Any]) -> Any:
    return decide(x.shape[0])


@pytest.mark.parametrize(
    ("decide", "code"),
    [
        (lambda n: n == 5 or n > 7, "n == 5"),
        (lambda n: 1 if n is None or n == 4 else 2, "n == 4"),
        (lambda n: (n == 5 and n == 7) or n == 9, "n == 5"),
        (lambda n: 1 if n == 5 and n > 3 else 2, "n == 5"),
        (lambda n: not n < 5, "not n < 5"),
        (lambda n: 2 < n < 5, "2 < n < 5"),
        (lambda n: 1 if n is None or (n is not None and n > 3) else 0, "n > 3"),
    ],
)
@pytest.mark.parametrize("traced", [False, True], ids=["real", "traced"])
def test_the_code_of_a_frame_is_the_undecided_clause(decide: Callable[[Any], Any], code: str, traced: bool) -> None:
    if traced:
        compiled = torch.compile(lambda x: x + decide(x.nonzero().shape[0]), fullgraph=True, backend="eager")
        config = torch_api.bound(torch_api.DYNAMO_CONFIG)(capture_dynamic_output_shape_ops=True)
        with config, watch() as recorder, pytest.raises(Exception, match="data-dependent") as info:
            compiled(torch.ones(6))
        raised = recorder.raised(exception_chain(info.value))
        assert raised is not None
        frame = raised.traced[-1]
    else:
        with watch() as recorder, fake_input() as x:
            raised = caught(recorder, lambda: clauses(x, decide))
        frame = next(frame for frame in reversed(raised.python) if not frame.file.startswith("torch/"))
    assert (frame.code, frame.exact) == (code, True)


AT_TOP = lambda: None  # noqa: E731 it has no function


def test_a_lambda_and_a_comprehension_have_the_name_of_their_function() -> None:
    inner: Callable[[], list[CodeType]] = lambda: [sys._getframe().f_code for _ in range(1)]  # noqa: E731
    (code,) = inner()
    assert frames.function_of(code) == "test_a_lambda_and_a_comprehension_have_the_name_of_their_function"
    assert frames.function_of(AT_TOP.__code__) == "<lambda>"
    assert frames.function_of(Path.open.__code__) == "open"
