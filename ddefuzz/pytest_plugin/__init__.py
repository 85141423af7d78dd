"""Case files as pytest items: `pytest corpora findings` collects programs and, if trusted, lists of user modules there.

pytest imports this in every session of an environment that has ddefuzz, so nothing else of ddefuzz is imported before
the first such file is collected.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Generator
from pathlib import Path

import pytest

HEADER = b"# ddefuzz program v"
"""How a program's file begins, in any version (`program.text`)."""

TRUSTED = "trusted.toml"
"""The name of a list of trusted user modules (`campaign.corpus`)."""

TRUST = "ddefuzz_trust"
"""The setting with which a project says that such lists may be followed: they execute what they list."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting."""
    parser.addini(TRUST, f"Run the user modules that a {TRUSTED} lists.", type="bool", default=False)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Take the files that are programs or trusted lists from everyone else: pytest would import a program it is given.

    All other files are left to who takes them.
    """
    theirs = yield
    is_list = file_path.name == TRUSTED and parent.config.getini(TRUST)
    if not is_list and not _is_program(file_path):
        return theirs
    # Late, because it takes a second and most sessions of most projects have no such file.
    from ddefuzz.pytest_plugin.items import case_file  # noqa: PLC0415

    return [case_file(file_path, parent)]


def _is_program(path: Path) -> bool:
    if path.suffix != ".py" or not path.is_file():
        return False
    with path.open("rb") as file:
        # A byte order mark makes it no program, which is said of it then, but no user code either.
        return file.read(len(BOM_UTF8 + HEADER)).removeprefix(BOM_UTF8).startswith(HEADER)
