"""Titles have op, site and expression, and leave out what is unknown."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ddefuzz.answers.model import Control
from ddefuzz.classify.anchor import MOST, MOST_SAID, abridged, question
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Cause, Signature, Site
from ddefuzz.classify.site import USER_SITE
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.findings.lifecycle import State
from ddefuzz.findings.model import Finding, title_of
from ddefuzz.findings.textform import read_findings
from ddefuzz.show.evidence import facts_of
from tests.findings.arbitrary_findings import CHUNK, failure_of


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("Eq(u7, 0)", "u7 == 0"),
        ("Ne(u3*u5, Max(1, u3))", "u3*u5 != Max(1, u3)"),
        ("1 > 2*u4", "2*u4 < 1"),
        ("2*u4 < 1", "2*u4 < 1"),
        ("Eq(u1, 0) | Eq(u2, 0)", "Eq(u1, 0) | Eq(u2, 0)"),
        ("zuf2", "zuf2"),
        ("s77 - u4", "s77 - u4"),
        ("u3", "u3"),
    ],
)
def test_a_question_as_people_write_it(expression: str, said: str) -> None:
    assert question(expression) == said


def test_a_long_question_is_cut_where_a_term_ends() -> None:
    said = question("Eq(u0*u1, 0) | Eq(IsNonOverlappingAndDenseIndicator(u0, u1, 1, u0), 1) | (Eq(1, u1))")
    assert len(said) <= MOST
    assert said.endswith(" …")
    assert said.startswith("Eq(u0*u1, 0) | Eq(IsNonOverlappingAndDenseIndicator(u0, u1, 1")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("too \n few", "too few"),
        (f"{'a' * 90}. {'b ' * 90}", "a" * 90),
        (f"found {'(1, 2), ' * 40}not in list", f"found {'(1, 2), ' * 11}(1, … 2), {'(1, 2), ' * 10}not in list"),
        ("a" * 300, f"{'a' * 98} … {'a' * 98}"),
    ],
)
def test_of_a_long_message_the_first_sentences_or_both_ends_are_kept(message: str, said: str) -> None:
    assert abridged(message) == said
    assert len(said) <= MOST_SAID


def guard(method: str = "guard_bool", expression: str = "Eq(u3, 0)") -> Failure:
    failure = failure_of(CHUNK, expression)
    assert failure.observation.raised is not None
    raised = msgspec.structs.replace(failure.observation.raised, method=method)
    return msgspec.structs.replace(failure, observation=msgspec.structs.replace(failure.observation, raised=raised))


def error(kind: Kind, exception: str, message: str) -> Failure:
    return Failure(kind, Observation("export", EXPLICIT, "fail", "", (ExceptionInfo(exception, message),)), message)


CXX = Site("C++", None, "at::native::cov")
PYTHON = Site("Python", "a.py", "f")


@pytest.mark.parametrize(
    ("kind", "site", "anchor", "cause", "failure", "said"),
    [
        ("dde", CXX, "", "avoidable", guard(), "torch.f: at::native::cov asks whether u3 == 0"),
        ("dde", CXX, "", "int-required", guard("guard_int", "u3"), "torch.f: at::native::cov needs u3 as an int"),
        ("dde", USER_SITE, "", "int-required", guard("guard_float", "u3"), "torch.f: the binding needs u3 as a float"),
        ("dde", USER_SITE, "", "user", guard(), "torch.f: the program asks whether u3 == 0"),
        ("dde", Site("C++", None, "torch.f"), "", "avoidable", guard(), "torch.f asks whether u3 == 0"),
        (
            "dde",
            PYTHON,
            "a.size(1) != 2",
            "avoidable",
            guard(),
            "torch.f: a.py:f asks whether u3 == 0 (a.size(1) != 2)",
        ),
        ("dde", PYTHON, "u3 == 0", "avoidable", guard(), "torch.f: a.py:f asks whether u3 == 0"),
        (
            "data-dependent-output",
            Site("C++", None, "aten::geqrf"),
            "UnsupportedOperatorException",
            "no-kernel",
            error("data-dependent-output", "UnsupportedOperatorException", "aten.geqrf.default"),
            "torch.f: aten.geqrf.default has no fake kernel",
        ),
        (
            "data-dependent-output",
            CXX,
            "DataDependentOutputException aten::equal",
            "avoidable",
            error("data-dependent-output", "DataDependentOutputException", "aten.equal.default"),
            "torch.f: at::native::cov: the value of aten.equal.default depends on the data",
        ),
        (
            "unsupported",
            Site("Python", "torch/_dynamo", None),
            "Unsupported Tensor.resize_() call",
            "refused",
            error("unsupported", "Unsupported", "Unsupported Tensor.resize_() call"),
            "torch.f: dynamo refuses: Unsupported Tensor.resize_() call",
        ),
        (
            "internal-error",
            Site("C++", None, "torch.f"),
            "RuntimeError: Cannot call numel()",
            "int-required",
            error("internal-error", "RuntimeError", "Cannot call numel()"),
            "torch.f raises RuntimeError: Cannot call numel()",
        ),
        (
            "crash",
            Site("Python", None, None),
            "",
            "unclassified",
            Failure("crash", Observation("aot", EXPLICIT, "crash", "SIGSEGV"), "SIGSEGV"),
            "torch.f: capture in aot ends the process: SIGSEGV",
        ),
    ],
)
def test_titles(kind: Kind, site: Site, anchor: str, cause: Cause, failure: Failure, said: str) -> None:
    assert title_of(Signature(kind, site, anchor), cause, failure, ("torch.f", "torch.g")) == said


def test_without_an_op_or_a_failure_the_rest_is_said() -> None:
    assert title_of(CHUNK, "avoidable", guard()) == "at::native::chunk asks whether u3 == 0"
    assert title_of(CHUNK, "avoidable") == "dde at at::native::chunk"


@pytest.mark.parametrize(
    ("control", "data_dependent", "end"),
    [
        (Control("fails", "passes"), False, "unsupported (fails with static sizes, too)"),
        (Control("passes", "fails"), False, "unsupported (fails with backed sizes, too)"),
        (Control("passes", "passes"), True, "unsupported"),
        (None, None, "unsupported"),
    ],
)
def test_what_fails_without_data_says_so(control: Control | None, data_dependent: bool | None, end: str) -> None:
    failure = error("unsupported", "Unsupported", "unsupported")
    signature = Signature("unsupported", CXX, "unsupported")
    finding = Finding(id=signature.key, signature=signature, cause="unclassified", failure=failure, control=control)
    assert finding.data_dependent is data_dependent
    assert finding.title.endswith(end)


FOLDER = Path(__file__).parents[2] / "findings"
COMMITTED = {one.id: one for one in read_findings(FOLDER, datetime(2025, 1, 1, tzinfo=UTC))}


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("wrong-meta-1fe24b31a1", ": the graph says (20, 2, 4, 1), the value has (4, 2, 8, 1)"),
        ("wrong-layout-d72250c247", " at size example: strides of result: (24, 12, 6, 1), eager has (24, 1, 12, 2)"),
        ("internal-error-c3b55b38e5", ":evaluate_min raises TypeError: evaluate_min(2, u0) with unbacked symints"),
        (
            "internal-error-a9ab141597",
            "<class 'torch.distributed.tensor._dtensor_spec.DTensorSpec'> (fails with static sizes, too)",
        ),
        ("internal-error-98dbdd422c", " parameter arg1_1, but one was not passed in! (fails with static sizes, too)"),
        ("recompiles-d9caf0be28", ": Eq(s77, 7): compiles 3 times at sizes 5, 7, 9; 2 would do"),
        ("dde-3fee587757", " asks whether u0 != 2 (query.size(0) != key.size(0))"),
    ],
)
def test_titles_of_committed_findings_have_the_fact(name: str, end: str) -> None:
    assert COMMITTED[name].title.endswith(end)


def test_no_two_committed_findings_share_a_title() -> None:
    titles = Counter(one.title for one in COMMITTED.values())
    assert [title for title, number in titles.items() if number > 1] == []


@pytest.mark.parametrize(("state", "said"), [("new", "a person has to read it"), ("triaged", "A person has read it")])
def test_what_to_change_is_known_after_a_review_if_no_rule_knows_the_cause(state: State, said: str) -> None:
    failure = error("internal-error", "TypeError", "an integer is required")
    signature = Signature("internal-error", CXX, "TypeError")
    finding = Finding(id=signature.key, signature=signature, cause="unclassified", failure=failure, state=state)
    assert dict(facts_of(finding))["what to change"].endswith(said)
