"""How a change gets into the user's project: a diff, files that are written, a wrapper, or code to paste."""

from __future__ import annotations

import ast
import difflib
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from ddefuzz.checking.edits import ChangeKind, first_line
from ddefuzz.checking.problems import module_of, package_of, shown
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Observation, Stage, Subject
from ddefuzz.files import check_writable, read_text, unified_diff, write_atomically
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.syntax import replaced

HARM: dict[ChangeKind, int] = {"rewrite": 1, "input-promise": 2, "inside-promise": 3, "example-value": 4}
"""The rank of each kind. The least harmful change is offered first."""

MEANING: dict[ChangeKind, str] = {
    "rewrite": "the same results for all inputs tried",
    "input-promise": "a promise about the inputs",
    "inside-promise": "a promise about data inside",
    "example-value": "fixes a size to its value in the example",
}


DECIDED = "ddefuzz_decided"  # the function that a probed source calls with each outcome of a decision


class ChangedFile(msgspec.Struct, frozen=True):
    """A file and what it would be. `path` is absolute, or `<program>`."""

    path: str
    before: str
    after: str


class Candidate(msgspec.Struct, frozen=True):
    """A change to try.

    `files` have changed functions. `wrapper` is the source of a class `Promised` around the subject; empty for none.
    `probed` are the original files in which each decision that the change removes is reported. `may_refuse` says
    that a call may raise where the original returns. `held_out` asks for inputs that the search does not use.
    """

    subject: Subject
    stages: tuple[Stage, ...]
    files: tuple[ChangedFile, ...] = ()
    wrapper: str = ""
    probed: tuple[ChangedFile, ...] = ()
    may_refuse: bool = False
    held_out: bool = False


class Comparison(msgspec.Struct, frozen=True):
    """One set of inputs: what the original, the changed code in eager and the captured programs did with it.

    `inputs` says what they are in words. Errors are empty if the call returned. `captured` are the stages whose program
    raised, with the error. `differs` is the first difference of results.
    """

    inputs: str
    original: str = ""
    changed: str = ""
    captured: tuple[tuple[Stage, str], ...] = ()
    differs: str = ""

    @property
    def refused(self) -> bool:
        """Whether the original takes these inputs and the change does not."""
        return not self.original and bool(self.changed or self.captured)


class TrialResult(msgspec.Struct, frozen=True):
    """What trying a change showed.

    `observations` are the captures, up to the first that failed; none if the change was rejected before. `sides` are
    the outcomes of the decision in the original that were seen over all inputs.
    """

    observations: tuple[Observation, ...] = ()
    compared: tuple[Comparison, ...] = ()
    sides: tuple[bool, ...] = ()
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the change returns what the original returns, for the example at least."""
        example_fails = bool(self.compared and (self.compared[0].changed or self.compared[0].captured))
        return bool(self.compared) and not example_fails and not any(one.differs for one in self.compared)


TryChange: TypeAlias = Callable[[Candidate], TrialResult]
"""Tries a change in a worker. Tests pass a plain function."""


class InputDim(msgspec.Struct, frozen=True):
    """A dim of an input. `size` is the example's, `symbol` is empty unless it is unbacked."""

    leaf: str
    dim: int
    size: int
    symbol: str = ""

    def __str__(self) -> str:
        return f"{self.leaf}.shape[{self.dim}]"


class Interface(msgspec.Struct, frozen=True):
    """A user's subject: the parameters that the example fills, the dims of its inputs, and where its function is.

    There are no parameters if one of them has no name that a wrapper could use, as with `*args`.
    """

    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    dims: tuple[InputDim, ...] = ()
    file: str = ""
    line: int = 0


class Where(msgspec.Struct, frozen=True):
    """A place that a change touches. `owner` is the name of an installed package, empty for the user's own files."""

    file: str
    line: int
    owner: str = ""


class Fix(msgspec.Struct, frozen=True):
    """A part of a change, and the keys of the failures that are gone in the captures with it.

    `continued` says that the failures seen only after answers are gone too: the change removes no code.
    """

    does: str
    keys: tuple[str, ...]
    continued: bool = False


class Change(msgspec.Struct, frozen=True):
    """A change that passes all stages asked for.

    `diff` is a unified diff. `paste` is code to paste for what lies outside of the project: a wrapper, or new functions
    in place of a package's. `refuses` says in words which inputs are refused that eager takes, each with an example.
    `agrees` is the number of sets of inputs on which the results are those of the original. `files` are those of the
    project. `fixes` has the parts of the change that are known to remove failures.
    """

    kind: ChangeKind
    harm: int
    does: str
    diff: str
    where: tuple[Where, ...]
    paste: str = ""
    passes: tuple[Stage, ...] = ()
    refuses: tuple[str, ...] = ()
    agrees: int = 0
    files: tuple[ChangedFile, ...] = ()
    fixes: tuple[Fix, ...] = ()


class FailedAttempt(msgspec.Struct, frozen=True):
    """A change that was tried and does not help, and why."""

    does: str
    ended: str


class Advice(msgspec.Struct, frozen=True):
    """What happened in a sentence, and what helps.

    Without a change that helps, `tried` says what was tried. `remaining` is the failure that is left by the change that
    got furthest. `stopped` says that time was over before all changes were tried.
    """

    summary: str
    changes: tuple[Change, ...] = ()
    tried: tuple[FailedAttempt, ...] = ()
    remaining: str = ""
    stopped: bool = False


CLASS = "Promised"  # the name of the class of a wrapper


def unified(files: Iterable[ChangedFile]) -> str:
    """The diff of files, which `git apply` and `patch -p1` take from the current folder."""
    return "".join(unified_diff(shown(one.path).lstrip("/"), one.before, one.after) for one in files)


def together(changes: Iterable[Change]) -> tuple[ChangedFile, ...]:
    """The files of several changes. Of changes of the same lines, the first counts."""
    files: dict[str, ChangedFile] = {}
    for change in changes:
        for changed in change.files:
            both = merged(files[changed.path], changed) if changed.path in files else changed
            files[changed.path] = both or files[changed.path]
    return tuple(files.values())


def write_changes(changes: Iterable[Change], program: Path | None = None) -> tuple[str, ...]:
    """Write the files of changes; returns their paths. `program` is the file of a program.

    Raises InputError if a file is not any more what it was when the change was tried.
    """
    written = {}
    for changed in together(changes):
        path = program if changed.path == PROGRAM_FILE and program is not None else Path(changed.path)
        if read_text(path) != changed.before:
            raise InputError(f"{path}: found a file that changed since, expected the text that was checked")
        check_writable(path)
        written[path] = changed.after
    for path, after in written.items():
        write_atomically(path, after)
    return tuple(map(str, written))


def places(files: Iterable[ChangedFile]) -> Iterator[Where]:
    """The first line of each changed part of each file, as it is before the change."""
    for changed in files:
        yield from (Where(shown(changed.path), hunk.start + 1, package_of(changed.path)) for hunk in hunks(changed))


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
            case ast.FunctionDef(name=bound) if bound == name:
                made = _returned(node)
            case ast.Assign(targets=[ast.Name(bound)], value=made_by) if bound == name:
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
