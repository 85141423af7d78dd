"""The records of `ddefuzz cost`: the versions of a program, what is measured of each, and the questions that decide."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median, quantiles
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ddefuzz.artifacts.model import Cause
from ddefuzz.cost.sampling import Fit, FunctionGrowth
from ddefuzz.execute.protocol import Outcome, Subject

VersionName: TypeAlias = Literal["static", "backed", "unbacked", "hints", "shape-id", "bounds"]

VERSIONS: Final[Mapping[VersionName, str]] = MappingProxyType(
    {
        "static": "all sizes are numbers: a graph for each size",
        "backed": "dynamic, and torch knows the sizes of the example (maybe_mark_dynamic)",
        "unbacked": "mark_unbacked",
        "hints": "mark_unbacked(hint_override=the size of the example)",
        "shape-id": "mark_unbacked(shape_id=…): dims of one size are one symbol",
        "bounds": "mark_unbacked(min=2, max=twice the size of the example)",
    }
)
"""How the same sizes are told to torch.compile, and what each is."""

SIZES: Final[Mapping[str, float]] = MappingProxyType({"half": 0.5, "example": 1.0, "twice": 2.0})
"""The sizes of calls, by name: what the dynamic dims of the example are multiplied by."""

QuestionKind: TypeAlias = Literal["guard", "known", "hint", "unbacked"]

QUESTION_KINDS: Final[Mapping[QuestionKind, str]] = MappingProxyType(
    {
        "guard": "an undecided guard, which took its fallback",
        "known": "whether something is known of the sizes for sure: statically_known_true and others",
        "unbacked": "whether an expression has unbacked symbols: free_unbacked_symbols",
        "hint": "a number to estimate with: optimization_hint",
    }
)


class Question(msgspec.Struct, frozen=True):
    """A question about unbacked sizes at a line of torch's source, while a program is compiled.

    `expression` is what was asked first, `answer` what torch answered, and `wish` what it answers for sizes of the
    example that it knows. `count` is how often it was asked.
    """

    kind: QuestionKind
    file: str
    line: int
    function: str
    expression: str
    answer: str
    wish: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.expression} at {self.file}:{self.line} {self.function}"


class Code(msgspec.Struct, frozen=True):
    """What inductor generates: calls of its own kernels, of libraries and of eager ops, loops over memory, and lines
    with vector instructions. `guards` are dynamo's guards over sizes, `assertions` those of the generated code.
    """

    generated: int
    library: int
    fallback: int
    passes: int
    vector_lines: int
    guards: int
    assertions: int

    @property
    def calls(self) -> int:
        """All calls of kernels."""
        return self.generated + self.library + self.fallback

    @property
    def work(self) -> tuple[int, int, int]:
        """What makes one code slower than another, to compare: less is better."""
        return self.fallback, self.calls, self.passes

    def differs(self, other: Code) -> bool:
        """Whether it calls or loops otherwise than other code does."""
        return (self.work, bool(self.vector_lines)) != (other.work, bool(other.vector_lines))


class Look(msgspec.Struct, frozen=True):
    """How a version compiles until the C++ compiler. `reason` says why there is no code, `failure` where it failed."""

    version: VersionName
    outcome: Outcome
    reason: str = ""
    failure: Cause | None = None
    code: Code | None = None
    questions: tuple[Question, ...] = ()


class Timing(msgspec.Struct, frozen=True):
    """The times of a version. `first_seconds` are CPU seconds of the first call, `compiler_seconds` those in it of the
    C++ compiler, and `phases` the seconds of torch's phases by the clock. `rounds` are microseconds of CPU time of a
    call, by the name of the size and round. `error` says why it does not compile, `errors` why there is no time at a
    size.
    """

    version: str
    first_seconds: float | None = None
    compiler_seconds: float | None = None
    phases: dict[str, float] = {}
    rounds: dict[str, tuple[float, ...]] = {}
    error: str = ""
    errors: dict[str, str] = {}


class QuestionEffect(msgspec.Struct, frozen=True):
    """Questions answered as for sizes that torch knows; all of them are needed. The code then, and in rounds that are
    measured side by side the times of a call with these answers, without them, and of the backed version.
    """

    questions: tuple[Question, ...]
    code: Code
    answered: tuple[float, ...] = ()
    unanswered: tuple[float, ...] = ()
    backed: tuple[float, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """The times without the answer over those with it, by round; none if one of them was not measured."""
        if not (self.answered and self.unanswered):
            return ()
        return tuple(before / after for before, after in zip(self.unanswered, self.answered, strict=True))

    @property
    def recovered(self) -> float | None:
        """The part of the difference between unbacked and backed that the answer takes away, as medians.

        None if nothing was measured, or if the unbacked version is not slower by a twentieth.
        """
        if not (self.answered and self.unanswered and self.backed):
            return None
        before, after, best = median(self.unanswered), median(self.answered), median(self.backed)
        return None if before < 1.05 * best else (before - after) / (before - best)


class ExportTask(msgspec.Struct, frozen=True):
    """Export a subject, and more and more blocks of it, within the budget in CPU seconds."""

    subject: Subject
    budget: float
    speedscope: bool = False


class Evaluation(msgspec.Struct, frozen=True):
    """An expression, or a function that evaluates: how often, and how often again with the same answer."""

    what: str
    count: int
    repeated: int = 0


class ExportCost(msgspec.Struct, frozen=True):
    """What torch.export spends on shapes: CPU seconds of an export, calls of each method of shape reasoning, and what
    is evaluated where. `blocks` are the CPU seconds of exports of so many blocks of the program, which get the results
    of the block before if they are `chained`. `growing` are the functions that grow most.
    """

    seconds: float = 0.0
    calls: dict[str, int] = {}
    expressions: tuple[Evaluation, ...] = ()
    sites: tuple[Evaluation, ...] = ()
    chained: bool = False
    blocks: tuple[tuple[int, float], ...] = ()
    fit: Fit | None = None
    growing: tuple[FunctionGrowth, ...] = ()
    speedscope: dict[str, Any] = {}
    error: str = ""


class Cost(msgspec.Struct, frozen=True):
    """What unbacked sizes cost a program. `tried` questions were answered otherwise, of `asked`; `decided` are those
    whose answer changes the code. `notes` say what was not measured. `interrupted` says that it is not all. `program`
    is the text of a program, none of the user's own code.
    """

    case: str
    torch: str
    looks: tuple[Look, ...] = ()
    timings: tuple[Timing, ...] = ()
    decided: tuple[QuestionEffect, ...] = ()
    asked: int = 0
    tried: int = 0
    export: ExportCost | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    program: str = ""
    schema: Literal["ddefuzz.cost/1"] = "ddefuzz.cost/1"

    @property
    def measured(self) -> VersionName:
        """The version that says what unbacked sizes cost: with bounds where it does not compile without them."""
        unbacked, bounds = self.look("unbacked"), self.look("bounds")
        only_bounds = unbacked is not None and unbacked.code is None and bounds is not None and bounds.code is not None
        return "bounds" if only_bounds else "unbacked"

    def look(self, version: str) -> Look | None:
        """What was seen of a version."""
        return next((one for one in self.looks if one.version == version), None)

    def timing(self, version: str) -> Timing | None:
        """The times of a version."""
        return next((one for one in self.timings if one.version == version), None)

    def ratios(self, version: str, over: str, size: str) -> tuple[float, ...]:
        """The times of a call of a version over those of another one, round by round."""
        timing, other = self.timing(version), self.timing(over)
        if timing is None or other is None:
            return ()
        pairs = zip(timing.rounds.get(size, ()), other.rounds.get(size, ()), strict=False)
        return tuple(first / second for first, second in pairs)


class DrawTask(msgspec.Struct, frozen=True):
    """Draw programs of so many ops, and so many programs of the generator: `with_dims`, of those that have a symbol."""

    ops: int
    draws: int
    seed: int
    with_dims: bool = True


class LookTask(msgspec.Struct, frozen=True):
    """Compile a version until the C++ compiler, with these questions answered as for known sizes, and of all that it
    asks those `left` not. The dynamic dims are `scale` times as large as in the example.
    """

    subject: Subject
    scale: int
    version: VersionName
    answered: tuple[Question, ...] = ()
    left: tuple[Question, ...] = ()


class TimeTask(msgspec.Struct, frozen=True):
    """Compile the versions, and measure calls of all in turn: at each of `sizes`, in so many rounds. With `answered`,
    the last version is measured once more with these answers, and those `left` not, under the name `answered`.
    """

    subject: Subject
    scale: int
    versions: tuple[VersionName, ...]
    rounds: int
    sizes: tuple[str, ...] = tuple(SIZES)
    answered: tuple[Question, ...] = ()
    left: tuple[Question, ...] = ()


def shown_ratio(ratios: tuple[float, ...]) -> str:
    """The median with the quartiles; `-` for none.

    >>> shown_ratio((1.0, 1.5, 2.0))
    '1.50 (1.25 to 1.75)'
    """
    if not ratios:
        return "-"
    low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (ratios[0],) * 3
    return f"{median(ratios):.2f} ({low:.2f} to {high:.2f})"
