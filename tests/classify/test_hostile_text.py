"""Text that nobody wrote as torch does is classified, too: frames that are no Python, and messages of any length.

A search that takes quadratic time would take minutes here.
"""

from __future__ import annotations

import pytest

from ddefuzz.classify import chain, evidence
from ddefuzz.classify.anchor import callee, python_anchor, relation, short_anchor
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.site import quoted_site
from ddefuzz.execute.protocol import EXPLICIT, ExceptionInfo, Observation
from ddefuzz.instrument import truth
from ddefuzz.instrument.events import PROGRAM_FILE, Frame
from ddefuzz.oracles.capture import classify

DEEP = {
    "words": "a " * 20_000,
    "parentheses": "(" * 20_000,
    "closed": "(" * 20_000 + ")" * 20_000,
    "signs": "-" * 20_000 + "a",
    "attributes": "a" + ".b" * 20_000,
    "calls": "a" + "()" * 20_000,
    "sum": "a + " * 20_000 + "a",
    "blocks": "if a: " * 20_000,
    "zero": "a\0b",
    "digits": "a(" + "1" * 10_000 + ")",
}


@pytest.mark.slow
@pytest.mark.parametrize("code", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("kind", ["dde", "internal-error", "unsupported"])
def test_code_that_python_does_not_parse_is_its_own_anchor(kind: str, code: str) -> None:
    frame = Frame(PROGRAM_FILE, 4, "program", code)
    text = " ".join(code.split())
    assert python_anchor(frame) == short_anchor(frame) == callee(frame) == text
    assert (relation(code), evidence.called(code), truth.parsed(code)) == ("", (), None)
    error = ExceptionInfo("RuntimeError", "no", (frame,), traced=(frame,))
    observation = Observation("export", EXPLICIT, "fail", exceptions=(error,))
    assert classify(Failure(kind, observation, "no")).signature.kind == kind


def test_code_of_usual_depth_is_parsed() -> None:
    code = f"torch.relu({'(' * 50}x{' + 1)' * 50})"
    assert callee(Frame(PROGRAM_FILE, 4, "program", code)) == "torch.relu"


TEXTS = {
    "names": "torch." * 50_000,
    "names after a title": "title\n" + "torch." * 50_000,
    "blank lines": "title\n" + "\n" * 300_000,
    "an explanation": "title\n  Explanation:" + "torch." * 50_000,
    "quoted frames": "frame #1: a + 0x1 (a in " * 10_000,
    "quoted lines": f'File "{PROGRAM_FILE}", line 1, in a' + "\n" * 300_000 + "~",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_messages_are_searched_in_linear_time(text: str) -> None:
    chain.refused(text)
    assert quoted_site(text) is None
    observation = Observation("export", EXPLICIT, "fail", exceptions=(ExceptionInfo("RuntimeError", text),))
    assert evidence.failing_ops(observation) == ()


@pytest.mark.parametrize(
    ("message", "function", "reason"),
    [
        ("Unsupported torch.a.b() here", "torch.a.b", "Unsupported … here"),
        ("title\n\n  Explanation: calls (torch.c*()).", "torch.c", "title"),
        ("see own.torch.d()", "", "see own.torch.d()"),
    ],
)
def test_the_name_of_a_refused_function(message: str, function: str, reason: str) -> None:
    assert chain.refused(message) == (function, reason)
