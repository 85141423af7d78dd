"""Records of an experiment on the programs of a site: the values tried for the guard, the outcomes and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Literal, TypeAlias

import msgspec

from ddefuzz.classify.chain import title_of
from ddefuzz.classify.failure import Failure, decisive
from ddefuzz.classify.signature import Site, Verdict
from ddefuzz.execute.protocol import Stage
from ddefuzz.instrument.truth import usual_truth
from ddefuzz.oracles.table import row_of
from ddefuzz.program.sizes import CALL_SIZES, VALUE_CALLS, CallSize


def tallied(programs: Sequence[OfProgram]) -> tuple[Tally, ...]:
    """One row for each value, over all programs. A row of a program that another guard stops says nothing.

    Clauses are those of the first program. Expressions of other programs have other symbols, so their clauses are
    counted only if they have the same text.
    """
    wanted = dict.fromkeys((row.clause, row.answer) for one in programs[:1] for row in one.rows)
    wanted |= dict.fromkeys((row.clause, row.answer) for one in programs for row in one.rows if not row.clause)
    rows = [row for one in programs for row in one.rows]
    return tuple(_tally(clause, given, rows) for clause, given in wanted)


def _tally(clause: str, given: Given, rows: Iterable[GuardOutcome]) -> Tally:
    of_value = [row for row in rows if (row.clause, row.answer) == (clause, given)]
    telling = [row for row in of_value if row.captures or row.raises]
    wrong = {
        name: frozenset(size for row in telling for size in getattr(row, name))
        for name in ("refuses", "differs", "accepts")
    }
    agrees = frozenset(size for row in telling for size in row.agrees).difference(*wrong.values())
    return Tally(
        answer=given,
        programs=len(telling),
        captures=sum(row.captures for row in telling),
        raises=sum(row.raises for row in telling),
        follows=sum(row.captures and bool(row.then) for row in telling),
        clause=clause,
        agrees=_sorted(agrees),
        **{name: _sorted(sizes) for name, sizes in wrong.items()},
    )


def _sorted(sizes: frozenset[CallSize]) -> tuple[CallSize, ...]:
    known = (*CALL_SIZES, *VALUE_CALLS)
    return tuple(sorted(sizes, key=lambda size: (known.index(size) if size in known else len(CALL_SIZES), size)))


def verdict(tallies: Sequence[Tally]) -> Verdict:
    """The verdict over all values: the smallest change that is correct.

    The values of the whole guard come first, then those of Python's whole `a or b`, then those of single clauses.
    """
    groups = [_of_the_guard(list(group)) for _, group in groupby(tallies, key=lambda one: one.clause)]
    for group in groups:
        right = _right(group)
        if right is not None:
            return right
    return _without(groups[0]) if groups else "not a guard"


def _of_the_guard(rows: list[Tally]) -> list[Tally]:
    """The rows without the sizes that are refused whatever is answered.

    At each size one of the two answers is the guard's own truth there. Where that one is refused, too, something else
    refuses the size: not the answer of another guard, if none was given.
    """
    values = [row for row in rows if row.answer in {"False", "True"} and row.captures]
    if len(values) < 2 or any(row.follows for row in values):
        return rows
    shared = frozenset.intersection(*(frozenset(row.refuses) for row in values))
    kept = [tuple(size for size in row.refuses if size not in shared) for row in rows]
    return [msgspec.structs.replace(row, refuses=refuses) for row, refuses in zip(rows, kept, strict=True)]


def _right(rows: Iterable[Tally]) -> Verdict | None:
    by_answer = {row.answer: row for row in rows}
    false, true = by_answer.get("False"), by_answer.get("True")
    asserted = any(by_answer[given].is_right for given in GIVEN[2:] if given in by_answer)
    if asserted and any(row is not None and row.raises for row in (false, true)):
        return "torch._check here"
    right = (false is not None and false.is_right, true is not None and true.is_right)
    match right:
        case (True, True) if false is not None and true is not None:
            # Where an answer agrees at fewer sizes, nothing was compared at the others.
            if {*true.agrees} < {*false.agrees}:
                return "guard_or_false here"
            return "guard_or_true here" if {*false.agrees} < {*true.agrees} else "either answer here"
        case (True, False):
            return "guard_or_false here"
        case (False, True):
            return "guard_or_true here"
    return "torch._check here" if asserted else None


def _without(rows: list[Tally]) -> Verdict:
    if not any(row.captures for row in rows):
        return "no answer captures"
    if not any(row.telling or row.refuses or row.differs or row.accepts for row in rows):
        return "nothing to compare"
    values = [row for row in rows if row.answer in {"False", "True"}]
    if all(row.is_wrong and not row.follows for row in values):
        return "no answer is right for all sizes"
    return "another guard decides"


ControlOutcome: TypeAlias = Literal["passes", "fails", "fails otherwise", "not judged"]
"""`fails` is with the program's own failure. `not judged`: there is no such variant, or it could not be run."""


