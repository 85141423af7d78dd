"""A database with findings for each test, copied from one that is made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddefuzz.findings.database import Database
from tests.web.served import filled


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("web") / "made.db"
    filled(path)
    return path


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(made, tmp_path / "a.db")
    with Database.open(f"sqlite:///{tmp_path / 'a.db'}") as opened:
        yield opened
