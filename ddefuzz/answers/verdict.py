"""From the outcomes of all programs of a site to one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from ddefuzz.answers.model import GIVEN, Given, OfProgram, Row, Tally
from ddefuzz.classify.signature import Verdict
from ddefuzz.program.sizes import CALL_SIZES, CallSize


def tallied(programs: Sequence[OfProgram]) -> tuple[Tally, ...]:
    """One row for each value, over all programs. A row of a program that another guard stops says nothing.

    Inputs that only eager rejects, whether the guard is False or True, do not count: the guard does not check them.

    Clauses are those of the first program. Expressions of other programs have other symbols, so their clauses are
    counted only if they have the same text.
    """
    wanted = dict.fromkeys((row.clause, row.answer) for one in programs[:1] for row in one.rows)
    wanted |= dict.fromkeys((row.clause, row.answer) for one in programs for row in one.rows if not row.clause)
    rows = [row for one in programs for row in _about_the_guard(one)]
    return tuple(_tally(clause, given, rows) for clause, given in wanted)


def unchecked(program: OfProgram) -> frozenset[CallSize]:
    """The sizes of inputs that only eager rejects, whichever value the guard has."""
    whole = [row for row in program.rows if not row.clause and row.answer in {"False", "True"}]
    if not all(row.captures for row in whole):
        return frozenset()
    return frozenset.intersection(*(frozenset(row.accepts) for row in whole)) if whole else frozenset()


def _about_the_guard(program: OfProgram) -> Iterator[Row]:
    not_counted = unchecked(program)
    for row in program.rows:
        accepts = tuple(size for size in row.accepts if size not in not_counted)
        yield msgspec.structs.replace(row, accepts=accepts)


def _tally(clause: str, given: Given, rows: Iterable[Row]) -> Tally:
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
    return tuple(size for size in CALL_SIZES if size in sizes)


def verdict(tallies: Sequence[Tally]) -> Verdict:
    """The verdict over all values: the smallest change that is correct.

    The values of the whole guard come first, then those of Python's whole `a or b`, then those of single clauses.
    """
    groups = [list(group) for _, group in groupby(tallies, key=lambda one: one.clause)]
    for group in groups:
        found = _right(group)
        if found is not None:
            return found
    return _without(groups[0]) if groups else "not a guard"


def _right(rows: Iterable[Tally]) -> Verdict | None:
    by_answer = {row.answer: row for row in rows}
    false, true = by_answer.get("False"), by_answer.get("True")
    asserted = any(by_answer[given].is_right_where_it_holds for given in GIVEN[2:] if given in by_answer)
    if asserted and any(row is not None and row.raises for row in (false, true)):
        return "torch._check here"
    if false is not None and false.is_right:
        return "guard_or_false here"
    if true is not None and true.is_right:
        return "guard_or_true here"
    return "torch._check here" if asserted else None


def _without(rows: list[Tally]) -> Verdict:
    """Why no value is right."""
    if not any(row.captures for row in rows):
        return "no answer captures"
    if not any(row.agrees or row.refuses or row.differs or row.accepts for row in rows):
        return "nothing to compare"
    values = [row for row in rows if row.answer in {"False", "True"}]
    if all(row.is_wrong and not row.follows for row in values):
        return "no answer is right for all sizes"
    return "another guard decides"
