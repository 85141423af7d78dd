"""`ddefuzz check` of hostile code: each case ends soon, with one line or a row of the table."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.campaign.real_campaign import DDEFUZZ, PATIENCE_SECONDS, environment

pytestmark = pytest.mark.slow

SUBJECT = """import torch
def f(x):
    {body}
    return x
f_args = (torch.ones(3),)
"""


def check(folder: Path, target: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DDEFUZZ, "check", target, "--stage", "export", *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Own(BaseException): ...\nraise Own('mine')", "found a module that raises Own: mine"),
        ("raise GeneratorExit", "found a module that raises GeneratorExit:"),
        ("import sys\nsys.modules.clear()", "user.py: found code that removes or replaces ddefuzz in its worker"),
        ("raise ValueError('\\x1b[31m' * 10**6)", r"ValueError: \x1b[31m\x1b[31m"),
        ("raise KeyboardInterrupt", "found a module that raises KeyboardInterrupt:"),
        (
            SUBJECT.format(body="...") + "f_unbacked = {'y': [0]}",
            "f_unbacked: found argument 'y' to make unbacked, expected one of x",
        ),
        (SUBJECT.format(body="...") + "f_unbacked = {0: [-1]}", "found dim -1 of argument 0 to make unbacked"),
    ],
)
def test_a_module_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "user.py").write_text(text)
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert [line for line in done.stderr.splitlines() if not line.startswith("f: eager, ")] == [
        done.stderr.splitlines()[-1]
    ]
    assert not done.stdout


def test_a_call_that_empties_the_loaded_modules_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SUBJECT.format(body="__import__('sys').modules.clear()"))
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 2, done.stderr
    assert "user.py: found code that removes or replaces ddefuzz in its worker" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupt_that_the_code_itself_raises_is_what_it_does(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SUBJECT.format(body="raise KeyboardInterrupt('own')"))
    done = check(tmp_path, "user.py:f")
    assert done.returncode == 1, done.stderr
    assert "KeyboardInterrupt: own" in done.stdout