class Control(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcomes if no size depends on data: with all sizes static, and with dynamic, backed sizes."""

    static: ControlOutcome
    backed: ControlOutcome

    @property
    def is_empty(self) -> bool:
        """Whether nothing was judged."""
        return self == NOT_JUDGED

    def sentence(self, *, is_failed_capture: bool) -> str:
        """Both outcomes in words, for a program that is not captured, or whose captured program is wrong."""
        if is_failed_capture:
            passes, fails = "is captured", "fails in the same way"
        else:
            passes, fails = "does not show this", "shows this, too"
        words = {"passes": passes, "fails": fails, "not judged": "was not judged"}
        words["fails otherwise"] = "fails in another way"
        static, backed = (words.get(outcome, outcome) for outcome in (self.static, self.backed))
        return f"With all sizes static the same program {static}; with backed dynamic sizes it {backed}."


NOT_JUDGED = Control("not judged", "not judged")

EXCEPTIONS_ABOUT_DATA = frozenset({"DataDependentOutputException", "DynamicOutputShapeException"})
"""Exceptions of FakeTensorMode for an output (`aten::equal`) or its shape (`aten::nonzero`) that depends on data."""

_TITLE_ABOUT_DATA = re.compile(r"\AData.dependent\b|data-dependent output shape\Z|\ADynamic shape operator\Z")
"""Titles of dynamo's graph breaks: `Data-dependent branching`, `Data dependent operator`, `Dynamic shape operator` …"""


def data_dependent(shown: Failure, control: Control | None) -> bool | None:
    """Whether the failure that the program shows depends on data; None if it is not known.

    If the program fails with static or backed sizes too, it does not, unless torch itself states that it
    depends on data.
    """
    _, exception = decisive(shown.observation)
    if row_of(shown.kind).about_data or exception.name in EXCEPTIONS_ABOUT_DATA:
        return True
    if shown.kind == "unsupported" and _TITLE_ABOUT_DATA.search(title_of(exception)):
        return True
    if control is None or control == NOT_JUDGED:
        return None
    return "fails" not in (control.static, control.backed)


Given: TypeAlias = Literal["False", "True", "assert", "assert not"]
"""The values that are tried. `assert` defers the guard to a run-time assertion that it is true, `assert not` that it
is false. The last is tried only if the op raises its own error for a guard that is true."""

GIVEN: tuple[Given, ...] = ("False", "True", "assert", "assert not")

RIGHT: frozenset[Verdict] = frozenset(
    {"guard_or_false here", "guard_or_true here", "either answer here", "torch._check here"}
)
"""The verdicts that name a change that is correct."""

_FORMS: Mapping[Verdict, tuple[str, ...]] = {
    "guard_or_false here": ("guard_or",),
    "guard_or_true here": ("guard_or",),
    "either answer here": ("guard_or",),
    "torch._check here": ("torch._check",),
    "no answer is right for all sizes": ("torch._check", "a symbolic form"),
}
"""How the form of a patch begins that does what a verdict says. A guard may have the opposite truth of its code."""


class GuardOutcome(msgspec.Struct, frozen=True):
    """One value and its outcome for one program.

    `clause` is the clause of the guard, or of Python's `a or b`, that has the value; empty for the whole guard.
    `then` are further guards that had to be given a value, each with that value. `captures` says whether the
    program was captured; if not, `stopped` says why. Of the sizes that eager accepts, the captured program
    agrees at `agrees`, rejects `refuses`, and computes something else at `differs`. `accepts` are sizes that
    only eager rejects, so an assertion is missing. Sizes that it rejects by PyTorch's rule for broadcasting
    (`oracles.conditions.accepted`) are left out. `raises` says that an error of the program's own op, or a
    crash, stopped the capture, not another guard.
    """

    site: Site
    answer: Given
    captures: bool
    agrees: tuple[CallSize, ...] = ()
    refuses: tuple[CallSize, ...] = ()
    differs: tuple[CallSize, ...] = ()
    accepts: tuple[CallSize, ...] = ()
    then: tuple[str, ...] = ()
    stopped: str = ""
    raises: bool = False
    clause: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it captures, and agrees wherever eager returns."""
        return self.is_right_where_it_holds and not self.refuses

    @property
    def is_right_where_it_holds(self) -> bool:
        """Whether it captures, and agrees wherever it does not reject the inputs."""
        return self.captures and bool(self.agrees) and not self.differs and not self.accepts

    @property
    def is_wrong(self) -> bool:
        """Whether what is captured is wrong at some size, or the op itself fails."""
        return self.raises or bool(self.differs or self.accepts or self.refuses)


class OfProgram(msgspec.Struct, frozen=True):
    """The outcomes for the first undecided guard of one program."""

    name: str
    expression: str
    rows: tuple[GuardOutcome, ...]
    verdict: Verdict


class Tally(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One value and its outcomes for all programs of a site.

    `programs` is the number of programs for which it says something, `captures` and `raises` count programs.
    `follows` counts the programs that were captured only after another guard was given a value. The sizes
    are those of any program; a size at which one program does not agree is not in `agrees`.
    """

    answer: Given
    programs: int
    captures: int
    raises: int = 0
    follows: int = 0
    clause: str = ""
    agrees: tuple[CallSize, ...] = ()
    refuses: tuple[CallSize, ...] = ()
    differs: tuple[CallSize, ...] = ()
    accepts: tuple[CallSize, ...] = ()

    @property
    def telling(self) -> frozenset[CallSize]:
        """The sizes other than 0 and 1 at which it agrees: at those two, most ways to compute something agree."""
        return frozenset(self.agrees) - {"0", "1"}

    @property
    def is_right(self) -> bool:
        """Whether it is right for every program for which it says something."""
        return self.is_right_where_it_holds and not self.refuses and not self.raises

    @property
    def is_right_where_it_holds(self) -> bool:
        """The same, where the captured program does not reject the inputs."""
        return bool(self.captures and self.telling) and not self.differs and not self.accepts

    @property
    def is_wrong(self) -> bool:
        """Whether it is wrong for some program."""
        return bool(self.raises or self.differs or self.accepts or self.refuses)


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The programs that evaluate a branch, with a patch of it.

    Captured programs `agree` with eager at every size, or `differ` from it (or accept or refuse other inputs) at
    some. `stopped` are not captured, because of something else. `same` programs do the same in eager with and
    without the patch, `changed` do not.
    """

    agree: int = 0
    differ: int = 0
    stopped: int = 0
    same: int = 0
    changed: int = 0

    @property
    def programs(self) -> int:
        """How many programs evaluate the branch."""
        return self.agree + self.differ + self.stopped

    def __str__(self) -> str:
        if not self.programs:
            return "none evaluates the branch"
        parts = [f"{self.agree} of {self.programs} pass and agree"]
        others = ((self.differ, "differ"), (self.stopped, "fail elsewhere"))
        parts += [f"{number} {what}" for number, what in others if number]
        eager = f"eager does the same in {self.same} of {self.same + self.changed}"
        return f"{', '.join(parts)}; {eager}"


class PatchEvidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The patch that was tried: what the branch becomes, with the results of the kept programs and torch's samples."""

    form: str
    code: str
    kept: Score
    samples: Score

    @property
    def is_right(self) -> bool:
        """Whether nothing differs with it."""
        return not any(score.differ or score.changed for score in (self.kept, self.samples))


def is_of_unusual_sizes(form: str, code: str, expression: str) -> bool:
    """Whether a patch gives a guard the answer that is its truth at unusual sizes alone. The truth of a comparison of
    tuples need not be that of its guard.
    """
    usual = usual_truth(expression) if "sym_eq" not in code else None
    return usual is not None and form == f"guard_or_{str(not usual).lower()}"


class Answers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The evidence that a finding keeps of its experiment. `programs` is the number of its programs."""

    verdict: Verdict
    stage: Stage
    torch: str
    programs: int
    tallies: tuple[Tally, ...] = ()
    patch: PatchEvidence | None = None

    def fitting_patch(self, expression: str) -> PatchEvidence | None:
        """The patch, if nothing differs with it and it does what the verdict says of the guard's expression.

        A guard that checks arguments gets no answer, although programs with right arguments agree with one. Of two
        right answers, it gets that of usual sizes.
        """
        patch = self.patch
        if patch is None or not patch.is_right or not patch.form.startswith(_FORMS.get(self.verdict, ())):
            return None
        is_rare = self.verdict == "either answer here" and is_of_unusual_sizes(patch.form, patch.code, expression)
        return None if is_rare else patch

    @property
    def extent(self) -> str:
        """With how much the verdict was tried: programs, sizes of a call, kinds of values."""
        calls = {call for row in self.tallies for call in (*row.agrees, *row.refuses, *row.differs, *row.accepts)}
        values = 1 + len(calls.intersection(VALUE_CALLS))
        numbers = {"program": self.programs, "size": len(calls.difference(VALUE_CALLS)), "kind": values}
        return ", ".join(f"{number} {noun}" + "s" * (number != 1) for noun, number in numbers.items()) + " of values"


class Experiment(msgspec.Struct, frozen=True):
    """The outcomes for the programs of one site.

    `expression` is that of the first program. `line` and `code` are the line and the code of Python that evaluates it.
    """

    stage: Stage
    site: Site | None
    expression: str
    line: int
    code: str
    programs: tuple[OfProgram, ...]
    tallies: tuple[Tally, ...]
    verdict: Verdict
