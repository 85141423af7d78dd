"""Records the three kinds of stacks: the real Python stack, the stack that dynamo interprets, and the native stack.

Taking a stack is cheap (code objects and instruction offsets, 10 µs), because most stacks are discarded. Turning
it into `Frame`s reads source files, and is done only for the failure that is reported. Which frame matters is
decided in `classify`.
"""

from __future__ import annotations

import dis
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from traceback import StackSummary
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple, TypeAlias

import ddefuzz
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame, Place

HOOK_PREFIX = "ddefuzz_"
"""Prefix of the names of hooks: they have torch's file name (see `guards`), so that only it identifies them."""

_TORCH_PARENT = f"{torch_api.torch_parent()}{os.sep}"
_TORCH = f"{_TORCH_PARENT}torch{os.sep}"
_DDEFUZZ = f"{Path(ddefuzz.__file__).parent}{os.sep}"
_STDLIB = f"{sysconfig.get_paths()['stdlib']}{os.sep}"
_GUARD_FILES = frozenset(f"{_TORCH_PARENT}{path}" for file in torch_api.GUARD_FILES for path in file.paths)
_INDUCTOR_SIZES = frozenset(f"{_TORCH_PARENT}{path}" for path in torch_api.INDUCTOR_SIZES_FILE.paths)
_INDUCTOR_GUARDS = torch_api.names_of(torch_api.INDUCTOR_GUARDS)
_BUILD_ROOT = re.compile(r"^.*?/(?=(?:aten|c10|caffe2|torch)/)")
_TAKING_A_BACKTRACE = ("torch::unwind::", "torch::CapturedTraceback::gather", "pybind11::cpp_function::")
"""The innermost native frames of every backtrace: those of the functions that take it."""


_OP_NAMES = {"_local_scalar_dense": "item", "_unique2": "unique"}
"""Ops that users call by another name."""

BEFORE_A_JUMP = frozenset({"EXTENDED_ARG", "COPY", "TO_BOOL"})
"""Instructions between a clause and the jump that tests it: those of a far jump, and those that newer Pythons add."""

MOST_VARIABLES = 12  # of a function that are recorded

_LINE = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (\S+)$', re.MULTILINE)

LOOK_BACK = 4
"""How many instructions before a jump are searched for the clause."""


class Span(NamedTuple):
    """The position of an instruction in the source: lines from 1, columns in UTF-8 bytes; None if Python kept none."""

    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None


class RawFrame(NamedTuple):
    """A frame whose source has not been read yet."""

    code: CodeType
    line: int
    span: Span | None


RealStack: TypeAlias = tuple[tuple[CodeType, int, int], ...]
"""Code object, offset of the instruction and line of each frame, innermost first."""


class Stacks(NamedTuple):
    """Both Python stacks of one moment, each innermost first."""

    real: RealStack
    traced: tuple[RawFrame, ...]


def take(frame: FrameType | None, root: CodeType | None) -> Stacks:
    """Take the stacks of `frame`, up to the frame that runs `root`, which is left out."""
    step = step_code()
    real: list[tuple[CodeType, int, int]] = []
    translators: list[Any] = []
    while frame is not None and frame.f_code is not root:
        code = frame.f_code
        real.append((code, frame.f_lasti, frame.f_lineno or 0))
        if code is step:
            translators.append(frame.f_locals["self"])
        frame = frame.f_back
    return Stacks(tuple(real), interpreted(translators) if translators else ())


def interpreted(translators: list[Any]) -> tuple[RawFrame, ...]:
    """The positions of dynamo's instruction translators, innermost first; empty while a backend compiles their
    graph.
    """
    if not torch_api.bound(torch_api.TRACING_CONTEXT)():
        return ()
    return tuple(RawFrame(one.f_code, one.lineno, _span_of(one)) for one in translators)


