"""Records of torch's raw symbolic-shape events: guards, constraints and data-dependent errors, with their frames.

They are sent between processes and stored. Nothing here interprets them.

C++ files are given as torch writes them (`aten/src/ATen/ExpandUtils.cpp`). Python files of torch are relative to
the folder that holds the torch package (`torch/_refs/__init__.py`), and those of the standard library or the
current folder relative to these. Other files have their full path.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Language: TypeAlias = Literal["Python", "C++"]
Counterfactual: TypeAlias = Literal["same", "other", "undecided"]
Mechanism: TypeAlias = Literal["explicit", "size-oblivious", "aggressive-1", "aggressive-2"]
"""What decides a guard over unbacked symbols."""

PROGRAM_FILE = "<program>"
"""The file name of a generated program's frames, which are the user's code."""

TYPED_FILES = ("<ipython-input-", "<python-input-", "<stdin>")
"""The beginning of the file names of code that a user types into a prompt."""


LineNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A line of a file, from 1. 0: not known."""


class Place(msgspec.Struct, frozen=True, order=True):
    """File and line where a guard was evaluated.

    It is the first frame outside torch's own guard functions, or the C++ file and line passed to the guard.
    Places identify guard sites; planted faults are given as places.
    """

    language: Language
    file: str
    line: LineNumber


class Answer(msgspec.Struct, frozen=True):
    """The value that an experiment gives to an undecided guard, in place of its fallback or its error.

    A `value` of None defers the guard to a run-time assertion that it is true, or false if `negated`. With an
    `expression`, only a guard with that text gets the value. This is needed because the operators of SymInt.h are
    one place for all C++ code that compares. With a `clause`, only this clause of the expression gets it, and the
    rest is evaluated. With `held`, the expression becomes a clause of the next assertion, which is then a
    disjunction.
    """

    place: Place
    value: bool | None
    expression: str = ""
    clause: str = ""
    negated: bool = False
    held: bool = False

    def fits(self, place: Place, expression: str) -> bool:
        """Whether a guard gets this value."""
        return self.place == place and self.expression in ("", expression)


FaultKind: TypeAlias = Literal["drop assertion", "add assertion", "specialize"]


class Fault(msgspec.Struct, frozen=True):
    """A wrong assumption planted at a place in torch, to measure whether the oracles find it.

    drop assertion   the code at the place makes no run-time assertions
    add assertion    each guard that falls back at the place asserts, with an even `number`, that its fallback is
                     the truth, otherwise that it is not
    specialize       each guard that falls back at the place makes an unbacked symbol of its expression another
                     one (if it has two and `number` is odd), otherwise a number from 2 to 4
    """

    place: Place
    kind: FaultKind
    number: int = 0


class Frame(msgspec.Struct, frozen=True):
    """One stack frame. Frames are listed outermost first.

    `code` is the source text at the frame's instruction (its `co_positions`), else the source line; it is empty
    for C++. `exact` says that `code` is from `co_positions`.
    """

    file: str
    line: LineNumber
    function: str
    code: str = ""
    exact: bool = False


class Guard(msgspec.Struct, frozen=True):
    """One guard over an unbacked expression that took its fallback, with all its repetitions in the run.

    `method` is the function that called `evaluate_expr`: `guard_or_false`, `guard_or_true`,
    `guard_size_oblivious`, `guard_bool` and others. `counterfactual` compares the fallback with the result of
    size-oblivious semantics for the same expression. `code` is the line of source at the place, empty for C++. `path`
    are the Python frames that lead to a guard to which an experiment gave its value, outermost first.
    """

    place: Place
    method: str
    expression: str
    fallback: bool
    counterfactual: Counterfactual
    function: str = ""
    count: int = 1
    code: str = ""
    path: tuple[Frame, ...] = ()


ConstraintKind: TypeAlias = Literal["assertion", "replacement", "range", "guard"]


class Constraint(msgspec.Struct, frozen=True):
    """An assumption that a capture makes about unbacked symbols, with the stacks of the code that made it, as
    in `RaisedError`.

    `text` is the condition of an assertion (`Eq(u0, 3)`), `u0 = 3` for a replacement, `u0 >= 2` or `u0 <= 5`
    for a range. `follows` is the assertion that torch derived a replacement or range from, empty if there is
    none. `message` is the constant message that the user's `torch._check` gives to an assertion. `origins` are the
    ops that made its symbols, `input` for those of inputs.
    """

    kind: ConstraintKind
    text: str
    method: str
    place: Place
    python: tuple[Frame, ...] = ()
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()
    follows: str = ""
    message: str = ""
    origins: tuple[str, ...] = ()


class SymbolOrigin(msgspec.Struct, frozen=True):
    """The op that made an unbacked symbol of the failing expression, and the user's line that called it.

    `source` is the dim of an input (`dim 1 of ids`), if that is where the size comes from.
    """

    symbol: str
    op: str
    frame: Frame | None = None
    source: str = ""


class RaisedError(msgspec.Struct, frozen=True):
    """The data-dependent error in the chain of the final failure, as the hooks saw it.

    It has three stacks, which are never interleaved, each outermost first. `python` is the real interpreter
    stack without the hooks' own frames. `traced` is the user's stack that dynamo was interpreting; it is empty
    in eager tracing. `native` has the C++ frames as the symbolizer prints them, if C++ evaluated the guard
    (itself, or through Python that runs for it).

    `header_line` is the source line at a C++ place, if torch ships that header (`return
    sym_eq(o).guard_bool(__FILE__, __LINE__);`). It names the operator where the compiler has inlined it, so
    that no frame does. `module` is the path of the innermost nn.Module in the model (`encoder.layers.0`).
    """

    expression: str
    method: str
    place: Place
    python: tuple[Frame, ...]
    traced: tuple[Frame, ...] = ()
    native: tuple[Frame, ...] = ()
    symbols: tuple[SymbolOrigin, ...] = ()
    withheld: bool = False
    header_line: str = msgspec.field(default="", name="asked")
    module: str = ""
    variables: tuple[tuple[str, str], ...] = ()


class AnsweredGuard(msgspec.Struct, frozen=True):
    """An undecided guard that was answered so that the capture continued: the value, and the stacks of its error."""

    raised: RaisedError
    value: bool | int | float
