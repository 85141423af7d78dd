"""Tests the scripts and snippets of the committed findings with plain torch, with and without the blamed branch.

By default the script or the snippet of some of each kind and stage is run. After a change of findings/ or of what
writes scripts, run all: `ci/test tests/repro --all-scripts`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ddefuzz.classify.failure import decisive
from ddefuzz.classify.recognition import by_exception
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import CAPTURE_STAGES
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import read_findings
from ddefuzz.oracles.capture import classify
from ddefuzz.oracles.recompilation import MODE_OF
from ddefuzz.program.code import made_of
from ddefuzz.repro.finding import MOST_LINES, finding_script, finding_snippet, program_of
from ddefuzz.repro.run import run_scripts
from tests.repro.branches import PACKAGE, patched
from tests.repro.fixes import FIXES, PASSES, UNPATCHED

ROOT = Path(__file__).parents[2]

RUNNER = Path(__file__).with_name("fork_scripts.py")

JOBS = 1
"""Processes whose children run scripts. Each imports torch, for 4 CPU seconds."""

FINDINGS = read_findings(ROOT / "findings", datetime(2025, 1, 1, tzinfo=UTC))

NO_SCRIPT = frozenset({"lost-assertion-4ed41e0680", "repeated-assertion-4e04b52327", "repeated-assertion-62861a96b9"})
"""The findings that only a look into the capture shows: the captured program and eager end alike."""

CRASHES = tuple(finding for finding in FINDINGS if finding.kind == "crash-in-call")

SHOWN = tuple(finding for finding in FINDINGS if finding.id not in NO_SCRIPT and finding not in CRASHES)

STRIDE = 20
"""By default one script or snippet of so many is run, and one patch."""

COLD = SHOWN[:: len(SHOWN) - 1]
"""The findings whose scripts are also run by a plain interpreter, which needs 5 s for each. The other tests run scripts
in children of one process that has imported torch.
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def some_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first of each kind and stage, and one in `STRIDE` of all."""
    groups = Counter[tuple[str, str | None]]()
    chosen = []
    for number, finding in enumerate(findings):
        groups[finding.kind, finding.stage] += 1
        if groups[finding.kind, finding.stage] == 1 or number % STRIDE == 0:
            chosen.append(finding)
    return tuple(chosen)


@pytest.fixture
def scripts(request: pytest.FixtureRequest) -> tuple[Finding, ...]:
    """The findings whose scripts are run."""
    return SHOWN if request.config.getoption("--all-scripts") else some_of(SHOWN)[::3]


@pytest.fixture
def snippets(request: pytest.FixtureRequest) -> tuple[Finding, ...]:
    """The findings whose snippets are run: by default those whose scripts are not."""
    return SHOWN if request.config.getoption("--all-scripts") else some_of(SHOWN)[1::3]


def run(tasks: Sequence[dict[str, str]], folder: Path) -> dict[str, tuple[int, Any]]:
    """The exit code and the result of each task, by the name of its script."""

    def share(number: int) -> str:
        lines = "".join(json.dumps(task) + "\n" for task in tasks[number::JOBS])
        done = subprocess.run(
            [sys.executable, RUNNER, "300"],
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
    return {Path(row["script"]).stem: (row["code"], json.loads(last(row["output"]))) for row in rows}


def last(output: str) -> str:
    """The last line."""
    return output.splitlines()[-1] if output else "null"


def script_of(finding: Finding, folder: Path) -> str:
    path = folder / f"{finding.id}.py"
    if not path.exists():
        path.write_text(finding_script(finding))
    return str(path)


def test_a_script_shows_its_finding(tmp_path: Path, scripts: tuple[Finding, ...]) -> None:
    results = run([{"script": script_of(finding, tmp_path)} for finding in scripts], tmp_path)
    assert len(results) == len(scripts)
    assert {name: result for name, (code, result) in results.items() if code != 1} == {}


@pytest.mark.long
def test_the_script_of_a_crash_reports_it_and_the_snippet_ends_its_process(tmp_path: Path) -> None:
    seen = {"captured": "ends the process"}
    for forked in (False, True):
        results = run_scripts(CRASHES, sys.executable, JOBS, lambda _: None, forked=forked)
        assert [(one.finding, one.status, one.seen) for one in results] == [(one.id, "shows", seen) for one in CRASHES]
    for finding in CRASHES:
        (tmp_path / "snippet.py").write_text(finding_snippet(finding))
        ended = subprocess.run([sys.executable, "snippet.py"], cwd=tmp_path, capture_output=True, check=False)
        assert signal.Signals(-ended.returncode).name == finding.anchor.partition(" ")[0]


def test_what_only_the_capture_shows_has_no_script(tmp_path: Path) -> None:
    for finding in FINDINGS:
        if finding.id in NO_SCRIPT:
            with pytest.raises(InputError, match="only the captured graph shows it"):
                script_of(finding, tmp_path)


def test_a_plain_interpreter_gives_the_same_verdicts() -> None:
    results = run_scripts(COLD, sys.executable, JOBS, lambda _: None)
    assert [(result.finding, result.status) for result in results] == [(one.id, "shows") for one in COLD]


class Branch(NamedTuple):
    """The blamed branch of a finding: torch's file, function and expression, and its line."""

    file: str
    function: str
    expression: str
    line: int