def _span_of(translator: Any) -> Span | None:
    # Dynamo drops the position when it returns from the code.
    end = translator.instruction_pointer or 0
    before = translator.instructions[max(end - 1 - LOOK_BACK, 0) : max(end - 1, 0)]
    around = [*before, translator.current_instruction]
    return _decided_at([one.opname for one in around], [_span_in(one) for one in around])


def _span_in(instruction: Any) -> Span | None:
    at = instruction.positions
    return Span(at.lineno, at.end_lineno, at.col_offset, at.end_col_offset) if at is not None else None


@lru_cache(maxsize=1)
def step_code() -> CodeType:
    """The code of the function in which dynamo interprets an instruction."""
    code: CodeType = torch_api.bound(torch_api.INTERPRETER_STEP).__code__
    return code


def is_own(code: CodeType) -> bool:
    """Whether a frame is ddefuzz's own: of its package, or a hook with torch's file name."""
    return code.co_filename.startswith(_DDEFUZZ) or code.co_name.startswith(HOOK_PREFIX)


def folders() -> tuple[str, ...]:
    """Folders that are removed from the front of file names: torch's parent folder, the standard library, the
    current folder, unless it has been removed.
    """
    try:
        return _TORCH_PARENT, _STDLIB, f"{Path.cwd()}{os.sep}"
    except FileNotFoundError:
        return _TORCH_PARENT, _STDLIB


def display_file(file: str) -> str:
    """The file as records name it."""
    if file.startswith("<eval_with_key>"):
        return "<eval_with_key>"
    for folder in folders():
        if file.startswith(folder):
            return file.removeprefix(folder)
    return file


def function_of(code: CodeType | str) -> str:
    """The unqualified name of its function. For a lambda or a comprehension, that of the function that it is in; empty
    for a file of C++.
    """
    if isinstance(code, str):
        return ""
    names = (part.rpartition(".")[2] for part in reversed(code.co_qualname.split(".<locals>.")))
    return next((name for name in names if not name.startswith("<")), code.co_name)


def frame_at(code: CodeType, line: int) -> Frame:
    """A line of some code."""
    return Frame(display_file(code.co_filename), line, function_of(code), line_text(code.co_filename, line))


def own_line(place: Place, traced: tuple[RawFrame, ...]) -> Place | None:
    """The line of the user's code that branches on a guard at this place; None if torch's own code does.

    In dynamo, the place is in the interpreter, and the line is that of the code that it interprets.
    """
    if place.language == "C++":
        return None
    if traced and Path(place.file).is_relative_to(Path(display_file(step_code().co_filename)).parent):
        place = Place("Python", display_file(traced[0].code.co_filename), traced[0].line)
    return None if place.file.startswith(f"torch{os.sep}") else place


def python_frames(real: RealStack) -> tuple[Frame, ...]:
    """The real stack as records, outermost first, without ddefuzz's own frames."""
    return tuple(
        _render(RawFrame(code, line, _span_at(code, offset)))
        for code, offset, line in reversed(real)
        if not is_own(code)
    )


def traced_frames(traced: tuple[RawFrame, ...]) -> tuple[Frame, ...]:
    """The interpreted stack as records, outermost first, without ddefuzz's own frames."""
    return tuple(_render(frame) for frame in reversed(traced) if not is_own(frame.code))


def whole_frames(stacks: Stacks | None) -> tuple[Frame, ...]:
    """Both stacks as one: the interpreted one, and in it what runs inside of dynamo's interpreter."""
    if stacks is None:
        return ()
    real = python_frames(stacks.real)
    if not stacks.traced:
        return real
    step = display_file(step_code().co_filename)
    inside = next((at for at, frame in enumerate(real) if frame.file == step), len(real))
    return (*traced_frames(stacks.traced), *real[inside:])


def traceback_frames(traceback: TracebackType | None) -> tuple[Frame, ...]:
    """The frames of an exception's traceback, outermost first, without ddefuzz's own."""
    real: list[tuple[CodeType, int, int]] = []
    while traceback is not None:
        real.append((traceback.tb_frame.f_code, traceback.tb_lasti, traceback.tb_lineno or 0))
        traceback = traceback.tb_next
    return python_frames(tuple(reversed(real)))


