"""Tests of the three recognizers without torch: what they accept, and that they refuse other failures."""

from __future__ import annotations

import importlib.util
import linecache
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ddefuzz.classify.recognition import NATIVE_INTERNAL
from ddefuzz.internal import message_of
from ddefuzz.repro import by_message, by_native, by_python

DIFF = {"function": "at::native::diff_helper", "evaluated": "u0 < 2"}

GUARD = (
    "torch::impl::PythonSymNodeImpl::guard_bool(char const*, long)",
    "c10::SymBool::guard_bool(char const*, long) const",
)
BINDING = (
    "c10::impl::make_boxed_from_unboxed_functor<c10::impl::WrapFunction_<at::diff>, false>::call(void*)",
    "torch::autograd::THPVariable_diff(_object*, _object*, _object*)",
    "torch::outside(_object*)",
)


def error(*functions: str, expression: str = "u3 < 2") -> BaseException:
    """A data-dependent error with the C++ frames of a guard, the functions (innermost first) and a binding."""
    frames = [*GUARD, *functions, *BINDING]
    stack = "".join(f'  File "", line 0, in {name}\n' for name in reversed(frames))
    return RuntimeError(
        f"Could not guard on data-dependent expression {expression} (unhinted: {expression}).\n\n"
        f"C++ stack trace:\n{stack}\n"
    )


HELPER = "at::native::diff_helper(at::Tensor const&, long, long)"
DIFF_ITSELF = "at::native::diff(at::Tensor const&, long)"


@pytest.mark.parametrize(
    "seen",
    [
        error(HELPER, DIFF_ITSELF),
        error(f"std::vector<at::Tensor> {HELPER}"),
        error("c10::operator<(c10::SymInt const&, int)", HELPER),
        error(HELPER, expression="2 > u5"),
        error(HELPER, expression="u1 >= 2"),
        error(HELPER, expression="2 <= u1"),
        RuntimeError(f"raised RuntimeError({error(HELPER)!s:s})".replace("\n", "\\n")),
    ],
    ids=["as recorded", "result type", "operator", "reversed", "negated", "reversed and negated", "quoted"],
)
def test_the_same_question_of_the_same_cxx_function_is_recognized(seen: BaseException) -> None:
    assert by_native.seen([seen], DIFF, NATIVE_INTERNAL) == DIFF


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (error(DIFF_ITSELF), {**DIFF, "function": "at::native::diff"}),
        (error("at::infer_size(long)", HELPER), {**DIFF, "function": "at::infer_size"}),
        (error("at::native::diff_helper2(long)"), {**DIFF, "function": "at::native::diff_helper2"}),
        (error("??", HELPER), {**DIFF, "function": "??"}),
        (error(), {**DIFF, "function": "none in C++"}),
        (RuntimeError("data-dependent expression u0 < 2 (unhinted"), {**DIFF, "function": "none in C++"}),
        (error(HELPER, expression="u0 > 2"), {**DIFF, "evaluated": "u0 > 2"}),
        (error(HELPER, expression="2 < u0"), {**DIFF, "evaluated": "2 < u0"}),
        (error(HELPER, expression="u0 < 3"), {**DIFF, "evaluated": "u0 < 3"}),
        (error(HELPER, expression="Eq(u0, 2)"), {**DIFF, "evaluated": "Eq(u0, 2)"}),
        (error(HELPER, expression="2*u0 < 2"), {**DIFF, "evaluated": "2*u0 < 2"}),
        (error(HELPER, expression="u0"), {**DIFF, "evaluated": "u0"}),
    ],
    ids=[
        "its caller",
        "a function that it calls",
        "a longer name",
        "a function without a name that it calls",
        "no function",
        "no C++ frames",
        "another direction",
        "operands exchanged",
        "another number",
        "another relation",
        "another size",
        "an int instead of a bool",
    ],
)
def test_another_cxx_failure_is_refused(seen: BaseException, found: dict[str, str]) -> None:
    assert by_native.seen([seen], DIFF, NATIVE_INTERNAL) == found


def test_only_the_innermost_native_call_counts() -> None:
    # A decomposition in Python inside of `diff`: its own C++ op guards.
    inner = "at::native::sum(at::Tensor const&)", "torch::autograd::THPVariable_sum(_object*)"
    assert by_native.seen([error(*inner, HELPER)], DIFF, NATIVE_INTERNAL)["function"] == "at::native::sum"


LIBRARY = """\
def positive(size):
    raise RuntimeError(size)


def blamed(size, other):
    if size == 0 and positive(other):
        return 1
    if positive(size) or positive(other):
        return 2
    assert positive(
        other
    ), "message"


def caller(size, other):
    return blamed(size, other)


def another(size):
    if positive(size):
        return 1


def comprehension(sizes):
    return [positive(size) for size in sizes]
"""


