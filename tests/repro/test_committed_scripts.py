"""Tests the scripts and snippets of the committed findings with plain torch, with and without the blamed branch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ddefuzz.classify.expected import by_exception
from ddefuzz.classify.kind import decisive
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CAPTURE_STAGES
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import read_findings
from ddefuzz.oracles.capture import classify
from ddefuzz.repro.finding import finding_script
from ddefuzz.repro.run import run_scripts
from ddefuzz.repro.snippet import MOST_LINES, finding_snippet
from tests.repro.branches import PACKAGE, UNPATCHED, patches

ROOT = Path(__file__).parents[2]

RUNNER = Path(__file__).with_name("fork_scripts.py")

JOBS = 2

FINDINGS = read_findings(ROOT / "findings", datetime(2025, 1, 1, tzinfo=UTC))

COLD = FINDINGS[:: len(FINDINGS) // 6]
"""The findings whose scripts are also run by a plain interpreter, which needs 5 s each. All scripts are run in
children of one process that has imported torch.
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def run(tasks: Sequence[dict[str, str]], folder: Path) -> dict[str, tuple[int, Any]]:
    """The exit code and the result of each task, by the name of its script."""

    def share(number: int) -> str:
        lines = "".join(json.dumps(task) + "\n" for task in tasks[number::JOBS])
        done = subprocess.run(
            [sys.executable, RUNNER],
            input=lines,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return done.stdout

    with ThreadPoolExecutor(JOBS) as threads:
        rows = [json.loads(line) for out in threads.map(share, range(JOBS)) for line in out.splitlines()]
    return {Path(row["script"]).stem: (row["code"], json.loads(row["result"] or "null")) for row in rows}


def script_of(finding: Finding, folder: Path) -> str:
    path = folder / f"{finding.id}.py"
    if not path.exists():
        path.write_text(finding_script(finding))
    return str(path)


def test_every_script_shows_its_finding(tmp_path: Path) -> None:
    results = run([{"script": script_of(finding, tmp_path)} for finding in FINDINGS], tmp_path)
    assert len(results) == len(FINDINGS)
    assert {name: result for name, (code, result) in results.items() if code != 1} == {}


def test_a_plain_interpreter_gives_the_same_verdicts() -> None:
    results = run_scripts(COLD, sys.executable, JOBS, lambda _: None)
    assert [(result.finding, result.status) for result in results] == [(one.id, "shows") for one in COLD]


class Branch(NamedTuple):
    """The file of torch with the blamed branch, its expression, and the sources of the file without that branch."""

    file: str
    expression: str
    texts: list[str]


def branch_of(finding: Finding) -> Branch | None:
    evidence = finding.evidence
    classified = classify(evidence) if evidence is not None and evidence.kind == "dde" else None
    frame = classified.frame if classified is not None else None
    if classified is None or frame is None or not frame.file.startswith("torch/"):
        return None
    expression = by_exception(classified, True).seen.get("evaluated", "")
    return Branch(str(PACKAGE / frame.file), expression, patches(frame.file, frame.line, expression))


def test_no_script_shows_a_branch_that_was_removed(tmp_path: Path) -> None:
    branches = {finding.id: branch for finding in FINDINGS if (branch := branch_of(finding)) is not None}
    assert {one.expression for one in branches.values() if not one.texts} <= UNPATCHED.keys()
    paths = {finding.id: script_of(finding, tmp_path) for finding in FINDINGS if finding.id in branches}
    rest = {name: branch for name, branch in branches.items() if branch.texts}
    assert len(rest) > 0.8 * len(branches)
    shown: dict[str, Any] = {}
    for number in range(2):
        tasks = [
            {"script": paths[name], "file": branch.file, "text": branch.texts[number]}
            for name, branch in rest.items()
            if number < len(branch.texts)
        ]
        results = run(tasks, tmp_path)
        shown |= {name: (code, result) for name, (code, result) in results.items()}
        rest = {name: rest[name] for name, (code, _) in results.items() if code not in {0, 3}}  # passes, otherwise
        if not rest:
            break
    assert {name: result for name, result in shown.items() if result[0] not in {0, 3}} == {}


def test_every_snippet_raises_what_the_finding_does(tmp_path: Path) -> None:
    expected: dict[str, str] = {}
    for finding in FINDINGS:
        if finding.stage not in CAPTURE_STAGES:
            with pytest.raises(InputError, match="was found in the stage"):
                finding_snippet(finding)
            continue
        text = finding_snippet(finding)
        assert len(text.splitlines()) <= MOST_LINES
        assert "ddefuzz" not in text
        (tmp_path / f"{finding.id}.py").write_text(text)
        assert finding.evidence is not None
        expected[finding.id] = decisive(finding.evidence.observation)[1].name
    results = run([{"script": str(tmp_path / f"{name}.py")} for name in expected], tmp_path)
    assert {name: result for name, (_, result) in results.items() if expected[name] not in (result or ())} == {}
