"""The experiment: captures programs with each value of an undecided guard, and calls the result at all sizes.

Running is a function (`Runner`), so the tests of the verdicts need no torch. A run may crash torch: a forced value
has led C++ to divide by zero. So the runner should use processes that may die.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from ddefuzz.answers.model import GIVEN, Experiment, Given, OfProgram, Row, tallied, verdict
from ddefuzz.answers.patch import clauses, located, source_of
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.evidence import NUMBER_METHODS
from ddefuzz.classify.signature import Signature, Site, Verdict
from ddefuzz.classify.site import site as site_of
from ddefuzz.execute.calls import Call
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Runner, Semantics, Stage, Subject
from ddefuzz.instrument.events import Answer, Raised
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.oracles.conditions import accepted
from ddefuzz.program.sizes import CALL_SIZES, CallSize


class Conjunction(NamedTuple):
    """`a or b`, or `a and b`. `text` is the whole, as `ast.unparse` prints it."""

    is_or: bool
    text: str
    clauses: tuple[str, ...]

    def clause_of(self, raised: Raised) -> str:
        """The clause that a guard belongs to; empty if it belongs to none."""
        try:
            anchor = python_anchor(site_of(raised)[1])
        except ValueError:
            return ""
        return anchor if anchor in self.clauses else ""


def in_expression(text: str) -> Conjunction | None:
    """The clauses of an expression as sympy prints it: `Eq(u0, 1) | (u1 > 2)`."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    match tree:
        case ast.BinOp(_, ast.BitOr() | ast.BitAnd() as operator, _):
            parts = _operands(tree, type(operator))
            return Conjunction(isinstance(operator, ast.BitOr), text, tuple(_text(text, part) for part in parts))
        case ast.Call(ast.Name("And" | "Or" as name), args) if len(args) > 1:
            return Conjunction(name == "Or", text, tuple(_text(text, part) for part in args))
        case _:
            return None


def in_python(raised: Raised, site: Site) -> Conjunction | None:
    """The `and` or `or` of torch's source that has the guard as a clause."""
    if site.language != "Python" or site.module is None:
        return None
    frame = site_of(raised)[1]
    source = source_of(site.module)
    if source is None or frame.file != site.module:
        return None
    node = located(source, frame.line, python_anchor(frame))
    around = None if node is None else clauses(source, node)
    if around is None:
        return None
    parts = tuple(ast.unparse(value) for value in around.values)
    return Conjunction(isinstance(around.op, ast.Or), ast.unparse(around), parts)


def _operands(tree: ast.expr, operator: type[ast.operator]) -> list[ast.expr]:
    match tree:
        case ast.BinOp(left, op, right) if isinstance(op, operator):
            return [*_operands(left, operator), *_operands(right, operator)]
        case _:
            return [tree]


def _text(text: str, node: ast.expr) -> str:
    return ast.get_source_segment(text, node) or ast.unparse(node)


VALUES: dict[Given, bool | None] = {"False": False, "True": True, "assert": None, "assert not": None}

DEEPEST = 3
"""How many guards in a row are given a value, the first one included."""


class Asked(NamedTuple):
    """A program to experiment with, and its name in the results."""

    name: str
    subject: Subject


class _Undecided(NamedTuple):
    """The program, its stage and its first undecided guard."""

    subject: Subject
    stage: Stage
    site: Site
    raised: Raised
    runner: Runner

    def run(self, answers: tuple[Answer, ...]) -> Observation:
        """Capture with these answers and call what was captured."""
        sizes = CALL_SIZES if isinstance(self.subject, ProgramSubject) else CALL_SIZES[:1]
        return self.runner(Run(self.subject, self.stage, Semantics(answers=answers), calls=sizes))


def experiment(programs: Iterable[Asked], stage: Stage, runner: Runner) -> Experiment:
    """Try each value of the first undecided guard of the first program, with it and all others that evaluate it."""
    signature: Signature | None = None
    first: Raised | None = None
    done: list[OfProgram] = []
    for asked in programs:
        found = first_guard(asked.subject, stage, runner)
        if first is None:
            if found is None:
                break
            signature, first = found
        if signature is not None and found is not None and found[0] == signature:
            done.append(_of_program(asked, stage, signature.site, found[1], runner))
            if done[0].verdict == "needs SymInt":
                break
    if signature is None or first is None:
        return Experiment(stage, None, "", 0, "", (), (), "not a guard")
    frame = site_of(first)[1]
    tallies = tallied(done)
    said: Verdict = "needs SymInt" if done[0].verdict == "needs SymInt" else verdict(tallies)
    return Experiment(
        stage, signature.site, first.expression, frame.line, python_anchor(frame), tuple(done), tallies, said
    )


def first_guard(subject: Subject, stage: Stage, runner: Runner) -> tuple[Signature, Raised] | None:
    """The signature and the guard by which a program fails; None if it does not fail by an undecided guard."""
    observation = runner(Run(subject, stage))
    failures = judge([observation])
    if not failures or failures[0].kind != "dde" or observation.raised is None:
        return None
    return classify(failures[0]).signature, observation.raised


def _of_program(asked: Asked, stage: Stage, site: Site, raised: Raised, runner: Runner) -> OfProgram:
    if raised.method in NUMBER_METHODS:
        return OfProgram(asked.name, raised.expression, (), "needs SymInt")
    guard = _Undecided(asked.subject, stage, site, raised, runner)
    rows = _rows(guard)
    parts = in_expression(raised.expression)
    if parts is not None:
        for clause in parts.clauses:
            rows += _rows(guard, clause)
    else:
        around = in_python(raised, site)
        if around is not None:
            rows += _in_python(guard, around)
    of_program = OfProgram(asked.name, raised.expression, tuple(rows), "not a guard")
    return OfProgram(asked.name, raised.expression, tuple(rows), verdict(tallied([of_program])))


