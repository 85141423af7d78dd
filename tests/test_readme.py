"""What the README shows is what ddefuzz prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks() -> list[list[str]]:
    """The indented blocks before the second heading: what torch says, then what ddefuzz says."""
    opening = README.partition("\n## ")[0]
    found = re.findall(r"\n\n((?:    .+\n)+)", opening)
    return [[line.strip() for line in block.splitlines()] for block in found]


@pytest.mark.slow
def test_the_first_example_is_real(tmp_path: Path) -> None:
    model = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert model is not None
    (tmp_path / "model.py").write_text(model[1])
    command = [sys.executable, "-m", "ddefuzz", "check", "model.py:keep_diff", "--stage", "export"]
    command += ["--output", "json=check.json"]
    environment = os.environ | {"COLUMNS": "140", "PYTHONPATH": str(Path(__file__).parents[1])}
    printed = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert printed.returncode == 1, printed.stderr
    of_torch, of_ddefuzz = blocks()
    said = " ".join(printed.stdout.split())
    assert of_torch[0].partition(": ")[2] in (tmp_path / "check.json").read_text()
    for line in of_ddefuzz:
        assert " ".join(line.split()) in said, line
