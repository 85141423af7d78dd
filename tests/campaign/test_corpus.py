"""Selection of the cases to replay, and their expectations. Nothing is executed for it."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from ddefuzz.campaign.replay import Expectation, expectation_of, kept_cases, parse_expectation, trusted_modules
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import EXPLICIT, CallableSubject
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.model import Finding
from tests.findings.arbitrary_findings import CHUNK, failure_of

PROGRAM = """\
# ddefuzz program v1
# expect: export/explicit ok
# expect: fake/explicit dde at at::native::chunk
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.chunk(x, 2)
"""
FAILS = Expectation("export", EXPLICIT, "dde", "at::native::chunk", CHUNK.anchor)
PASSES = Expectation("export", EXPLICIT)


@pytest.mark.parametrize(
    ("state", "fixed_in", "expected"),
    [
        ("new", (), FAILS),
        ("triaged", (), FAILS),
        ("fixed", (), PASSES),
        ("fixed", (version("torch"),), PASSES),
        ("fixed", ("2.6.0",), PASSES),  # what is later has the fix
        ("fixed", ("2.99.0",), FAILS),
    ],
)
def test_what_is_fixed_in_this_torch_has_to_pass(
    state: State, fixed_in: tuple[str, ...], expected: Expectation
) -> None:
    finding = Finding(
        id=CHUNK.key,
        signature=CHUNK,
        cause="result-depends-on-data",
        state=state,
        fixed_in=fixed_in,
        failure=failure_of(CHUNK),
    )
    assert expectation_of(finding, finding.failure) == expected


def test_a_program_is_a_case_for_each_expectation(tmp_path: Path) -> None:
    (tmp_path / "case.py").write_text(PROGRAM)
    (tmp_path / "user.py").write_text("raise SystemExit")
    (tmp_path / "folder.py").mkdir()
    assert [str(case.expect) for case in kept_cases([tmp_path])] == [
        "export/explicit ok",
        "fake/explicit dde at at::native::chunk",
    ]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    for name, found in (
        ("pipe.py", r"pipe\.py: found a FIFO, expected a regular file"),
        ("loop.py", r"loop\.py: cannot be read: Too many levels of symbolic links"),
        ("endless.py", r"endless\.py: found a character device, expected a regular file"),
        ("none.py", r"none\.py: found no such file or folder"),
    ):
        with pytest.raises(InputError, match=found):
            kept_cases([tmp_path / name])
    with pytest.raises(InputError, match=r"endless\.py: found a character device"):
        kept_cases([tmp_path])


@pytest.mark.parametrize("text", ["", "export ok", "export/old ok", "export/explicit dde", "nowhere/explicit ok"])
def test_an_expectation_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^here: found the expectation .*, expected STAGE/SEMANTICS"):
        parse_expectation(text, "here")


def trust(folder: Path, module: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "trusted.toml").write_text(f'[[module]]\npath = "{module}"\nexpected = "expected.json"\n')
    (folder / "expected.json").write_bytes(msgspec.json.encode({"one": {"export": {"outcome": "ok"}}}))


def test_trusted_modules_are_below_their_list(tmp_path: Path) -> None:
    trust(tmp_path, "cases.py")
    assert kept_cases([tmp_path]) == ()
    (case,) = kept_cases([tmp_path], trust=True)
    assert trusted_modules([tmp_path]) == (tmp_path / "cases.py",)
    assert case.subject == CallableSubject(str(tmp_path / "cases.py"), case="one")
    for outside in ("../cases.py", "/cases.py", "below/../../cases.py"):
        trust(tmp_path / "list", outside)
        with pytest.raises(InputError, match=r"trusted\.toml: found the module .*, expected one below"):
            kept_cases([tmp_path / "list"], trust=True)


@pytest.mark.parametrize("text", ["[[", "a = " + "[" * 20_000, "[[module]]", "typo = 1"])
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trusted.toml").write_text(text)
    with pytest.raises(InputError, match=r"trusted\.toml: "):
        kept_cases([tmp_path], trust=True)
