"""The input of the oracles, and the experiments that find the site of a wrong capture.

An experiment captures the program again, with some guards forced to their true value, or one of its shorter programs:
each returns what one call, operation or size in it gives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import msgspec

from ddefuzz.classify.aliases import ASSERTING
from ddefuzz.classify.anchor import expression_shape, relation, short_anchor
from ddefuzz.classify.chain import Location, op_name
from ddefuzz.classify.evidence import called
from ddefuzz.classify.plumbing import INDUCTOR, TRACED_IN_INDUCTOR, is_framework
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.classify.site import python_site
from ddefuzz.execute.protocol import (
    CHEAP_TO_CALL,
    DECOMPOSED,
    Call,
    CallableSubject,
    Observation,
    ProgramSubject,
    Run,
    Runner,
    Semantics,
    Stage,
)
from ddefuzz.instrument.events import Answer, Constraint, Frame, Guard, Place
from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE
from ddefuzz.instrument.truth import value_at
from ddefuzz.ops import catalogue
from ddefuzz.program.model import (
    Apply,
    Attribute,
    Binary,
    Expr,
    Index,
    Literal,
    Name,
    Program,
    Sequence,
    Unary,
    children,
    functions_in,
    walk_outside,
)
from ddefuzz.program.model import Call as Call_
from ddefuzz.program.modules import called_name
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import digest, print_program


class OracleInput(NamedTuple):
    """A program's text (empty for user code) and its observation in one stage.

    `second` is the observation of the same run under other semantics, if there was one. `expected` is the signature
    that it should show, if there is one: a search for the site may begin there. `user` is the user code, if experiments
    may run it again.
    """

    text: str
    observation: Observation
    second: Observation | None = None
    expected: Signature | None = None
    user: CallableSubject | None = None

    @property
    def subject(self) -> ProgramSubject | CallableSubject | None:
        """What experiments capture again; None if they cannot."""
        return ProgramSubject(self.text) if self.text else self.user

    @property
    def program(self) -> Program | None:
        """The program, None for user code."""
        return catalogue.parse(self.text, "<program>").program if self.text else None


Suspect = TypeVar("Suspect")

MOST_TRIED = 6  # guards that are tried in place of one that fixes a call, at most. Each costs a capture.
MOST_FURTHER = 2  # how many guards that cannot be decided get an answer after those of an experiment
STRIDES = "Tensor.stride"  # the function by which a program reads strides

UNCHECKED = re.compile(r"(^|[._])_?native_batch_norm")
"""Functions whose kernel reads tensors without a check of their sizes: `batch_norm_cpu` in
aten/src/ATen/native/Normalization.cpp. What eager takes there says nothing about what a capture has to take.
"""

Shows = Callable[
    [OracleInput, Call], bool
]  # a predicate: whether a call of an observation shows the failure in question


def is_unchecked(seen: OracleInput) -> bool:
    """Whether a program calls a function by which eager takes sizes that do not fit."""
    program = seen.program
    return program is not None and any(map(UNCHECKED.search, functions_in(program)))


def reads_strides_of_nothing(seen: OracleInput, call: Call) -> bool:
    """Whether a program reads strides, and a size is 0 in a call. The strides of an empty tensor say nothing: eager has
    `max(size, 1)` in them, and the symbolic strides of an input have the size itself.
    """
    program = seen.program
    return program is not None and 0 in dict(call.symbols).values() and STRIDES in functions_in(program)


def answered_falsely(observation: Observation, call: Call) -> tuple[tuple[Guard, bool], ...]:
    """The guards whose fallback was not the true value in a call, each with the true value."""
    symbols = dict(call.symbols)
    answers = ((guard, value_at(guard.expression, symbols)) for guard in observation.guards)
    return tuple(
        (guard, bool(truth)) for guard, truth in answers if truth is not None and bool(truth) != guard.fallback
    )


def most_suspect(seen: OracleInput, call: Call, shows: Shows) -> tuple[tuple[Guard, bool], ...]:
    """The guards whose fallback was not the true value in a call, each with the true value, the most suspect first.

    A guard is the more suspect, the more of the calls that show the failure it explains: its fallback was not the true
    value in them. Of equals, that which was false in fewer of the other calls comes first, then the last one: a guard
    may be evaluated only because of the answers before it.
    """
    explained: Counter[tuple[Place, str]] = Counter()
    harmless: Counter[tuple[Place, str]] = Counter()
    for other in seen.observation.calls:
        counted = explained if shows(seen, other) else harmless
        counted.update({(guard.place, guard.expression) for guard, _ in answered_falsely(seen.observation, other)})
    suspects = answered_falsely(seen.observation, call)[::-1]

    def rank(suspect: tuple[Guard, bool]) -> tuple[int, int]:
        key = (suspect[0].place, suspect[0].expression)
        return -explained[key], harmless[key]

    return tuple(sorted(suspects, key=rank))


def guard_to_blame(seen: OracleInput, call: Call, shows: Shows, runner: Runner) -> Location | None:
    """The site of the guard whose true value fixes the call; None if no guard's does."""
    guard = blamed_guard(seen, call, shows, runner)
    return at_guard(guard) if guard is not None else None


