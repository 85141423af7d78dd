"""The experiment: captures programs with each value of an undecided guard, and calls the result at all sizes.

Running is a function (`Runner`), so the tests of the verdicts need no torch. A run may crash torch: a forced value
has led C++ to divide by zero. So the runner should use processes that may die.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ddefuzz import syntax
from ddefuzz.answers.model import (
    GIVEN,
    Answers,
    Experiment,
    Given,
    GuardOutcome,
    OfProgram,
    PatchEvidence,
    Score,
    is_of_unusual_sizes,
    tallied,
    verdict,
)
from ddefuzz.answers.patch import Patch, Source, clauses, located, patches, source_of
from ddefuzz.answers.samples import SampleRequest, is_of_value
from ddefuzz.classify.anchor import python_anchor
from ddefuzz.classify.evidence import NUMBER_METHODS
from ddefuzz.classify.plumbing import DECOMPOSING, is_traced
from ddefuzz.classify.signature import Signature, Site, Verdict
from ddefuzz.classify.site import site as site_of
from ddefuzz.execute.protocol import (
    DECOMPOSED,
    Call,
    Observation,
    PatchedRun,
    PatchedRunner,
    ProgramSubject,
    Run,
    Runner,
    Semantics,
    Stage,
    Subject,
)
from ddefuzz.instrument.events import Answer, RaisedError
from ddefuzz.oracles import agreement
from ddefuzz.oracles.acceptance import OF_ERRORS, OF_REFUSALS, accepted_as
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.capture import classify, judge
from ddefuzz.program.sizes import CALL_SIZES, VALUE_CALLS, CallSize, static
from ddefuzz.program.text import print_program

CALLS: tuple[CallSize, ...] = (*CALL_SIZES, *VALUE_CALLS)
"""The calls of a program that is captured with an answer, or with a patch."""

MARK = "reached by ddefuzz"  # the message of the error that shows that a program evaluates a branch


MOST_SCORED = 3  # how many patches that are right for the first program are tried with all others


class TriedPatch(msgspec.Struct, frozen=True):
    """A patch that captures a finding's smallest program, with the kept programs and the samples of its ops."""

    patch: Patch
    evidence: PatchEvidence


class PatchRefusal(msgspec.Struct, frozen=True):
    """A patch that does not capture the smallest program correctly, and why."""

    form: str
    code: str
    why: str


class TriedPatches(msgspec.Struct, frozen=True):
    """The patch to propose, if any, and those that were tried and are worse."""

    best: TriedPatch | None
    refused: tuple[PatchRefusal, ...]


def try_patches(
    patches: Iterable[Patch],
    place: tuple[int, str],
    programs: Sequence[NamedProgram],
    samples: Iterable[NamedProgram],
    stage: Stage,
    runner: PatchedRunner,
) -> TriedPatches:
    """The first patch with which the first program is captured and agrees, and nothing else differs.

    `place` are the line and the anchor of the branch. The other programs and `samples` count if they evaluate it.
    """
    program = programs[0]
    refused: list[PatchRefusal] = []
    best: TriedPatch | None = None
    scored = 0
    reaching: tuple[list[Subject], list[Subject]] | None = None
    for patch in patches:
        if scored == MOST_SCORED:
            break
        seen = runner(_run(program.subject, stage, patch))
        why = fault(program.subject, seen)
        if why:
            refused.append(PatchRefusal(patch.form, patch.code, why))
            continue
        if reaching is None:
            probe = _probe(patch, place)
            kept = [one.subject for one in programs if _reaches(one.subject, stage, probe, runner)]
            reaching = kept, [one.subject for one in samples if _reaches(one.subject, stage, probe, runner)]
        scored += 1
        first, second = (_score(subjects, stage, patch, runner) for subjects in reaching)
        tried = TriedPatch(patch, PatchEvidence(patch.form, patch.code, first, second))
        if best is None or _wrong(tried) < _wrong(best):
            if best is not None:
                refused.append(_worse(best))
            best = tried
        else:
            refused.append(_worse(tried))
        if best.evidence.is_right:
            break
    return TriedPatches(best, tuple(refused))


def _run(subject: Subject, stage: Stage, patch: Patch, *, eager: bool = False) -> PatchedRun:
    return PatchedRun(Run(subject, stage, calls=CALLS), patch.file, patch.after, eager)


