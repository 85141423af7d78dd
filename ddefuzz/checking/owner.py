"""Whose code a frame is: the user's own files, an installed package, or PyTorch."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.instrument.events import PROGRAM_FILE

OwnerKind: TypeAlias = Literal["yours", "package", "PyTorch", "Python"]

_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(Path(_PATHS[name]) for name in ("purelib", "platlib"))
_STDLIB = Path(_PATHS["stdlib"])


class Owner(msgspec.Struct, frozen=True):
    """Who can change the code. `name` and `version` are those of an installed package, or of PyTorch."""

    kind: OwnerKind
    name: str = ""
    version: str = ""

    def __str__(self) -> str:
        if self.kind in ("yours", "Python"):
            return "your code" if self.kind == "yours" else "Python"
        return f"{self.name or self.kind} {self.version}".strip()


YOURS = Owner("yours")


def owner_of(file: str) -> Owner:
    """The owner of a file as frames name it: torch and installed packages relative to the folder that holds them."""
    if file == PROGRAM_FILE or (Path.cwd() / file).is_file():
        return YOURS if not _installed(Path.cwd() / file) else package(_installed(Path.cwd() / file))
    if file.startswith(("torch/", "<")):
        return torch_itself()
    top = _installed(Path(file))
    if not top and not Path(file).is_absolute():
        if any((folder / file).is_file() for folder in _INSTALLED):
            top = Path(file).parts[0].removesuffix(".py")
        elif (_STDLIB / file).is_file():
            return Owner("Python")
    return package(top) if top else YOURS


def torch_itself() -> Owner:
    """PyTorch, by its version."""
    return Owner("PyTorch", "PyTorch", _version("torch"))


@lru_cache(maxsize=128)
def package(top: str) -> Owner:
    """The installed package that has a top-level module of this name."""
    version = _version(top)
    if version:
        return Owner("package", top, version)
    names = metadata.packages_distributions().get(top, [])
    return Owner("package", names[0] if names else top, _version(names[0]) if names else "")


def _installed(path: Path) -> str:
    """The top-level module of a file in a folder of installed packages; empty for others."""
    for folder in _INSTALLED:
        if path.is_relative_to(folder):
            return path.relative_to(folder).parts[0].removesuffix(".py")
    return ""


@lru_cache(maxsize=128)
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
