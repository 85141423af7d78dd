"""The subject of a run: a program's text or the user's own code, as a callable with arguments and unbacked dims.

The user's module is loaded once; callable and example arguments are new in every run.
"""

from __future__ import annotations
import __future__

import ast
import copy
import importlib
import importlib.util
import inspect
import linecache
import random
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

import ddefuzz
from ddefuzz.errors import DdefuzzError, InputError, is_of
from ddefuzz.execute.channel import end_forked, leave_to_another
from ddefuzz.execute.isolation import current_folder, enter_folder, interpreter_kept, kept_intact, unwound
from ddefuzz.execute.preparation import (
    PreparedSubject,
    UnbackedDim,
    as_backed,
    as_saved,
    as_static,
    spec_of,
    with_dynamic_shapes,
    with_unbacked,
)
from ddefuzz.execute.protocol import CallableSubject, KeySubject, ProgramSubject, Subject
from ddefuzz.files import is_file, real_path
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.instrument.recorder import modules_in
from ddefuzz.internal import innermost_file, message_of
from ddefuzz.ops import catalogue
from ddefuzz.program.evaluate import made_before, materialize
from ddefuzz.program.expressions import ROOTS, imported_for, print_expression
from ddefuzz.program.model import Expr, Program, functions_in, written_numbers
from ddefuzz.program.modules import modules_of, unused_names
from ddefuzz.program.options import marks_in, settings_in

_USER_MODULE = "ddefuzz_user_code"

SAVED = ".pt2"  # the suffix of a saved exported program
SAID_LIMIT = 1000  # how many characters of an error of the user's own code are printed

_OWN = f"{Path(ddefuzz.__file__).parent}/"

_KEYS = ("callable", "args", "kwargs", "unbacked", "dynamic_shapes")  # the keys of the dict that a factory may return


def seed() -> None:
    """Set the random state of torch, Python and numpy (if it is loaded) to that in which every run begins."""
    torch.default_generator.manual_seed(0)
    random.seed(0)
    with suppress(Exception):  # it is not loaded, or the user's code has replaced it
        sys.modules["numpy"].random.seed(0)


def prepare_callable(subject: CallableSubject) -> PreparedSubject:
    """The callable with new arguments, the same in every run."""
    if subject.path.endswith(SAVED):
        where, spec, prepared = subject.path, None, _saved(subject.path)
    else:
        module = load_module(subject.path)
        enter_folder(_executed(subject.path)[1])
        seed()
        with interpreter_kept():
            where, spec, prepared = _from_module(module, subject)
        _check_traceable(prepared.call, where.removesuffix("_unbacked"))
    if subject.static:
        return as_static(prepared)
    if subject.unbacked:
        where, spec = "--unbacked", spec_of(subject.unbacked)
    if spec is not None or not subject.path.endswith(SAVED):
        prepared = with_unbacked(prepared, {} if spec is None else spec, where)
    return as_backed(prepared) if subject.backed else prepared


def _check_traceable(call: Callable[..., Any], where: str) -> None:
    """Raise InputError for a module of FSDP2: no capture of a whole graph goes past its hooks (`torch._dynamo.disable`
    in torch/distributed/fsdp/_fully_shard/_fsdp_common.py).
    """
    kind: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    for name, part in modules_in(call) if isinstance(call, torch.nn.Module) else ():
        if issubclass(type(part), kind):
            place = f" on its part {name}" if name else ""
            raise InputError(
                f"{where}: found fully_shard (FSDP2){place}, whose hooks torch does not trace at any size, "
                "expected the module before fully_shard"
            )


def case_ids(path: str) -> tuple[str, ...]:
    """The ids of a module's list `CASES`, in order; InputError where there is none."""
    module = load_module(path)
    with of_user(f"{path}: found a list CASES that"):
        return tuple(_cases(module, path))


@contextmanager
def of_user(what: str) -> Iterator[None]:
    """What the block raises is about the user's code: an InputError. Errors that ddefuzz itself raises pass."""
    try:
        yield
    except BaseException as error:
        if is_of(error, DdefuzzError) and innermost_file(error).startswith(_OWN):
            raise
        raise InputError(f"{what} raises {error_line(error)}") from error