def fault(subject: Subject, seen: Observation) -> str:
    """How a capture with a change fails, or the calls at which it is not like eager. Empty if it is right."""
    if seen.outcome != "ok":
        first = seen.exceptions[-1] if seen.exceptions else None
        return f"{first.name}: {first.message.strip().partition(chr(10))[0][:160]}" if first else seen.outcome
    ends_at = [(ends(_input_of(subject, seen), call), call.size) for call in seen.calls]
    return ", ".join(f"{end} at {size}" for end, size in ends_at if end in {"differs", "refuses", "accepts"})


def _input_of(subject: Subject, seen: Observation) -> OracleInput:
    return OracleInput(subject.text if isinstance(subject, ProgramSubject) else "", seen)


def _probe(patch: Patch, place: tuple[int, str]) -> Patch:
    source = Source(patch.before)
    node = located(source, *place)
    assert node is not None
    return Patch("probe", patch.file, "", patch.before, source.edited(node, f'int("{MARK}")'))


def _reaches(subject: Subject, stage: Stage, probe: Patch, runner: PatchedRunner) -> bool:
    seen = runner(PatchedRun(Run(subject, stage), probe.file, probe.after))
    return any(MARK in error.message for error in seen.exceptions)


def _score(
    subjects: Iterable[Subject],
    stage: Stage,
    patch: Patch,
    runner: PatchedRunner,
) -> Score:
    counts = dict.fromkeys(Score.__struct_fields__, 0)
    for subject in subjects:
        captured = runner(_run(subject, stage, patch))
        right = "stopped" if captured.outcome != "ok" else "differ" if fault(subject, captured) else "agree"
        counts[right] += 1
        eager = runner(_run(subject, stage, patch, eager=True))
        counts["changed" if fault(subject, eager) else "same"] += 1
    return Score(**counts)


def _wrong(patch: TriedPatch) -> int:
    return sum(score.differ + score.changed for score in (patch.evidence.kept, patch.evidence.samples))


def _worse(patch: TriedPatch) -> PatchRefusal:
    evidence = patch.evidence
    return PatchRefusal(evidence.form, evidence.code, f"kept programs: {evidence.kept}; samples: {evidence.samples}")


MOST_KEPT = 6  # how many kept programs that call the same functions are tried, besides those of the finding itself


class Runners(NamedTuple):
    """The functions that run programs, run them with a change of torch, and make torch's sample calls."""

    observe: Runner
    observe_patched: PatchedRunner
    samples: Callable[[SampleRequest], tuple[str, ...]]


class GuardResult(NamedTuple):
    """The results for one guard. `patches` is None if no patch was asked for, or the guard is not in torch's Python."""

    experiment: Experiment
    patches: TriedPatches | None

    def evidence(self, torch: str) -> Answers:
        """What a finding keeps."""
        experiment = self.experiment
        best = self.patches.best if self.patches is not None else None
        return Answers(
            verdict=experiment.verdict,
            stage=experiment.stage,
            torch=torch,
            programs=len(experiment.programs),
            tallies=experiment.tallies,
            patch=None if best is None else best.evidence,
        )


def answer_guard(
    own: Iterable[NamedProgram],
    others: Iterable[NamedProgram],
    functions: tuple[str, ...],
    stages: Sequence[Stage],
    signature: Signature | None,
    runners: Runners,
    *,
    patching: bool,
) -> GuardResult:
    """Answer the guard of the first of a finding's `own` programs. `functions` are those that reach it.

    `others` are kept programs. Those that come to the same guard are part of the experiment, those that evaluate the
    same branch are run with its patch. The first of `stages` is used in which the first program shows `signature`,
    else the last one; the last one also if no answer captures in the first, and a graph has the code that asks.
    """
    programs = [*own, *others]
    stage = next((one for one in stages[:-1] if _shows(programs[0], one, signature, runners)), stages[-1])
    result = experiment(programs, stage, runners.observe)
    if (
        result.verdict == "no answer captures"
        and stage != stages[-1]
        and (is_traced(result.site) or _fails_when_static(programs[0], stage, runners))
    ):
        stage = stages[-1]
        result = experiment(programs, stage, runners.observe)
    of_value = is_of_value(result.expression)
    if of_value:
        # The own programs have few values; what a branch about a value is for shows with special ones beside it.
        programs += _named_samples(SampleRequest(functions, of_numbers=True), runners)
        if result.site is not None and str(result.site.module).startswith(DECOMPOSING):
            stage = DECOMPOSED  # before that, the code says what the result looks like, and the kernel computes it
        result = experiment(programs, stage, runners.observe)
    if not patching or result.site is None or result.site.language != "Python" or result.site.module is None:
        return GuardResult(result, None)
    source = source_of(result.site.module)
    every = () if source is None else patches(source, result.site.module, result.line, result.code)
    candidates = sorted(every, key=lambda one: is_of_unusual_sizes(one.form, one.code, result.expression))
    if not candidates:
        return GuardResult(result, TriedPatches(None, ()))
    samples = _named_samples(SampleRequest(functions, of_numbers=of_value), runners)
    place = (result.line, result.code)
    tried = try_patches(candidates, place, programs, samples, stage, runners.observe_patched)
    return GuardResult(result, tried)


