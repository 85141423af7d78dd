"""`ddefuzz check-op`: how ops and examples are named, what is printed, what is kept, and the exit codes.
`ddefuzz sweep --ops LIB::OP` does the same.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click import UsageError
from click.testing import CliRunner, Result

from ddefuzz.cli.check_op import command
from ddefuzz.cli.sweep import command as sweep
from ddefuzz.custom_ops.model import SCHEMA
from ddefuzz.errors import InputError
from tests.custom_ops import example_ops
from tests.in_process import InProcess
from tests.typed import typed

OPS = str(Path(example_ops.__file__))
HERE = __file__


def run(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddefuzz.cli.check_op.Pool", InProcess)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "found no op, expected LIB::OP, a glob such as 'mylib::*', or --examples"),
        (("op",), "'op': found no name of an op, expected LIB::OP or LIB::OP.OVERLOAD"),
        (("nowhere::op",), "nowhere::op: found no library 'nowhere', expected one that is imported (--import MODULE)"),
        (("nowhere::*",), "nowhere::*: found no such op of torch and the imported modules, expected some"),
        (("a::b", "--import", "no_such_module"), "no_such_module: found a module that raises ModuleNotFoundError"),
        (("a::b", "--examples", "gone.py"), "gone.py: found no such file, expected a Python module"),
        (("--examples", f"{HERE}:GONE"), ":GONE: found no such name, expected a dict of lists of examples"),
        (("--examples", f"{HERE}:OPS"), ":OPS: found str, expected a dict of lists of examples"),
        (("zoo::pairs", "--without", "size"), "--without: found 'size', expected one of runs, accepts, structure"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], line: str) -> None:
    error = run(*words).exception
    assert isinstance(error, InputError)
    assert line in str(error)
    assert "\n" not in str(error)


SWEPT = """
import torch
from torch import Tensor


@torch.library.custom_op("swept::bare", mutates_args=())
def bare(x: Tensor) -> Tensor:
    return x.clone()


@torch.library.custom_op("swept::far", mutates_args=(), device_types="cuda")
def far(x: Tensor) -> Tensor:
    return x.clone()


@far.register_fake
def _(x):
    return torch.empty_like(x)