def branch_of(finding: Finding) -> Branch | None:
    evidence = finding.evidence
    classified = classify(evidence) if evidence is not None and evidence.kind == "dde" else None
    frame = classified.frame if classified is not None else None
    if classified is None or frame is None or not frame.file.startswith("torch/"):
        return None
    expression = by_exception(classified, True).seen.get("evaluated", "")
    return Branch(frame.file, frame.function, expression, frame.line)


def then(code: int, result: Any) -> str:
    """What a script found after the patch, as `FIXES` states it."""
    if code == 0:
        return PASSES
    if not isinstance(result, dict) or result["verdict"] != "fails otherwise":
        return f"exit code {code}: {result}"
    seen = result["seen"]
    return (
        f"{seen['function']}: {seen['evaluated']}" if "function" in seen else f"{seen['exception']}: {seen['message']}"
    )


def test_a_script_finds_what_a_maintainers_patch_leaves(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    fixes = {(row.file, row.function, row.expression): row for row in FIXES}
    assert len(fixes) == len(FIXES)
    branches = {finding.id: branch for finding in FINDINGS if (branch := branch_of(finding)) is not None}
    rest = {name: branch for name, branch in branches.items() if branch.expression not in UNPATCHED}
    # A new branch needs a row: what a maintainer would put in its place, and what a script finds then.
    assert {branch[:3] for branch in rest.values()} <= fixes.keys()
    if not request.config.getoption("--all-scripts"):
        rest = {name: rest[name] for name in sorted(rest)[::STRIDE]}
    paths = {finding.id: script_of(finding, tmp_path) for finding in FINDINGS if finding.id in rest}
    tasks = [
        {
            "script": paths[name],
            "file": str(PACKAGE / branch.file),
            "text": patched(branch.file, branch.line, branch.expression, fixes[branch[:3]].answer),
        }
        for name, branch in rest.items()
    ]
    found = {name: then(code, result) for name, (code, result) in run(tasks, tmp_path).items()}
    expected = {name: fixes[branch[:3]].then for name, branch in rest.items()}
    assert {name: said for name, said in found.items() if not said.startswith(expected[name])} == {}
    assert found.keys() == expected.keys()


COMPARED = {"lower": "# With TORCH_LOGS=output_code", "grow": "# Repeat the lines of the program"}
"""How a snippet begins whose reader compares two things."""


def raised_by_snippet(finding: Finding) -> str:
    """The class of the exception that ends a snippet: that of the capture, of the call, or of a count."""
    assert finding.evidence is not None
    if finding.stage in MODE_OF:
        return "AssertionError"
    if finding.stage == "key":
        return "GuardOnDataDependentSymNode" if finding.kind == "key-guards" else "AssertionError"
    observation = finding.evidence.observation
    for call in observation.calls:
        if call.size == finding.evidence.size:  # one of the two raises, or else the comparison of their results
            return (call.captured.error or call.eager.error).partition(":")[0] or "AssertionError"
    return decisive(observation)[1].name


def test_a_snippet_raises_what_the_finding_does(tmp_path: Path, snippets: tuple[Finding, ...]) -> None:
    expected: dict[str, str] = {}
    for finding in snippets:
        if finding.stage not in (*CAPTURE_STAGES, *MODE_OF, *COMPARED, "key"):
            with pytest.raises(InputError, match="found the stage"):
                finding_snippet(finding)
            continue
        text = finding_snippet(finding)
        made = len(made_of(program_of(finding))) if finding.stage != "key" else 0
        assert len(text.splitlines()) <= MOST_LINES + made or finding.stage == "key"
        assert "ddefuzz" not in text
        if finding.stage in COMPARED:  # it raises nothing
            assert text.startswith(COMPARED[finding.stage])
            continue
        (tmp_path / f"{finding.id}.py").write_text(text)
        if finding.kind == "wrong-meta":  # it prints what the graph says, and the value
            printed = subprocess.run([sys.executable, tmp_path / f"{finding.id}.py"], capture_output=True, check=True)
            assert b" but " in printed.stdout
            continue
        expected[finding.id] = raised_by_snippet(finding)
    results = run([{"script": str(tmp_path / f"{name}.py")} for name in expected], tmp_path)
    assert {name: result for name, (_, result) in results.items() if expected[name] not in (result or ())} == {}
