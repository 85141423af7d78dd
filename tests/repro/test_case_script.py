"""Tests of the stand-alone scripts of cases: each runs under this torch, with no ddefuzz in its process."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Stage, Subject
from ddefuzz.repro.run import ScriptSource, run_scripts
from ddefuzz.repro.script import case_script

MODULE = """\
import torch

def chunk(x):
    return torch.chunk(x, 2)[0]

class Item(torch.nn.Module):
    def forward(self, x, n):
        return torch.zeros(4) if n.item() > 3 else x + 1

CASES = [
    {"id": "chunk", "fn": chunk, "args": lambda: (torch.ones(4, 2),), "unbacked": {0: [0]}},
    {"id": "relu", "fn": torch.nn.ReLU, "args": lambda: (torch.ones(4, 2),), "unbacked": {0: [0]}},
    {"id": "item", "fn": Item, "args": lambda: (torch.ones(4), torch.tensor([2]))},
    {"id": "shapes", "fn": torch.nn.ReLU, "args": lambda: (torch.ones(4, 2),), "dynamic_shapes": lambda D: ({0: D},)},
    {"id": "function", "fn": chunk, "args": lambda: (torch.ones(4, 2),), "dynamic_shapes": lambda D: ({0: D},)},
    {"id": "raises", "fn": lambda x: x.reshape(3), "args": lambda: (torch.ones(4),)},
]
"""

PROGRAM = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    parts = torch.chunk(x, 2)
    return parts[0]
"""

CASES: list[tuple[str, Stage, str, str]] = [
    ("chunk", "export", "dde", "shows"),
    ("chunk", "export-strict", "dde", "shows"),
    ("chunk", "compile", "dde", "shows"),
    ("chunk", "export", "pending-unbacked", "fails otherwise"),
    ("chunk", "export", "", "fails otherwise"),
    ("relu", "export", "", "passes"),
    ("relu", "compile", "dde", "passes"),
    ("item", "export", "dde", "shows"),
    ("item", "compile", "unsupported", "fails otherwise"),
    ("shapes", "export", "", "passes"),
    ("shapes", "export-strict", "", "passes"),
    ("function", "export", "", "passes"),
    ("function", "export-strict", "", "passes"),
    ("raises", "export", "", "not judged"),
    ("missing", "export", "", "not judged"),
    ("", "export", "dde", "shows"),
    ("", "export-strict", "dde", "shows"),
    ("", "export", "", "fails otherwise"),
]
"""The case (empty: the program), its stage, the kind of the failure that is expected, and the verdict."""


@pytest.mark.slow
@pytest.mark.long
def test_the_verdicts_of_cases(tmp_path: Path) -> None:
    (tmp_path / "cases.py").write_text(MODULE)

    def subject(case: str) -> Subject:
        return CallableSubject(str(tmp_path / "cases.py"), case=case) if case else ProgramSubject(PROGRAM)

    written = [
        ScriptSource(f"{at}", kind, partial(case_script, subject(case), stage, kind, "a case"))
        for at, (case, stage, kind, _) in enumerate(CASES)
    ]
    results = run_scripts(written, sys.executable, 1, lambda _: None, forked=True)
    assert [(*CASES[int(one.finding)][:3], one.status) for one in results] == CASES


def test_a_failure_of_a_call_has_no_script() -> None:
    with pytest.raises(InputError, match=r"found the kind missing-assertion, .*: only ddefuzz calls"):
        case_script(ProgramSubject(PROGRAM), "export", "missing-assertion", "a case")


def test_a_stage_of_an_oracle_has_no_script_of_a_capture() -> None:
    with pytest.raises(InputError, match="found the stage grow, expected one of eager, "):
        case_script(ProgramSubject(PROGRAM), "grow", "dde", "a case")