def blamed_guard(seen: OracleInput, call: Call, shows: Shows, runner: Runner) -> Guard | None:
    """The guard whose true value fixes the call; None if no guard's does.

    The program is captured again with each single guard forced to its true value (see `most_suspect` for the order). If
    none is enough, all are forced, and those that are not needed are left out again. If one is, a guard that depends on
    it may be to blame in its place (see `_decisive`). Of several, all are forced first: if the call shows the failure
    even then, no guard is the reason. If that cannot be captured, a stage in which captures are slow tries no more.
    """
    suspects = most_suspect(seen, call, shows)
    if not suspects or seen.subject is None:
        return None
    if len(suspects) > 1:
        truly = _captured_truly(seen, suspects, call, runner)
        if truly.calls and shows(seen._replace(observation=truly, second=None), truly.calls[0]):
            return None
        if not truly.calls and not _refuses_alike(truly, call) and seen.observation.stage not in CHEAP_TO_CALL:
            return None

    fixed: dict[tuple[tuple[Guard, bool], ...], Observation] = {}

    def fixes(chosen: tuple[tuple[Guard, bool], ...]) -> bool:
        again = _captured_truly(seen, chosen, call, runner)
        right = (
            not shows(seen._replace(observation=again, second=None), again.calls[0])
            if again.calls
            else _refuses_alike(again, call)
        )
        if right:
            fixed[chosen] = again
        return right

    blamed = fewest(suspects, fixes)
    if len(blamed) == 1:
        blamed = (_decisive(blamed[0], suspects, fixes, fixed),)
    if not blamed:
        return None
    guard, value = blamed[0]
    return answered_in(fixed[blamed], guard, value) if blamed in fixed else guard


def answered_in(observation: Observation, guard: Guard, value: bool) -> Guard:
    """The guard as an experiment recorded it that gave it a value, with the frames that lead to it; else as it is."""
    alike = (one for one in observation.guards if (one.place, one.expression) == (guard.place, guard.expression))
    path = next((one.path for one in alike if one.fallback is value), ())
    return msgspec.structs.replace(guard, path=path)


def _decisive(
    blamed: tuple[Guard, bool],
    suspects: tuple[tuple[Guard, bool], ...],
    fixes: Callable[[tuple[tuple[Guard, bool], ...]], bool],
    fixed: Mapping[tuple[tuple[Guard, bool], ...], Observation],
) -> tuple[Guard, bool]:
    """Of the guards that fix a call alone, the one that does so while the others keep their false answers.

    With the true value of a guard, a later one may not be evaluated any more. If the true value of the later one fixes
    the call, and the earlier one is still answered falsely then, the answer of the earlier one does no harm. One that
    is below it in the same function may be evaluated in another call of it, too.
    """
    tried = 0
    for other in suspects:
        here, there = other[0].place, blamed[0].place
        is_later = (here.file, other[0].function) == (there.file, blamed[0].function) and here.line > there.line
        elsewhere = _is_answered_alike(other[0], fixed[blamed,]) and not is_later
        if other == blamed or elsewhere or tried == MOST_TRIED:
            continue
        tried += 1
        if fixes((other,)) and _is_answered_alike(blamed[0], fixed[other,]):
            blamed = other
    return blamed