def load_module(path: str) -> ModuleType:
    """The user's module, executed once per process, from the same random state.

    `path` is a file or the name of a module (`package.module`). Raises InputError if it is missing or fails to import.
    """
    module, _ = _executed(path)
    # Dynamo finds the globals of a function that it inlines by the module's name: another file may have the same.
    sys.modules[module.__name__] = module
    return module


def error_line(error: BaseException) -> str:
    """An error of the user's own code in one line."""
    text = " ".join(f"{type(error).__name__}: {message_of(error)}".split())
    return text if len(text) <= SAID_LIMIT else f"{text[:SAID_LIMIT]}… ({len(text)} characters)"


_LOADED: dict[str, tuple[ModuleType, str]] = {}


def _executed(path: str) -> tuple[ModuleType, str]:
    """The module, and the folder that was the current one at its end: its functions may read files there.

    A worker executes one file of the user: what a file does to torch or to Python must not be blamed on another one.
    """
    _before_all()
    if path not in _LOADED:
        if any(map(_is_of_user, _LOADED)) and _is_of_user(path):
            leave_to_another()
        _LOADED[path] = _execute(path)
    return _LOADED[path]


def _is_of_user(path: str) -> bool:
    return path.partition(".")[0] not in ("torch", "ddefuzz")


@cache
def _before_all() -> frozenset[str]:
    """The modules that were imported before any user code was."""
    return frozenset(sys.modules)


@contextmanager
def reloaded(texts: Mapping[str, str], is_own: Callable[[str], bool]) -> Iterator[None]:
    """In the block, the user's modules are imported again, as if files had these texts. No file is written.

    `texts` are by full path. `is_own` says of a file whether it is the user's. What other modules keep of the first
    import, such as the names in a registry, stays.
    """
    own = _own_modules(is_own)
    loaded, lines = dict(_LOADED), {path: linecache.cache.get(path) for path in texts}
    changed = {str(real_path(path)): text for path, text in texts.items()}
    get_code: Any = SourceFileLoader.get_code

    def changed_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        text = changed.get(str(real_path(loader.path)))
        code: CodeType | None
        code = get_code(loader, name) if text is None else loader.source_to_code(text.encode(), loader.path)
        return code

    _drop(own)
    _LOADED.clear()
    for path, text in texts.items():
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    SourceFileLoader.get_code = changed_code  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
        _drop(_own_modules(is_own))
        sys.modules.update(own)
        _LOADED.clear()
        _LOADED.update(loaded)
        for path, known in lines.items():
            linecache.cache.pop(path, None)
            if known is not None:
                linecache.cache[path] = known


def is_live(path: str) -> bool:
    """Whether a path is the name of a module that has no file: it holds what lives in this process."""
    module = sys.modules.get(path)
    return module is not None and not _files_of(module)


def _own_modules(is_own: Callable[[str], bool]) -> dict[str, ModuleType]:
    """The modules of the user that were imported since the first user code was."""
    return {
        name: module
        for name, module in tuple(sys.modules.items())
        if name not in _before_all() and any(map(is_own, _files_of(module)))
    }


def _files_of(module: ModuleType) -> list[str]:
    """The file of a module, or the folders of a package without one."""
    file = getattr(module, "__file__", None)
    return [file] if isinstance(file, str) else [one for one in getattr(module, "__path__", ()) if isinstance(one, str)]


def _drop(modules: Iterable[str]) -> None:
    for name in modules:
        sys.modules.pop(name, None)


def _execute(path: str) -> tuple[ModuleType, str]:
    file = Path(path)
    named = not is_file(file) and file.suffix != ".py" and all(part.isidentifier() for part in path.split("."))
    if not named and not is_file(file):
        raise InputError(f"{path}: found no such file, expected a Python module")
    if not named and file.suffix != ".py":
        raise InputError(f"{path}: found {file.suffix!r}, expected a Python module (.py)")
    seed()
    before = set(sys.modules)
    try:
        with of_user(f"{path}: found a module that"), kept_intact(path, imported=True), _own_modes():
            if _is_of_user(path):
                _make_importable(Path.cwd())
            module = importlib.import_module(path) if named else _import_file(real_path(file))
            return module, current_folder()
    except InputError:
        for name in set(sys.modules) - before:
            if name.startswith(_USER_MODULE):
                del sys.modules[name]
        raise


