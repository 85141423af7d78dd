"""The stages that go on where another one ends, one row each: what users do with a captured program.

Most take the program of `torch.export.export`. `aot-decomposed` and `cpp-wrapper` compile the subject itself otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from io import BytesIO
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.export import ExportedProgram

from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import DECOMPOSED, RETRACES, Stage
from ddefuzz.execute.stages import (
    AOT_DECOMPOSED,
    SETTINGS,
    Capture,
    CaptureEndedError,
    ExportArguments,
    StageFunction,
    as_exported,
    capture_of,
    compiled,
    inductor,
    inductor_to_call,
    not_compiled,
    stage_function,
)
from ddefuzz.instrument import torch_api


class RetracedProgram(NamedTuple):
    """An exported program, and what is called in place of its module."""

    program: ExportedProgram
    runnable: Callable[..., Any] | None = None


OfProgram: TypeAlias = Callable[[ExportedProgram, ExportArguments, bool], RetracedProgram]
"""Gets an exported program, what it was exported of, and whether the result is called."""


def _decomposed(program: ExportedProgram, _how: ExportArguments, _called: bool) -> RetracedProgram:
    return RetracedProgram(program.run_decompositions())


def _exported_again(program: ExportedProgram, how: ExportArguments, _called: bool) -> RetracedProgram:
    shapes = how.dynamic_shapes
    return RetracedProgram(
        torch.export.export(program.module(), how.args, how.kwargs, dynamic_shapes=shapes, strict=False)
    )


def _saved(program: ExportedProgram, _how: ExportArguments, _called: bool) -> RetracedProgram:
    file = BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return RetracedProgram(torch.export.load(file))


def _unflattened(program: ExportedProgram, _how: ExportArguments, _called: bool) -> RetracedProgram:
    return RetracedProgram(program, torch.export.unflatten(program))


def _packaged(program: ExportedProgram, _how: ExportArguments, called: bool) -> RetracedProgram:
    """AOTInductor's package. Without a call, it ends when its C++ code is made."""
    make, load = torch_api.bound(torch_api.AOTI_PACKAGE), torch_api.bound(torch_api.AOTI_LOAD)
    compiling = torch_api.AOTI_COMPILING
    ends = compiling.replaced(_end) if not called else nullcontext()
    with (
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)(),
        torch_api.changed_settings(
            torch_api.INDUCTOR_CONFIG, SETTINGS | ({torch_api.VECTOR_ISA: None} if called else {})
        ),
        ends,
        suppress(CaptureEndedError),
    ):
        return RetracedProgram(program, load(make(program, package_path=f"{folder}/packaged.pt2")))
    return RetracedProgram(program, not_compiled)


def _end(*_args: Any, **_kwargs: Any) -> Any:
    raise CaptureEndedError


def _of(make: OfProgram) -> RetraceFunction:
    def retraced(prepared: PreparedSubject, begun: Capture, called: bool) -> Capture | None:
        how = as_exported(prepared)
        assert begun.program is not None
        return capture_of(prepared, how.module, *make(begun.program, how, called))

    return retraced


def _with_decompositions(prepared: PreparedSubject, _begun: Capture, _called: bool) -> Capture | None:
    """The graphs of AOTAutograd after inductor's decompositions, which run as they are: without C++."""
    torch_api.bound(torch_api.DYNAMO_RESET)()
    return compiled(AOT_DECOMPOSED)(prepared)


def _with_cpp_wrapper(prepared: PreparedSubject, _begun: Capture, called: bool) -> Capture | None:
    torch_api.bound(torch_api.DYNAMO_RESET)()
    with torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, {torch_api.CPP_WRAPPER: True}):
        return (inductor_to_call if called else inductor)(prepared)


RetraceFunction: TypeAlias = Callable[[PreparedSubject, Capture, bool], Capture | None]
"""Goes on with what was captured. It is told whether the result is called, and raises whatever torch raises."""

RETRACE_FUNCTIONS: MappingProxyType[Stage, RetraceFunction] = MappingProxyType(
    {
        "decompose": _of(_decomposed),
        "reexport": _of(_exported_again),
        "saved": _of(_saved),
        "unflatten": _of(_unflattened),
        "aoti": _of(_packaged),
        DECOMPOSED: _with_decompositions,
        "cpp-wrapper": _with_cpp_wrapper,
    }
)


def function_to_call(stage: Stage) -> StageFunction:
    """What captures in a stage, to be called. Two stages, one after the other, if it goes on where another one ends."""
    retrace = RETRACES.get(stage)
    if retrace is None:
        return stage_function(stage, called=True)

    def both(prepared: PreparedSubject) -> Capture | None:
        begun = stage_function(retrace.begins, called=False)(prepared)
        return None if begun is None else RETRACE_FUNCTIONS[stage](prepared, begun, True)

    return both
