"""Torches with planted changes: copies of the installed one, of links to its files, with a version of their own."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
INSTALLED = Path(torch.__file__).parent


class Change(NamedTuple):
    """A text in a file of torch, which is there once, and what is in its place."""

    file: str
    old: str
    new: str


def planted(folder: Path, version: str, *changes: Change) -> str:
    """The path of an interpreter whose torch is the installed one with these changes, and says this version."""
    root = folder / "site-packages" / "torch"  # ddefuzz knows torch's files by this name
    before = f"__version__ = {torch.__version__!r}"
    for file, old, new in (Change("version.py", before, f"__version__ = {version!r}"), *changes):
        for parent in reversed(Path(file).parents):
            _unfold(root / parent, INSTALLED / parent)
        text = (INSTALLED / file).read_text()
        assert text.count(old) == 1, f"{file}: found {text.count(old)} times {old!r}, expected it once"
        (root / file).unlink()  # the link
        (root / file).write_text(text.replace(old, new))
    return seeing(root.parent, folder / "python")


def seeing(packages: Path, python: Path) -> str:
    """The path of an interpreter, which is made, that sees the packages of a folder before all others; and `tests`."""
    paths = os.pathsep.join([str(packages), str(ROOT)])
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(paths)} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return str(python)


def _unfold(folder: Path, installed: Path) -> None:
    """Make a folder a real one, in which everything is a link to what is installed."""
    if folder.is_symlink():
        folder.unlink()
    if not folder.exists():
        folder.mkdir(parents=True)
        for one in installed.iterdir():
            if one.name != "__pycache__":  # it would be shared
                (folder / one.name).symlink_to(one)
