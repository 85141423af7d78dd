"""`ddefuzz minimize` with real captures in workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.answers.model import Control
from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.cli.minimize import command
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.database import Database
from ddefuzz.findings.model import Sighting
from tests.findings.arbitrary_findings import START

ORIGINAL = """\
# ddefuzz program v1
# inputs: keep = trues(4); x = normal
def program(keep: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[keep]
    warm = torch.relu(kept) + 1
    parts = torch.chunk(warm, 3, dim=0)
    return parts[0] * 2, warm
"""

MINIMAL = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    return torch.chunk(x, 2)
"""

CHUNK = Signature("dde", Site("C++", None, "at::native::chunk"), "guard_bool operator==")


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/ddefuzz.db"
    with Database.open(url) as database:
        database.record(
            Sighting(
                classified=Classification(
                    Failure("dde", Observation("export", EXPLICIT, "fail"), ""), CHUNK, "result-depends-on-data", "rule"
                ),
                verdict="fails",
                ops=("torch.chunk",),
                torch="2.13.0",
                program=ORIGINAL,
            ),
            START,
        )
    return url


@pytest.mark.slow
def test_a_file_becomes_the_smallest_program_on_stdout(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(ORIGINAL)
    result = CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, MINIMAL)
    assert "dde in at::native::chunk [guard_bool operator==]: 1 operation after" in result.stderr
    assert "shown in 3/3 fresh processes" in result.stderr


@pytest.mark.slow
def test_a_finding_is_saved_with_its_confirmation(url: str) -> None:
    result = CliRunner().invoke(command, [CHUNK.key[:8], "--db", url, "--format", "json"], catch_exceptions=False)
    outcome = json.loads(result.stdout)
    assert outcome["schema"] == "ddefuzz.minimize/1"
    assert (outcome["program"], outcome["steps"], outcome["confirmed"]) == (MINIMAL, 1, {"k": 3, "n": 3})
    with Database.open(url, create=False) as database:
        found = database.get(CHUNK.key)
    assert (found.minimal, found.steps, str(found.confirmed)) == (MINIMAL, 1, "3/3")
    assert found.shown is not None
    assert (found.shown.kind, found.stage, found.expression, found.shown_ops) == (
        "dde",
        "export",
        "Eq(((u0 + 1)//2), 0)",
        ("torch.chunk",),
    )
    assert (found.control, found.data_dependent) == (Control("passes", "passes"), True)


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_so_far(url: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "from ddefuzz.cli.main import main; main()", "minimize", CHUNK.key, "--db", url],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert first == "1 capture: 1 operation\n"
    assert process.returncode == 130, rest
    assert "stopping, and saving what was found" in rest
    assert "Traceback" not in rest
    with Database.open(url, create=False) as database:
        found = database.get(CHUNK.key)
    assert found.steps == 1
    assert "torch.chunk" in (found.minimal or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL.replace("torch.chunk(x, 2)", "torch.relu(x)"), "does not fail in export, expected one that does"),
        (MINIMAL.replace("torch.chunk(x, 2)", "torch.load(x)"), r"case.py:4: found .*torch\.load"),
    ],
)
def test_a_file_that_is_no_failing_program_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "case.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(command, [str(path), "--stage", "export"], catch_exceptions=False)


@pytest.mark.slow
def test_all_findings_are_minimized_confirmed_and_controlled_and_a_second_time_nothing_changes(url: str) -> None:
    def run(*more: str) -> tuple[str, str]:
        arguments = ["--all", "-j", "1", "--db", url, *more]
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout, result.stderr

    first, said = run()
    assert first.startswith(f"{CHUNK.key} smaller after ")
    assert said == "1 finding of 1: 1 smaller\n"
    with Database.open(url, create=False) as database:
        found = database.get(CHUNK.key)
    assert (found.minimal, found.steps, str(found.confirmed)) == (MINIMAL, 1, "1/1")
    assert (found.control, found.data_dependent) == (Control("passes", "passes"), True)
    again, said = run("--format", "json")
    outcome = json.loads(again)
    assert (outcome["id"], outcome["program"], outcome["confirmed"]) == (CHUNK.key, MINIMAL, {"k": 1, "n": 1})
    assert said == "1 finding of 1: 1 same\n"
    assert run("--after", CHUNK.key) == ("", "0 findings of 0: none done\n")


@pytest.mark.parametrize("arguments", [[], ["--after", "dde-1"], ["--all", "dde-1"], ["--all", "--from-original"]])
def test_arguments_that_contradict_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


@pytest.mark.slow
def test_a_model_becomes_a_program_without_its_code() -> None:
    subjects = Path(__file__).with_name("check_subjects.py")
    result = CliRunner().invoke(command, [f"{subjects}:Roll", "--stage", "export", "--max-attempts", "20"])
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith('def program(x: Float32[Tensor, "u0"]):\n    return torch.roll(x, 1)\n')
    result = CliRunner().invoke(command, [f"{subjects}:branch", "--stage", "export"])
    assert isinstance(result.exception, InputError)
    assert "a branch of your own code cannot be made a program" in str(result.exception)
