"""`ddefuzz artifacts --python`: what another interpreter does wrong is one line."""

from __future__ import annotations

import sys

import pytest

from ddefuzz.cli.artifacts import elsewhere
from ddefuzz.errors import EXIT_UNSUPPORTED, UnsupportedError

NAME = "--python other: its `ddefuzz artifacts`"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('no torch\\nat all')", f"{NAME} ended with at all"),
        ("import sys; sys.stderr.buffer.write(b'\\xff'); sys.exit(3)", f"{NAME} ended with \ufffd"),
        ("import sys; sys.stdout.buffer.write(b'\\xff{}')", f"{NAME} printed '\ufffd{{}}', expected its document"),
        ("print({})", f"{NAME} printed "),
    ],
)
def test_another_interpreter_that_fails_is_one_line(code: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        elsewhere(NAME, [sys.executable, "-c", code])
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == EXIT_UNSUPPORTED


def test_an_interpreter_that_is_gone_is_one_line() -> None:
    with pytest.raises(UnsupportedError, match="does not start: No such file or directory"):
        elsewhere(NAME, ["/missing/python"])


def test_an_interpreter_that_does_not_end_is_one_line() -> None:
    with pytest.raises(UnsupportedError, match="still runs, expected it to end within 1 s"):
        elsewhere(NAME, [sys.executable, "-c", "import time; time.sleep(600)"], seconds=1.0)
