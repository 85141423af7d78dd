"""`ddefuzz check-key`: how a key function is named, what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.cli.check_key import command
from ddefuzz.errors import InputError
from ddefuzz.keys.properties import PROPERTIES
from ddefuzz.oracles.keys_run import load_key


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("key", "expected MODULE:FUNCTION or FILE:FUNCTION"),
        ("no_such_module_here:key", "found a module that raises ModuleNotFoundError"),
        ("ddefuzz.keys.key:gone", "found no such name"),
        ("ddefuzz.keys.key:EXACT", "found tuple"),
        ("gone.py:key", "found no such file"),
    ],
)
def test_a_target_that_is_no_function_is_one_line(target: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load_key(target)


def test_an_unknown_kind_is_one_line() -> None:
    result = CliRunner().invoke(command, ["ddefuzz.keys.key:key", "--kind", "teapot"])
    assert isinstance(result.exception, InputError)
    assert "found 'teapot', expected one of tensor" in str(result.exception)


@pytest.mark.slow
def test_a_file_is_checked_and_its_violations_are_data(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def key(tensor):\n    return (tensor.dtype, tuple(tensor.shape), str(tensor.device))\n")
    result = CliRunner().invoke(
        command,
        f"{file}:key --kind tensor --examples 60 --strides none --no-alignment --no-requires-grad --format json",
    )
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert [one["name"] for one in document["properties"]] == list(PROPERTIES)
    by_name = {one["name"]: one for one in document["properties"]}
    assert by_name["adds-no-guard"]["violations"][0]["tensors"] == ["fake(u0)", "fake(u1)"]
    assert "conj" in "".join(by_name["tells-apart"]["violations"][0]["tensors"]) or "neg" in "".join(
        by_name["tells-apart"]["violations"][0]["tensors"]
    )
    assert not by_name["same-in-other-process"]["violations"]
    assert all(one["tried"] > 0 for one in document["properties"])


@pytest.mark.slow
def test_a_function_that_ends_its_process_is_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\n\n\ndef key(tensor):\n    os._exit(0)\n")
    result = CliRunner().invoke(command, f"{file}:key --kind tensor --examples 1")
    assert result.exit_code == 2
    rows = [f"not judged {name}: the code ends its own process: exit code 0" for name in PROPERTIES]
    assert set(result.stdout.splitlines()) >= {rows[0], rows[-1]}
