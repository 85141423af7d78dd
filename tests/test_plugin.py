"""The pytest plugin in pytest sessions of its own: known, fixed, changed and crashing cases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddefuzz import pytest_plugin
from ddefuzz.campaign import replay as kept
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.execute.protocol import EXPLICIT, Observation
from ddefuzz.findings.model import Finding
from ddefuzz.findings.textform import write_findings
from ddefuzz.keys import case
from ddefuzz.program import text

pytest_plugins = ("pytester",)

PASSES = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=3 4"]):
    return x + 1.0
"""
FAILS = """# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=6 4"]):
    return torch.chunk(x, 2)[0]
"""
CHUNK = Signature("dde", Site("C++", None, "at::native::chunk"), "guard_bool operator==")


def expecting(what: str, program: str) -> str:
    header, rest = program.split("\n", 1)
    return f"{header}\n# expect: {what}\n{rest}"


USER_CODE = """
import signal
import torch

def kill(x):
    signal.raise_signal(signal.SIGSEGV)

def double(x):
    return x * 2

CASES = [
    {"id": "kills", "fn": kill, "args": lambda: (torch.ones(3),)},
    {"id": "doubles", "fn": double, "args": lambda: (torch.ones(3),)},
]
"""
TRUSTED = '[[module]]\npath = "code.py"\nexpected = "expected.json"\n'
EXPECTED = '{"kills": {"export": {"outcome": "ok"}}, "doubles": {"export": {"outcome": "ok"}}}'

CONFIGURATION = "[pytest]\nfilterwarnings = error\nddefuzz_trust = true\n"


@pytest.fixture
def corpus(pytester: pytest.Pytester) -> Path:
    """A case for each thing that can become of one; what goes well is before and after what does not."""
    for name, content in {
        "changed": expecting("export/explicit dde at at::native::roll", FAILS),
        "fails": expecting("export/explicit ok", FAILS),
        "gone": expecting("export/explicit dde at at::native::chunk", PASSES),
        "passes": expecting("export/explicit ok", PASSES),
        "trusted/code": USER_CODE,
        "not_a_program": "raise RuntimeError('a file that is not collected is not executed')",
    }.items():
        path = pytester.path / "corpus" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (pytester.path / "corpus" / "trusted" / "trusted.toml").write_text(TRUSTED)
    (pytester.path / "corpus" / "trusted" / "expected.json").write_text(EXPECTED)
    known = Finding(
        id="dde-0444f0f7e1",
        signature=CHUNK,
        cause="result-depends-on-data",
        original=FAILS,
        failure=Failure("dde", Observation("export", EXPLICIT, "fail"), "Eq(u0, 0)"),
    )
    write_findings([known], pytester.path / "corpus" / "findings")
    (pytester.path / "pytest.ini").write_text(CONFIGURATION)
    return pytester.path / "corpus"


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    """Node id → outcome, of a verbose session."""
    found = (
        re.search(r"(PASSED|FAILED|XFAIL|XPASS|ERROR) +(\S+::\S+)|(\S+::\S+) +(\w+)", one) for one in result.outlines
    )
    return {match[2] or match[3]: match[1] or match[4] for match in found if match is not None}


