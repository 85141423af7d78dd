"""The hook for Python commands: sites are written for scripts, modules and pytest, also after a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddefuzz.findings.ledger import ENVIRONMENT, ProcessLine, SiteCount, SiteLine, growth, read_lines

SUBJECT = """\
import os
import torch
from torch._dynamo.decorators import mark_unbacked

def capture(call):
    x = torch.ones(6, 4)
    mark_unbacked(x, 0)
    try:
        torch.compile(call, backend="eager", fullgraph=True)(x)
    except Exception as error:
        print(type(error).__name__)
"""

FALLS_BACK = f"{SUBJECT}\ncapture(lambda x: x.view(-1))\n"
RAISES_AND_DIES = f"{SUBJECT}\ncapture(lambda x: torch.chunk(x, 2))\nos.kill(os.getpid(), 9)\n"
A_TEST = f"{SUBJECT}\ndef test_it():\n    capture(lambda x: torch.chunk(x, 2))\n"


def run(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **environment}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )


def sites(path: Path) -> list[SiteLine]:
    return [line for line in read_lines(path) if isinstance(line, SiteLine)]


@pytest.mark.slow
@pytest.mark.long
def test_a_script_under_the_hook(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FALLS_BACK)
    done = run("-m", "ddefuzz.site_hook", "script.py", cwd=tmp_path, **{ENVIRONMENT: "sites.jsonl"})
    assert done.returncode == 0, done.stderr
    lines = read_lines(tmp_path / "sites.jsonl")
    assert isinstance(lines[0], ProcessLine)
    assert isinstance(lines[-1], ProcessLine)
    assert {line.reached.answer for line in sites(tmp_path / "sites.jsonl")} == {"False"}
    *_, last = growth(lines)
    assert last.sites.fallback > 0
    assert last.sites.dde == 0
    assert last.cpu_seconds == pytest.approx(lines[-1].cpu_seconds - lines[0].cpu_seconds)


@pytest.mark.slow
def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(RAISES_AND_DIES)
    done = run("-m", "ddefuzz.site_hook", "script.py", cwd=tmp_path, **{ENVIRONMENT: "sites.jsonl"})
    assert done.returncode == -9
    raised = [line.reached for line in sites(tmp_path / "sites.jsonl") if line.reached.answer == "raised"]
    assert [str(reached.blamed) for reached in raised] == ["at::native::chunk"]


@pytest.mark.slow
@pytest.mark.long
def test_pytest_under_the_hook(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(A_TEST)
    file = tmp_path / "sites.jsonl"
    done = run("-m", "pytest", "-q", "-p", "ddefuzz.site_hook", cwd=tmp_path, **{ENVIRONMENT: str(file)})
    assert done.returncode == 0, done.stdout
    *_, last = growth(read_lines(file))
    assert last.sites.dde == last.sites.dde_cxx == 1


@pytest.mark.slow
@pytest.mark.long
def test_a_command_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    for words, file, said in (
        ((), "sites.jsonl", "expected DDEFUZZ_SITES=SITES.jsonl python -m "),
        (("gone.py",), "sites.jsonl", "gone.py: found no such file, expected a Python script"),
        (("-m", "this"), "no/folder/sites.jsonl", "no/folder/sites.jsonl: cannot be written"),
    ):
        done = run("-m", "ddefuzz.site_hook", *words, cwd=tmp_path, **{ENVIRONMENT: file})
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (2, True, 1)


def test_processes_are_added_up_in_time(tmp_path: Path) -> None:
    file = tmp_path / "sites.jsonl"
    file.write_text(
        "".join(
            f"{line}\n"
            for line in (
                '{"line_of":"process","pid":1,"cpu_seconds":2.0,"time":10.0,"torch":"2.13.0","schema":"ddefuzz.outside/1"}',
                _site(1, 3.0, 11.0, 161),
                _site(2, 1.0, 12.0, 34),
                _site(2, 1.5, 13.0, 161),
                '{"line_of":"process","pid":1,"cpu_seconds":5.0,"time":14.0,"torch":"2.13.0","schema":"ddefuzz.outside/1"}',
            )
        )
        + '{"line_of":"site","pi'
    )
    steps = [(step.cpu_seconds, step.sites) for step in growth(read_lines(file))]
    assert steps == [
        (0.0, SiteCount(0, 0, 0, 0)),
        (1.0, SiteCount(1, 1, 0, 0)),
        (2.0, SiteCount(2, 2, 0, 0)),
        (4.5, SiteCount(2, 2, 0, 0)),
    ]


def _site(pid: int, cpu: float, time: float, line: int) -> str:
    reached = (
        f'{{"place":{{"language":"C++","file":"aten/a.cpp","line":{line}}},'
        '"function":"","call":"guard_or_false","answer":"False"}'
    )
    return f'{{"line_of":"site","pid":{pid},"cpu_seconds":{cpu},"time":{time},"reached":{reached}}}'