def _is_answered_alike(guard: Guard, observation: Observation) -> bool:
    answers = {(one.place, one.expression): one.fallback for one in observation.guards}
    return answers.get((guard.place, guard.expression)) == guard.fallback


def _captured_truly(
    seen: OracleInput, answers: tuple[tuple[Guard, bool], ...], call: Call, runner: Runner
) -> Observation:
    """The program captured again with these answers. If it then evaluates other guards that cannot be decided, or at
    the same place guards that it did not evaluate before, these get their true value in the call, too: `squeeze` asks
    for the same size in two places, and `guard_or_false(m == 0) or guard_or_false(n == 0)` for two sizes in one.
    """
    known = {(one.place, one.expression) for one in seen.observation.guards}
    places = {guard.place for guard, _ in answers}
    more: tuple[Answer, ...] = ()
    while True:
        again = captured_again(seen, answers, (call.size,), runner, more)
        if len(more) == MOST_FURTHER:
            return again
        raised = again.raised if again.outcome == "fail" else None
        truth = value_at(raised.expression, dict(call.symbols)) if raised is not None else None
        if raised is not None and truth is not None:
            more = (*more, Answer(raised.place, bool(truth), raised.expression))
            continue
        false = answered_falsely(again, call)
        new = ((one, value) for one, value in false if one.place in places and (one.place, one.expression) not in known)
        further = next(new, None)
        if further is None:
            return again
        more = (*more, Answer(further[0].place, further[1], further[0].expression))


def fewest(suspects: tuple[Suspect, ...], is_enough: Callable[[tuple[Suspect, ...]], bool]) -> tuple[Suspect, ...]:
    """The first suspect that is enough alone; else all that are needed; nothing if all are not enough."""
    alone = next((one for one in suspects if is_enough((one,))), None)
    if alone is not None:
        return (alone,)
    if len(suspects) < 2 or not is_enough(suspects):
        return ()
    needed = suspects
    for suspect in suspects:
        fewer = tuple(other for other in needed if other is not suspect)
        if fewer and is_enough(fewer):
            needed = fewer
    return needed


def op_to_blame(seen: OracleInput, call: Call, shows: Shows, anchor: str, runner: Runner) -> Location | None:
    """The op of the first call whose own result shows the failure, or the guard that is to blame in it; None if no
    op's result does.

    The program is captured again with each call's result returned in place of what it returns, in order; after a step
    without targets (`torch._check`), those before it. A size that a step reads is returned, too: the captured op may
    give the right tensor, while the capture has decided another size for it. If only the whole program shows it, that
    is the step which made the result that differs.
    """
    program = seen.program
    if program is None:
        return None
    cheap = seen.observation.stage in CHEAP_TO_CALL
    for shorter, name in prefixes(program, call):
        if not cheap and is_number(shorter):
            continue  # a number that inductor does not compute
        cut = seen._replace(text=print_program(shorter))
        again = captured_again(cut, (), (call.size,), runner)
        if again.calls and shows(cut._replace(observation=again), again.calls[0]):
            shown = cut._replace(observation=again)
            guard = guard_to_blame(shown, again.calls[0], shows, runner) if cut.text != seen.text else None
            return guard or (Location(Site("op", None, op_name(name)), None, anchor) if name else None)
    return None


UNKNOWN = Site("Python", None, None)


def unknown(seen: OracleInput) -> Location:
    """The site of a failure that could not be located. The digest of the program, or of what was captured of user code,
    is part of it, so that programs do not share it.
    """
    program, captured = seen.program, seen.observation.digest
    anchor = f"program {digest(program)[:12]}" if program else f"user code {captured[:12]}".strip()
    return Location(UNKNOWN, None, anchor)


def at_guard(guard: Guard) -> Location:
    """The site of a guard that took its fallback. The anchor is the code there. In C++, whose lines are not known, and
    in the user's code, whose names say nothing, it is the method and the relation.
    """
    frame = Frame(guard.place.file, guard.place.line, guard.function, guard.code)
    in_torch = bool(guard.code) and is_framework(frame)
    anchor = short_anchor(frame) if in_torch else f"{guard.method} {relation(guard.expression)}".strip()
    if guard.place.language == "C++":
        return Location(Site("C++", None, guard.place.file), frame, anchor, guard.path)
    return Location(Site("Python", guard.place.file, guard.function), frame, anchor, guard.path)


