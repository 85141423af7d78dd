"""The assertion oracle: a captured program must reject exactly the inputs that eager rejects, in every form."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice, product

import msgspec

from ddefuzz.classify.anchor import expression_shape, python_anchor
from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.plumbing import is_framework, is_guard_plumbing
from ddefuzz.classify.signature import USER_CODE, Site
from ddefuzz.execute.protocol import Call, Form, FormName, Observation, Run, Runner, differs
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Constraint, Fault, Guard
from ddefuzz.instrument.torch_api import Api
from ddefuzz.instrument.truth import holds, sides, value_at
from ddefuzz.oracles import specialization
from ddefuzz.oracles.acceptance import OF_ERRORS, OF_REFUSALS, accepted_as
from ddefuzz.oracles.blame import (
    OracleInput,
    at_guard,
    at_maker,
    blamed_guard,
    cheapest,
    guard_of_dynamo,
    made_by_inductor,
    op_to_blame,
    other_stage,
    unknown,
)
from ddefuzz.oracles.oracle import KindRow, Oracle, Severity, by_ending, only_the_call
from ddefuzz.oracles.verdict import accepted, turned, values_differ
from ddefuzz.program.sizes import CALL_SIZES

PASSES: Mapping[FormName, Api] = {
    "traced": torch_api.TRACED_ASSERTIONS,
    "lowered": torch_api.LOWERED_ASSERTIONS,
    "generated": torch_api.GENERATED_ASSERTIONS,
}
"""The function of torch that puts the assertions into a form."""

LARGEST, MOST_SYMBOLS = 8, 3
"""The sizes that are tried, and the symbols at most, to see whether an assertion follows from an answer."""

_WITH_A_NUMBER = re.compile(r"== \d")

_SYMBOL = re.compile(r"\bu\d+\b")


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the first call of each kind, and the first assertion of each kind in the forms."""
    forms = (
        Failure(kind, seen.observation, f"{condition} in the {form.name} form")
        for kind, found_in in FORM_KINDS.items()
        for form, condition in islice(found_in(seen.observation), 1)
    )
    return (*_in_calls(seen), *forms)


def _in_calls(seen: OracleInput) -> Iterator[Failure]:
    def is_missing(call: Call) -> bool:
        return missing(seen, call) and not accepted_as(OF_ERRORS, seen, call)

    def is_lost(call: Call) -> bool:
        return bool(lost(seen, call)) and not specialization.explains(seen, call)

    rows: tuple[tuple[Kind, Callable[[Call], bool], Callable[[Call], str]], ...] = (
        (
            "over-strict",
            lambda call: over_strict(seen, call),
            lambda call: call.captured.expression or call.captured.error,
        ),
        ("missing-assertion", is_missing, lambda call: call.eager.error),
        ("lost-assertion", is_lost, lambda call: lost(seen, call)),
    )
    for kind, applies, evidence_of in rows:
        for call in islice(filter(applies, seen.observation.calls), 1):
            yield Failure(kind, seen.observation, f"at size {call.size}: {evidence_of(call)}", call.size)


_ANY_SYMBOL = re.compile(r"[us]\d+")


_NUMBER = re.compile(r"(?<![us\d])\d+")


