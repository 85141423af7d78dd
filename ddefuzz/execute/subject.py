"""The subject of a run: a program's text or the user's own code, as a callable with arguments and unbacked dims."""

from __future__ import annotations
import __future__

import importlib.util
import inspect
import linecache
import reprlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from ddefuzz.errors import DdefuzzError, InputError
from ddefuzz.execute.intact import kept_intact
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject, Subject
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.ops import catalogue
from ddefuzz.program import inputs
from ddefuzz.program.model import Program

_PROGRAM_MODULE = "ddefuzz_program"
_USER_MODULE = "ddefuzz_user_code"

SAID_LIMIT = 1000
"""How many characters of an error of the user's own code are printed."""


class UnbackedDim(NamedTuple):
    """Dim `dim` of argument `arg` is made unbacked. Dims with the same symbol share one size."""

    arg: int
    dim: int
    symbol: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A subject to run once, by `call(*args)`. `dynamic_shapes` has one entry per argument, as torch.export takes it.

    The dims `backed` are dynamic with a known example size; torch may specialize them. `kept` are the
    sizes of symbols where a stage makes dims unbacked by masks and keeps only a part.
    """

    call: Callable[..., Any]
    args: tuple[Any, ...]
    unbacked: tuple[UnbackedDim, ...] = ()
    dynamic_shapes: tuple[Any, ...] | None = None
    backed: tuple[UnbackedDim, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)


def prepare(subject: Subject) -> Prepared:
    """The subject with new arguments. Raises InputError if it cannot be used."""
    try:
        prepared = _prepared(subject)
    except DdefuzzError:
        raise
    except BaseException as error:  # what makes the callable and its arguments is the user's
        raise InputError(
            f"{_file_of(subject)}: found what cannot be called: making it raises {_said(error)}"
        ) from error
    for place in prepared.unbacked:
        arg = prepared.args[place.arg] if 0 <= place.arg < len(prepared.args) else None
        if not isinstance(arg, torch.Tensor) or not 0 <= place.dim < arg.dim():
            raise InputError(
                f"{_file_of(subject)}: found dim {place.dim} of argument {place.arg} to make unbacked, "
                f"expected one of a tensor among {len(prepared.args)} arguments, both counted from 0"
            )
    return prepared


def _prepared(subject: Subject) -> Prepared:
    match subject:
        case ProgramSubject(text, backed):
            return _prepare_program(text, backed=backed)
        case CallableSubject(path, name, case):
            module = load_module(path)
            if case is not None:
                return _prepare_case(module, path, case)
            if name is not None:
                return _prepare_named(module, path, name)
            raise InputError(f"{path}: found neither a name nor a case, expected FILE:NAME or a case of CASES")


def case_ids(path: str) -> tuple[str, ...]:
    """The ids of a module's list `CASES`, in order; InputError where there is none."""
    return tuple(_cases(load_module(path), path))


def load_module(path: str) -> ModuleType:
    """The user's module, executed once per process. Raises InputError if it is missing or fails to import."""
    module = _executed(path)
    # Dynamo finds the globals of a function that it inlines by the module's name: another file may have the same.
    sys.modules[module.__name__] = module
    return module


@lru_cache(maxsize=64)
def _executed(path: str) -> ModuleType:
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: found no such file, expected a Python module")
    name = f"{_USER_MODULE}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: found {file.suffix!r}, expected a Python module (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with kept_intact(path):
            spec.loader.exec_module(module)
    except DdefuzzError:
        del sys.modules[name]
        raise
    except BaseException as error:  # whatever the user's module raises is about the user's module
        del sys.modules[name]
        raise InputError(f"{path}: found a module that raises {_said(error)}") from error
    return module


def _file_of(subject: Subject) -> str:
    return subject.path if isinstance(subject, CallableSubject) else PROGRAM_FILE


def _said(error: BaseException) -> str:
    """An error of the user's own code in one line."""
    said = " ".join(f"{type(error).__name__}: {message_of(error)}".split())
    return said if len(said) <= SAID_LIMIT else f"{said[:SAID_LIMIT]}… ({len(said)} characters)"


