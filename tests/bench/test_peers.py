"""Commands of other tools: parsing, the budget, and errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ci.bench.command import Session
from ci.bench.peers import OPINFO, Command, compare, parse_command, run_command, view
from ddefuzz.cli.output import LiveLine
from ddefuzz.errors import InputError
from tests.bench.typed_bench import bench, text_of

FOREVER = """\
import sys
import ddefuzz.site_hook
import torch
from torch._dynamo.decorators import mark_unbacked

assert sys.argv[1:] == ["--seed", "7"]
x = torch.ones(6, 4)
mark_unbacked(x, 0)
torch.compile(lambda x: x.view(-1), backend="eager", fullgraph=True)(x)
while True:
    pass
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [("pytest", "expected NAME=COMMAND"), ("=python x.py", "expected NAME=COMMAND"), ("a='", "No closing quotation")],
)
def test_a_command_without_a_name_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_command(text)


def test_a_command_is_a_name_and_words() -> None:
    assert parse_command("mine=python 'my fuzzer.py' --seed {seed}") == Command(
        "mine", ("python", "my fuzzer.py", "--seed", "{seed}")
    )


def test_the_opinfo_sweep_is_there() -> None:
    assert OPINFO.is_file()


@pytest.mark.slow
@pytest.mark.long
def test_a_command_is_stopped_at_its_budget(tmp_path: Path) -> None:
    (tmp_path / "fuzzer.py").write_text(FOREVER)
    command = Command("fuzzer", (sys.executable, str(tmp_path / "fuzzer.py"), "--seed", "{seed}"))
    curve = run_command(command, 5.0, 7, Session(LiveLine("measuring"), tmp_path))
    assert curve is not None
    assert (curve.peer, curve.seed) == ("fuzzer", 7)
    assert curve.steps[-1].sites.fallback > 0
    assert curve.steps[0].cpu_seconds == 0.0


@pytest.mark.slow
@pytest.mark.long
def test_what_a_signal_ended_is_said(tmp_path: Path) -> None:
    (tmp_path / "fuzzer.py").write_text(FOREVER.replace("while True:\n    pass", "import os\nos.kill(os.getpid(), 11)"))
    command = Command("fuzzer", (sys.executable, str(tmp_path / "fuzzer.py"), "--seed", "{seed}"))
    curve = run_command(command, 60.0, 7, Session(LiveLine("measuring"), tmp_path))
    assert curve is not None
    assert curve.killed == "SIGSEGV (Segmentation fault)"
    shown = text_of(list(view(compare(60.0, [curve]))))
    assert "fuzzer, seed 7: SIGSEGV (Segmentation fault) ended it after" in shown


def test_a_command_is_stopped_when_the_user_wants_it(tmp_path: Path) -> None:
    session = Session(LiveLine("measuring"), tmp_path, lambda: True)
    assert run_command(Command("idle", ("sleep", "600")), 5.0, 0, session) is None


@pytest.mark.slow
def test_a_command_without_the_hook_is_one_clear_line(tmp_path: Path) -> None:
    for text, said in (
        ("none=true", "found no line of the hook's, expected a command that imports ddefuzz.site_hook"),
        ("none=no-such-program", "found 'no-such-program', expected a program to run"),
        ("guided=true", "found the name 'guided'"),
    ):
        done = bench("peers", "--budget", "1cpu", "--command", text, folder=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.long
def test_peers_as_typed(tmp_path: Path) -> None:
    words = ("--budget", "4cpu", "--seeds", "1", "-j", "1", "--output", "json=peers.json")
    done = bench("peers", *words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "peers.json").read_text())
    assert found["schema"] == "ddefuzz.bench.peers/3"
    rows = {peer["name"]: peer for peer in found["peers"]}
    assert list(rows) == ["opinfo", "guided", "uniform"]
    steps = rows["guided"]["curves"][0]["steps"]  # of the whole campaign; the counts are those within the budget
    assert steps[-1]["sites"]["fallback"] > 0
    assert steps[0]["cpu_seconds"] > 0
    assert rows["guided"]["curves"][0]["areas"]
    assert "by area of torch's source" in done.stdout
    assert "1 seeds" not in done.stdout
