"""The browser of tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
"""Debian's. `.ci/run` installs it."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium without a window."""
    assert CHROMIUM.exists(), f"found no {CHROMIUM}, expected Debian's package chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()
