"""Tests of the texts of a fix: the test that it comes with."""

from __future__ import annotations

from ddefuzz.files import SOURCE
from ddefuzz.findings.textform import read_finding
from ddefuzz.fixes.tasks import Calls
from ddefuzz.fixes.texts import test_text as text_of_test

EXPORTED = read_finding(SOURCE / "findings" / "dde-c6d7dda1fd")  # torch.nn.functional.fold of (u0, u1, 4)
COMPILED = read_finding(SOURCE / "findings" / "dde-8c0aaa9e15")


def body(text: str) -> list[str]:
    """The lines of the test after those that make its inputs."""
    lines = [line.strip() for line in text.splitlines()]
    return lines[lines.index("self.assertEqual(captured(*inputs), program(*inputs))") : lines.index("run_tests()") - 3]


def test_a_test_calls_what_it_captured_at_other_sizes_too() -> None:
    assert body(text_of_test(EXPORTED, "fix-1", Calls(("u0=2,u1=1",), ("0",)))) == [
        "self.assertEqual(captured(*inputs), program(*inputs))",
        "inputs = (torch.randn((3, 4, 4)), torch.arange(3) < 2, torch.arange(4) < 1)",
        "self.assertEqual(captured(*inputs), program(*inputs))",
        "inputs = (torch.randn((3, 4, 4)), torch.arange(3) < 0, torch.arange(4) < 0)",
        "with self.assertRaises(RuntimeError):",
        "captured(*inputs)",
    ]


def test_what_torch_compile_compiled_is_called_with_marked_inputs() -> None:
    once, twice = (text_of_test(COMPILED, "fix-1", calls) for calls in (None, Calls(("2",))))
    assert once.count("captured(*inputs)") == 1
    assert twice.count("captured(*inputs)") == 2
    assert twice.count("mark_unbacked(inputs") == 2 * once.count("mark_unbacked(inputs") > 0


def test_a_test_without_other_sizes_calls_it_once() -> None:
    assert body(text_of_test(EXPORTED, "fix-1")) == ["self.assertEqual(captured(*inputs), program(*inputs))"]
