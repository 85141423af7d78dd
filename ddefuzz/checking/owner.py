"""Whose code a file is: the user's own, an installed package's, or PyTorch's, and how files are named."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.files import leads_to_file, real_path
from ddefuzz.instrument.events import PROGRAM_FILE, TYPED_FILES

OwnerKind: TypeAlias = Literal["yours", "package", "PyTorch", "Python"]

_PATHS = sysconfig.get_paths()
_INSTALLED = tuple(
    folder for name in ("purelib", "platlib") for folder in (Path(_PATHS[name]), real_path(_PATHS[name]))
)
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
    if file == PROGRAM_FILE or file.startswith(TYPED_FILES):
        return YOURS
    is_here = leads_to_file(Path.cwd() / file)
    if file.startswith(("torch/", "<")) and not is_here:
        return torch_itself()
    top = package_of(file)
    if top:
        return package(top)
    return Owner("Python") if not Path(file).is_absolute() and not is_here and leads_to_file(_STDLIB / file) else YOURS


def package_of(file: str) -> str:
    """The top-level module of an installed package that a file belongs to; empty for others."""
    path = Path(file) if Path(file).is_absolute() else Path(full_path(file))
    folder = next((folder for folder in _INSTALLED if path.is_relative_to(folder)), None)
    return path.relative_to(folder).parts[0].removesuffix(".py") if folder is not None else ""


def module_of(file: str) -> str:
    """The name by which an installed module is imported; for a file of the user its stem."""
    path = Path(file)
    folder = next((folder for folder in _INSTALLED if path.is_relative_to(folder)), path.parent)
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def full_path(file: str) -> str:
    """The full path of a file. Frames name the files of packages next to torch relative to the folder of both."""
    path = Path(file)
    if file.startswith("<"):
        return file
    if not path.is_absolute() and not leads_to_file(path):
        path = next((folder / path for folder in _INSTALLED if leads_to_file(folder / path)), path)
    return str(real_path(path))


def shown(file: str) -> str:
    """A path relative to the current folder if it lies in it."""
    path = Path(file)
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file


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


@lru_cache(maxsize=128)
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
