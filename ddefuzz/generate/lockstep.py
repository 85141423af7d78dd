"""A program under construction. Each step runs at two data sizes as it is added.

A value that differs between the two runs is data-dependent. So no shape rules are needed to know which sizes will
be unbacked in a capture. A step that raises or warns in either run is not added.
"""

from __future__ import annotations

import warnings
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

import torch
from hypothesis import strategies as st

from ddefuzz.errors import UnsupportedError
from ddefuzz.program.evaluate import evaluate, materialize_input
from ddefuzz.program.expressions import print_expression
from ddefuzz.program.model import Dim, Expr, Index, Input, Literal, Name, Program, Recipe, Sequence, Step, names_in
from ddefuzz.program.sizes import DataSize, at_data_size

T = TypeVar("T")

WORD_BITS: Final = 192
WORDS: Final = st.integers(0, 2**WORD_BITS - 1)
"""One attempt at a step is one draw, so a mutated byte redraws that step and leaves the others their choices.

It also keeps Hypothesis's cost of a draw (20 µs) off the small decisions.
"""


class Choices:
    """The mixed-radix digits of an integer (a word), least significant first. After the last, every digit is 0."""

    __slots__ = ("_word",)

    def __init__(self, word: int) -> None:
        self._word = word

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        self._word, digit = divmod(self._word, n)
        return digit

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def pick(self, options: abc.Sequence[T]) -> T:
        """One of `options`, which must not be empty."""
        return options[self.below(len(options))]

    def one_in(self, n: int) -> bool:
        """True with probability 1/`n`. False when the digits are used up."""
        return self.below(n) == n - 1


@contextmanager
def strict_eager() -> Iterator[None]:
    """Turn warnings into errors, and make torch repeat each of them, not once per process.

    So whether a step is dropped does not depend on what ran before. A warning that C++ gives before it raises
    cannot become an error. torch prints it (`PyWarningHandler` in torch/csrc/Exceptions.cpp), and it is
    discarded here. What torch says of itself when a module of it is loaded is no warning about a step.
    """
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with _one_thread(), warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
            yield
    finally:
        torch.set_warn_always(always)


@contextmanager
def tolerant_eager() -> Iterator[None]:
    """Ignore warnings. They do not make a program invalid at a data size that it was not drawn at."""
    with _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread. Starting a thread pool for a small convolution costs milliseconds on a busy machine."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


MAX_NUMEL: Final = 4_096
MAX_RANK: Final = 5
MAX_INT: Final = 1_024
MAX_PARTS: Final = 32
MAX_UNPACKED: Final = 3

Journal: TypeAlias = Callable[[str], None]

REFUSALS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    Warning,
    UnsupportedError,
)
"""What torch raises for a call that does not fit, and `resolve` for one that this torch does not have."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A value that steps may use: its expression, its value at the example size and at the other data size."""

    expr: Expr
    left: Any
    right: Any
    varies: bool
    """Whether data decides the size: the shape of a tensor, the value of an int."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How long a program was at some moment."""

    inputs: int
    steps: int
    tensors: int
    ints: int


