"""How a change gets into the user's project: a diff, files that are written, a wrapper, or code to paste."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ddefuzz.checking.changes import Change, ChangedFile, Interface, Where
from ddefuzz.checking.edits import first_line, replaced
from ddefuzz.checking.owner import module_of, package_of, shown
from ddefuzz.errors import InputError
from ddefuzz.files import check_writable, read_text, unified_diff, write_atomically
from ddefuzz.instrument.events import PROGRAM_FILE

CLASS = "Promised"
"""The name of the class of a wrapper."""


def unified(files: Iterable[ChangedFile]) -> str:
    """The diff of files, which `git apply` and `patch -p1` take from the current folder."""
    return "".join(unified_diff(shown(one.path).lstrip("/"), one.before, one.after) for one in files)


def together(changes: Iterable[Change]) -> tuple[ChangedFile, ...]:
    """The files of several changes. Of changes of the same lines, the first counts."""
    files: dict[str, ChangedFile] = {}
    for change in changes:
        for one in change.files:
            both = merged(files[one.path], one) if one.path in files else one
            files[one.path] = both or files[one.path]
    return tuple(files.values())


def write_changes(changes: Iterable[Change], program: Path | None = None) -> tuple[str, ...]:
    """Write the files of changes; returns their paths. `program` is the file of a program.

    Raises InputError if a file is not any more what it was when the change was tried.
    """
    written = {}
    for one in together(changes):
        path = program if one.path == PROGRAM_FILE and program is not None else Path(one.path)
        if read_text(path) != one.before:
            raise InputError(f"{path}: found a file that changed since, expected the text that was checked")
        check_writable(path)
        written[path] = one.after
    for path, after in written.items():
        write_atomically(path, after)
    return tuple(map(str, written))


def places(files: Iterable[ChangedFile]) -> Iterator[Where]:
    """The first line of each changed part of each file, as it is before the change."""
    for one in files:
        yield from (Where(shown(one.path), hunk.start + 1, package_of(one.path)) for hunk in hunks(one))


class Hunk(NamedTuple):
    """New lines in place of the lines `start` to `end`, counted from 0."""

    start: int
    end: int
    lines: list[str]


def hunks(file: ChangedFile) -> list[Hunk]:
    """The separate places of a file that change."""
    before, after = file.before.splitlines(keepends=True), file.after.splitlines(keepends=True)
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [Hunk(start, end, after[first:last]) for tag, start, end, first, last in codes if tag != "equal"]


def without_hunk(file: ChangedFile, number: int) -> ChangedFile:
    """The file with one of its changed places as it was."""
    text = _with_hunks(file.before, [hunk for at, hunk in enumerate(hunks(file)) if at != number])
    return ChangedFile(file.path, file.before, text or "")


def merged(first: ChangedFile, second: ChangedFile) -> ChangedFile | None:
    """Both changes of one file. None if they change the same lines."""
    text = _with_hunks(first.before, sorted([*hunks(first), *hunks(second)], key=lambda hunk: hunk[:2]))
    return None if text is None else ChangedFile(first.path, first.before, text)


def _with_hunks(before: str, hunks: Iterable[Hunk]) -> str | None:
    """A text with these changes, in order. None if two change the same lines."""
    old, lines, at = before.splitlines(keepends=True), list[str](), 0
    for hunk in hunks:
        if hunk.start < at:
            return None
        lines += [*old[at : hunk.start], *hunk.lines]
        at = hunk.end
    return "".join([*lines, *old[at:]])


def replacement(file: ChangedFile) -> str:
    """Code that puts changed functions in place of an installed module's, to be run before the capture.

    It is the whole text of each changed function, and an assignment to its class or module. Empty where that would not
    be the same function: one that uses `super()` or `__class__`.
    """
    module = module_of(file.path)
    old = {name: ast.dump(node) for name, node in _functions(ast.parse(file.before))}
    lines = [f"import {module}", ""]
    for name, node in _functions(ast.parse(file.after)):
        if old.get(name) == ast.dump(node):
            continue
        if any(isinstance(one, ast.Name) and one.id in {"super", "__class__"} for one in ast.walk(node)):
            return ""
        owner, _, attribute = f"{module}.{name}".rpartition(".")
        text = textwrap.dedent("".join(file.after.splitlines(keepends=True)[first_line(node) - 1 : node.end_lineno]))
        quoted = repr(text) if "\\" in text or "'''" in text else f"'''\n{text}'''"
        lines += [
            f"scope = dict(vars({module}))",
            f"exec({quoted}, scope)  # {shown(file.path)}:{node.lineno}",
            f"{owner}.{attribute} = scope[{attribute!r}]",
            "",
        ]
    return "\n".join(lines)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{one.name}", one) for one in node.body if isinstance(one, ast.FunctionDef))


def wrapper(described: Interface, conditions: tuple[str, ...]) -> str:
    """The source of a module that checks the conditions and calls the callable. It takes the example's parameters."""
    parameters = ", ".join(["self", *described.positional, *(["*", *described.keywords] if described.keywords else [])])
    passed = ", ".join([*described.positional, *(f"{name}={name}" for name in described.keywords)])
    checks = "".join(f"        torch._check({condition})\n" for condition in conditions)
    return (
        f"class {CLASS}(torch.nn.Module):\n"
        '    """A model with what is promised about its inputs."""\n\n'
        "    def __init__(self, model):\n"
        "        super().__init__()\n"
        "        self.model = model\n\n"
        f"    def forward({parameters}):\n"
        f"{checks}"
        f"        return self.model({passed})\n"
    )


def in_use(source: str, name: str, text: str) -> str | None:
    """The source of a file in which `name` is wrapped: a factory's callable, or a value assigned to the name.

    None if the file makes it in another way.
    """
    tree = ast.parse(source)
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=found) if found == name:
                made = _returned(node)
            case ast.Assign(targets=[ast.Name(found)], value=made_by) if found == name:
                made = made_by
            case _:
                continue
        if made is None:
            return None
        wrapped = replaced(source, made, f"{CLASS}({ast.get_source_segment(source, made)})")
        lines = wrapped.splitlines(keepends=True)
        at = first_line(node) - 1
        before = "" if "\nimport torch\n" in f"\n{source}" else "import torch\n\n\n"
        return "".join([*lines[:at], before, text, "\n\n", *lines[at:]])
    return None


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    """The callable among what a factory returns."""
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    match returns[-1].value if returns else None:
        case ast.Tuple([first, *_]):
            return first
        case ast.Dict(keys, values):
            by_name = {
                key.value: value for key, value in zip(keys, values, strict=True) if isinstance(key, ast.Constant)
            }
            return by_name.get("callable")
        case ast.Call(func=ast.Name("dict"), keywords=given):
            return next((one.value for one in given if one.arg == "callable"), None)
        case _:
            return None
