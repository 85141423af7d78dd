"""Tests of the oracles over captured programs: on hand-made observations, and on planted faults in real torch."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from ddefuzz.execute.graphs import generated_assertions
from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    EXPLICIT,
    Call,
    CallEnd,
    Difference,
    Form,
    Observation,
    ProgramSubject,
    Run,
    RuntimeAssertion,
    Semantics,
    Stage,
    What,
)
from ddefuzz.instrument.events import Answer, Constraint, Fault, Frame, Guard, Place
from ddefuzz.oracles import agreement, assertions, specialization
from ddefuzz.oracles.blame import OracleInput, answered_falsely
from ddefuzz.oracles.oracle import MOST_SLOW
from ddefuzz.oracles.table import NAMES, ORACLES, calls_of, classified, oracle_of
from ddefuzz.oracles.verdict import accepted as is_accepted
from ddefuzz.program.model import functions_in
from ddefuzz.program.sizes import CALL_SIZES

HEADER = "# ddefuzz program v1\n"
TEXT = f"""{HEADER}# inputs: x = normal
def program(x: Float32[Tensor, "u0=3"]):
    t0 = torch.relu(x)
    return torch.neg(t0)
"""
GUARD = Guard(
    Place("Python", "torch/_refs/__init__.py", 10),
    "guard_or_false",
    "Eq(u0, 3)",
    False,
    "same",
    "expand",
    1,
    "if guard_or_false(a == b):",
)
OTHER = Guard(Place("C++", "aten/src/ATen/ExpandUtils.cpp", 5), "guard_or_true", "u0 >= 0", True, "same")
CALLING = ("agreement", "specialization", "assertions")
RETURNED, REFUSED = CallEnd(), CallEnd("RuntimeError: no")


def observed(*calls: Call, guards: tuple[Guard, ...] = (), constraints: tuple[Constraint, ...] = ()) -> Observation:
    return Observation("aot", EXPLICIT, "ok", guards=guards, calls=calls, constraints=constraints)


def seen(
    *calls: Call, guards: tuple[Guard, ...] = (), constraints: tuple[Constraint, ...] = (), text: str = TEXT
) -> OracleInput:
    return OracleInput(text, observed(*calls, guards=guards, constraints=constraints))


def wrong(what: What = "values") -> Call:
    return Call("2", RETURNED, RETURNED, "differs", (Difference(what, "result", "how"),), symbols=(("u0", 3),))


def refusal(expression: str = "") -> Call:
    error = f"RuntimeError: Runtime assertion failed for expression {expression}" if expression else "RuntimeError: no"
    return Call("2", RETURNED, CallEnd(error, expression), symbols=(("u0", 3), ("u1", 1)))


def nothing(_: Run) -> Observation:
    raise AssertionError("nothing had to be run")


def test_every_kind_has_one_oracle_with_a_meaning() -> None:
    kinds = [kind for oracle in ORACLES for kind in oracle.kinds]
    assert len(kinds) == len(set(kinds))
    assert all(meaning for oracle in ORACLES for meaning in oracle.kinds.values())
    assert all(oracle_of(kind).kinds[kind] for kind in kinds)
    assert calls_of(["capture"]) == ()
    assert calls_of(NAMES) == CALL_SIZES


def test_a_capture_that_agrees_has_no_failure() -> None:
    agrees = Call("2", RETURNED, RETURNED, "same", accepted=(Difference("alias", "result", ""),))
    both = Call("1", REFUSED, REFUSED)
    assert classified(seen(agrees, both), nothing) == ()


@pytest.mark.parametrize(("what", "kind"), [("values", "wrong-result"), ("strides", "wrong-layout")])
def test_a_difference_is_a_failure(what: What, kind: str) -> None:
    (failure,) = agreement.judge(seen(wrong(what)))
    assert (failure.kind, failure.evidence) == (kind, f"at size 2: {what} of result: how")


@pytest.mark.parametrize(
    "function",
    [
        "torch.empty_like",
        "torch.randn_like",
        "torch.nn.functional.dropout",
        "torch._unsafe_masked_index",
        "torch._debug_has_internal_overlap",
    ],
)
def test_what_is_unspecified_is_not_compared(function: str) -> None:
    text = TEXT.replace("torch.relu", function)
    assert agreement.judge(seen(wrong(), text=text)) == ()


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [("", True), (", dropout_p=0.0", True), (", None, 0", True), (", dropout_p=0.5", False), (", None, 0.5", False)],
)
def test_attention_is_unspecified_only_with_dropout(arguments: str, compared: bool) -> None:
    attention = f"torch.nn.functional.scaled_dot_product_attention(x, x, x{arguments})"
    text = TEXT.replace("torch.relu(x)", attention)
    assert text != TEXT
    assert bool(agreement.judge(seen(wrong(), text=text))) is compared


def test_calls_that_captured_again_are_not_judged() -> None:
    again = msgspec.structs.replace(wrong(), recompiled=True)
    assert classified(seen(again), nothing) == ()


def test_the_guard_whose_true_value_fixes_it_is_blamed() -> None:
    def runner(run: Run) -> Observation:
        assert run.calls == ("2",)
        mended = Answer(GUARD.place, True, "Eq(u0, 3)") in run.semantics.answers
        return observed(Call("2", RETURNED, RETURNED, "same") if mended else wrong())

    subject = seen(wrong(), guards=(OTHER, GUARD))
    assert answered_falsely(subject.observation, wrong()) == ((GUARD, True),)
    (found,) = classified(subject, runner)
    assert str(found.signature) == "wrong-result at torch/_refs/__init__.py:expand [guard_or_false(a == b)]"
    assert found.cause == "wrong-capture"


def test_of_several_guards_the_one_that_explains_most_wrong_calls_is_blamed() -> None:
    """Each of three guards fixes the call of size 2. One of them explains the call of size all, too."""
    places = [Place("Python", "torch/_refs/__init__.py", line) for line in (1, 2, 3)]
    early, both, late = (
        Guard(place, "guard_or_false", text, False, "same", f"f{place.line}")
        for place, text in zip(places, ("Eq(u0, 3)", "u0 >= 3", "Eq(u0, 3)"), strict=True)
    )
    more = msgspec.structs.replace(wrong(), size="all", symbols=(("u0", 5),))

    def runner(run: Run) -> Observation:
        return observed(Call(run.calls[0], RETURNED, RETURNED, "same") if run.semantics.answers else wrong())

    (found,) = classified(seen(wrong(), more, guards=(early, both, late)), runner)
    assert found.signature.site.function == "f2"
    (found,) = classified(seen(wrong(), guards=(early, late)), runner)
    assert found.signature.site.function == "f3"


def test_of_guards_that_explain_as_many_calls_the_one_that_is_false_in_fewer_others_is_blamed() -> None:
    places = [Place("Python", "torch/_refs/__init__.py", line) for line in (1, 2)]
    only, often = (
        Guard(place, "guard_or_false", text, False, "same", f"f{place.line}")
        for place, text in zip(places, ("Eq(u0, 3)", "u0 >= 3"), strict=True)
    )
    agrees = Call("all", RETURNED, RETURNED, "same", symbols=(("u0", 5),))

    def runner(run: Run) -> Observation:
        return observed(Call(run.calls[0], RETURNED, RETURNED, "same") if run.semantics.answers else wrong())

    (found,) = classified(seen(wrong(), agrees, guards=(only, often)), runner)
    assert found.signature.site.function == "f1"


@pytest.mark.parametrize(("first_stays", "blamed"), [(True, "f2"), (False, "f1")])
def test_a_guard_whose_false_answer_does_no_harm_is_not_blamed(first_stays: bool, blamed: str) -> None:
    """Each of two guards fixes the call, the second one while the first keeps its false answer."""
    first, second = (
        Guard(Place("Python", "torch/_refs/__init__.py", line), "guard_or_false", text, False, "same", f"f{line}")
        for line, text in ((1, "Eq(u0, 3)"), (2, "u0 >= 3"))
    )
    agrees = Call("all", RETURNED, RETURNED, "same", symbols=(("u0", 5),))

    def runner(run: Run) -> Observation:
        answered = {one.place.line for one in run.semantics.answers}
        left = (first,) if first_stays and answered == {2} else ()
        return observed(Call("2", RETURNED, RETURNED, "same") if answered else wrong(), guards=left)

    (found,) = classified(seen(wrong(), agrees, guards=(first, second)), runner)
    assert found.signature.site.function == blamed


def test_without_a_guard_the_first_wrong_op_is_blamed() -> None:
    def runner(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        return observed(wrong() if "neg" in run.subject.text else Call("2", RETURNED, RETURNED, "same"))

    (found,) = classified(seen(wrong()), runner)
    assert (found.signature.site.language, found.signature.site.function) == ("op", "torch.neg")


def test_an_operator_that_is_wrong_is_blamed_by_its_name() -> None:
    def runner(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        return observed(wrong() if "*" in run.subject.text else Call("2", RETURNED, RETURNED, "same"))

    (found,) = classified(seen(wrong(), text=TEXT.replace("torch.neg(t0)", "t0 * 1.0")), runner)
    assert (found.signature.site.language, found.signature.site.function) == ("op", "operator.mul")


def test_a_check_without_a_result_is_blamed_by_its_name() -> None:
    """Only what comes after it shows it."""
    text = TEXT.replace("    return", "    torch._check(t0.shape[0] < 3)\n    return").replace(
        "torch.neg(t0)", "t0 * 1.0"
    )

    def runner(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        return observed(wrong() if "_check" in run.subject.text else Call("2", RETURNED, RETURNED, "same"))

    (found,) = classified(seen(wrong(), text=text), runner)
    assert (found.signature.site.language, found.signature.site.function) == ("op", "torch._check")


def test_a_result_that_is_wrong_in_the_whole_program_alone_is_blamed_on_the_step_that_made_it() -> None:
    text = TEXT.replace("return torch.neg(t0)", "t1 = torch.neg(x)\n    return (t1, t0)")

    def runner(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        return observed(wrong() if run.subject.text == text else Call("2", RETURNED, RETURNED, "same"))

    call = msgspec.structs.replace(wrong(), differences=(Difference("values", "result[1]", "how"),))
    (found,) = classified(seen(call, text=text), runner)
    assert found.signature.site.function == "torch.relu"
    (unknown,) = classified(seen(wrong(), text=text), runner)
    assert str(unknown.signature.site) == "an unknown place"


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ((("model.py", "y = torch.func.grad(lambda t: t.sum())(x)"),), "torch.func.grad"),
        ((("model.py", "return self.net(x).relu()"),), "Tensor.relu"),
        (
            (("model.py", "return self.net(x)"), ("torch/nn/modules/activation.py", "y.transpose(1, 0)")),
            "torch/nn/modules/activation.py:forward",
        ),
        ((), "an unknown place"),
    ],
)
def test_a_wrong_result_of_a_users_model_is_blamed_on_what_made_it(
    frames: tuple[tuple[str, str], ...], site: str
) -> None:
    lines = tuple(Frame(file, 3, "forward", code) for file, code in frames)
    call = msgspec.structs.replace(wrong(), differences=(Difference("values", "result", "how", lines),))
    (judged,) = classified(seen(call, text=""), lambda run: observed(wrong()))
    assert str(judged.signature.site) == site


@pytest.mark.parametrize(("stage", "captures"), [("aot", None), ("inductor", MOST_SLOW)])
def test_the_search_for_a_site_ends_early_where_captures_are_slow(stage: Stage, captures: int | None) -> None:
    """Only all of nine guards together fix the call."""
    places = (Place("Python", "torch/_refs/__init__.py", at) for at in range(9))
    guards = tuple(msgspec.structs.replace(GUARD, place=place) for place in places)
    subject = seen(wrong(), guards=guards)
    subject = subject._replace(observation=msgspec.structs.replace(subject.observation, stage=stage))
    ran: list[Run] = []

    def runner(run: Run) -> Observation:
        if run.stage != stage:  # only inductor shows it
            return observed(Call("2", RETURNED, RETURNED, "same"))
        ran.append(run)
        return observed(Call("2", RETURNED, RETURNED, "same") if len(run.semantics.answers) == len(guards) else wrong())

    (found,) = classified(subject, runner, ("agreement",))
    assert len(ran) == captures if captures else len(ran) > len(guards)
    assert found.signature.anchor.startswith("program ") == (captures is not None)


@pytest.mark.parametrize(("stage", "captures"), [("inductor", 3), ("aot", 8)])
def test_guards_that_prevent_a_capture_are_not_tried_alone_where_captures_are_slow(stage: Stage, captures: int) -> None:
    places = (Place("Python", "torch/_refs/__init__.py", at) for at in range(5))
    guards = tuple(msgspec.structs.replace(GUARD, place=place) for place in places)
    subject = seen(wrong(), guards=guards)
    subject = subject._replace(observation=msgspec.structs.replace(subject.observation, stage=stage))
    ran: list[Run] = []

    def runner(run: Run) -> Observation:
        if run.stage != stage:  # only inductor shows it
            return observed(Call("2", RETURNED, RETURNED, "same"))
        ran.append(run)
        if len(run.semantics.answers) == len(guards):
            return msgspec.structs.replace(observed(), outcome="fail")
        return observed(wrong())

    (found,) = classified(subject, runner, ("agreement",))
    assert (found.signature.site.function, len(ran)) == ("torch.relu", captures)


def test_a_call_that_is_not_compared_refuses_nothing() -> None:
    starved = Call("2", RETURNED, CallEnd("RuntimeError: can't allocate memory"), "incomparable", why="no memory")
    assert classified(seen(starved), nothing, CALLING) == ()
    accepting = Call("2", CallEnd("RuntimeError: can't allocate memory"), RETURNED, "incomparable", why="no memory")
    assert classified(seen(accepting), nothing, CALLING) == ()


def test_a_call_that_ends_the_process_is_one_failure() -> None:
    subject = seen(Call("2", RETURNED, CallEnd("SIGSEGV (Segmentation fault)")))
    crash = msgspec.structs.replace(subject.observation, outcome="crash", reason="SIGSEGV (Segmentation fault)")
    (found,) = classified(subject._replace(observation=crash), nothing, ("capture", *CALLING))
    assert found.failure.kind == "crash-in-call"


@pytest.mark.parametrize(("call", "kind"), [(wrong(), "wrong-result"), (refusal("u0 >= 4"), "over-strict")])
def test_what_aot_shows_too_is_located_there(call: Call, kind: str) -> None:
    """Ten guards are too many to try in inductor."""
    places = (Place("Python", "torch/_refs/__init__.py", at) for at in range(10))
    guards = tuple(msgspec.structs.replace(GUARD, place=place) for place in places)
    subject = seen(call, guards=guards)
    subject = subject._replace(observation=msgspec.structs.replace(subject.observation, stage="inductor"))
    stages: set[Stage] = set()

    def runner(run: Run) -> Observation:
        stages.add(run.stage)
        answered = {one.place.line for one in run.semantics.answers}
        return observed(Call("2", RETURNED, RETURNED, "same") if 0 in answered else call, guards=guards)

    (found,) = classified(subject, runner, CALLING)
    assert (found.failure.kind, found.frame and found.frame.line, stages) == (kind, 0, {"aot"})


@pytest.mark.parametrize("count", [2, 5])
def test_guards_are_not_tried_alone_if_all_of_them_fix_nothing(count: int) -> None:
    places = (Place("Python", "torch/_refs/__init__.py", at) for at in range(count))
    guards = tuple(msgspec.structs.replace(GUARD, place=place) for place in places)
    ran: list[int] = []

    def runner(run: Run) -> Observation:
        ran.append(len(run.semantics.answers))
        return observed(wrong())

    (found,) = classified(seen(wrong(), guards=guards), runner, ("agreement",))
    assert (ran, found.signature.site.language) == ([count, 0], "op")


def test_a_failure_that_cannot_be_located_has_an_unknown_site() -> None:
    (found,) = classified(seen(wrong()), lambda _: observed())
    assert str(found.signature.site) == "an unknown place"
    assert found.signature.anchor.startswith("program ")


@pytest.mark.parametrize(("symbols", "reported"), [((), 0), ((("u0", 3),), 1)])
def test_a_graph_that_computes_nothing_may_have_static_inputs(
    symbols: tuple[tuple[str, int], ...], reported: int
) -> None:
    """`torch.export.export(strict=True)` of `return x.is_contiguous()` keeps the sizes of the example."""
    ended = CallEnd("AssertionError: Guard failed: args_0.size()[1] == 6", "args_0_size_1 == 6")
    call = Call("0", RETURNED, ended, symbols=(("args_0_size_1", 0), *symbols))
    assert len(assertions.judge(seen(call))) == reported


def test_a_rejection_is_blamed_on_the_code_that_made_its_assertion() -> None:
    frame = Frame("torch/_meta_registrations.py", 7, "meta_bmm", "torch._check(a == b)", exact=True)
    made = Constraint("assertion", "Eq(u0, 2*u1)", "expect_true", Place("Python", frame.file, 7), (frame,))
    (found,) = classified(seen(refusal("Eq(u0, 2*u1)"), constraints=(made,)), nothing)
    assert (
        str(found.signature) == "over-strict at torch/_meta_registrations.py:meta_bmm [assertion torch._check(a == b)]"
    )
    assert found.frame == frame


@pytest.mark.parametrize(
    ("asserted", "code", "without", "blamed"),
    [
        ("u0 >= 8", "a >= b", "same", "meta_bmm"),
        ("u0 >= 8", "a >= b", "differs", "expand"),
        ("u0 >= 8", "a >= b", "differs elsewhere", "expand"),
        ("Eq(u0, 2*u1)", "a == b", "same", "expand"),
        ("Eq(u0, 1)", "a == b", "same", "expand"),
        ("Eq(u0, 1)", "a == 1", "same", "meta_bmm"),
    ],
)
def test_an_assertion_is_blamed_before_a_guard_if_the_program_is_right_without_it(
    asserted: str, code: str, without: str, blamed: str
) -> None:
    frame = Frame("torch/_meta_registrations.py", 7, "meta_bmm", f"torch._check({code})", exact=True)
    made = Constraint("assertion", asserted, "expect_true", Place("Python", frame.file, 7), (frame,))

    def runner(run: Run) -> Observation:
        if run.semantics.faults == (Fault(made.place, "drop assertion"),):
            right, other = Call("2", RETURNED, RETURNED, "same"), Call("all", RETURNED, RETURNED, "differs")
            return observed(*{"same": (right,), "differs": (wrong(),), "differs elsewhere": (right, other)}[without])
        return observed(Call("2", RETURNED, RETURNED, "same") if run.semantics.answers else refusal(asserted))

    (found,) = classified(seen(refusal(asserted), guards=(GUARD,), constraints=(made,)), runner)
    assert found.signature.site.function == blamed
    # The same if a range that follows from the assertion refuses the call.
    refused = refusal("u0 >= 9")
    refused = msgspec.structs.replace(refused, captured=msgspec.structs.replace(refused.captured, follows=asserted))
    derived = msgspec.structs.replace(made, kind="range", text="u0 >= 9", follows=asserted)
    (found,) = classified(seen(refused, guards=(GUARD,), constraints=(derived,)), runner)
    assert found.signature.site.function == blamed


@pytest.mark.parametrize(
    ("condition", "answer", "blamed"),
    [("u0 > 8", True, "expand"), ("u0 > 8", False, "meta_bmm"), ("u0 > 4", True, "meta_bmm")],
)
def test_a_guard_is_blamed_if_an_assertion_only_repeats_its_answer(condition: str, answer: bool, blamed: str) -> None:
    frame = Frame("torch/_meta_registrations.py", 7, "meta_bmm", "torch._check(a > 8)", exact=True)
    made = Constraint("assertion", "u0 >= 8", "expect_true", Place("Python", frame.file, 7), (frame,))
    guard = msgspec.structs.replace(GUARD, expression=condition if answer else f"~({condition})", fallback=answer)
    right = Call("2", RETURNED, RETURNED, "same")

    def runner(run: Run) -> Observation:
        return observed(right if run.semantics.answers or run.semantics.faults else refusal("u0 >= 8"))

    (found,) = classified(seen(refusal("u0 >= 8"), guards=(guard,), constraints=(made,)), runner)
    assert found.signature.site.function == blamed


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("Eq(u0, u1)", True),
        ("Eq(u0, Min(1, u0))", True),
        ("u0 == min(1, u0)", True),
        ("Eq(u0, Min(1, u0 - 1) + 1)", True),
        ("Eq(u0, Min(2, u0 - 1) + 5)", False),
        ("(u0 < 0) | Eq(u1, u0)", True),
        ("Eq(u0, 4)", False),
        ("Eq(u0, 1)", False),
        ("Eq(1, Max(1, u0))", False),
        ("u0 < 2", False),
        ("Eq(Mod(u1, 3), 0)", False),
        ("Eq(0, PythonMod(u1, 3))", False),
        ("Eq(Mod(u1, 3), u0)", True),
        ("Eq(u0, u7)", False),
        ("", False),
    ],
)
def test_a_size_that_is_1_only_at_run_time_may_be_rejected(expression: str, accepted: bool) -> None:
    assert is_accepted(refusal(expression)) == accepted
    assert bool(assertions.judge(seen(refusal(expression)))) != accepted


def test_inputs_that_only_eager_rejects_lack_an_assertion() -> None:
    (failure,) = assertions.judge(seen(Call("0", REFUSED, RETURNED)))
    assert (failure.kind, failure.evidence) == ("missing-assertion", "at size 0: RuntimeError: no")


def test_what_eager_rejects_in_dead_code_or_of_its_tape_lacks_no_assertion() -> None:
    call = Call("0", REFUSED, RETURNED)
    dead = TEXT.replace("torch.neg(t0)", "torch.neg(x)")
    assert assertions.judge(seen(call, text=dead)) == ()
    chosen = TEXT.replace("torch.neg(t0)", "(t0, torch.neg(x))[0]")
    assert assertions.judge(seen(call, text=chosen)) == ()
    tape = CallEnd("RuntimeError: The differentiated Tensor at index 0 appears to not have been used in the graph.")
    assert assertions.judge(seen(Call("0", tape, RETURNED))) == ()
    storage = CallEnd("RuntimeError: setStorage: sizes [2], strides [1] are out of bounds for storage of size 4")
    assert assertions.judge(seen(Call("0", storage, RETURNED))) == ()


@pytest.mark.parametrize(
    ("returned", "kinds"),
    [
        ("torch.full((t0.shape[0],), 0.5)", []),
        ("torch.neg(t0).shape", []),
        ("t0", ["missing-assertion"]),
        ("torch.neg(t0)", ["missing-assertion"]),
    ],
)
@pytest.mark.parametrize(
    "said",
    [
        "IndexError: index 3 is out of bounds for dimension 0 with size 3",
        "RuntimeError: MKL FFT error: Intel oneMKL DFTI ERROR: Inconsistent configuration parameters",
        "RuntimeError: setStorage: sizes [1], strides [0] are out of bounds for storage of size 0",
    ],
)
def test_what_eager_rejects_of_data_that_only_gives_a_size_lacks_no_assertion(
    said: str, returned: str, kinds: list[str]
) -> None:
    called = seen(Call("1", CallEnd(said), RETURNED), text=TEXT.replace("torch.neg(t0)", returned))
    compiled = called._replace(observation=msgspec.structs.replace(called.observation, stage="inductor"))
    assert [one.kind for one in assertions.judge(compiled)] == kinds


def test_what_eager_rejects_about_memory_that_it_shares_lacks_no_assertion() -> None:
    storage = CallEnd("RuntimeError: setStorage: sizes [2] … are out of bounds for storage of size 4")
    judged = seen(Call("1", storage, RETURNED))
    assert assertions.judge(judged) == ()
    inductor = judged._replace(observation=msgspec.structs.replace(judged.observation, stage="inductor"))
    assert [failure.kind for failure in assertions.judge(inductor)] == ["missing-assertion"]


@pytest.mark.parametrize(
    ("refused", "function", "kinds"),
    [
        ("u0 - 3 >= 0", "expand", []),
        ("0 <= u0 - 3", "expand", []),
        ("u0 - 4 >= 0", "expand", ["over-strict"]),
        ("u0 - 3 >= 0", "narrow", ["over-strict"]),
        ("u0 >= 3", "expand", []),
        ("5 <= 2*u0", "expand", []),
        ("u0 >= 4", "expand", ["over-strict"]),
    ],
)
def test_a_size_of_minus_1_that_data_decide_is_not_kept_by_expand(
    refused: str, function: str, kinds: list[str]
) -> None:
    frame = Frame("torch/_refs/__init__.py", 3198, function, "a", exact=True)
    made = Constraint("assertion", refused, "expect_true", Place("Python", frame.file, 3198), (frame,))
    call = Call("2", RETURNED, CallEnd("RuntimeError: no", refused), symbols=(("u0", 2),))
    assert [failure.kind for failure in assertions.judge(seen(call, constraints=(made,)))] == kinds


def test_a_replacement_is_blamed_on_the_code_that_made_it() -> None:
    frame = Frame("torch/_refs/__init__.py", 3, "cat", "a", exact=True)
    made = Constraint("replacement", "u0 = 4", "expect_true", Place("Python", frame.file, 3), (frame,))
    subject = seen(refusal("Eq(u0, u1)"), constraints=(made,))
    (failure,) = specialization.judge(subject)
    assert failure.evidence == "at size 2: u0 = 4 is not so"
    assert specialization.locate(failure, subject, nothing).site.function == "cat"
    assert (
        specialization.judge(seen(refusal("Eq(u0, u1)"), constraints=(msgspec.structs.replace(made, text="u0 = 3"),)))
        == ()
    )


def test_an_inference_that_does_not_follow_is_blamed_in_place_of_the_assertion() -> None:
    """`Eq(u0*u1, 6*u0)` is true for u0 = 0 and any u1."""
    place = Place("Python", "torch/_prims_common/__init__.py", 1104)
    stack = (
        Frame(place.file, 1104, "infer_size", "torch._check(a == b)", exact=True),
        Frame("torch/fx/experimental/symbolic_shapes.py", 8756, "_refine_ranges", "a", exact=True),
    )
    made = Constraint("replacement", "u1 = 6", "expect_true", place, stack, follows="Eq(u0*u1, 6*u0)")
    empty = Call("0", RETURNED, REFUSED, symbols=(("u0", 0), ("u1", 0)))
    for call, function in ((empty, "_refine_ranges"), (refusal("Eq(u1, 6)"), "infer_size")):
        subject = seen(call, constraints=(made,))
        (failure,) = [one for one in specialization.judge(subject) if one.kind == "specialized"]
        assert specialization.locate(failure, subject, nothing).site.function == function


@pytest.mark.parametrize(
    ("wanted", "in_aot", "site"),
    [
        (("(6, 1)", "(2, 1)"), "same", "torch/_inductor/graph.py:run_node"),
        (("(6, 1)", "(2, 1)"), "differs", "torch.relu"),
        (("(6, 1)", "(6, 1)"), "same", "torch.relu"),
    ],
)
def test_strides_that_only_inductor_changes_are_its_doing(
    wanted: tuple[str, ...], in_aot: Literal["same", "differs"], site: str
) -> None:
    """A stride that does not depend on the size is not one that inductor leaves free."""
    calls = [
        msgspec.structs.replace(wrong(), differences=(Difference("strides", "result", f"(1, 2), eager has {one}"),))
        for one in wanted
    ]
    compiled = OracleInput(TEXT, msgspec.structs.replace(observed(*calls), stage="inductor"))

    def runs(run: Run) -> Observation:
        differs = in_aot if run.stage in {"aot", "aot-decomposed"} else "differs"
        call = msgspec.structs.replace(calls[0], agreement=differs)
        return msgspec.structs.replace(observed(call), stage=run.stage)

    (failure,) = agreement.judge(compiled)
    assert str(agreement.locate(failure, compiled, runs).site) == site


def test_what_a_kernel_without_checks_takes_may_be_refused() -> None:
    batch_norm = TEXT.replace("torch.neg(t0)", "torch.native_batch_norm(t0, x, x, x, x, True, 0.5, 0.6)")
    place = Place("Python", "torch/_subclasses/fake_impls.py", 3)
    made = Constraint("replacement", "u0 = 5", "expect_true", place, follows="Eq(u0, 5)")
    kinds = {
        text: {one.kind for oracle in (assertions, specialization) for one in oracle.judge(subject)}
        for text in (TEXT, batch_norm)
        for subject in [seen(refusal("Eq(u0, 5)"), constraints=(made,), text=text)]
    }
    assert kinds == {TEXT: {"specialized"}, batch_norm: set()}


@pytest.mark.parametrize(
    ("function", "numbers", "kinds"),
    [
        ("min", "0.0, eager has 0", []),
        ("min", "0.5, eager has 0", ["wrong-result"]),
        ("min", "True, eager has False", ["wrong-result"]),
        ("torch.sym_min", "0.0, eager has 0", ["wrong-result"]),
    ],
)
def test_the_type_of_the_smaller_of_an_int_and_a_float_depends_on_data(
    function: str, numbers: str, kinds: list[str]
) -> None:
    text = TEXT.replace("torch.neg(t0)", f"{function}(0, t0.sum().item())")
    call = msgspec.structs.replace(wrong(), differences=(Difference("number", "result", numbers),))
    assert [one.kind for one in agreement.judge(seen(call, text=text))] == kinds


@pytest.mark.parametrize(("size", "kinds"), [(0, []), (1, []), (3, ["wrong-result"])])
def test_the_order_of_dims_is_not_compared_where_several_fit(size: int, kinds: list[str]) -> None:
    """An order for which a check was asked is another matter: then eager raises, and a capture has to."""
    text = TEXT.replace("torch.neg(t0)", "t0.dim_order()")
    symbols = (("u0", size),)
    assert [
        one.kind for one in agreement.judge(seen(msgspec.structs.replace(wrong(), symbols=symbols), text=text))
    ] == kinds
    refuses = Call("2", REFUSED, RETURNED, symbols=symbols)
    assert [one.kind for one in assertions.judge(seen(refuses, text=text))] == ["missing-assertion"]


@pytest.mark.parametrize(("size", "kinds"), [(0, []), (3, ["missing-assertion"])])
def test_strides_of_an_empty_tensor_are_not_compared(size: int, kinds: list[str]) -> None:
    text = TEXT.replace("torch.relu(x)", "x + x.stride(0)")
    refuses = Call("2", REFUSED, RETURNED, symbols=(("u0", size),))
    differs = msgspec.structs.replace(wrong(), symbols=refuses.symbols)
    assert [one.kind for one in assertions.judge(seen(refuses, text=text))] == kinds
    assert [one.kind for one in agreement.judge(seen(differs, text=text))] == ["wrong-result"] * len(kinds)


@pytest.mark.parametrize(("wrong_in", "named"), [("relu", "torch.relu"), ("neg", "torch.neg"), ("abs", "torch.abs")])
def test_of_calls_inside_of_a_call_the_one_whose_result_differs_is_named(wrong_in: str, named: str) -> None:
    text = TEXT.replace("torch.neg(t0)", "torch.neg(torch.relu(t0))").replace("torch.relu(x)", "torch.abs(x)")
    whole = seen(wrong(), text=text)

    def runs(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        program = OracleInput(run.subject.text, observed()).program
        assert program is not None
        agrees = Call("2", RETURNED, RETURNED, "same", symbols=(("u0", 3),))
        return observed(wrong() if f"torch.{wrong_in}" in functions_in(program) else agrees)

    (failure,) = agreement.judge(whole)
    assert str(agreement.locate(failure, whole, runs).site) == named


def test_inductor_compiles_no_program_that_returns_a_number_only() -> None:
    text = TEXT.replace("t0 = torch.relu(x)", "n0 = x.shape[0] * 2\n    t0 = torch.full((torch.sym_min(n0, 3),), 0.5)")
    compiled = OracleInput(text, msgspec.structs.replace(observed(wrong()), stage="inductor"))
    tried: list[str] = []

    def runs(run: Run) -> Observation:
        assert isinstance(run.subject, ProgramSubject)
        if run.out:  # no part of inductor is to blame
            return observed(wrong())
        tried.append(run.subject.text.splitlines()[-1].strip())
        agrees = Call("2", RETURNED, RETURNED, "same", symbols=(("u0", 3),))
        return msgspec.structs.replace(observed(agrees), stage=run.stage)

    (failure,) = agreement.judge(compiled)
    agreement.locate(failure, compiled, runs)
    before = ["return torch.neg(t0)"] * 2  # AOTAutograd's capture, and that one decomposed
    assert tried == [*before, "return t0", "return torch.neg(t0)"]


PLANTED = f"""{HEADER}# inputs: x = normal; mask = trues(3)
def program(x: Float32[Tensor, "6 4"], mask: Bool[Tensor, "6"]):
    kept = x[mask]
    return torch.nn.functional.feature_alpha_dropout(kept, training=False) + kept.narrow(0, 0, kept.shape[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["export", "aot"])
def test_a_healthy_program_has_no_failure(stage: Stage) -> None:
    observation = observe(Run(ProgramSubject(PLANTED), stage, calls=CALL_SIZES))
    assert observation.calls
    assert classified(OracleInput(PLANTED, observation), observe) == ()


@pytest.mark.slow
def test_every_planted_answer_that_changes_a_result_is_named() -> None:
    """Invert each fallback of a program. If the result differs, the failure is located at exactly that guard."""
    text = f"""{HEADER}# inputs: x = sizes(3, 4, 3)
def program(x: Int64[Tensor, "3"]):
    t0 = torch.bincount(x).float()
    t1 = torch.stack((t0, t0)).unsqueeze(0)
    return torch.bmm(t1, t1.transpose(1, 2))
"""
    healthy = observe(Run(ProgramSubject(text), "aot", calls=CALL_SIZES))
    changing = 0
    for guard in healthy.guards:
        planted = Semantics(answers=(Answer(guard.place, not guard.fallback, guard.expression),))
        observation = observe(Run(ProgramSubject(text), "aot", planted, calls=CALL_SIZES))
        for found in classified(OracleInput(text, observation), observe):
            changing += 1
            assert guard.place.file in {found.signature.site.module, found.signature.site.function}
    assert changing == 1


def test_a_range_is_accepted_if_the_equation_is_that_it_follows_from() -> None:
    def judged(follows: str) -> list[tuple[str, str]]:
        frame = Frame("torch/_refs/__init__.py", 3, "expand", "a", exact=True)
        place = Place("Python", frame.file, 3)
        made = Constraint("range", "u0 <= 2", "expect_true", place, (frame,), follows=follows)
        call = refusal("u0 <= 2")
        call = msgspec.structs.replace(call, captured=msgspec.structs.replace(call.captured, follows=follows))
        found = classified(seen(call, constraints=(made,)), nothing, CALLING)
        return [(one.signature.kind, one.signature.anchor) for one in found]

    assert judged("Eq(u0, u1)") == []
    assert judged("Eq(u0, 2*u1)") == [("over-strict", "assertion a")]
    assert judged("u0 <= 4") == [("narrowed", "range a")]
    assert judged("") == [("narrowed", "range a")]


def test_a_guard_on_arguments_is_accepted_like_an_assertion() -> None:
    call = msgspec.structs.replace(
        refusal("args_0_size_0 == args_1_size_0"), symbols=(("args_0_size_0", 1), ("args_1_size_0", 5))
    )
    assert is_accepted(call)


def test_an_assertion_that_is_not_true_in_a_call_that_returns_is_lost() -> None:
    made = Constraint("assertion", "u0 <= 2", "expect_true", Place("Python", "f", 1), origins=("nonzero",))
    call = Call("2", REFUSED, RETURNED, symbols=(("u0", 3),))
    (found,) = classified(seen(call, constraints=(made,)), nothing, CALLING)
    assert (found.signature.kind, found.signature.anchor) == ("lost-assertion", "sizes of nonzero")
    assert (
        classified(seen(msgspec.structs.replace(call, captured=REFUSED), constraints=(made,)), nothing, CALLING) == ()
    )


@pytest.mark.parametrize(
    ("in_aot", "function"), [(RETURNED, "aot_dispatch_base_graph"), (REFUSED, "create_deferred_runtime_asserts")]
)
def test_the_stage_that_loses_an_assertion_is_blamed(in_aot: CallEnd, function: str) -> None:
    lost = Call("2", RETURNED, RETURNED, "same", failing="u0 <= 2")

    def runner(run: Run) -> Observation:
        assert run.stage == "aot"
        return observed(msgspec.structs.replace(lost, captured=in_aot))

    subject = OracleInput(TEXT, msgspec.structs.replace(observed(lost), stage="inductor"))
    (found,) = classified(subject, runner, CALLING)
    assert (found.signature.kind, found.signature.site.function) == ("lost-assertion", function)


INDEXER = Frame("torch/_inductor/ir.py", 3880, "_dynamic_reshape_indexer", "sizes.check_equals(a, b)", exact=True)
ASSUMED = Constraint("assertion", "Eq(u0, 1)", "expect_true", Place("Python", INDEXER.file, 3880), (INDEXER,))


def test_an_assertion_that_inductor_makes_is_lost_where_it_is_made() -> None:
    call = Call("2", RETURNED, RETURNED, "same", symbols=(("u0", 3),))
    subject = OracleInput(TEXT, msgspec.structs.replace(observed(call, constraints=(ASSUMED,)), stage="inductor"))
    (found,) = classified(subject, nothing, CALLING)
    assert (found.signature.kind, found.signature.site.function) == ("lost-assertion", INDEXER.function)


@pytest.mark.parametrize(("size", "function"), [(3, INDEXER.function), (1, None)])
def test_a_wrong_result_is_at_an_assertion_of_inductor_that_is_not_true(size: int, function: str | None) -> None:
    call = msgspec.structs.replace(wrong(), symbols=(("u0", size),))
    subject = OracleInput("", msgspec.structs.replace(observed(call, constraints=(ASSUMED,)), stage="inductor"))
    (found,) = classified(subject, nothing, ("agreement",))
    assert found.signature.site.function == function


def in_forms(*forms: Form, message: str = "") -> list[tuple[str, str]]:
    made = Constraint("assertion", "u0 < 10", "expect_true", Place("Python", "f", 1), message=message)
    observation = msgspec.structs.replace(observed(constraints=(made,)), forms=forms)
    return [(one.kind, one.evidence) for one in assertions.judge(OracleInput(TEXT, observation))]


def test_assertions_are_judged_in_every_form() -> None:
    late = RuntimeAssertion("u0 >= 2", "a", after=("aten.add",))
    assert in_forms(Form("traced", (late,))) == [("late-assertion", "u0 >= 2 in the traced form")]
    assert in_forms(Form("traced", (msgspec.structs.replace(late, own=True),)), Form("lowered", (late,))) == []
    twice = (RuntimeAssertion("u0 >= 2", "a"), RuntimeAssertion("2 <= u0", "b"))
    assert in_forms(Form("traced", (RuntimeAssertion("True", "a"), RuntimeAssertion("True", "b")))) == []
    assert in_forms(Form("generated", twice)) == [("repeated-assertion", "u0 >= 2 in the generated form")]
    assert in_forms(Form("traced", tuple(msgspec.structs.replace(one, own=True) for one in twice))) == []
    assert in_forms(Form("traced", (RuntimeAssertion("u0 < 10", "c"), RuntimeAssertion("u0 < 12", "d")))) == []


def test_a_message_may_not_be_hidden_by_the_same_condition() -> None:
    said = RuntimeAssertion("u0 < 10", "few", own=True)
    assert in_forms(Form("traced", (RuntimeAssertion("u0 <= 8", "other"), said)), message="few") == []
    hidden = [("lost-message", "u0 < 10 in the traced form")]
    assert in_forms(Form("traced", (RuntimeAssertion("u0 <= 9", "other"), said)), message="few") == hidden
    assert in_forms(
        Form("traced", (said,)), Form("generated", (RuntimeAssertion("u0 < 10", "u0 < 10"),)), message="few"
    ) == [("lost-message", "u0 < 10 in the generated form")]


def test_the_code_of_inductor_has_its_assertions() -> None:
    code = """
        u0 = buf1.size(0)
        buf2 = torch.ops.aten.narrow(buf1, u0)
        if not (u0 >= 2):
            raise RuntimeError('u0 >= 2')
        u1 = buf3.size(0)
        cpp_fused_add_0(buf1, u0)
        if not (u0 == u1):
            raise RuntimeError('Eq(u0, u1)')
        cpp_fused_add_1(buf1, u0, u1)
    """
    assert [*generated_assertions(code)] == [
        RuntimeAssertion("u0 >= 2", "u0 >= 2", after=("torch.ops.aten.narrow",)),
        RuntimeAssertion("u0 == u1", "Eq(u0, u1)"),
    ]


def test_the_code_of_a_branch_has_sizes_of_its_own() -> None:
    code = """
    def true_graph_0(args):
        u0 = buf1.size(0)
        cpp_fused_add_0(buf1, u0)
        if not (u0 >= 3):
            raise RuntimeError('u0 >= 3')
    def call(self, args):
        u0 = buf1.size(0)
        if not (u0 >= 2):
            raise RuntimeError('u0 >= 2')
    """
    assert [*generated_assertions(code)] == [RuntimeAssertion("u0 >= 2", "u0 >= 2")]