@contextmanager
def _own_modes() -> Iterator[None]:
    """Leave the modes that a module leaves on at its import: only the first run of its functions would be in them."""
    dtype, strict = torch.get_default_dtype(), torch.get_deterministic_debug_mode()
    with unwound():
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.set_deterministic_debug_mode(strict)


def _import_file(file: Path) -> ModuleType:
    """Import a file: as part of its package if it has one, so that relative imports work, else by itself."""
    package = list(_packages(file))
    if package and file.stem != "__init__":
        _make_importable(package[-1].parent)
        name = ".".join([*(folder.name for folder in reversed(package)), file.stem])
        module = importlib.import_module(name)
        if real_path(module.__file__ or "") == file:
            return module
        raise InputError(f"{file}: found another module named {name} ({module.__file__}), expected this file")
    _make_importable(file.parent)
    name = f"{_USER_MODULE}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _packages(file: Path) -> Iterator[Path]:
    folder = file.parent
    while is_file(folder / "__init__.py") and folder.name.isidentifier():
        yield folder
        folder = folder.parent


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@lru_cache(maxsize=4)
def _loaded(path: str) -> torch.export.ExportedProgram:
    if not is_file(Path(path)):
        raise InputError(f"{path}: found no such file, expected an exported program ({SAVED})")
    try:
        program: torch.export.ExportedProgram = torch.export.load(path)
    except Exception as error:
        raise InputError(f"{path}: found a file that torch.export.load refuses: {error_line(error)}") from error
    return program


def _saved(path: str) -> PreparedSubject:
    """An exported program, called with its own example inputs. Dims that were unbacked or dynamic are so again."""
    program = _loaded(path)
    if program.example_inputs is None:
        raise InputError(f"{path}: found an exported program without example inputs, expected one that has them")
    args, kwargs = copy.deepcopy(program.example_inputs)
    prepared = PreparedSubject(program.module(), tuple(args), kwargs=kwargs)
    return as_saved(prepared, program)


def _from_module(module: ModuleType, subject: CallableSubject) -> tuple[str, object, PreparedSubject]:
    if subject.case is not None:
        return _of_case(module, subject.path, subject.case)
    if subject.name is not None:
        return _of_name(module, subject.path, subject.name)
    raise InputError(f"{subject.path}: found neither a name nor a case, expected FILE:NAME or a case of CASES")


def _of_case(module: ModuleType, path: str, case: str) -> tuple[str, object, PreparedSubject]:
    cases = _cases(module, path)
    if case not in cases:
        raise InputError(f"{path}: found no case {case!r}, expected one of {', '.join(cases)}")
    entry = cases[case]
    where = f"{path}: unbacked of the case {case!r}"
    shapes = entry.get("dynamic_shapes")
    prepared = PreparedSubject(_callable(entry["fn"], module), tuple(entry["args"]()))
    if shapes is not None:
        prepared = replace(prepared, dynamic_shapes=tuple(shapes(torch.export.Dim.DYNAMIC)))
    return where, entry.get("unbacked"), prepared


def _cases(module: ModuleType, path: str) -> dict[str, dict[str, Any]]:
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, list) or not all(isinstance(c, dict) and {"id", "fn", "args"} <= c.keys() for c in cases):
        named = "".join(f", such as {path}:{name}" for name in _callables(module)[:1])
        raise InputError(
            f"{path}: found no usable CASES, expected a list of dicts with id, fn and args, or FILE:NAME{named}"
        )
    by_id: dict[str, dict[str, Any]] = {}
    for case in cases:
        # The text may be of a class of the user's, and have lone surrogates, which JSON cannot have.
        name = str.encode(str(case["id"]), errors="backslashreplace").decode()
        if name in by_id:
            raise InputError(f"{path}: found two cases with the id {name!r}, expected one of each")
        by_id[name] = case
    return by_id


