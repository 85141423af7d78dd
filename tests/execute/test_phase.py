"""The file of a task, and what its end leaves as it was."""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest

from ddefuzz.execute import journal


def set_to(enabled: bool) -> None:
    if enabled:
        faulthandler.enable(2)
    else:
        faulthandler.disable()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fault_handler_is_as_before(tmp_path: Path, enabled: bool) -> None:
    before = faulthandler.is_enabled()
    set_to(enabled)
    try:
        with journal.kept_in(tmp_path / "phases"):
            assert faulthandler.is_enabled()
        assert faulthandler.is_enabled() == enabled
        assert not (tmp_path / "phases").exists()
    finally:
        set_to(before)