def at_maker(constraint: Constraint) -> Location:
    """The site that made an assertion, a replacement or a range. The anchor is the code there. In C++, it is the
    function of PyTorch's Python that called it, else the relation; in the user's code, the shape of the expression.
    """
    text = constraint.text.replace(" = ", " == ")
    site, frame = python_site(constraint.python, constraint.traced)
    if constraint.place.language == "C++":
        what = f"in {site.function}" if site.function else relation(text)
        frame = Frame(constraint.place.file, constraint.place.line, "")
        function = ASSERTING.get(frame.file, frame.file)
        return Location(Site("C++", None, function), frame, f"{constraint.kind} {what}")
    what = short_anchor(frame) if is_framework(frame) else expression_shape(text)
    return Location(site, frame, f"{constraint.kind} {what}")


def made_by_inductor(observation: Observation) -> Iterator[tuple[Constraint, Location]]:
    """The assertions that inductor makes while it lowers a graph, with their sites. Nothing checks them at run time."""
    for constraint in observation.constraints:
        if constraint.kind == "assertion" and any(frame.file.startswith(INDUCTOR) for frame in constraint.python):
            made = at_maker(constraint)
            module = str(made.site.module)
            if module.startswith(INDUCTOR) and not module.startswith(TRACED_IN_INDUCTOR):
                yield constraint, made


def assumed_falsely(seen: OracleInput, call: Call, shows: Shows) -> Location | None:
    """The site of the first assertion of inductor that is false in a call, but in no call without the failure. None if
    there is none.
    """
    right = [dict(other.symbols) for other in seen.observation.calls if not shows(seen, other)]
    symbols = dict(call.symbols)
    return next(
        (
            site
            for one, site in made_by_inductor(seen.observation)
            if value_at(one.text, symbols) is False and not any(value_at(one.text, other) is False for other in right)
        ),
        None,
    )


def at_inference(constraint: Constraint) -> Location:
    """The site in torch's symbolic shapes that inferred a replacement or a range from an assertion (`at_maker`)."""
    frame = next((one for one in reversed(constraint.python) if one.file == SYMBOLIC_SHAPES_FILE.path), None)
    if frame is None:
        return at_maker(constraint)
    return Location(Site("Python", frame.file, frame.function), frame, f"{constraint.kind} {short_anchor(frame)}")


def captured_again(
    seen: OracleInput,
    answers: tuple[tuple[Guard, bool], ...],
    sizes: tuple[CallSize, ...],
    runner: Runner,
    more: tuple[Answer, ...] = (),
) -> Observation:
    """The program captured again in the same stage, with these answers of guards, and called at these sizes."""
    before = seen.observation.semantics
    # The first answer that fits a guard is used. Those that the run already had (a planted fault) stay for the others.
    given = (*(Answer(guard.place, value, guard.expression) for guard, value in answers), *more, *before.answers)
    semantics: Semantics = msgspec.structs.replace(before, answers=given)
    assert seen.subject is not None
    return runner(Run(seen.subject, seen.observation.stage, semantics, calls=sizes))


def other_stage(seen: OracleInput, call: Call, stage: Stage, runner: Runner) -> OracleInput | None:
    """The same call in another stage; None if it does not capture the subject, or nothing can be captured again."""
    if seen.subject is None:
        return None
    run = Run(seen.subject, stage, seen.observation.semantics, calls=(call.size,))
    again = seen._replace(observation=runner(run), second=None)
    return again if again.observation.calls else None


def cheapest(seen: OracleInput, shows: Shows, runner: Runner) -> tuple[OracleInput, Call]:
    """The first call that shows a failure, in the cheapest stage that shows it: AOTAutograd captures what inductor
    compiles, and with inductor's decompositions it makes the ops that inductor gets. Few experiments are allowed in
    inductor (`MOST_SLOW`).
    """
    call = next(call for call in seen.observation.calls if shows(seen, call))
    for stage in ("aot", DECOMPOSED) if seen.observation.stage == "inductor" else ():
        again = other_stage(seen, call, stage, runner)
        if again is not None and shows(again, again.observation.calls[0]):
            return again, again.observation.calls[0]
    return seen, call