def late(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions that come after an op that uses the sizes that they check.

    User code may check a size after it used it. So a condition is not late if the user's code made it in such a place.
    """
    own = {one.message for form in observation.forms for one in form.assertions if one.own and one.after}
    for form in observation.forms:
        if form.name == "generated" and own:  # its messages are other ones
            continue
        for assertion in form.assertions:
            if assertion.after and assertion.message not in own:
                yield form, assertion.condition


def repeated(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions that are checked more than once. User code may check a condition more than once. A condition that
    is always true is not counted.
    """
    own = {one.message for form in observation.forms for one in form.assertions if one.own}
    for form in observation.forms:
        users = {turned(one.condition) for one in form.assertions if one.message in own}
        others = [turned(one.condition) for one in form.assertions if one.message not in own]
        for condition, times in Counter([*users, *others]).items():
            if times > 1 and condition != "True":
                yield form, condition


def hidden(observation: Observation) -> Iterator[tuple[Form, str]]:
    """Conditions of the user's `torch._check` whose message a form lacks, or hides by an assertion before it."""
    for constraint in observation.constraints:
        if not constraint.message:
            continue
        for form in observation.forms:
            messages = [one.message for one in form.assertions]
            place = messages.index(constraint.message) if constraint.message in messages else None
            before = form.assertions[:place] if place is not None else ()
            if place is None or any(same_condition(one.condition, constraint.text) for one in before):
                yield form, constraint.text
                break


def same_condition(first: str, second: str) -> bool:
    """Whether two conditions on the same single symbol are true for the same values.

    Comparisons change their truth next to their numbers only: these are tried.
    """
    symbols = {*_ANY_SYMBOL.findall(first), *_ANY_SYMBOL.findall(second)}
    if len(symbols) != 1:
        return False
    (symbol,) = symbols
    numbers = {int(number) for text in (first, second) for number in _NUMBER.findall(text)}
    values = {number + step for number in numbers for step in (-1, 0, 1)} | {-1, 0, 1}
    pairs = [(value_at(first, {symbol: value}), value_at(second, {symbol: value})) for value in values]
    return all(left is not None and left == right for left, right in pairs)


FORM_KINDS: Mapping[Kind, Callable[[Observation], Iterator[tuple[Form, str]]]] = {
    "late-assertion": late,
    "repeated-assertion": repeated,
    "lost-message": hidden,
}


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """For a call: the code that made the assertion, if the program is right without it; else the guard whose true value
    fixes it; else the code that made the assertion; else the code that asked at run time, if what was captured raises
    a data-dependent error; else the op that shows it alone. For a form: the function that puts assertions into it.
    """
    if failure.kind in FORM_KINDS:
        form, condition = next(FORM_KINDS[failure.kind](failure.observation))
        # inductor repeats every condition that two ops assert: one defect.
        anchor = failure.kind if failure.kind == "repeated-assertion" else _sizes_of(failure, condition)
        return _at_pass(form.name, anchor)
    if failure.kind == "lost-assertion":
        return _loser(failure, seen, runner)
    shows = over_strict if failure.kind == "over-strict" else missing
    seen, call = cheapest(seen, shows, runner)
    guard = blamed_guard(seen, call, shows, runner)
    made = (one for one in seen.observation.constraints if one.text == call.captured.expression)
    maker = next(made, None) if failure.kind == "over-strict" else None
    if guard is not None:
        in_program = maker is not None and at_maker(maker).site.module == USER_CODE
        if maker is None or in_program or _repeats(maker, guard) or not _needless(maker, seen, call, runner):
            return at_guard(guard)
    if maker is not None:
        # Several ranges follow from one assertion: that is known by it.
        source = msgspec.structs.replace(maker, kind="assertion", text=maker.follows)
        return at_maker(source if maker.kind == "range" and maker.follows else maker)
    if failure.kind == "missing-assertion" and (first := guard_of_dynamo(seen, call, shows, runner)) is not None:
        return first
    refused = call.captured if failure.kind == "over-strict" else call.eager
    asking = [frame for frame in refused.frames if is_framework(frame) and not is_guard_plumbing(frame)]
    if asking:  # nothing is traced there: what passes decisions on in a capture decides itself
        return Location(Site("Python", asking[-1].file, asking[-1].function), asking[-1], python_anchor(asking[-1]))
    anchor = expression_shape(refused.expression) if refused.expression else refused.error.partition(":")[0]
    begins = shows if failure.kind == "over-strict" else _begins
    return op_to_blame(seen, call, begins, anchor, runner) or unknown(seen)


def _begins(seen: OracleInput, call: Call) -> bool:
    """Whether the results of a shorter program differ already, or eager refuses it. What eager refuses later follows
    from the former; a capture that drops what is not returned takes the latter only in a longer program.
    """
    return missing(seen, call) or not call.eager.returned or values_differ(call)


def _repeats(made: Constraint, guard: Guard) -> bool:
    """Whether an assertion only repeats the answer of a guard: the guard was answered True, so that code relies on its
    condition, and the assertion is true wherever the condition is. Tried at all sizes up to `LARGEST`.
    """
    symbols = sorted(set(_SYMBOL.findall(guard.expression)) | set(_SYMBOL.findall(made.text)))
    if not guard.fallback or not 1 <= len(symbols) <= MOST_SYMBOLS:
        return False
    grid = (dict(zip(symbols, sizes, strict=True)) for sizes in product(range(LARGEST + 1), repeat=len(symbols)))
    return all(holds(made.text, one) is True for one in grid if value_at(guard.expression, one))


def _needless(made: Constraint, seen: OracleInput, call: Call, runner: Runner) -> bool:
    """Whether the program, captured without the assertion, does what eager does in a call that the assertion rejects,
    and in all others. Then the assertion is wrong, though the true value of an earlier guard may avoid the code that
    makes it. If other calls are wrong too, the guard is: it has led to that code.

    An assertion that two sizes are equal is not wrong: it compares what was inferred before. One whose code compares a
    size with a number may be.
    """
    equal, frame = sides(made.follows or made.text), at_maker(made).frame
    if seen.subject is None or (made.kind != "assertion" and not made.follows):
        return False
    if equal is not None and not (frame is not None and _WITH_A_NUMBER.search(frame.code)):
        return False
    before = seen.observation.semantics
    without = msgspec.structs.replace(before, faults=(*before.faults, Fault(made.place, "drop assertion")))
    sizes = tuple(one.size for one in seen.observation.calls)
    again = runner(Run(seen.subject, seen.observation.stage, without, calls=sizes)).calls
    right = any(one.size == call.size and one.captured.returned and one.agreement == "same" for one in again)
    return right and not any(differs(one) and not accepted(one) for one in again)


def _at_pass(form: FormName, anchor: str) -> Location:
    return Location(Site("Python", PASSES[form].file, PASSES[form].name), None, anchor)


def _loser(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The function that makes the first form without the assertion: that of the traced graph, or of what follows. An
    assertion that inductor makes is in no graph, so no pass has lost it: its site is what made it.
    """
    call = next(call for call in failure.observation.calls if lost(seen, call))
    condition = turned(lost(seen, call))
    lowered = (made for one, made in made_by_inductor(failure.observation) if turned(one.text) == condition)
    if not call.failing and (made := next(lowered, None)):
        return made
    form: FormName = "traced"
    if call.failing:
        form = "lowered"
        if seen.observation.stage == "inductor":
            again = other_stage(seen, call, "aot", runner)
            form = "lowered" if again is not None and lost(again, again.observation.calls[0]) else "generated"
    return _at_pass(form, _sizes_of(failure, lost(seen, call)))


def _sizes_of(failure: Failure, condition: str) -> str:
    """What made the sizes of a condition. That decides where a pass puts an assertion; its expression does not."""
    asserted = [one for one in failure.observation.constraints if one.origins]
    exact = [one.origins for one in asserted if turned(one.text) == turned(condition)][:1]
    symbols = set(_SYMBOL.findall(condition))
    alike = [one.origins for one in asserted if symbols and symbols.issuperset(_SYMBOL.findall(one.text))]
    origins = sorted({origin for made in exact or alike for origin in made})
    return f"sizes of {', '.join(origins)}" if origins else expression_shape(condition)


def over_strict(seen: OracleInput, call: Call) -> bool:
    """Whether only the captured program rejects a call, by no accepted rule, and no specialization explains it."""
    if not call.eager.returned or call.captured.returned or call.recompiled or call.agreement == "incomparable":
        return False
    if seen.observation.outcome != "ok":  # the process has ended in the call, which is a failure of its own
        return False
    return not accepted_as(OF_REFUSALS, seen, call) and not specialization.explains(seen, call)


def missing(seen: OracleInput, call: Call) -> bool:
    """Whether only eager rejects a call, and the capture has never made an assertion for that."""
    if call.eager.returned or not call.captured.returned or call.recompiled or call.agreement == "incomparable":
        return False
    return not accepted_as(OF_ERRORS, seen, call, part=True) and not lost(seen, call)


def lost(seen: OracleInput, call: Call) -> str:
    """The condition that the capture asserted and the captured program did not check in a call; empty if none."""
    if not call.captured.returned or call.recompiled:
        return ""
    symbols = dict(call.symbols)
    made = (one.text for one in seen.observation.constraints if one.kind == "assertion")
    return call.failing or next((text for text in made if holds(text, symbols) is False), "")


WRONG: Mapping[Kind, Severity] = {
    "over-strict": "refuses what eager accepts",
    "missing-assertion": "accepts what eager refuses",
    "lost-assertion": "accepts what eager refuses",
}
"""The kinds by which the captured program takes or refuses other inputs."""

KINDS: Mapping[Kind, KindRow] = {
    kind: KindRow(meaning, title, locate, by_ending, wrong=kind in WRONG, severity=WRONG.get(kind, "minor"))
    for kind, meaning, title in (
        (
            "over-strict",
            "the captured program rejects inputs that eager accepts",
            "{site} makes the captured program refuse inputs {evidence}",
        ),
        (
            "missing-assertion",
            "the captured program accepts inputs that eager rejects",
            "{site} lets the captured program take what eager refuses {evidence}",
        ),
        (
            "lost-assertion",
            "the captured program accepts inputs for which an assertion of the capture is not true",
            "{site} loses an assertion {evidence}",
        ),
        (
            "late-assertion",
            "an assertion comes after an op that uses the sizes that it checks",
            "{site} puts an assertion too late: {evidence}",
        ),
        (
            "repeated-assertion",
            "the captured program checks one condition twice",
            "{site} repeats an assertion: {evidence}",
        ),
        (
            "lost-message",
            "the captured program does not give the message of a `torch._check`",
            "{site} drops the message of an assertion: {evidence}",
        ),
    )
}

ORACLE = Oracle(
    "assertions",
    "the captured program rejects inputs that eager accepts, or accepts inputs that eager rejects; "
    "an assertion is lost",
    KINDS,
    judge,
    CALL_SIZES,
    only_the_call,
)