def message_of(error: BaseException) -> str:
    """What an error of the user's own code says, without lone surrogates, which could not be sent on."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except BaseException as failure:  # noqa: BLE001 an exception whose own __str__ fails is still one
        return f"<{type(failure).__name__} in __str__>"


def _prepare_program(text: str, *, backed: bool) -> Prepared:
    program, code = _compiled(text)
    module = ModuleType(_PROGRAM_MODULE)
    module.__dict__["torch"] = torch
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
    call, args = module.__dict__["program"], tuple(inputs.materialize(program).values())
    if not backed:
        return Prepared(call, args, symbolic)
    shapes: tuple[dict[int, Any], ...] = tuple({} for _ in args)
    for place in symbolic:
        shapes[place.arg][place.dim] = torch.export.Dim.AUTO
    return Prepared(call, args, dynamic_shapes=shapes, backed=symbolic)


@lru_cache(maxsize=256)
def _compiled(text: str) -> tuple[Program, CodeType]:
    program = catalogue.parse(text, PROGRAM_FILE).program
    flags = __future__.annotations.compiler_flag
    return program, compile(text, PROGRAM_FILE, "exec", flags=flags, dont_inherit=True)


def _prepare_case(module: ModuleType, path: str, case: str) -> Prepared:
    cases = _cases(module, path)
    if case not in cases:
        raise InputError(f"{path}: found no case {case!r}, expected one of {', '.join(cases)}")
    found = cases[case]
    shapes = found.get("dynamic_shapes")
    return Prepared(
        _instantiated(found["fn"]),
        tuple(found["args"]()),
        _unbacked(found.get("unbacked") or {}, f"{path}: unbacked of the case {case!r}"),
        tuple(shapes(torch.export.Dim.DYNAMIC)) if shapes is not None else None,
    )


def _cases(module: ModuleType, path: str) -> dict[str, dict[str, Any]]:
    """The cases of a module's list `CASES` by the text of their ids, in order."""
    cases = getattr(module, "CASES", None)
    if not isinstance(cases, list) or not all(isinstance(c, dict) and {"id", "fn", "args"} <= c.keys() for c in cases):
        named = "".join(f", such as {path}:{name}" for name in _callables(module)[:1])
        raise InputError(
            f"{path}: found no usable CASES, expected a list of dicts with id, fn and args, or FILE:NAME{named}"
        )
    by_id: dict[str, dict[str, Any]] = {}
    for case in cases:
        if str(case["id"]) in by_id:
            raise InputError(f"{path}: found two cases with the id {str(case['id'])!r}, expected one of each")
        by_id[str(case["id"])] = case
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


def _prepare_named(module: ModuleType, path: str, name: str) -> Prepared:
    """The convention for `FILE:NAME`.

    NAME is a function, an nn.Module class (made without arguments) or instance, with its example arguments in
    `NAME_args` or else `example_args`: a tuple, or a function without parameters that returns a fresh one. Or NAME is
    a function without parameters that returns (callable, args). `NAME_unbacked`, optional, is {argument: [dims]}.
    """
    target = getattr(module, name, None)
    if not callable(target):
        found = reprlib.repr(target) if hasattr(module, name) else "no such name"
        known = ", ".join(_callables(module))
        raise InputError(f"{path}:{name}: found {found}, expected a callable; the module has {known or 'none'}")
    unbacked = _unbacked(getattr(module, f"{name}_unbacked", {}), f"{path}:{name}_unbacked")
    if inspect.isfunction(target) and not inspect.signature(target).parameters:
        match target():
            case (made, tuple(made_args)) if callable(made):
                return Prepared(_instantiated(made), made_args, unbacked)
    for source in (f"{name}_args", "example_args"):
        args = getattr(module, source, None)
        if callable(args):
            args = args()
        if args is None:
            continue
        if not isinstance(args, tuple | list):
            raise InputError(f"{path}:{source}: found {type(args).__name__}, expected a tuple of example arguments")
        return Prepared(_instantiated(target), tuple(args), unbacked)
    raise InputError(
        f"{path}:{name}: found no example arguments, expected {name}_args or example_args "
        "(a tuple or a function that returns one), or a function without parameters that returns (callable, args)"
    )


def _instantiated(target: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        made: torch.nn.Module = target()
        return made
    return target


def _unbacked(spec: object, where: str) -> tuple[UnbackedDim, ...]:
    """The places that a mapping from argument numbers to dims names, each with a symbol of its own."""
    wrong = InputError(f"{where}: found {reprlib.repr(spec)}, expected {{argument number: [dims]}} such as {{0: [0]}}")
    if not isinstance(spec, Mapping):
        raise wrong
    places = []
    for arg, dims in spec.items():
        if not isinstance(dims, list | tuple) or any(type(number) is not int for number in (arg, *dims)):
            raise wrong
        places += [(arg, dim) for dim in dims]
    if len(set(places)) < len(places):
        raise InputError(f"{where}: found {reprlib.repr(spec)}, expected each dim once")
    return tuple(UnbackedDim(arg, dim, f"u{number}") for number, (arg, dim) in enumerate(places))
