"""A database with findings for each test, copied from one that is made once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ddefuzz.findings.database import Database
from ddefuzz.findings.inventory import read
from ddefuzz.web import pages
from ddefuzz.web.security import Access
from tests.web.served import client_of, filled


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


@pytest.fixture(scope="session")
def reading(made: Path) -> Iterator[TestClient]:
    """A client for tests that change nothing."""
    with Database.open(f"sqlite:///{made}") as opened:
        yield client_of(opened, Access(hosts=frozenset({"localhost", "fuzz.example.org"}), by="ada"))


SOURCE = '''"""A <script> of torch."""


def roll(a, shifts):
    if guard_or_false(a.numel() == 0):
        return a.clone()
    return guard_or_true(shifts != 0)


def other():
    return 1
'''


@pytest.fixture(scope="session", autouse=True)
def _small_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A package with one guarded file in place of torch, whose source takes seconds to read."""
    package = tmp_path_factory.mktemp("packages") / "torch"
    (package / "_refs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text("__version__ = '2.13.0'\n")
    (package / "_refs" / "__init__.py").write_text(SOURCE)
    (package.parent / "secret.py").write_text("secret = 1\n")
    with pytest.MonkeyPatch.context() as patch:
        found = read(package)
        patch.setattr(pages, "inventory", lambda: found)
        yield