class Lockstep:
    """The growing program: its inputs, its steps, and the values that steps may use, newest last."""

    def __init__(self, other_size: DataSize, journal: Journal | None = None) -> None:
        self.inputs: list[Input] = []
        self.steps: list[Step] = []
        self.tensors: list[Handle] = []
        self.ints: list[Handle] = []
        self.other_size: DataSize = other_size
        self._journal = journal
        self._left: dict[str, Any] = {}
        self._right: dict[str, Any] = {}

    def mark(self) -> Mark:
        """The state to return to if the next attempt fails."""
        return Mark(len(self.inputs), len(self.steps), len(self.tensors), len(self.ints))

    def rollback(self, mark: Mark) -> None:
        """Remove everything that was added since. No step changes an earlier value, so nothing else is needed."""
        del self.inputs[mark.inputs :]
        del self.steps[mark.steps :]
        del self.tensors[mark.tensors :]
        del self.ints[mark.ints :]

    @contextmanager
    def function(self, parameters: abc.Mapping[str, Handle], *, alone: bool) -> Iterator[None]:
        """In the block, steps are those of a function: they see its parameters, and what is around it unless `alone`.

        Its steps are removed at the end. Inputs that were added stay.
        """
        mark, tensors, ints = self.mark(), self.tensors, self.ints
        self.tensors, self.ints = ([], []) if alone else ([*tensors], [*ints])
        for name, value in parameters.items():
            self._left[name], self._right[name] = value.left, value.right
            self._offer([handle_of(Name(name), value.left, value.right)])
        try:
            yield
        finally:
            del self.steps[mark.steps :]
            self.tensors, self.ints = tensors, ints
            for item in self.inputs[mark.inputs :]:
                self.tensors.append(handle_of(Name(item.name), self._left[item.name], self._right[item.name]))

    def add_input(
        self,
        dtype: str,
        shape: tuple[Dim, ...],
        recipe: Recipe,
        layout: str = "contiguous",
        requires_grad: bool = False,
    ) -> Handle:
        """Add an input, made at both data sizes."""
        position = len(self.inputs)
        item = Input(f"x{position}", dtype, shape, recipe, layout, requires_grad)
        # The sizes 0, 1 and 2 do not depend on other inputs, so one can be resized by itself.
        (resized,) = at_data_size(Program((item,), (), Literal(None)), self.other_size).inputs
        left = self._left[item.name] = materialize_input(item, position)
        right = left if resized == item else materialize_input(resized, position)
        self._right[item.name] = right
        self.inputs.append(item)
        handle = handle_of(Name(item.name), left, right)
        self.tensors.append(handle)
        return handle

    def fresh_symbols(self) -> Iterator[str]:
        """Symbols that no unbacked dim has yet."""
        taken = {dim.symbol for item in self.inputs for dim in item.shape}
        return (name for name in map("u{}".format, count(len(self.inputs))) if name not in taken)

    def evaluate(self, expr: Expr) -> Handle:
        """The value of `expr` in both runs, without adding anything. Raises what torch raises."""
        return handle_of(expr, *self._run(expr))

    def add_step(self, expr: Expr) -> tuple[Handle, ...] | None:
        """Run a step in both runs and add it with its values. None if it fails.

        The handles are those of the tensors and ints that the step made. There may be none
        (`torch._check(...)`).
        """
        number = len(self.steps)
        try:
            left, right = self._run(expr)
        except REFUSALS:
            return None
        if not _fits(left, right):
            return None
        if left is None:
            self.steps.append(Step((), expr))
            return ()
        is_listed = isinstance(left, tuple | list)
        if is_listed and len(left) == len(right) and 2 <= len(left) <= MAX_UNPACKED:
            targets = tuple(f"{_initial(part)}{number}{'abc'[i]}" for i, part in enumerate(left))
            self.steps.append(Step(targets, expr, unpack=True))
            self._left.update(zip(targets, left, strict=True))
            self._right.update(zip(targets, right, strict=True))
            return self._offer([handle_of(Name(name), self._left[name], self._right[name]) for name in targets])
        name = f"{_initial(left)}{number}"
        self.steps.append(Step((name,), expr))
        self._left[name], self._right[name] = left, right
        if is_listed:
            parts = min(len(left), len(right))
            ends = sorted({0, parts - 1}) if parts else []
            return self._offer([handle_of(Index(Name(name), Literal(i)), left[i], right[i]) for i in ends])
        return self._offer([handle_of(Name(name), left, right)])

    def _run(self, expr: Expr) -> tuple[Any, Any]:
        if self._journal is not None:
            self._journal(f"{len(self.steps)}: {print_expression(expr)}")
        return evaluate(expr, self._left), evaluate(expr, self._right)

    def _offer(self, handles: list[Handle]) -> tuple[Handle, ...]:
        """Make the tensors and ints among `handles` available to later steps."""
        tensors = [handle for handle in handles if isinstance(handle.left, torch.Tensor)]
        ints = [handle for handle in handles if type(handle.left) is int]
        self.tensors += tensors
        self.ints += ints
        return (*tensors, *ints)

    def unused(self) -> frozenset[str]:
        """The targets that no step reads."""
        made = {target for step in self.steps for target in step.targets}
        return frozenset(made.difference(*(names_in(step.value) for step in self.steps)))

    def program(self) -> Program:
        """The program that returns, in order, every value that no step reads. So no step is dead code."""
        unused = self.unused()
        tails = [step for step in self.steps if unused.intersection(step.targets)]
        names = [Name(target) for step in tails for target in step.targets if target in unused]
        returns: Expr = names[0] if len(names) == 1 else Sequence(tuple(names))
        return Program(tuple(self.inputs), tuple(self.steps), returns)


def handle_of(expr: Expr, left: Any, right: Any) -> Handle:
    """The handle of the value of `expr`."""
    varies = left.shape != right.shape if isinstance(left, torch.Tensor) else type(left) is int and left != right
    return Handle(expr, left, right, varies)


def _fits(left: Any, right: Any) -> bool:
    """Whether a value has the same type in both runs and is small."""
    if type(left) is not type(right):
        return False
    match left:
        case torch.Tensor():
            is_strided = type(left) is torch.Tensor and left.layout == torch.strided
            is_small = max(int(left.numel()), int(right.numel())) <= MAX_NUMEL
            is_alike = bool(left.dtype == right.dtype) and int(left.dim()) == int(right.dim()) <= MAX_RANK
            return is_strided and is_small and is_alike
        case tuple() | list():
            parts = min(len(left), len(right))
            return max(len(left), len(right)) <= MAX_PARTS and all(map(_fits, left[:parts], right[:parts]))
        case bool() | float() | None:
            return True
        case int():
            return max(abs(left), abs(int(right))) <= MAX_INT
        case _:
            return False


def _initial(value: Any) -> str:
    """The first letter of a target's name: t(ensor), n(umber), p(arts), r(esult)."""
    if isinstance(value, torch.Tensor):
        return "t"
    if isinstance(value, tuple | list):
        return "p"
    return "n" if type(value) is int else "r"
