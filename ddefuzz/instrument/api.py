"""What a row of the table of torch's private names is (`torch_api`), and how it is looked up and replaced.

Importing this module does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ddefuzz.errors import UnsupportedError
from ddefuzz.files import is_there

VERSIONS = ("2.13", "2.14", "2.15")
"""The versions of torch under which the names have been looked up."""


@dataclass(frozen=True, slots=True)
class Api:
    """One private attribute: `module:dotted.path`, its purpose, and parameters that calls rely on.

    `otherwise` has the paths in other versions of torch, tried in order if `path` does not exist.
    """

    path: str
    purpose: str
    parameters: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The attribute's own name in the newest version, by which records name it."""
        return self.key.rpartition(".")[2]

    @property
    def key(self) -> str:
        """The name within its module in the newest version."""
        return self.path.partition(":")[2]

    @property
    def file(self) -> str:
        """The file of its module, relative to the folder that holds torch."""
        return f"{self.path.partition(':')[0].replace('.', '/')}.py"

    def here(self) -> str:
        """The first of the paths that this torch has. Raises UnsupportedError if it has none."""
        return _found(self)

    def owner(self) -> Any:
        """The class or module that has the attribute. Raises UnsupportedError if this torch does not have it."""
        return _walk(self.here()[: -len(self.name_here()) - 1])

    def name_here(self) -> str:
        """The attribute's own name in this torch, for `setattr` on its owner. Raises UnsupportedError."""
        return self.key_here().rpartition(".")[2]

    def key_here(self) -> str:
        """The name within its module in this torch, for the `patch` of a settings module. Raises UnsupportedError."""
        return self.here().partition(":")[2]

    def replaced(self, value: object) -> AbstractContextManager[object]:
        """Replace the attribute in a `with` block. Raises UnsupportedError if this torch does not have it."""
        replacing: AbstractContextManager[object] = patch.object(self.owner(), self.name_here(), value)
        return replacing

    def replaced_below(self, folder: TorchFile, value: object) -> AbstractContextManager[object]:
        """Replace a function in the modules of a folder that have imported it by name. Raises UnsupportedError."""
        function, name = self.get(), self.name_here()
        stack = ExitStack()
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if vars(module).get(name) is function and file.removeprefix(f"{torch_parent()}/") in folder:
                stack.enter_context(patch.object(module, name, value))
        return stack

    def get(self) -> Any:
        """The attribute itself. Raises UnsupportedError if this torch does not have it."""
        return _walk(self.here())

    def problem(self) -> str:
        """What is wrong with the attribute in this torch; empty if nothing is."""
        try:
            value = self.get()
        except UnsupportedError as error:
            return str(error)
        if not self.parameters:
            return ""
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError) as error:
            return f"{self.path} has no signature to check: {error}"
        missing = [name for name in self.parameters if name not in signature.parameters]
        return f"{self.path}{signature} lacks the parameters {missing}" if missing else ""


@dataclass(frozen=True, slots=True)
class TorchFile:
    """One file or folder of torch's source, relative to the folder that holds torch, with its purpose.

    `otherwise` has the paths in other versions. A recorded place may be of any version, so `in` compares with
    all of them.
    """

    path: str
    purpose: str
    otherwise: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in all versions."""
        return (self.path, *self.otherwise)

    def __contains__(self, file: object) -> bool:
        return isinstance(file, str) and any(
            file.startswith(path) if path.endswith("/") else file == path for path in self.paths
        )

    def problem(self) -> str:
        """What is wrong with the file in this torch; empty if nothing is."""
        if any(is_there(torch_parent() / path) for path in self.paths):
            return ""
        return f"torch {_version()} has no file {' or '.join(self.paths)} ({self.purpose})"


def torch_parent() -> Path:
    """The folder that holds the torch package. Python frames are named relative to it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise UnsupportedError(f"found no torch, expected torch {VERSIONS[0]} or later")
    return Path(spec.origin).parent.parent


def bound(api: Api) -> Callable[..., Any]:
    """The callable that a row names."""
    value: Callable[..., Any] = api.get()
    return value


def changed_settings(by: Api, values: Mapping[Api, Any]) -> AbstractContextManager[Any]:
    """Change settings in a `with` block. `by` is the `patch` of their module."""
    changing: AbstractContextManager[Any] = by.get()({row.key_here(): value for row, value in values.items()})
    return changing


@cache
def _found(api: Api) -> str:
    problems = []
    for path in (api.path, *api.otherwise):
        try:
            _walk(path)
        except (ImportError, AttributeError) as error:
            problems.append(error)
        else:
            return path
    raise UnsupportedError(
        f"torch {_version()} has no {' or '.join((api.path, *api.otherwise))} ({api.purpose}): {problems[0]}; "
        f"expected torch {VERSIONS[0]} to {VERSIONS[-1]}"
    ) from problems[0]


def _walk(path: str) -> Any:
    module, _, attributes = path.partition(":")
    value: Any = importlib.import_module(module)
    for attribute in filter(None, attributes.split(".")):
        value = getattr(value, attribute)
    return value


def _version() -> str:
    return str(importlib.import_module("torch").__version__)