def _fails_when_static(asked: NamedProgram, stage: Stage, runners: Runners) -> bool:
    """Whether a stage does not capture the program with static sizes: its guards have nothing to do with that."""
    if not isinstance(asked.subject, ProgramSubject):
        return False
    text = print_program(static(asked.subject.program("the program")))
    return runners.observe(Run(ProgramSubject(text), stage)).outcome == "fail"


def _named_samples(request: SampleRequest, runners: Runners) -> list[NamedProgram]:
    texts = runners.samples(request)
    return [NamedProgram(f"sample {number}", ProgramSubject(one)) for number, one in enumerate(texts)]


def _shows(asked: NamedProgram, stage: Stage, signature: Signature | None, runners: Runners) -> bool:
    guard = first_guard(asked.subject, stage, runners.observe)
    return guard is not None and guard[0] == signature


def calling(functions: Iterable[str], programs: Iterable[tuple[str, str]]) -> list[NamedProgram]:
    """Of programs with a name each, the first that call one of these functions, each text once."""
    names = "|".join(sorted({re.escape(name.rpartition(".")[2].rstrip("_")) for name in functions}))
    calls = re.compile(rf"\.(?:{names})_?\(")
    asked: dict[str, NamedProgram] = {}
    for name, text in programs:
        if names and text not in asked and calls.search(text):
            asked[text] = NamedProgram(name, ProgramSubject(text))
    return list(asked.values())[:MOST_KEPT]


class Conjunction(NamedTuple):
    """`a or b`, or `a and b`. `text` is the whole, as `ast.unparse` prints it."""

    is_or: bool
    text: str
    clauses: tuple[str, ...]

    def clause_of(self, raised: RaisedError) -> str:
        """The clause that a guard belongs to; empty if it belongs to none."""
        try:
            anchor = python_anchor(site_of(raised)[1])
        except ValueError:
            return ""
        return anchor if anchor in self.clauses else ""


def in_expression(text: str) -> Conjunction | None:
    """The clauses of an expression as sympy prints it: `Eq(u0, 1) | (u1 > 2)`."""
    tree = syntax.parsed_expression(text)
    match tree:
        case ast.BinOp(_, ast.BitOr() | ast.BitAnd() as operator, _):
            parts = _operands(tree, type(operator))
            return Conjunction(isinstance(operator, ast.BitOr), text, tuple(_text(text, part) for part in parts))
        case ast.Call(ast.Name("And" | "Or" as name), args) if len(args) > 1:
            return Conjunction(name == "Or", text, tuple(_text(text, part) for part in args))
        case _:
            return None


def in_python(raised: RaisedError, site: Site) -> Conjunction | None:
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

DEEPEST = 3  # how many guards in a row are given a value, the first one included


class NamedProgram(NamedTuple):
    """A program to experiment with, and its name in the results."""

    name: str
    subject: Subject


class _OpenGuard(NamedTuple):
    subject: Subject
    stage: Stage
    site: Site
    raised: RaisedError
    runner: Runner

    def run(self, answers: tuple[Answer, ...]) -> Observation:
        """Capture with these answers and call what was captured."""
        sizes = CALLS if isinstance(self.subject, ProgramSubject) else CALLS[:1]
        return self.runner(Run(self.subject, self.stage, Semantics(answers=answers), calls=sizes))


