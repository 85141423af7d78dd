"""What a worker prints that cannot start."""

from __future__ import annotations

import sys
from multiprocessing import synchronize

import pytest

from ddefuzz.execute.starting import print_error


def at(file: str) -> FileNotFoundError:
    """An error whose innermost frame is in the file."""
    try:
        exec(compile("raise FileNotFoundError(2, 'No such file or directory')", file, "exec"))
    except FileNotFoundError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(("file", "lines"), [(str(synchronize.__file__), 0), ("other.py", 1)])
def test_only_a_campaign_that_ended_meanwhile_is_not_an_error(
    file: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[BaseException] = []
    monkeypatch.setattr(sys, "__excepthook__", lambda _kind, error, _traceback: printed.append(error))
    error = at(file)
    print_error(type(error), error, error.__traceback__)
    assert len(printed) == lines