@pytest.fixture
def library(tmp_path: Path) -> ModuleType:
    """A module in a folder that looks like one of installed packages, so that its name is `library.py`."""
    path = tmp_path / "site-packages" / "library.py"
    path.parent.mkdir()
    path.write_text(LIBRARY)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location("library", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        call()
    return caught.value


# `positive` passes the question on, as a guard does.
INTERNAL = ("library.py:positive",)


def test_the_same_branch_of_the_same_python_function_is_recognized(library: ModuleType) -> None:
    for expected in ("positive(size)", "positive(size) or positive(other)"):
        facts = {"function": "library.py:blamed", "evaluated": expected}
        assert by_python.seen([raised(lambda: library.caller(1, 1))], facts, INTERNAL) == facts
    facts = {"function": "library.py:comprehension", "evaluated": "positive(size)"}
    assert by_python.seen([raised(lambda: library.comprehension([1]))], facts, INTERNAL) == facts


@pytest.mark.parametrize(
    ("function", "expected", "found"),
    [
        ("blamed", "size == 0", "if positive(size) or positive(other):"),
        ("blamed", "positive(other)", "if positive(size) or positive(other):"),
        ("blamed", "size == 0 and positive(other)", "if positive(size) or positive(other):"),
        ("another", "positive(size)", "if positive(size) or positive(other):"),
        ("caller", "blamed(size, other)", "if positive(size) or positive(other):"),
    ],
)
def test_another_branch_or_function_of_python_is_refused(
    library: ModuleType, function: str, expected: str, found: str
) -> None:
    facts = {"function": f"library.py:{function}", "evaluated": expected}
    seen = by_python.seen([raised(lambda: library.caller(1, 1))], facts, INTERNAL)
    assert seen == {"function": "library.py:blamed", "evaluated": found}


def test_a_guard_without_a_function_is_refused() -> None:
    facts = {"function": "library.py:blamed", "evaluated": "positive(size)"}
    assert by_python.seen([RuntimeError("never raised")], facts, INTERNAL) == {"function": "an unknown place"}


SKIPPED = {"exception": "Unsupported", "message": "Attempted to call function marked as skipped", "op": "sin"}


@pytest.mark.parametrize(
    "message",
    [
        "Attempted to call function marked as skipped\n  Explanation: torch.sin is skipped",
        "Attempted to call function marked as skipped by a rule\n  Explanation: torch.sin",
    ],
)
def test_the_same_message_about_the_same_op_is_recognized(message: str) -> None:
    found = by_message.seen([RuntimeError(message)], SKIPPED)
    assert found == {"message": SKIPPED["message"], "op": "sin"}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Attempted to call function marked as skipped\n torch.sinh", {"op": "another"}),
        ("Attempted to call function marked as skipped", {"op": "another"}),
        ("Attempted to call a function\n torch.sin", {"message": "Attempted to call a function"}),
        ("Attempted to call function\n torch.sin", {"message": "Attempted to call function"}),
        ("Failed\nAttempted to call function marked as skipped\n torch.sin", {"message": "Failed"}),
    ],
    ids=["another op", "no op", "another message", "a part of it", "in a later line"],
)
def test_another_message_is_refused(message: str, found: dict[str, str]) -> None:
    seen = by_message.seen([RuntimeError(message)], SKIPPED)
    assert seen == {"message": SKIPPED["message"], "op": "sin", **found}


def test_numbers_addresses_and_folders_of_a_message_do_not_matter() -> None:
    expected = {"message": "INTERNAL ASSERT FAILED at /a/b.cpp:12: tensor 0x7f of u0 has 2 dims"}
    for message, is_same in (
        ("INTERNAL ASSERT FAILED at /c/d.cpp:40: tensor 0x80 of u7 has 3 dims", True),
        ("INTERNAL ASSERT FAILED at /a/b.cpp:12: tensor 0x7f of u0 has 2 rows", False),
    ):
        seen = by_message.seen([RuntimeError(message)], expected)
        assert (seen == {"message": expected["message"]}) == is_same


def test_a_key_of_several_lines_is_one_message() -> None:
    """Dynamo adds lines to the key of a KeyError, which prints a repr: on one line."""
    error = KeyError("_checkpoint_context_fn\n\nWhile executing %wrap")
    assert message_of(error) == error.args[0]
    assert by_message.seen([error], {"message": "_checkpoint_context_fn"}) == {"message": "_checkpoint_context_fn"}
    assert message_of(KeyError("x")) == "'x'"


def test_a_message_without_words_stands_for_itself_only() -> None:
    assert by_message.seen([RuntimeError("7")], {"message": "5"}) == {"message": "5"}
    assert by_message.seen([RuntimeError("another failure")], {"message": "5"}) == {"message": "another failure"}
