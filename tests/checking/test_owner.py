"""Whose code a file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddefuzz.checking.problems import owner_of


def test_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert str(owner_of("model.py")) == str(owner_of("<program>")) == "your code"
    assert owner_of(str(tmp_path / "model.py")).kind == "yours"
    assert owner_of("torch/_refs/__init__.py").kind == "PyTorch"
    assert owner_of("contextlib.py").kind == "Python"
    package = owner_of("msgspec/__init__.py")
    assert (package.kind, package.name) == ("package", "msgspec")
    assert package.version
    assert owner_of(pytest.__file__).name == "pytest"