def _callables(module: ModuleType) -> list[str]:
    """The names of modules, and of functions and classes that this file defines. Those that make arguments are not."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not name.endswith("_args") and _is_target(value, module.__name__)
    ]


def _is_target(value: object, module: str) -> bool:
    if issubclass(type(value), torch.nn.Module):
        return True
    return issubclass(type(value), FunctionType | type) and value.__module__ == module


def _of_name(module: ModuleType, path: str, name: str) -> tuple[str, object, PreparedSubject]:
    """The convention for `FILE:NAME`.

    NAME is a function, an nn.Module class (made without arguments) or instance, with its example arguments in
    `NAME_args` or else `example_args`, and `NAME_kwargs`: a tuple (a dict), or a function without parameters that
    returns a fresh one. Or NAME is a function without parameters that returns (callable, args), (callable, args,
    kwargs) or a dict of these. `NAME_unbacked` and `NAME_dynamic_shapes`, optional, say what is dynamic.
    """
    target = getattr(module, name, None)
    if not callable(target):
        shown = reprlib.repr(target) if hasattr(module, name) else "no such name"
        known = ", ".join(_callables(module))
        raise InputError(f"{path}:{name}: found {shown}, expected a callable; the module has {known or 'none'}")
    made = _made(target, f"{path}:{name}")
    if made is None:
        made = {"callable": target, "args": _example(module, path, name), "kwargs": {}}
        named = getattr(module, f"{name}_kwargs", None)
        if named is not None:
            made["kwargs"] = _fresh(named() if callable(named) else named)
    kwargs = made.get("kwargs") or {}
    if not isinstance(kwargs, dict) or not all(isinstance(key, str) for key in kwargs):
        raise InputError(f"{path}:{name}: found keyword arguments {reprlib.repr(kwargs)}, expected a dict by name")
    prepared = PreparedSubject(_callable(made["callable"], module), tuple(made["args"]), kwargs=kwargs)
    shapes = made.get("dynamic_shapes", getattr(module, f"{name}_dynamic_shapes", None))
    if inspect.isfunction(shapes):
        shapes = shapes()
    prepared = with_dynamic_shapes(prepared, shapes, f"{path}:{name}_dynamic_shapes")
    return f"{path}:{name}_unbacked", made.get("unbacked", getattr(module, f"{name}_unbacked", None)), prepared


def _made(target: Any, where: str) -> dict[str, Any] | None:
    """What a factory makes: a function without parameters that returns a callable with its arguments."""
    if not inspect.isfunction(target) or inspect.signature(target).parameters:
        return None
    match target():
        case (made, tuple(args)) if callable(made):
            return {"callable": made, "args": args}
        case (made, tuple(args), dict(kwargs)) if callable(made):
            return {"callable": made, "args": args, "kwargs": kwargs}
        case dict(made) if callable(made.get("callable")):
            unknown = [str(key) for key in made if key not in _KEYS]
            if unknown or not isinstance(made.get("args", ()), tuple | list):
                problem = f"the key {unknown[0]!r}" if unknown else f"args of type {type(made['args']).__name__}"
                raise InputError(f"{where}: found {problem} in what it returns, expected {', '.join(_KEYS)}")
            return {"args": (), **made}
    return None


def _example(module: ModuleType, path: str, name: str) -> tuple[Any, ...]:
    for source in (f"{name}_args", "example_args"):
        args = getattr(module, source, None)
        if args is None:
            continue
        args = args() if callable(args) else _fresh(args)
        if not isinstance(args, tuple | list):
            raise InputError(f"{path}:{source}: found {type(args).__name__}, expected a tuple of example arguments")
        return tuple(args)
    raise InputError(
        f"{path}:{name}: found no example arguments, expected {name}_args or example_args "
        "(a tuple or a function that returns one), or a function without parameters that returns (callable, args), "
        f"(callable, args, kwargs) or a dict with {', '.join(_KEYS)}"
    )


def _callable(target: Callable[..., Any], module: ModuleType) -> Callable[..., Any]:
    """The callable for one run. A module of the file has the state that it was loaded with, whatever runs changed."""
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        made: torch.nn.Module = target()
        return made
    if isinstance(target, torch.nn.Module) and any(value is target for value in vars(module).values()):
        copied: torch.nn.Module = _fresh(target)
        return copied
    return target


def _fresh(value: Any) -> Any:
    """A copy for one run; the value itself if it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 a user's object may raise anything
        return value


