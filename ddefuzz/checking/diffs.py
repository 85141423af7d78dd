"""A change as text: a unified diff for files of the project, and code to paste for files outside of it."""

from __future__ import annotations

import ast
import difflib
import sysconfig
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddefuzz.checking.changes import ChangedFile, Where
from ddefuzz.files import unified_diff

_INSTALLED = tuple(Path(sysconfig.get_paths()[name]).resolve() for name in ("purelib", "platlib"))


def unified(files: Iterable[ChangedFile]) -> str:
    """The diff of files, which `git apply` and `patch -p1` take from the current folder."""
    return "".join(unified_diff(shown(one.path).lstrip("/"), one.before, one.after) for one in files)


def full_path(file: str) -> str:
    """The full path of a file. Frames name the files of packages next to torch relative to the folder of both."""
    path = Path(file)
    if not path.is_absolute() and not path.is_file():
        path = next((folder / path for folder in _INSTALLED if (folder / path).is_file()), path)
    return str(path.resolve())


def owner_of(path: str) -> str:
    """The installed package that a file belongs to; empty for a file of the user."""
    file = Path(full_path(path)) if not Path(path).is_absolute() else Path(path)
    for folder in _INSTALLED:
        if file.is_relative_to(folder):
            return file.relative_to(folder).parts[0].removesuffix(".py")
    return ""


def places(files: Iterable[ChangedFile]) -> Iterator[Where]:
    """The first line of each changed part of each file, as it is before the change."""
    for one in files:
        for tag, start, *_ in _opcodes(one):
            if tag != "equal":
                yield Where(shown(one.path), start + 1, owner_of(one.path))


def shown(path: str) -> str:
    """A path relative to the current folder if it lies in it."""
    file = Path(path)
    return file.relative_to(Path.cwd()).as_posix() if file.is_relative_to(Path.cwd()) else path


def hunks(file: ChangedFile) -> int:
    """The number of separate places of a file that change."""
    return sum(tag != "equal" for tag, *_ in _opcodes(file))


def without_hunk(file: ChangedFile, number: int) -> ChangedFile:
    """The file with one of its changed places as it was."""
    before, after = file.before.splitlines(keepends=True), file.after.splitlines(keepends=True)
    lines: list[str] = []
    at = -1
    for tag, start, end, new_start, new_end in _opcodes(file):
        at += tag != "equal"
        keep = tag == "equal" or at == number
        lines += before[start:end] if keep else after[new_start:new_end]
    return ChangedFile(file.path, file.before, "".join(lines))


def merged(first: ChangedFile, second: ChangedFile) -> ChangedFile | None:
    """Both changes of one file. None if they change the same lines."""
    before = first.before.splitlines(keepends=True)
    parts = [(code, one) for one in (first, second) for code in _opcodes(one) if code[0] != "equal"]
    lines: list[str] = []
    at = 0
    for (_, start, end, new_start, new_end), one in sorted(parts, key=lambda part: part[0][1:3]):
        new = one.after.splitlines(keepends=True)[new_start:new_end]
        if start < at:
            return None
        lines += [*before[at:start], *new]
        at = end
    return ChangedFile(first.path, first.before, "".join([*lines, *before[at:]]))


def replacement(file: ChangedFile) -> str:
    """Code that puts changed functions in place of an installed module's, to be run before the capture.

    It is the whole text of each changed function, and an assignment to its class or module. Empty where that would not
    be the same function: one that uses `super()` or `__class__`.
    """
    module = _module_name(file.path)
    old = {name: ast.dump(node) for name, node in _functions(ast.parse(file.before))}
    lines = [f"import {module}", ""]
    for name, node in _functions(ast.parse(file.after)):
        if old.get(name) == ast.dump(node):
            continue
        if any(isinstance(one, ast.Name) and one.id in {"super", "__class__"} for one in ast.walk(node)):
            return ""
        owner, _, attribute = f"{module}.{name}".rpartition(".")
        text = _text(file.after, node)
        quoted = repr(text) if "\\" in text or "'''" in text else f"'''\n{text}'''"
        lines += [
            f"scope = dict(vars({module}))",
            f"exec({quoted}, scope)  # {shown(file.path)}:{node.lineno}",
            f"{owner}.{attribute} = scope[{attribute!r}]",
            "",
        ]
    return "\n".join(lines)


def _text(source: str, node: ast.FunctionDef) -> str:
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return textwrap.dedent("".join(source.splitlines(keepends=True)[first - 1 : node.end_lineno]))


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{one.name}", one) for one in node.body if isinstance(one, ast.FunctionDef))


def _module_name(path: str) -> str:
    file = Path(path)
    parts = next(
        (file.relative_to(folder).with_suffix("").parts for folder in _INSTALLED if file.is_relative_to(folder)),
        (file.stem,),
    )
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _opcodes(file: ChangedFile) -> list[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(
        None, file.before.splitlines(keepends=True), file.after.splitlines(keepends=True), autojunk=False
    )
    return list(matcher.get_opcodes())
