"""`ddefuzz artifacts --python`: what another interpreter does wrong is one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ddefuzz.cli.artifacts import made_by
from ddefuzz.errors import EXIT_UNSUPPORTED, UnsupportedError

WORDS = ("artifacts", "model.py:f")


def python(folder: Path, code: str) -> str:
    """An interpreter that runs this code, whatever it is given."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('no torch\\nat all')", "ended with at all"),
        ("import sys; sys.stderr.buffer.write(b'\\xff'); sys.exit(3)", "ended with \ufffd"),
        ("import sys; sys.stdout.buffer.write(b'\\xff{}')", "printed '\ufffd{}': found JSON is malformed"),
        ("print({})", "printed "),
    ],
)
def test_another_interpreter_that_fails_is_one_line(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        made_by(python(tmp_path, code), WORDS)
    name = f"--python {tmp_path}/python: its `ddefuzz artifacts`"
    assert str(caught.value).startswith(f"{name} {said}")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == EXIT_UNSUPPORTED


def test_an_interpreter_that_is_gone_is_one_line() -> None:
    with pytest.raises(UnsupportedError, match="does not start: No such file or directory"):
        made_by("/missing/python", WORDS)


def test_an_interpreter_that_does_not_end_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="still runs, expected it to end within 1 s"):
        made_by(python(tmp_path, "import time; time.sleep(600)"), WORDS, seconds=1.0)
