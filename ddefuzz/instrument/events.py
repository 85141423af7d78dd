"""The raw events of torch's shape reasoning, as records that go over a wire; nothing here interprets them.

Files are given as torch writes them for C++ (`aten/src/ATen/ExpandUtils.cpp`), relative to the folder that holds
the torch package for Python (`torch/_refs/__init__.py`), and as they are elsewhere.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Language: TypeAlias = Literal["Python", "C++"]
Counterfactual: TypeAlias = Literal["same", "other", "undecided"]
Mechanism: TypeAlias = Literal["explicit", "size-oblivious", "aggressive-1", "aggressive-2"]
"""What answers a guard that cannot be decided."""

PROGRAM_FILE = "<program>"
"""The file name of a generated program's frames, which are the user's code."""


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a decision was asked for: the first frame outside torch's own guard plumbing, or the C++ place handed over.

    This is the name of a guard site: planted faults are given as places.
    """

    language: Language
    file: str
    line: int


class Answer(msgspec.Struct, frozen=True):
    """How a guard that cannot be decided is answered in an experiment, in place of its fallback or its error.

    `value` None defers it to a run-time assertion that it is true. With an `expression` only a guard of that text is
    answered: the operators of SymInt.h have one place for all C++ code that compares.
    """

    place: Place
    value: bool | None
    expression: str = ""


class Frame(msgspec.Struct, frozen=True):
    """One stack frame, outermost first wherever frames are listed.

    `code` is the source text at the frame's instruction (its `co_positions`), else of its line; empty for C++.
    `exact` says that `code` is from `co_positions`.
    """

    file: str
    line: int
    function: str
    code: str = ""
    exact: bool = False


class Guard(msgspec.Struct, frozen=True):
    """One decision over an unbacked expression that fell back, with all its repetitions in the run.

    `method` is the door's: `guard_or_false`, `guard_or_true`, `guard_size_oblivious`, `guard_bool` …;
    `counterfactual` is what the size-oblivious mechanism would have said of the same expression.
    """

    place: Place
    method: str
    expression: str
    fallback: bool
    counterfactual: Counterfactual
    function: str = ""
    count: int = 1


ConstraintKind: TypeAlias = Literal["assertion", "replacement", "range"]


class Constraint(msgspec.Struct, frozen=True):
    """Something that a capture assumes of unbacked symbols, and the stacks of its maker, as in `Raised`.

    `text` is the condition of an assertion (`Eq(u0, 3)`), `u0 = 3` of a replacement, `u0 >= 2` or `u0 <= 5` of a range.
    """

    kind: ConstraintKind
    text: str
    method: str
    place: Place
    python: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()


class SymbolOrigin(msgspec.Struct, frozen=True):
    """Where an unbacked symbol of the failing expression was made: the op, and the user's line that called it."""

    symbol: str
    op: str
    frame: Frame | None = None


class Raised(msgspec.Struct, frozen=True):
    """The data-dependent error in the chain of the final failure, seen at the door.

    Three stacks that are never interleaved, each outermost first: `python` is the real interpreter stack without
    the hook's own frames, `traced` the user's stack that dynamo was interpreting (empty in eager tracing), `native`
    the C++ frames of the symbolizer where C++ asked (itself or through Python that answers it), innermost last,
    function names as printed. `asked` is the source line at a C++ place when torch ships that header
    (`return sym_eq(o).guard_bool(__FILE__, __LINE__);`): the compiler may inline the operator, and then no frame
    names it.
    """

    expression: str
    method: str
    place: Place
    python: tuple[Frame, ...]
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()
    symbols: tuple[SymbolOrigin, ...] = ()
    withheld: bool = False
    asked: str = ""
