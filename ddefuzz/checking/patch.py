"""How a change gets into the user's project: a diff, files that are written, a wrapper, or code to paste."""

from __future__ import annotations

import ast
import difflib
import re
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
from ddefuzz.syntax import lines_of, replaced

HARM: dict[ChangeKind, int] = {"rewrite": 1, "input-promise": 2, "inside-promise": 3}
"""The rank of each kind. The least harmful change is offered first."""

MEANING: dict[ChangeKind, str] = {
    "rewrite": "the same results for all inputs tried",
    "input-promise": "a promise about the inputs",
    "inside-promise": "a promise about data inside",
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
    `numbers` are those in the conditions that it is about.
    """

    subject: Subject
    stages: tuple[Stage, ...]
    files: tuple[ChangedFile, ...] = ()
    wrapper: str = ""
    probed: tuple[ChangedFile, ...] = ()
    may_refuse: bool = False
    held_out: bool = False
    numbers: tuple[int | float, ...] = ()


class Comparison(msgspec.Struct, frozen=True):
    """One set of inputs: what the original, the changed code in eager and the captured programs did with it.

    `inputs` says what they are in words. Errors are empty if the call returned. `captured` are the stages whose program
    raised, with the error; `accepted` are those whose program returned although the original raises. `differs` is the
    first difference of results.
    """

    inputs: str
    original: str = ""
    changed: str = ""
    captured: tuple[tuple[Stage, str], ...] = ()
    accepted: tuple[Stage, ...] = ()
    differs: str = ""

    @property
    def refused(self) -> bool:
        """Whether the original takes these inputs and the change does not."""
        return not self.original and bool(self.changed or self.captured)


class TrialResult(msgspec.Struct, frozen=True):
    """What trying a change showed.

    `observations` are the captures, up to the first that failed; none if the change was rejected before. `sides` are
    the outcomes of the decision in the original that were seen over all inputs. `is_live` says that the user's module
    could not be imported again: its functions got their new code in place.
    """

    observations: tuple[Observation, ...] = ()
    compared: tuple[Comparison, ...] = ()
    sides: tuple[bool, ...] = ()
    problem: str = ""
    cpu_seconds: float = 0.0
    is_live: bool = False

    @property
    def agrees(self) -> bool:
        """Whether the change returns what the original returns, for the example at least."""
        example_fails = bool(self.compared and (self.compared[0].changed or self.compared[0].captured))
        return bool(self.compared) and not example_fails and not any(one.differs for one in self.compared)


TryChange: TypeAlias = Callable[[Candidate], TrialResult]
"""Tries a change in a worker. Tests pass a plain function."""


class Notes(msgspec.Struct, frozen=True):
    """What there is to say of code that is captured, in sentences."""

    lines: tuple[str, ...] = ()


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

    There are no parameters if one of them has no name that a wrapper could use, as with `*args`. `optional` are those
    that may be None, and are not in the example. `signature` are all parameters with defaults, if these have a text.
    """

    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    dims: tuple[InputDim, ...] = ()
    file: str = ""
    line: int = 0
    optional: tuple[str, ...] = ()
    signature: tuple[str, ...] = ()

    def stated(self, condition: str) -> str:
        """A condition on inputs as code: it holds where an optional one is None."""
        names = {node.id for node in ast.walk(ast.parse(condition)) if isinstance(node, ast.Name)}
        return " or ".join([*(f"{name} is None" for name in self.optional if name in names), condition])


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
    """A change that passes all stages asked for, or some: `fails` says then how it fails in another one.

    `diff` is a unified diff. `paste` is code to paste for what lies outside of the project: a wrapper, or new functions
    in place of a package's. `refuses` says in words which inputs are refused that eager takes, each with an example.
    `agrees` is the number of sets of inputs on which the results are those of the original. `files` are those of the
    project. `fixes` has the parts of the change that are known to remove failures. `is_live` as in `TrialResult`.
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
    fails: str = ""
    is_live: bool = False


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
    before, after = lines_of(file.before), lines_of(file.after)
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return [Hunk(start, end, after[first:last]) for tag, start, end, first, last in codes if tag != "equal"]


def line_before(file: ChangedFile, line: int) -> int:
    """The line of the file before the change that a line of it after the change is, or is in place of."""
    shift = 0
    for hunk in hunks(file):
        first = hunk.start + shift
        if line <= first:
            break
        if line <= first + len(hunk.lines):
            return min(hunk.start + line - first, max(hunk.end, hunk.start + 1))
        shift += len(hunk.lines) - (hunk.end - hunk.start)
    return line - shift


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
    old, lines, at = lines_of(before), list[str](), 0
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
        text = textwrap.dedent("".join(lines_of(file.after)[first_line(node) - 1 : node.end_lineno]))
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
    """The source of a module that checks the conditions and calls the callable. It takes the same parameters; if these
    have no text, the example's.
    """
    given = [*described.positional, *(["*", *described.keywords] if described.keywords else [])]
    parameters = ", ".join(["self", *(described.signature or given)])
    positional, keywords = list(described.positional), list(described.keywords)
    for name in (one.partition("=")[0] for one in described.signature if one != "*"):
        if name not in (*positional, *keywords):
            keywords.append(name)
    passed = ", ".join([*positional, *(f"{name}={name}" for name in keywords)])
    checks = "".join(f"        torch._check({described.stated(condition)})\n" for condition in conditions)
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
    bound = [(node, made) for node in tree.body for made in _bound(node, name)]
    if len(bound) != 1:
        return None
    (node, made), functions = bound[0], {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if isinstance(made, ast.Name):  # `gpt2 = make_gpt2`
        return in_use(source, made.id, text) if made.id in functions else None
    if isinstance(node, ast.FunctionDef):
        made = _returned(node)
    if not isinstance(made, ast.expr):
        return None
    wrapped = replaced(source, made, f"{CLASS}({ast.get_source_segment(source, made)})")
    before = "" if any(_imports_torch(one) for one in tree.body if one.lineno < node.lineno) else "import torch\n\n\n"
    # A class of this name would be another one.
    if re.search(rf"\b{CLASS}\b", source):
        return None
    lines = lines_of(wrapped)
    at = first_line(node) - 1
    return "".join([*lines[:at], before, text, "\n\n", *lines[at:]])


def _bound(node: ast.stmt, name: str) -> Iterator[ast.expr | None]:
    """What a statement binds to a name: None for a definition."""
    match node:
        case ast.FunctionDef(name=bound) | ast.ClassDef(name=bound) if bound == name:
            yield None
        case ast.Assign(targets, value):
            yield from (value for one in targets if isinstance(one, ast.Name) and one.id == name)
        case ast.AnnAssign(ast.Name(bound), value=value) if bound == name and value is not None:
            yield value
        case _:
            return


def _imports_torch(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import) and any(one.name == "torch" and one.asname is None for one in node.names)


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
