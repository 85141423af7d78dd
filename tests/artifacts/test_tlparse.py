"""What tlparse lists of torch's trace log is in the output of the same run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ddefuzz.artifacts.model import GraphBreaks

DOCUMENT = Path(__file__).parents[2] / "docs" / "artifacts.md"

MODEL = """\
import torch

def helper(z):
    torch._dynamo.graph_break()
    return z + 1

def model(x, y):
    k = y.sum().item()
    return (helper(x.nonzero().float().sum() + y) * k).relu()

model_args = (torch.tensor([1.0, 0.0, 2.0, 3.0]), torch.randn(4, requires_grad=True))
"""

RUN = """\
import sys
import msgspec
from ddefuzz.artifacts.breaks import find_breaks
from ddefuzz.execute.protocol import CallableSubject
sys.stdout.buffer.write(msgspec.json.encode(find_breaks(CallableSubject("model.py", "model"), "inductor")))
"""

_OWN_NAME = re.compile(r"_\d+(?:_readable)?\.\w+$")
_RESUME = re.compile(r"^torch_dynamo_resume_in_\w+_(?=ORIGINAL|MODIFIED)")
_DOCUMENTED = re.compile(r"^\| `([\w.]+)` \| (.+) \|$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.long
def test_everything_that_tlparse_lists_of_a_broken_model_is_there(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TORCH_TRACE": str(tmp_path / "trace")}
    ran = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, check=True)
    broken = msgspec.json.decode(ran.stdout, type=GraphBreaks)
    (log,) = (tmp_path / "trace").iterdir()
    tlparse = Path(sys.executable).with_name("tlparse")
    subprocess.run([tlparse, log, "-o", "listed", "--no-browser"], cwd=tmp_path, check=True, capture_output=True)
    listed = {
        (
            folder.name.removeprefix("-_").rsplit("_", 1)[0].replace("_", "/"),
            _RESUME.sub("", _OWN_NAME.sub("", file.name)),
        )
        for folder in (tmp_path / "listed").glob("-_[0-9]*")
        for file in folder.iterdir()
    }
    parts = {frame.name: {re.sub(r" \d+$", "", part.name) for part in frame.parts} for frame in broken.frames}
    documented = dict(_DOCUMENTED.findall(DOCUMENT.read_text(encoding="utf-8")))
    missing = sorted((frame, name) for frame, name in listed if documented.get(name, name) not in parts[frame])
    assert missing == []
    assert {name for _, name in listed} <= set(documented)
    assert [frame.function for frame in broken.frames][:2] == ["model", "helper"]
    assert any(frame.function.startswith("torch_dynamo_resume_in_") for frame in broken.frames)