"""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("nowhere::*",), "nowhere::*: found no such op of torch and the imported modules, expected some"),
        (("a::*", "--import", "no_such_module"), "no_such_module: found a module that raises ModuleNotFoundError"),
        (("a::*", "--examples", "gone.py"), "gone.py: found no such file, expected a Python module"),
        (("swept::bare", "--import", "swept.py"), "found an op without a fake kernel, expected one"),
        (
            ("swept::far*", "--import", "swept.py"),
            "found no kernel for tensors of the CPU, on which arguments are draw",
        ),
    ],
)
def test_bad_input_of_a_sweep_is_one_line(
    words: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swept.py").write_text(SWEPT)
    monkeypatch.chdir(tmp_path)
    typed_words = ["--ops", *words, "--db", f"sqlite:///{tmp_path}/ops.db", "-j", "1"]
    error = CliRunner().invoke(sweep, typed_words).exception
    assert isinstance(error, InputError)
    assert line in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--ops", "a::*", "--breaks"), "found --ops LIB::OP with --breaks, expected it without"),
        (("--ops", "a::*", "--engine", "ray"), "found --ops LIB::OP with --engine, expected it without"),
        (("--ops", "a::*", "--ops", "chunk"), "found --ops with custom ops (LIB::OP) and others, expected one of the"),
        (("--ops", "x[::k]", "--import", "a"), "found --import without --ops LIB::OP, expected both"),
        (("--budget", "3"), "found --budget without --ops LIB::OP, expected both"),
    ],
)
def test_options_of_a_sweep_that_do_not_go_together(words: tuple[str, ...], line: str) -> None:
    with pytest.raises(UsageError) as error:
        sweep.main(list(words), standalone_mode=False)
    assert str(error.value).startswith(line)


def test_a_worker_imports_nothing_before_its_input_is_read() -> None:
    assert isinstance(run("zoo::pairs", "--without", "size").exception, InputError)


@pytest.mark.slow
def test_ops_of_a_file_are_checked_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text(Path(OPS).read_text())
    url = f"sqlite:///{tmp_path}/ops.db"
    words = ["zoo::pairs", "zoo::positive", "zoo::crashes", "--examples", str(file), "--db", url, "-j", "2"]
    result = run(*words, "--format", "json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["schema"] == SCHEMA
    pairs, positive, crashes = document["ops"]
    assert {problem["check"] for one in pairs["checks"] for problem in one["problems"]} == {"sizes"}
    assert not any(one["problems"] for one in positive["checks"])
    assert "zoo::crashes(float32[0])" in crashes["crashes"]
    assert json.loads(run(*words, "--format", "json").stdout) == document
    accepted = tmp_path / "accepted.toml"
    accepted.write_text(
        '[[problem]]\ntarget = "zoo::pairs"\nkey = "sizes: result"\nreason = "waits"\nexpires = 2999-01-01\n'
    )
    again = run(*words, "--accepted", str(accepted))
    assert (again.exit_code, "zoo::pairs     ok (1 accepted)" in again.stdout) == (0, True)
    file.write_text(Path(OPS).read_text().replace("(x.shape[0] + 1) // 2", "x.shape[0] // 2"))
    changed = run(*words)
    assert (changed.exit_code, "0 of 3 ops wrong" in changed.stdout) == (0, True)


@pytest.mark.slow
def test_an_op_that_cannot_be_judged_is_exit_code_2(tmp_path: Path) -> None:
    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return typed("check-op", *words, "--examples", OPS, "-j", "1", folder=tmp_path)

    alone = ran("zoo::without_fake")
    assert (alone.returncode, alone.stdout) == (2, "")
    assert alone.stderr.splitlines()[-1] == (
        "ddefuzz: zoo::without_fake: found an op without a fake kernel, expected one (torch.library.register_fake)"
    )
    both = ran("zoo::without_fake", "zoo::pairs")
    assert both.returncode == 2
    assert "1 of 1 op wrong, 1 not judged" in both.stdout


@pytest.mark.slow
def test_a_sweep_of_a_library_goes_on_with_what_is_kept(tmp_path: Path) -> None:
    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        return typed("sweep", *words, "--examples", OPS, "--budget", "5", "-j", "1", folder=tmp_path)

    (tmp_path / "findings").mkdir()
    first = ran("--ops", "zoo::positive")
    assert (first.returncode, "0 of 1 op wrong" in first.stdout) == (0, True), first.stderr
    again = ran("--ops", "zoo::p[ao]*", "--format", "json", "--output", "junit=ops.xml")
    assert again.returncode == 0, again.stderr
    assert "2 of 2 ops (1 from before), about 0 s left, zoo::pairs wrong: sizes" in again.stderr
    document = json.loads(again.stdout)
    assert (document["schema"], [op["op"] for op in document["ops"]]) == (SCHEMA, ["zoo::pairs", "zoo::positive"])
    assert '<testcase name="zoo::pairs/sizes: result"' in (tmp_path / "ops.xml").read_text()
    failing = ran("--ops", "zoo::p[ao]*", "--fail-on", "any")
    assert (failing.returncode, "1 of 2 ops wrong" in failing.stdout) == (1, True)
    (tmp_path / "findings" / "accepted.toml").write_text(
        '[[problem]]\ntarget = "zoo::pairs"\nkey = "sizes: result"\nreason = "waits"\n'
    )
    accepted = ran("--ops", "zoo::p[ao]*", "--fail-on", "any")
    assert (accepted.returncode, "zoo::pairs     ok (1 accepted)" in accepted.stdout) == (0, True)