def guard_of_dynamo(seen: OracleInput, call: Call, shows: Shows, runner: Runner) -> Location | None:
    """The guard to blame in dynamo's capture, with which those of aot and export-strict begin; None if it does not show
    the failure. With the true value of a guard, it may assert what contradicts that value. Then the captures that trace
    dynamo's graph again fail, and show nothing about the call.
    """
    first = other_stage(seen, call, "compile", runner) if seen.observation.stage in {"aot", "export-strict"} else None
    if first is None or not shows(first, first.observation.calls[0]):
        return None
    return guard_to_blame(first, first.observation.calls[0], shows, runner)


def _refuses_alike(observation: Observation, call: Call) -> bool:
    """Whether the capture itself raises what eager raised in a call. With the true value of a guard it may meet the
    error while it traces. A shape is a list for dynamo, so that its message begins otherwise.
    """
    message = call.eager.error.partition(": ")[2].removeprefix("tuple ")
    return bool(message) and any(message in exception.message for exception in observation.exceptions)


_RESULT = re.compile(r"result(?:\[(\d+)\])?")
"""The whole result of a call, or one item of it, as differences name them."""


def prefixes(program: Program, call: Call) -> Iterator[tuple[Program, str]]:
    """What is returned in place of what a program returns, each with the function that made it (empty if none did)."""
    value: Expr | None = Name(program.inputs[0].name) if program.inputs else None
    makers: dict[str, str] = {}
    for number, step in enumerate(program.steps):
        for part, maker in _parts(step.value, makers):
            yield replace(program, steps=program.steps[:number], returns=part), maker
        if step.targets:
            returned = tuple(Name(target) for target in step.targets)
            value = returned[0] if len(returned) == 1 else Sequence(returned)
            makers.update(dict.fromkeys(step.targets, _outermost(step.value)))
        if value is not None:
            yield replace(program, steps=program.steps[: number + 1], returns=value), _outermost(step.value)
    for part, maker in _parts(program.returns, makers):
        yield replace(program, returns=part), maker
    yield program, _outermost(program.returns) or _maker(program, call)


def is_number(program: Program) -> bool:
    """Whether what a program returns is a number made of sizes alone."""
    numbers: set[str] = set()

    def made_of_sizes(value: Expr) -> bool:
        match value:
            case Name(name):
                return name in numbers
            case Attribute(_, "shape") | Literal():
                return True
            case Call_(function):
                return function.startswith("torch.sym_") and all(map(made_of_sizes, children(value)))
            case Index() | Binary() | Unary():
                return all(map(made_of_sizes, children(value)))
            case _:
                return False

    for step in program.steps:
        if made_of_sizes(step.value):
            numbers.update(step.targets)
    return made_of_sizes(program.returns)


def _parts(whole: Expr, makers: Mapping[str, str]) -> Iterator[tuple[Expr, str]]:
    """The calls, operations and read sizes inside of an expression, innermost first, each with what made it.

    What a function in it computes is no value of the program.
    """
    for part in reversed(tuple(walk_outside(whole))):
        match part:
            case Index(Attribute(Name(name), "shape")) | Call_("Tensor.size" | "Tensor.numel", (Name(name), *_)):
                if name in makers:
                    yield part, makers[name]
            case Apply() | Call_() | Binary() | Index() if part is not whole:
                yield part, _outermost(part)


def _outermost(value: Expr) -> str:
    """The function that an expression calls last, or its operator (`operator.mul`); empty if it calls nothing."""
    if isinstance(value, Apply | Call_):
        return called_name(value)
    return next(iter(called(print_program(Program((), (), value)))), "")


def _maker(program: Program, call: Call) -> str:
    place = next((_RESULT.fullmatch(one.where) for one in call.differences), None)
    value = program.returns
    if place is None:
        return ""
    if place[1] is not None and isinstance(value, Sequence):
        value = value.items[int(place[1])]
    return next(
        (_outermost(step.value) for step in program.steps if isinstance(value, Name) and value.id in step.targets), ""
    )
