"""Violations of `ddefuzz check-key` as findings: stored, shown, replayed, minimized, and as stand-alone scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.main import cli
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, Observation, measured
from ddefuzz.instrument.events import Frame
from ddefuzz.keys.case import KeyCase, Options, TensorSpec, print_key
from ddefuzz.oracles import keys
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.keys import KeyCheck
from ddefuzz.oracles.oracle import attributed
from ddefuzz.repro.script import emitted
from tests.oracles.planted_kinds import KEY_CASES

ROOT = Path(__file__).parents[2]
DEFINED = Frame("mine/cache.py", 12, "key", "def key(tensor):")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def classified(keyed: KeyCheck) -> Signature:
    seen = OracleInput("", Observation("key", EXPLICIT, "ok", measured=measured(keyed)))
    (failure,) = keys.judge(seen)
    return attributed(keys.ORACLE, failure, seen, lambda run: seen.observation).signature


def test_the_identity_is_the_function_the_property_and_what_is_confused() -> None:
    keyed = KeyCheck("tells-apart", DEFINED, "equal keys for different tensors", "strides", ("a", "b"))
    assert classified(keyed) == Signature("key-confuses", Site("Python", "mine/cache.py", "key"), "strides")
    held = KeyCheck("holds-no-tensor", DEFINED, "the tensor is alive as long as its key")
    assert classified(held) == Signature("key-holds-tensor", Site("Python", "mine/cache.py", "key"), "holds-no-tensor")
    assert not keys.judge(
        OracleInput("", Observation("key", EXPLICIT, "ok", measured=measured(KeyCheck("shares", DEFINED))))
    )
    assert not keys.judge(OracleInput("", Observation("key", EXPLICIT, "not-judged")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no_such_module_here:key"], "found a module that raises ModuleNotFoundError"),
        (["ddefuzz.keys.key:EXACT"], "found tuple, expected a function of one tensor"),
        (["ddefuzz.keys.key:key", "--kind", "teapot"], "found 'teapot', expected one of tensor"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str) -> None:
    error = run("check-key", *words).exception
    assert isinstance(error, InputError)
    assert said in str(error)
    assert "\n" not in str(error)


@pytest.mark.slow
@pytest.mark.long
def test_a_violation_is_stored_shown_replayed_and_minimized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def key(tensor):\n    return tensor.dtype, tensor.dim(), str(tensor.layout)\n")
    db = f"sqlite:///{tmp_path}/f.db"
    check = ("check-key", "mine.py:key", "--db", db, "--kind", "tensor", "--examples", "40", "--no-requires-grad")
    first = run(*check, "--format", "json")
    assert first.exit_code == 1
    by_name = {one["name"]: one for one in json.loads(first.stdout)["properties"]}
    confused = {one["part"]: one["drawn"] for one in by_name["tells-apart"]["violations"]}
    assert {"sizes", "strides"} <= confused.keys()
    assert all(len(pair) == 2 for pair in confused.values())
    assert not by_name["gives-a-key"]["violations"]
    assert "(new)" in first.stderr
    again = run(*check, "--examples", "12")
    assert "(new)" not in again.stderr
    assert "(known)" in again.stderr

    listed = json.loads(run("findings", "list", "--db", db, "--format", "json").stdout)
    ids = {one["anchor"]: one["id"] for one in listed}
    assert len(ids) == len(confused)
    name = ids["strides"]
    shown = run("findings", "show", name, "--db", db).stdout
    assert "mine.py:1" in shown
    assert "tells-apart: equal keys for different tensors" in shown
    for form, expected in (("sarif", '"ruleId": "key-confuses"'), ("junit", name), ("html", name), ("markdown", name)):
        assert expected in run("report", name, "--db", db, "--format", form).stdout

    refused = run("replay", "--db", db)
    assert "not executed without --trust: the key function mine.py:key" in refused.stderr
    assert "found no case to replay" in str(refused.exception)
    assert run("replay", "--db", db, "--trust").exit_code == 0
    assert "1 of 1 runs" not in shown
    assert "executed only with --trust" in str(run("minimize", name, "--db", db).exception)
    assert run("minimize", name, "--db", db, "--trust").exit_code == 0
    assert "3 of 3 runs" in run("findings", "show", name, "--db", db).stdout
    assert run("findings", "export", "out", "--db", db).exit_code == 0
    assert "not judged" in run("replay", "out", "--scripts").stdout, "the module is not torch's"
    assert "1 shows" in run("replay", f"out/{name}", "--scripts", "--trust").stdout
    Path("mine.py").write_text("def key(tensor):\n    return tensor.dtype, tuple(tensor.shape), tensor.stride()\n")
    assert "gone" in run("replay", "out", "--trust").stdout


_RETURNS_LIST = "ddefuzz.keys.planted:returns_list"

MORE = (
    KeyCase("ddefuzz.keys.planted:returns_list", "gives-a-key", Options(), (TensorSpec((2,), (1,), kind="batched"),)),
    KeyCase(_RETURNS_LIST, "gives-a-key", Options(), (TensorSpec((2,), (1,), kind="grad"),)),
    KeyCase("ddefuzz.keys.planted:returns_list", "gives-a-key", Options(), (TensorSpec((2,), (1,), kind="subclass"),)),
    KeyCase(
        "ddefuzz.keys.planted:forgets_strides",
        "tells-apart",
        Options(),
        (TensorSpec((2,), (0,), kind="fake", dtype="int8"), TensorSpec((2,), (1,), kind="fake", dtype="int8")),
    ),
    KeyCase("ddefuzz.keys.key:key", "adds-no-guard", Options(), (TensorSpec((2,), (1,), kind="meta"),)),
)


@pytest.mark.slow
@pytest.mark.long
def test_the_scripts_of_planted_key_functions_show_it_without_ddefuzz(tmp_path: Path) -> None:
    """All in one process each would take minutes, so one process runs all of them."""
    wrong = {"asks_sizes": "GuardOnDataDependentSymNode", "returns_list": "TypeError"}
    names = []
    for at, case in enumerate((*KEY_CASES, *MORE)):
        said = {
            "tells-apart": "equal keys for different tensors",
            "shares": "two keys where one would do",
            "holds-no-tensor": "the tensor is alive as long as its key",
            "same-in-other-process": "two texts",
        }.get(case.violates, wrong.get(case.function.rpartition(":")[2], ""))
        seen = Observation("key", EXPLICIT, "ok", measured=measured(KeyCheck(case.violates, DEFINED, said)))
        names.append(f"case{at}")
        script = emitted(keys.script(print_key(case), "key", Failure("no-key", seen, said)), "key", "a key")
        assert "ddefuzz" not in script.replace("ddefuzz.keys.planted", "").replace("ddefuzz.keys.key", "")
        (tmp_path / f"case{at}.py").write_text(script)
    runner = (
        "import runpy, sys\nfor name in sys.argv[1:]:\n"
        "    try:\n        runpy.run_path(name, run_name='__main__')\n"
        "    except SystemExit as ended:\n        print('code', ended.code)\n"
    )
    files = [f"{name}.py" for name in names]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", runner, *files],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    codes = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("code")]
    assert codes == ["1"] * (len(names) - 1) + ["0"], done.stdout + done.stderr


def test_a_snippet_shows_the_tensors() -> None:
    guards, confuses = KEY_CASES[1], KEY_CASES[2]
    shown = Failure("no-key", Observation("key", EXPLICIT, "ok"), "")
    assert keys.snippet(print_key(confuses), "key", shown).endswith(
        "assert forgets_strides(first) != forgets_strides(second), forgets_strides(first)\n"
    )
    assert "first, second, env = unbacked()" in keys.snippet(print_key(guards), "key", shown)
    for case in (confuses, guards):
        compile(keys.snippet(print_key(case), "key", shown), "snippet", "exec")
