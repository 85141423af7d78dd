"""The subject of a run: a program's text or the user's own code, as a callable with arguments and unbacked dims."""

from __future__ import annotations
import __future__

import linecache
import sys
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.prepared import Prepared, UnbackedDim
from ddefuzz.execute.protocol import CallableSubject, KeySubject, ProgramSubject, Subject
from ddefuzz.execute.user_code import of_user, prepare_callable, seed
from ddefuzz.instrument.events import PROGRAM_FILE
from ddefuzz.ops import catalogue
from ddefuzz.program.evaluate import materialize
from ddefuzz.program.model import Program

_NO_PROGRAM = "found a case of a key function, expected a program: `ddefuzz replay` runs such a case"

_PROGRAM_MODULE = "ddefuzz_program"


def prepare(subject: Subject) -> Prepared:
    """The subject with new arguments, the same in every run. Raises InputError if it cannot be used."""
    seed()
    with of_user(f"{_file_of(subject)}: found a callable or arguments whose construction"):
        match subject:
            case ProgramSubject(text, backed):
                return _prepare_program(text, backed=backed)
            case CallableSubject():
                return prepare_callable(subject)
            case KeySubject():
                raise InputError(_NO_PROGRAM)


def _file_of(subject: Subject) -> str:
    return subject.path if isinstance(subject, CallableSubject) else PROGRAM_FILE


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
    call, args = module.__dict__["program"], tuple(materialize(program).values())
    if not backed:
        return Prepared(call, args, symbolic, numbers_unbacked=True)
    shapes: tuple[dict[int, Any], ...] = tuple({} for _ in args)
    for place in symbolic:
        shapes[place.leaf][place.dim] = torch.export.Dim.AUTO
    return Prepared(call, args, dynamic_shapes=shapes, backed=symbolic, numbers_unbacked=True)


@lru_cache(maxsize=256)
def _compiled(text: str) -> tuple[Program, CodeType]:
    program = catalogue.parse(text, PROGRAM_FILE).program
    flags = __future__.annotations.compiler_flag
    return program, compile(text, PROGRAM_FILE, "exec", flags=flags, dont_inherit=True)