def _rows(guard: _Undecided, clause: str = "") -> list[Row]:
    """A row for each value of the guard, or of one clause of its expression."""
    rows: list[Row] = []
    for given in GIVEN:
        if given != "assert not" or rows[1].raises:
            rows.append(_best(guard, given, (_answer(guard.raised, given, clause=clause),), clause))
    return rows


def _in_python(guard: _Undecided, around: Conjunction) -> list[Row]:
    """Rows for Python's `a or b`: for all undecided clauses at once, and for each but the first.

    The guard of the first clause is that of the program, so it has rows already.
    """
    neutral: Given = "False" if around.is_or else "True"
    undecided = [guard.raised]
    whole, seen = _together(guard, around, neutral, undecided)
    if len(undecided) == 1:
        return []
    rows = [_row(guard, neutral, whole, seen, around.text)]
    asserted = tuple(_answer(one, neutral if around.is_or else "assert", held=around.is_or) for one in undecided[:-1])
    last = _answer(undecided[-1], "assert")
    rows.append(_best(guard, "assert", (*asserted, last), around.text))
    for number, one in enumerate(undecided[1:], start=1):
        before = tuple(_answer(other, neutral) for other in undecided[:number])
        text = around.clause_of(one)
        rows += [_best(guard, given, (*before, _answer(one, given)), text) for given in GIVEN[:3]]
    return rows


def _together(
    guard: _Undecided, around: Conjunction, given: Given, undecided: list[Raised]
) -> tuple[tuple[Answer, ...], Observation]:
    """Give each clause the same value as it comes up. Those that come up are added to `undecided`."""
    answers: tuple[Answer, ...] = (_answer(undecided[0], given),)
    while True:
        seen = guard.run(answers)
        follows = seen.raised
        if follows is None or len(undecided) == len(around.clauses) or not around.clause_of(follows):
            return answers, seen
        if any((one.place, one.expression) == (follows.place, follows.expression) for one in undecided):
            return answers, seen
        undecided.append(follows)
        answers = (*answers, _answer(follows, given))


def _best(guard: _Undecided, given: Given, answers: tuple[Answer, ...], clause: str) -> Row:
    """The best outcome of one value. If another undecided guard follows, both of its values are tried."""
    best: Row | None = None
    for found in _outcomes(guard, given, answers, (), clause):
        if best is None or _rank(found) > _rank(best):
            best = found
        if best.is_right:
            break
    assert best is not None
    return best


def _outcomes(
    guard: _Undecided, given: Given, answers: tuple[Answer, ...], then: tuple[str, ...], clause: str
) -> list[Row]:
    seen = guard.run(answers)
    row = _row(guard, given, answers, seen, clause, then)
    follows = seen.raised
    known = {(one.place, one.expression) for one in answers}
    if (
        row.captures
        or follows is None
        or follows.method in NUMBER_METHODS
        or len(then) + 1 >= DEEPEST
        or (follows.place, follows.expression) in known
    ):
        return [row]
    rows: list[Row] = []
    values: tuple[Given, ...] = ("False", "True")
    for value in values:
        more = (*answers, _answer(follows, value))
        rows += _outcomes(guard, given, more, (*then, f"{follows.expression} is {value}"), clause)
        if rows[-1].is_right:
            break
    return rows


def _answer(raised: Raised, given: Given, *, clause: str = "", held: bool = False) -> Answer:
    return Answer(raised.place, VALUES[given], raised.expression, clause, given == "assert not", held)


def _row(
    guard: _Undecided,
    given: Given,
    answers: tuple[Answer, ...],
    seen: Observation,
    clause: str = "",
    then: tuple[str, ...] = (),
) -> Row:
    if seen.outcome != "ok":
        return Row(
            guard.site,
            given,
            captures=False,
            then=then,
            stopped=_stopped(seen),
            raises=seen.raised is None and seen.outcome in {"fail", "crash"},
            clause=clause,
        )
    sizes: dict[str, list[CallSize]] = {"agrees": [], "refuses": [], "differs": [], "accepts": [], "": []}
    for call in seen.calls:
        sizes[ends(call)].append(call.size)
    return Row(
        guard.site,
        given,
        captures=True,
        agrees=tuple(sizes["agrees"]),
        refuses=tuple(sizes["refuses"]),
        differs=tuple(sizes["differs"]),
        accepts=tuple(sizes["accepts"]),
        then=then,
        clause=clause,
    )


def ends(call: Call) -> str:
    """The field of a row that a call belongs to.

    Empty if eager and the captured program both reject it, or if the latter does by PyTorch's rule for broadcasting.
    """
    if not call.eager.returned:
        return "accepts" if call.captured.returned else ""
    if not call.captured.returned:
        return "" if accepted(call) else "refuses"
    return "differs" if call.agreement == "differs" else "agrees"


def _stopped(seen: Observation) -> str:
    """What ended a capture, in one line."""
    if seen.raised is not None:
        failures = judge([seen])
        site = classify(failures[0]).signature.site if failures else "an unknown place"
        return f"{seen.raised.expression} at {site}"
    if seen.exceptions:
        return f"{seen.exceptions[-1].name}: {seen.exceptions[-1].message.strip().partition(chr(10))[0][:200]}"
    return seen.reason or seen.outcome


def _rank(row: Row) -> tuple[bool, bool, int, int, int]:
    """Sort key: correct outcomes first, then those that differ and reject least, with the fewest forced guards."""
    wrong = len(row.differs) + len(row.accepts)
    return (row.is_right, row.captures, -wrong, -len(row.refuses), -len(row.then))
