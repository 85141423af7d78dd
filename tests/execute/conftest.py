"""Which captures the fast set has."""

from __future__ import annotations

from pathlib import Path

import pytest

QUICK = {"eager", "fake", "export", "compile"}
"""The stages in which the fast set runs a test that is repeated in each stage. In all others the test is slow."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark before `-m` selects."""
    ours = [one for one in items if isinstance(one, pytest.Function) and one.path.parent == Path(__file__).parent]
    for item in ours:
        if hasattr(item, "callspec") and item.callspec.params.get("stage", "eager") not in QUICK:
            item.add_marker(pytest.mark.slow)