def experiment(programs: Iterable[NamedProgram], stage: Stage, runner: Runner) -> Experiment:
    """Try each value of the first undecided guard of the first program, with it and all others that evaluate it."""
    signature: Signature | None = None
    first: RaisedError | None = None
    done: list[OfProgram] = []
    for asked in programs:
        guard = first_guard(asked.subject, stage, runner)
        if first is None:
            if guard is None:
                break
            signature, first = guard
        if signature is not None and guard is not None and guard[0] == signature:
            done.append(_of_program(asked, stage, signature.site, guard[1], runner))
            if done[0].verdict == "needs SymInt":
                break
    if signature is None or first is None:
        return Experiment(stage, None, "", 0, "", (), (), "not a guard")
    frame = site_of(first)[1]
    tallies = tallied(done)
    conclusion: Verdict = "needs SymInt" if done[0].verdict == "needs SymInt" else verdict(tallies)
    return Experiment(
        stage, signature.site, first.expression, frame.line, python_anchor(frame), tuple(done), tallies, conclusion
    )


def first_guard(subject: Subject, stage: Stage, runner: Runner) -> tuple[Signature, RaisedError] | None:
    """The signature and the guard by which a program fails; None if it does not fail by an undecided guard."""
    observation = runner(Run(subject, stage))
    failures = judge([observation])
    if not failures or failures[0].kind != "dde" or observation.raised is None:
        return None
    return classify(failures[0]).signature, observation.raised


def _of_program(asked: NamedProgram, stage: Stage, site: Site, raised: RaisedError, runner: Runner) -> OfProgram:
    if raised.method in NUMBER_METHODS:
        return OfProgram(asked.name, raised.expression, (), "needs SymInt")
    guard = _OpenGuard(asked.subject, stage, site, raised, runner)
    rows = _rows(guard)
    parts = in_expression(raised.expression)
    if parts is not None:
        for clause in parts.clauses:
            rows += _rows(guard, clause)
    else:
        around = in_python(raised, site)
        if around is not None:
            rows += _in_python(guard, around)
    differing = frozenset(call for row in rows for call in row.differs)
    static_too = static_differences(asked.subject, stage, differing, runner)
    judged = tuple(_without(static_too, row) for row in rows)
    of_program = OfProgram(asked.name, raised.expression, judged, "not a guard")
    return msgspec.structs.replace(of_program, verdict=verdict(tallied([of_program])))


def static_differences(
    subject: Subject, stage: Stage, differing: frozenset[CallSize], runner: Runner
) -> frozenset[CallSize]:
    """Of the calls at which what is captured differs from eager, the kinds of values at which it does so with static
    sizes, too: a decomposition may treat infinities otherwise. No change of a guard changes that.
    """
    suspects = tuple(call for call in VALUE_CALLS if call in differing)
    if not suspects or not isinstance(subject, ProgramSubject):
        return frozenset()
    made = ProgramSubject(print_program(static(subject.program())))
    seen = runner(Run(made, stage, calls=suspects))
    return frozenset(call.size for call in seen.calls if ends(_input_of(made, seen), call) == "differs")


def _without(calls: frozenset[CallSize], row: GuardOutcome) -> GuardOutcome:
    return msgspec.structs.replace(row, differs=tuple(call for call in row.differs if call not in calls))


def _rows(guard: _OpenGuard, clause: str = "") -> list[GuardOutcome]:
    rows: list[GuardOutcome] = []
    for given in GIVEN:
        if given != "assert not" or rows[1].raises:
            rows.append(_best(guard, given, (_answer(guard.raised, given, clause=clause),), clause))
    return rows


def _in_python(guard: _OpenGuard, around: Conjunction) -> list[GuardOutcome]:
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
    for number, guard_before in enumerate(undecided[1:], start=1):
        before = tuple(_answer(other, neutral) for other in undecided[:number])
        text = around.clause_of(guard_before)
        rows += [_best(guard, given, (*before, _answer(guard_before, given)), text) for given in GIVEN[:3]]
    return rows


