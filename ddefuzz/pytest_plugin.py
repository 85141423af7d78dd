"""The plugin of pytest: the fixture `ddefuzz_check`, case files as items (`pytest corpora findings`), and the models of
a repository (`pytest ddefuzz.toml`).

Case files are programs and, if trusted, lists of user modules.

pytest imports this module in every session of an environment that has ddefuzz. So nothing else of ddefuzz is imported
before a test needs it.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import ddefuzz
from ddefuzz.files import leads_to_file

HEADERS = (b"# ddefuzz program v", b"# ddefuzz key v")
"""The beginning of a program's file and of a key function's case, in any version (`program.text`)."""

TRUSTED = "trusted.toml"
"""The file name of a list of trusted user modules (`campaign.corpus`)."""

SETTINGS = "ddefuzz.toml"
"""The file that names the models of a repository, in `check.targets`."""

TRUST = "ddefuzz_trust"
"""The pytest setting that allows running the modules that such lists name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting."""
    parser.addini(TRUST, f"Run the user modules that a {TRUSTED} lists.", type="bool", default=False)


@pytest.fixture
def ddefuzz_check() -> Callable[..., ddefuzz.Report]:
    """`ddefuzz.assert_captures`: the test fails with the report if a model is not captured."""
    return ddefuzz.assert_captures


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect files that are programs or trusted lists, and no other plugin may: pytest would import a program. The
    models of a ddefuzz.toml are collected if it is typed.

    All other files are left to the other plugins.
    """
    theirs = yield
    if file_path.name == SETTINGS and parent.session.isinitpath(file_path):  # never unasked: a check takes seconds
        from ddefuzz.pytest_items import model_file  # noqa: PLC0415

        return [model_file(file_path, parent)]
    is_list = file_path.name == TRUSTED and parent.config.getini(TRUST)
    if not is_list and not _is_program(file_path):
        return theirs
    # Imported here because it takes a second, and most pytest sessions have no such file.
    from ddefuzz.pytest_items import case_file  # noqa: PLC0415

    return [case_file(file_path, parent, trusted=bool(parent.config.getini(TRUST)))]


def _is_program(path: Path) -> bool:
    if path.suffix != ".py" or not leads_to_file(path):
        return False
    with path.open("rb") as file:
        # A file with a byte order mark is collected too, so that it is reported as an invalid program.
        return file.read(len(BOM_UTF8 + HEADERS[0])).removeprefix(BOM_UTF8).startswith(HEADERS)