def summary_frames(error: BaseException) -> tuple[Frame, ...]:
    """The frames of the `traceback.StackSummary` that torch attaches to its exceptions; `code` is the line's text."""
    summary = object.__getattribute__(error, "__dict__").get("real_stack")
    if not isinstance(summary, StackSummary):
        return ()
    return tuple(
        Frame(display_file(frame.filename), frame.lineno or 0, frame.name, line_text(frame.filename, frame.lineno or 0))
        for frame in summary
        if not frame.filename.startswith(_DDEFUZZ) and not frame.name.startswith(HOOK_PREFIX)
    )


def graph_frames(node: Any) -> tuple[Frame, ...]:
    """The lines that made a node of a captured graph, outermost first, from its `stack_trace`: a text as Python prints
    tracebacks.
    """
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    return tuple(
        Frame(display_file(file), int(line), name, line_text(file, int(line)))
        for file, line, name in lines
        if not file.startswith(_DDEFUZZ)
    )


def is_from_own(stacks: Stacks) -> bool:
    """Whether the innermost frame outside torch is ddefuzz's own. It is when a stage makes an input's dim unbacked."""
    codes = (*(frame.code for frame in stacks.traced), *(code for code, _, _ in stacks.real))
    outside = (
        code for code in codes if not code.co_filename.startswith((_TORCH, _STDLIB)) and code.co_name[:8] != HOOK_PREFIX
    )
    first = next(outside, None)
    return first is not None and is_own(first)


def user_frame(stacks: Stacks) -> Frame | None:
    """The innermost frame of the code under test; None if one of ddefuzz is further in (an unbacked input)."""
    real = (RawFrame(code, line, _span_at(code, offset)) for code, offset, line in stacks.real)
    for raw in chain(stacks.traced, real):  # lazily, because spans cost time and the first frame that fits is enough
        if raw.code.co_name.startswith(HOOK_PREFIX):
            continue
        if is_own(raw.code):
            return None
        file = raw.code.co_filename
        if not file.startswith((_TORCH, _STDLIB)) and (not file.startswith("<") or _lines(file)):
            return _render(raw)
    return None


def variables(frame: FrameType | None) -> tuple[tuple[str, str], ...]:
    """The variables of the innermost frame of the code under test: the shapes of tensors, and numbers."""
    while frame is not None and (is_own(frame.f_code) or frame.f_code.co_filename.startswith((_TORCH, _STDLIB, "<"))):
        frame = frame.f_back
    if frame is None:
        return ()
    pairs = ((name, _shape_or_number(value)) for name, value in frame.f_locals.items())
    return tuple((name, text) for name, text in pairs if text)[:MOST_VARIABLES]


def _shape_or_number(value: Any) -> str:
    """A tensor as `(u0, 4) float32`; empty for what is no tensor and no number."""
    torch: Any = sys.modules["torch"]  # not imported here: the process of a campaign does without it
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return str(value) if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)) else ""


def native_backtrace() -> Any:
    """Take the native stack, without symbolizing it (10 µs)."""
    return torch_api.bound(torch_api.CAPTURED_TRACEBACK)(cpp=True)


def native_frames(backtrace: Any) -> tuple[Frame, ...]:
    """The C++ frames of a native backtrace, outermost first, with names as the symbolizer prints them.

    The first call in a process costs 0.1 to 0.5 s, later ones 1 to 100 ms, so it is only for the failure that
    is reported. C++ functions print with their parameters. Functions that print without are C functions, which
    here are Python's own interpreter. The Python frames that torch interleaves (in a wrong order on CPython
    3.11) print without parameters too.
    """
    kept = [frame for frame in backtrace.summary() if "(" in frame.name]
    while kept and any(name in kept[-1].name for name in _TAKING_A_BACKTRACE):
        kept.pop()
    # Without files: libtorch has no line tables, and torch's symbolizers differ in what they print instead.
    return tuple(Frame("", 0, frame.name) for frame in kept)