def _together(
    guard: _OpenGuard, around: Conjunction, given: Given, undecided: list[RaisedError]
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


def _best(guard: _OpenGuard, given: Given, answers: tuple[Answer, ...], clause: str) -> GuardOutcome:
    """The best outcome of one value. If another undecided guard follows, both of its values are tried."""
    best: GuardOutcome | None = None
    for row in _outcomes(guard, given, answers, (), clause):
        if best is None or _rank(row) > _rank(best):
            best = row
        if best.is_right:
            break
    assert best is not None
    return best


def _outcomes(
    guard: _OpenGuard, given: Given, answers: tuple[Answer, ...], then: tuple[str, ...], clause: str
) -> list[GuardOutcome]:
    seen = guard.run(answers)
    row = _row(guard, given, answers, seen, clause, then)
    follows = seen.raised
    known = {(one.place, one.expression) for one in answers}
    if follows is not None and (follows.place, follows.expression) not in known and _is_asked_again(guard, follows):
        return _outcomes(guard, given, (*answers, _answer(follows, given)), then, clause)
    if (
        row.captures
        or follows is None
        or follows.method in NUMBER_METHODS
        or len(then) + 1 >= DEEPEST
        or (follows.place, follows.expression) in known
    ):
        return [row]
    rows: list[GuardOutcome] = []
    values: tuple[Given, ...] = ("False", "True")
    for value in values:
        more = (*answers, _answer(follows, value))
        rows += _outcomes(guard, given, more, (*then, f"{follows.expression} is {value}"), clause)
        if rows[-1].is_right:
            break
    return rows


def _is_asked_again(guard: _OpenGuard, follows: RaisedError) -> bool:
    """Whether the guard is asked again, of a number that was read again: it has another symbol then."""
    first = guard.raised
    if not (is_of_value(first.expression) and is_of_value(follows.expression)):
        return False
    places = [(site_of(one)[0], python_anchor(site_of(one)[1])) for one in (first, follows)]
    return places[0] == places[1]


def _answer(raised: RaisedError, given: Given, *, clause: str = "", held: bool = False) -> Answer:
    return Answer(raised.place, VALUES[given], raised.expression, clause, given == "assert not", held)


def _row(
    guard: _OpenGuard,
    given: Given,
    answers: tuple[Answer, ...],
    seen: Observation,
    clause: str = "",
    then: tuple[str, ...] = (),
) -> GuardOutcome:
    if seen.outcome != "ok":
        return GuardOutcome(
            guard.site,
            given,
            captures=False,
            then=then,
            stopped=_stopped(seen),
            raises=seen.raised is None and seen.outcome in {"fail", "crash"},
            clause=clause,
        )
    sizes: dict[str, list[CallSize]] = {}
    for call in seen.calls:
        sizes.setdefault(ends(_input_of(guard.subject, seen), call), []).append(call.size)
    named: dict[str, Any] = {name: tuple(of_name) for name, of_name in sizes.items() if name}
    return GuardOutcome(guard.site, given, captures=True, then=then, clause=clause, **named)


def ends(seen: OracleInput, call: Call) -> str:
    """The field of a row that a call belongs to.

    Empty if eager and the captured program both reject it, if their results cannot be compared, and if the difference
    is an accepted one (`oracles.acceptance`).
    """
    if not call.eager.returned:
        return "accepts" if call.captured.returned and not accepted_as(OF_ERRORS, seen, call) else ""
    if not call.captured.returned:
        return "" if accepted_as(OF_REFUSALS, seen, call) else "refuses"
    if call.agreement == "differs":
        return "differs" if agreement.differences(seen, call) else ""
    return "agrees" if call.agreement == "same" else ""


def _stopped(seen: Observation) -> str:
    if seen.raised is not None:
        failures = judge([seen])
        site = classify(failures[0]).signature.site if failures else "an unknown place"
        return f"{seen.raised.expression} at {site}"
    if seen.exceptions:
        return f"{seen.exceptions[-1].name}: {seen.exceptions[-1].message.strip().partition(chr(10))[0][:200]}"
    return seen.reason or seen.outcome


def _rank(row: GuardOutcome) -> tuple[bool, bool, int, int, int]:
    """Sort key: correct outcomes first, then those that differ and reject least, with the fewest forced guards."""
    wrong = len(row.differs) + len(row.accepts)
    return (row.is_right, row.captures, -wrong, -len(row.refuses), -len(row.then))
