"""The public names: their documentation, whose examples are run, and how they are used from tests and scripts."""

from __future__ import annotations

import linecache
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ddefuzz
from ddefuzz import internal
from ddefuzz.checking.report import CaptureResult, failed
from ddefuzz.errors import InputError
from tests.parameters import one_in

# isort: split
import torch

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")

CELL = """import torch

class Net(torch.nn.Module):
    def forward(self, x, keep):
        kept = x[keep]
        if kept.shape[0] > 2:
            return kept + 1
        return kept
"""
ARGS = (torch.ones(6, 2), torch.tensor([True, True, False, True, True, False]))


def test_each_name_has_a_section() -> None:
    assert sorted(re.findall(r"^## `ddefuzz\.(\w+)`$", PAGE, re.MULTILINE)) == sorted(ddefuzz.__all__)
    assert {getattr(ddefuzz, name) is not None for name in ddefuzz.__all__} == {True}
    assert set(ddefuzz.__all__) <= set(dir(ddefuzz))
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        ddefuzz.chekc  # type: ignore[attr-defined]  # noqa: B018


def test_importing_imports_neither_torch_nor_the_rest() -> None:
    code = "import sys, ddefuzz; print([name for name in sys.modules if name.startswith(('torch', 'ddefuzz.'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_the_examples_are_run_as_a_script_without_a_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "examples.py"
    script.write_text("print('script begins')\n" + "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("script begins") == 1
    assert "keep_positive does not export: fails in export. 1 problem." in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ("<ipython-input-3-abc>", "/tmp/ipykernel_7/123.py")))
def test_the_code_of_a_notebook_is_found_and_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, CELL.splitlines(keepends=True), name))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(CELL, name, "exec"), namespace)
    report = ddefuzz.check(namespace["Net"](), ARGS, stages=["export", "compile"])
    (problem,) = report.problems
    assert (problem.kind, problem.owner.kind, problem.stages) == ("dde", "yours", ("export", "compile"))
    assert problem.chain[-1].file == name
    assert "+        return torch.where(torch.tensor(kept.shape[0]) > 2, kept + 1, kept)\n" in report.patch()


def branch(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    kept = x[keep]
    return kept + 1 if kept.shape[0] > 2 else kept


def test_a_failed_assertion_is_the_report() -> None:
    with pytest.raises(AssertionError, match=r"\Abranch does not export: fails in export\. 1 problem\.\n"):
        ddefuzz.assert_captures(branch, ARGS, stages=["export"])
    (capture,) = ddefuzz.assert_captures(torch.ops.aten.relu.default, ARGS[:1], stages=["export"]).captures
    assert capture.outcome == "ok"


def test_what_is_live_stays_as_it_was() -> None:
    model = torch.nn.BatchNorm1d(2)
    before = (torch.get_rng_state(), random.getstate(), list(sys.path), Path.cwd())
    report = ddefuzz.check(model, (ARGS[0],), unbacked="all", stages=["export"], budget=None)
    assert report.captures
    assert model.num_batches_tracked == 0
    assert torch.equal(before[0], torch.get_rng_state())
    assert (random.getstate(), list(sys.path), Path.cwd()) == before[1:]
    assert not [name for name in sys.modules if name.startswith("ddefuzz_live")]


def test_the_first_use_draws_no_random_number() -> None:
    code = "import random, ddefuzz; before = random.getstate(); ddefuzz.check; assert random.getstate() == before"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_error_of_ddefuzz_is_of_the_check_that_meets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddefuzz.api.check_named", lambda *_, **__: internal.note(ValueError("a bug")))
    with pytest.raises(RuntimeError, match="ValueError: a bug"):
        ddefuzz.check("model.py:f")
    internal.note(ValueError("of a campaign"))
    try:
        assert ddefuzz.check(torch.relu, (ARGS[0],), stages=["fake"], budget=None).ok
    finally:
        assert "of a campaign" in str(*internal.take())


def test_live_checks_of_several_threads_are_done_one_after_the_other() -> None:
    running, most, before = 0, 0, (sys.stdout, sys.stderr)

    def model(x: torch.Tensor) -> torch.Tensor:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.05)
        running -= 1
        return x

    with ThreadPoolExecutor(3) as threads:
        done = [threads.submit(ddefuzz.check, model, (ARGS[0],), stages=["fake"], budget=None) for _ in range(3)]
    assert [one.result().ok for one in done] == [True] * 3
    assert most == 1
    assert (sys.stdout, sys.stderr) == before
    assert not sys.stdout.closed