def display_cpp_file(file: str) -> str:
    """A C++ file as records name it: relative to torch's source root, wherever torch was built."""
    return _BUILD_ROOT.sub("", file)


def header_line(file: str, line: int) -> str:
    """The source line at a C++ place (`c10/core/SymInt.h`); empty unless torch ships that header."""
    shipped = f"{_TORCH}include{os.sep}{file.removeprefix('aten/src/')}"
    # Wheels wrap every header in an `#if` that was not there when torch was compiled.
    wrapped = line_text(shipped, 1).startswith("#if !defined(TORCH_STABLE_ONLY)")
    return line_text(shipped, line + wrapped)


def _span_at(code: CodeType, offset: int) -> Span | None:
    """The source span of the instruction at byte `offset`. `co_positions` has one entry per code unit of two bytes."""
    unit = max(offset, 0) // 2
    start = max(unit - LOOK_BACK, 0)
    spans = [Span(*one) for one in islice(code.co_positions(), start, unit + 1)]
    names = [dis.opname[name] for name in code.co_code[2 * start : 2 * unit + 1 : 2]]
    return _decided_at(names, spans) if spans else None


def _decided_at(names: Sequence[str], spans: Sequence[Span | None]) -> Span | None:
    """The span of the value that the last of these instructions tests.

    The span of the jump at a clause of `a or b` may cover the whole expression, and at one of `a or (b and c)` it may
    be that of `a`. The clause is the code before the jump, and before the instructions that prepare one.
    """
    span = spans[-1]
    if "JUMP" not in names[-1] and names[-1] != "TO_BOOL":
        return span
    before = next((at for at in reversed(range(len(names) - 1)) if names[at] not in BEFORE_A_JUMP), None)
    clause = None if before is None else spans[before]
    return clause if span is not None and clause is not None and _is_in_or_after(clause, span) else span


def _is_in_or_after(part: Span, other: Span) -> bool:
    start, end = (part.line or 0, part.column or 0), (part.end_line or 0, part.end_column or 0)
    other_end = other.end_line or 0, other.end_column or 0
    return ((other.line or 0, other.column or 0) <= start and end <= other_end) or other_end <= start


def _render(raw: RawFrame) -> Frame:
    file = raw.code.co_filename
    segment = _segment(file, raw.span) if raw.span is not None else ""
    code = segment or line_text(file, raw.line)
    return Frame(display_file(file), raw.line, function_of(raw.code), code, exact=bool(segment))


def _segment(file: str, span: Span) -> str:
    if span.line is None or span.end_line is None or span.column is None or span.end_column is None:
        return ""
    lines = [line.encode() for line in _lines(file)[span.line - 1 : span.end_line]]
    if len(lines) != span.end_line - span.line + 1:
        return ""
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return b"".join(lines).decode(errors="replace")


def line_text(file: str, line: int) -> str:
    """A line of source; empty if there is none."""
    return "".join(_lines(file)[line - 1 : line]).strip() if line > 0 else ""


def _lines(file: str) -> list[str]:
    try:
        return linecache.getlines(file)
    except Exception:  # noqa: BLE001 user code may give any name to its file, and any source
        return []


def making_op(frame: FrameType | None) -> str:
    """The op whose fake kernel contains `frame`: `nonzero`, `item`; empty if no op is running."""
    dispatch = torch_api.bound(torch_api.FAKE_DISPATCH).__code__
    while frame is not None:
        if frame.f_code is dispatch:
            # An OpOverload prints as namespace.op.overload.
            name = str(frame.f_locals["func"]).removeprefix("aten.").rpartition(".")[0]
            return _OP_NAMES.get(name, name)
        frame = frame.f_back
    return ""


def passes_on(code: CodeType) -> bool:
    """Whether code of torch's guards only passes on a decision of its caller."""
    file = code.co_filename
    return file in _GUARD_FILES or (file in _INDUCTOR_SIZES and code.co_name in _INDUCTOR_GUARDS)