@pytest.mark.slow
def test_each_case_is_an_item_that_says_what_became_of_it(pytester: pytest.Pytester, corpus: Path) -> None:
    del corpus
    result = pytester.runpytest_subprocess("corpus", "-v", "-rA", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=3, xfailed=1, xpassed=1)
    result.stdout.fnmatch_lines_random(
        [
            "XFAIL corpus/findings/dde-0444f0f7e1/original.py::export/explicit - dde-0444f0f7e1",
            "XPASS corpus/gone.py::export/explicit - export/explicit dde at at::native::chunk",
            "PASSED corpus/passes.py::export/explicit",
            "PASSED corpus/trusted/trusted.toml::code:doubles@export/explicit",
            "fails: expected export/explicit ok, seen export/explicit dde at at::native::chunk (Eq(*",
            "fails otherwise: expected export/explicit dde at at::native::roll, seen export/explicit dde at *chunk*",
            "fails: expected export/explicit ok, seen export/explicit crash at * (SIGSEGV (Segmentation fault))",
            "next: ddefuzz check *changed.py",
            "next: ddefuzz check *code.py --case kills",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    alone = outcomes(result)
    parallel = pytester.runpytest_subprocess("corpus", "-v", "-n", "2", "-p", "no:cacheprovider")
    parallel.assert_outcomes(passed=2, failed=3, xfailed=1, xpassed=1)
    assert outcomes(parallel) == alone


@pytest.mark.slow
@pytest.mark.long
def test_a_fixed_case_fails_no_session(pytester: pytest.Pytester, corpus: Path) -> None:
    result = pytester.runpytest_subprocess(str(corpus / "gone.py"))
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(xpassed=1)
    (pytester.path / "pytest.ini").write_text(f"{CONFIGURATION}xfail_strict = true\n")
    strict = pytester.runpytest_subprocess(str(corpus / "gone.py"))
    strict.assert_outcomes(failed=1)
    strict.stdout.fnmatch_lines(["*XPASS(strict)*"])


MODELS = """
import torch

def good(x):
    return torch.relu(x[x > 0])

def bad(x):
    return torch.diff(x[x > 0])

good_args = bad_args = (torch.tensor([1.0, -1.0, 2.0]),)
"""


@pytest.mark.slow
def test_the_models_of_a_repository_are_items_if_its_settings_are_typed(pytester: pytest.Pytester) -> None:
    (pytester.path / "models.py").write_text(MODELS)
    targets = '["models.py:good", "models.py:bad", "models.py:none"]'
    (pytester.path / "ddefuzz.toml").write_text(f"check.targets = {targets}\n")
    result = pytester.runpytest_subprocess("ddefuzz.toml", "-v", "-n", "0")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*ddefuzz.toml::*good PASSED*",
            "*bad does not export: fails in export, export-strict, compile. 1 problem.*",
            "next: ddefuzz check models.py:bad",
            "models.py:none: found no such name, expected a callable; the module has good, bad",
        ]
    )
    key = next(line.split()[1] for line in result.outlines if line.startswith("key "))
    accepted = f'[[problem]]\ntarget = "models.py:bad"\nkey = "{key}"\nreason = "later"\n'
    (pytester.path / "findings").mkdir()
    (pytester.path / "findings" / "accepted.toml").write_text(accepted)
    pytester.runpytest_subprocess("ddefuzz.toml").assert_outcomes(passed=2, failed=1)
    unasked = pytester.runpytest_subprocess(".", "--collect-only")
    assert unasked.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_settings_that_cannot_be_read_are_one_line(pytester: pytest.Pytester) -> None:
    (pytester.path / "ddefuzz.toml").write_text("check.targets = 3\n")
    result = pytester.runpytest_subprocess("ddefuzz.toml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["ddefuzz.toml: found check.targets = 3, expected a list of strings"])


@pytest.mark.slow
def test_a_list_of_user_modules_is_not_followed_unless_the_project_says_so(
    pytester: pytest.Pytester, corpus: Path
) -> None:
    (pytester.path / "pytest.ini").write_text("[pytest]\n")
    result = pytester.runpytest_subprocess(str(corpus / "trusted"), "--collect-only")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.slow
def test_a_case_that_cannot_be_read_is_one_line_and_runs_nothing(pytester: pytest.Pytester) -> None:
    (pytester.path / "hostile.py").write_text(
        expecting("export/explicit ok", PASSES.replace("x + 1.0", "open('x', 'w')"))
    )
    result = pytester.runpytest_subprocess("hostile.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*hostile.py:5: found *, expected *"])
    assert not (pytester.path / "x").exists()


def test_a_session_without_cases_imports_nothing_of_ddefuzz(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "ddefuzz.pytest_plugin" in sys.modules
            assert not {"torch", "sqlalchemy", "msgspec", "ddefuzz.program", "ddefuzz.campaign"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_the_plugin_knows_a_case_as_the_rest_of_ddefuzz_does() -> None:
    assert all(text.is_program(header.decode()) for header in pytest_plugin.HEADERS)
    assert all(one.startswith(tuple(map(bytes.decode, pytest_plugin.HEADERS))) for one in (text.HEADER, case.HEADER))
    assert pytest_plugin.TRUSTED == kept.TRUSTED