def test_a_model_that_raises_memory_error_is_not_judged() -> None:
    def model(_x: torch.Tensor) -> torch.Tensor:
        raise MemoryError

    report = ddefuzz.check(model, (ARGS[0],), stages=["fake"], budget=None)
    assert not report.ok
    assert all((one.reason or "").endswith("the process had no memory left") for one in report.captures)


def test_an_interruption_of_a_capture_ends_the_check() -> None:
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        ddefuzz.check(interrupted, (ARGS[0],), stages=["export"], budget=None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"stages": ["exprot"]}, "stages: found 'exprot', expected some of eager, fake, export,"),
        ({"stages": []}, "stages: found none, expected some of eager, fake, export,"),
        ({"stages": ["export"], "oracles": ["nonsense"]}, "oracles: found 'nonsense', expected some of recompilation,"),
        ({"stages": ["export"], "oracles": ["capture"]}, "oracles: found 'capture', expected some of recompilation,"),
        ({"stages": "export"}, "stages: found an argument of type str, expected list or tuple"),
        ({"args": ARGS[0]}, "args: found an argument of type Tensor, expected list or tuple"),
        ({"timeout": float("inf")}, "timeout: found inf, expected 0 < seconds ≤ 86400"),
        ({"timeout": 0}, "timeout: found 0, expected 0 < seconds ≤ 86400"),
        ({"timeout": "5"}, "timeout: found '5', expected 0 < seconds ≤ 86400"),
        ({"budget": float("nan")}, "budget: found nan, expected 0 ≤ seconds ≤ 86400"),
    ],
)
def test_a_choice_that_does_not_exist_is_said(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        ddefuzz.assert_captures(branch, **{"args": ARGS, **words})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: ddefuzz.run("sqlite://"), "database: found an argument of type str, expected Database"),  # type: ignore[arg-type]
        (lambda opened: ddefuzz.run(opened, budget=60), "budget: found an argument of type int, expected str"),  # type: ignore[arg-type]
        (lambda opened: ddefuzz.run(opened, jobs=True), "jobs: found an argument of type bool, expected int or None"),
        (lambda opened: ddefuzz.run(opened, budget="6 h"), "budget: found '6 h', expected a time such as 90s"),
        (lambda _: ddefuzz.check_key(len), "target: found an argument of type builtin_function"),  # type: ignore[arg-type]
        (lambda _: ddefuzz.check_key("nosuch:f"), "nosuch: found a module that raises ModuleNotFoundError"),
        (lambda _: ddefuzz.open_database(5), "url: found an argument of type int, expected str"),  # type: ignore[arg-type]
    ],
)
def test_errors_name_the_argument(call: Callable[[ddefuzz.Database], object], message: str) -> None:
    with ddefuzz.open_database("sqlite://") as opened, pytest.raises(InputError, match=f"^{message}") as found:
        call(opened)
    assert found.value.__cause__ is None


@pytest.mark.parametrize("words", [{"stages": ["exprot"]}, {"stages": []}, {"oracles": ["nonsense"]}])
def test_a_campaign_of_what_does_not_exist_does_not_begin(words: dict[str, Any]) -> None:
    with (
        ddefuzz.open_database("sqlite://") as database,
        pytest.raises(InputError, match=f"^{next(iter(words))}: found"),
    ):
        ddefuzz.run(database, budget="1x", jobs=1, **words)


def test_a_check_that_judged_nothing_has_not_succeeded() -> None:
    eager, export = (CaptureResult("f", stage, "ok", 0.0, 0.0) for stage in ("eager", "export"))
    assert not failed([eager])
    assert not failed([eager, export])
    assert failed([])
    assert failed([eager, msgspec.structs.replace(export, outcome="not-judged")])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"args": ARGS}, "model.py:f: found arguments for a name, expected those that its file has"),
        ({}, "model.py: found no such file"),
    ],
)
def test_a_wrong_name_is_said(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        ddefuzz.check("model.py:f", **words)


def test_an_unbacked_dim_of_an_argument_that_is_not_there_is_said() -> None:
    with pytest.raises(InputError, match="found argument 'y' to make unbacked, expected one of x, keep"):
        ddefuzz.check(branch, ARGS, unbacked={"y": [0]})


TESTS = """import torch


def test_captured(ddefuzz_check):
    ddefuzz_check(torch.nn.Linear(2, 3), (torch.ones(4, 2),), stages=["export"])


def test_not_captured(ddefuzz_check):
    def branch(x):
        return x + 1 if x.sum() > 2 else x

    ddefuzz_check(branch, (torch.ones(4, 2),), stages=["export"])
"""


@pytest.mark.slow
@pytest.mark.long
def test_the_fixture_fails_a_test_with_the_report_also_under_xdist(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "branch does not export: fails in export. 1 problem." in done.stdout