_PROGRAM_MODULE = "ddefuzz_program"


def prepare(subject: Subject) -> PreparedSubject:
    """The subject with new arguments, the same in every run. Raises InputError if it cannot be used."""
    end_forked()
    seed()
    file = subject.path if isinstance(subject, CallableSubject) else PROGRAM_FILE
    with of_user(f"{file}: found a callable or arguments whose construction"):
        match subject:
            case ProgramSubject(text, backed):
                return _prepare_program(text, backed=backed)
            case CallableSubject():
                return prepare_callable(subject)
            case KeySubject():
                raise InputError(
                    "found a case of a key function, expected a program: `ddefuzz replay` runs such a case"
                )


def _prepare_program(text: str, *, backed: bool) -> PreparedSubject:
    program, code = _compiled(text)
    module = ModuleType(_PROGRAM_MODULE)
    module.__dict__.update({root: importlib.import_module(root) for root in ROOTS})
    for imported in imported_for(functions_in(program)):
        importlib.import_module(imported)
    sys.modules[_PROGRAM_MODULE] = module
    lines = text.splitlines(keepends=True)
    linecache.cache[PROGRAM_FILE] = (len(text), None, lines, PROGRAM_FILE)
    # The text has been parsed as a program, so this defines one function and calls nothing.
    exec(code, module.__dict__)
    symbolic = tuple(
        UnbackedDim(position, dim, size.symbol)
        for position, item in enumerate(program.inputs)
        for dim, size in enumerate(item.shape)
        if size.symbol is not None
    )
    call, args = _callable_of(program, module), tuple(materialize(program).values())
    settings = settings_in(program)
    numbers = not written_numbers(program)
    if not backed:
        return PreparedSubject(
            call, args, symbolic, numbers_unbacked=numbers, marks=marks_in(program), settings=settings
        )
    shapes: tuple[dict[int, Any], ...] = tuple({} for _ in args)
    for place in symbolic:
        shapes[place.leaf][place.dim] = torch.export.Dim.AUTO
    return PreparedSubject(
        call, args, dynamic_shapes=shapes, backed=symbolic, numbers_unbacked=numbers, settings=settings
    )


def _callable_of(program: Program, module: ModuleType) -> Callable[..., Any]:
    """The function of a program; one that calls modules is the `forward` of a module that has them."""
    function, modules = module.__dict__["program"], modules_of(program)
    if not modules:
        call: Callable[..., Any] = function
        return call
    kind = type("Program", (torch.nn.Module,), {"forward": function, "__module__": _PROGRAM_MODULE})
    owner: torch.nn.Module = kind()
    for expr, name in modules.items():
        setattr(owner, name, made_before(expr))
    return owner


@lru_cache(maxsize=256)
def _compiled(text: str) -> tuple[Program, CodeType]:
    """The program, and the code of its function. Modules are read from its first parameter, which no input is."""
    program = catalogue.parse(text, PROGRAM_FILE).program
    tree = ast.parse(text)
    if modules := modules_of(program):
        tree = _ModulesRead(next(unused_names(program, "self")), modules).visit(tree)
    flags = __future__.annotations.compiler_flag
    return program, compile(tree, PROGRAM_FILE, "exec", flags=flags, dont_inherit=True)


class _ModulesRead(ast.NodeTransformer):
    """Puts a variable in place of each module. Everything stays where it is in the text."""

    def __init__(self, owner: str, modules: Mapping[Expr, str]) -> None:
        self.owner = owner
        self.names = {ast.dump(_syntax(print_expression(expr))): name for expr, name in modules.items()}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args.args.insert(0, ast.copy_location(ast.arg(self.owner), node))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self.names.get(ast.dump(node))
        if name is None:
            return self.generic_visit(node)
        return ast.fix_missing_locations(ast.copy_location(_syntax(f"{self.owner}.{name}"), node))


def _syntax(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body
