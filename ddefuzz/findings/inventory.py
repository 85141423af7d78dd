"""The guard sites in torch's Python source, reached or not: its calls of `guard_or_false` and `guard_or_true`.

torch 2.13.0 has 99 outside inductor and distributed, 41 in inductor, 49 in distributed. Not counted are
definitions, imports, calls under another name (`maybe_guard_or_false`), and two calls in
`torch/fx/experimental/sym_node.py` that forward guards from C++. The source is read with `ast`. torch is not
imported, because that takes longer than reading it.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from threading import Lock
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from ddefuzz import syntax
from ddefuzz.errors import UnsupportedError
from ddefuzz.files import leads_to_file
from ddefuzz.findings.ledger import Answer
from ddefuzz.instrument import torch_api

CALLS: Mapping[str, Answer] = MappingProxyType(
    {torch_api.GUARD_OR_FALSE.name: "False", torch_api.GUARD_OR_TRUE.name: "True"}
)
"""What asks and names its answer for the case that nothing decides; and that answer."""

HOOKED_FILES = frozenset({*torch_api.SYM_NODE_FILE.paths, *torch_api.SYMBOLIC_SHAPES_FILE.paths})
"""Where these functions live: a call there asks for its caller."""

Part: TypeAlias = Literal["core", "inductor", "distributed", "c++", "user"]
"""The part of torch that a site is in; `user` is none of torch."""

_PARTS: tuple[tuple[str, Part], ...] = (
    *((folder, "inductor") for folder in torch_api.INDUCTOR_FILES.paths),
    ("torch/distributed/", "distributed"),
    ("torch/", "core"),
)

_MENTION = re.compile(rf"(?<!def )\b(?:{'|'.join(CALLS)})\s*\(")


class GuardCall(msgspec.Struct, frozen=True, order=True):
    """One call in the source: `file` is relative to the folder that holds torch, lines count from 1, columns from 0.

    `line` is the one that a frame in this call reports: that of the called name. `function` is the innermost one with
    a name around it, `text` the call as `ast` prints it.
    """

    file: str
    line: int
    column: int
    first_line: int
    last_line: int
    function: str
    call: str
    text: str

    @property
    def part(self) -> Part:
        """The part of torch that it is in."""
        return part_of(self.file)


class Inventory(msgspec.Struct, frozen=True):
    """The calls of one torch, in order of place, and the folder that their files are relative to."""

    torch: str
    folder: Path
    calls: tuple[GuardCall, ...]


def part_of(file: str) -> Part:
    """The part of torch that a Python file is in."""
    return next((part for prefix, part in _PARTS if file.startswith(prefix)), "user")


def installed() -> Inventory:
    """The inventory of the torch that `import torch` would import. The first call takes 2 to 3 s, for which other
    threads wait that need it too.

    Raises UnsupportedError if there is none.
    """
    with _READING:
        return _once(installed_package())


def installed_version() -> str:
    """The version of the torch that `import torch` would import. Raises UnsupportedError where there is none."""
    return version(installed_package())


def installed_package() -> Path:
    """The folder of the torch that `import torch` would import. Raises UnsupportedError if there is none."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise UnsupportedError("found no torch in this environment, expected an installed torch")
    return Path(spec.origin).parent


def read(package: Path) -> Inventory:
    """The inventory of the torch in a folder. Raises UnsupportedError if it cannot be read."""
    calls: list[GuardCall] = []
    for path in package.rglob("*.py"):
        file = path.relative_to(package.parent).as_posix()
        if file not in HOOKED_FILES and (text := _text(path, mentioning=b"guard_or_")):
            calls += _calls(file, text)
    return Inventory(version(package), package.parent, tuple(sorted(calls)))


_once = cache(read)
_READING = Lock()


def lines_in(package: Path, file: str) -> frozenset[int]:
    """The lines of the calls in one file, relative to the folder that holds torch. Empty if it is not a file."""
    path = source_path(package.parent, file)
    text = _text(path, mentioning=b"guard_or_") if path is not None and file not in HOOKED_FILES else ""
    return frozenset(call.line for call in _calls(file, text))


def source_path(folder: Path, file: str) -> Path | None:
    """The path of a file of torch's Python source in `folder`; None if it has none. A database may have any text as
    the name of a file.
    """
    name = PurePosixPath(file)
    is_own = name.parts[:1] == ("torch",) and ".." not in name.parts and name.suffix == ".py"
    return folder / name if is_own and leads_to_file(folder / name) else None


def version(package: Path) -> str:
    """The value of `torch.__version__`. Raises UnsupportedError if `version.py` does not give it."""
    path = package / "version.py"
    for node in _parsed(str(path), _text(path)).body:
        match node:
            case ast.Assign([ast.Name("__version__")], ast.Constant(str(text))):
                return text
    raise UnsupportedError(f"{path}: found no `__version__ = '…'`, expected torch's own version.py")


def _text(path: Path, mentioning: bytes = b"") -> str:
    """The text of a file. Empty, and not decoded, for a file without one of the names: most of torch's 46 MB."""
    try:
        read = path.read_bytes()
        return read.decode() if mentioning in read else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UnsupportedError(f"{path}: cannot be read ({error}), expected Python source of torch") from error


def source_of(path: Path, file: str) -> ast.Module:
    """The tree of a file of torch. Raises UnsupportedError if it cannot be read."""
    return _parsed(file, _text(path))


def _parsed(name: str, text: str) -> ast.Module:
    try:
        return syntax.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UnsupportedError(f"{name}: found {error}, expected Python source of torch") from error


def _calls(file: str, text: str) -> Iterator[GuardCall]:
    lines = [text.count("\n", 0, mention.start()) + 1 for mention in _MENTION.finditer(text)]
    if lines:
        yield from _calls_in(_parsed(file, text), file, "<module>", lines)


def _calls_in(node: ast.AST, file: str, function: str, lines: list[int]) -> Iterator[GuardCall]:
    """The calls in a node. It descends only into nodes with one of the names on their lines."""
    for child in ast.iter_child_nodes(node):
        # Operators, contexts and the like have no place, and no calls in them; `arguments` has calls but no place.
        first, last = getattr(child, "lineno", 0), getattr(child, "end_lineno", None) or 2**31
        if not any(first <= line <= last for line in lines):
            continue
        match child:
            case ast.Call(ast.Name(name) | ast.Attribute(attr=name)) if name in CALLS:
                yield GuardCall(
                    file=file,
                    line=child.func.end_lineno or child.lineno,
                    column=child.col_offset,
                    first_line=child.lineno,
                    last_line=child.end_lineno or child.lineno,
                    function=function,
                    call=name,
                    text=ast.unparse(child),
                )
        inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from _calls_in(child, file, inner, lines)
