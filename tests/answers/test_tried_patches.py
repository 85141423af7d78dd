"""Tests of trying patches: on hand-made runs, with a planted branch, and with a real finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch

from ddefuzz.answers.experiment import (
    MARK,
    NamedProgram,
    Runners,
    TriedPatches,
    answer_guard,
    calling,
    experiment,
    first_guard,
    try_patches,
)
from ddefuzz.answers.model import Score
from ddefuzz.answers.patch import Source, patches
from ddefuzz.execute.observe import observe, observe_patched, patched
from ddefuzz.execute.protocol import (
    EXPLICIT,
    Call,
    CallEnd,
    Difference,
    ExceptionInfo,
    Observation,
    PatchedRun,
    ProgramSubject,
    Run,
)
from ddefuzz.program.sizes import CallSize

SOURCE = "import torch\n\ndef f(a, n):\n    if a == n:\n        return a\n    return n\n"
TEXT = '# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "u0={}"]):\n    return x + 1\n'
FOUND = ("first", "second", "elsewhere", "sample", "other sample")
NAMES = {TEXT.format(size): name for size, name in enumerate(FOUND)}
PROGRAMS = [NamedProgram(name, ProgramSubject(text)) for text, name in NAMES.items()]
PROGRAMS, SAMPLES = PROGRAMS[:3], PROGRAMS[3:]


def same(size: CallSize) -> Call:
    return Call(size, CallEnd(), CallEnd(), "same")


def differs(size: CallSize) -> Call:
    return Call(size, CallEnd(), CallEnd(), "differs", (Difference("values", "result", ""),))


def accepts(size: CallSize) -> Call:
    return Call(size, CallEnd("ValueError: no"), CallEnd())


def ok(*calls: Call) -> Observation:
    return Observation("export", EXPLICIT, "ok", calls=calls)


def fails(message: str) -> Observation:
    return Observation("export", EXPLICIT, "fail", exceptions=(ExceptionInfo("builtins.RuntimeError", message),))


def trials(run: Callable[[str, PatchedRun], Observation]) -> TriedPatches:
    def runner(task: PatchedRun) -> Observation:
        assert isinstance(task.run.subject, ProgramSubject)
        name = NAMES[task.run.subject.text]
        if MARK in task.source:
            return ok() if "elsewhere" in name or name == "other sample" else fails(f"invalid literal: {MARK!r}")
        return run(name, task)

    found = patches(Source(SOURCE), "torch/x.py", 4, "a == n")
    return try_patches(found, (4, "a == n"), PROGRAMS, SAMPLES, "export", runner)


def test_the_first_patch_with_which_nothing_differs_is_proposed() -> None:
    found = trials(lambda _name, task: ok(same("0")) if "guard_or_true" in task.source else ok(differs("0")))
    assert found.best is not None
    assert found.best.patch.form == "guard_or_true"
    assert [(one.form, one.why) for one in found.refused] == [("guard_or_false", "differs at 0")] * 2
    assert found.best.evidence.kept == Score(agree=2, same=2)
    assert found.best.evidence.samples == Score(agree=1, same=1)
    assert str(found.best.evidence.kept) == "2 of 2 pass and agree; eager does the same in 2 of 2"


def test_what_differs_elsewhere_is_counted_and_the_next_patch_is_tried() -> None:
    def run(name: str, task: PatchedRun) -> Observation:
        wrong = name == "second" and "sym_eq" not in task.source and not task.eager
        return ok(differs("1")) if wrong else ok(same("1"))

    found = trials(run)
    assert found.best is not None
    assert "sym_eq" in found.best.patch.code
    assert "1 of 2 pass and agree, 1 differ" in found.refused[0].why


def test_a_change_of_eager_is_no_right_patch() -> None:
    found = trials(lambda _name, task: ok(differs("1")) if task.eager else ok(same("1")))
    assert found.best is not None
    assert not found.best.evidence.is_right
    assert found.best.evidence.kept.changed == 2


def test_a_patch_with_which_inputs_are_accepted_that_eager_rejects_is_refused() -> None:
    found = trials(lambda _name, _task: ok(same("1"), accepts("0")))
    assert found.best is None
    assert found.refused[0].why == "accepts at 0"


def test_a_patch_that_does_not_capture_says_why() -> None:
    found = trials(lambda _name, _task: fails("Could not guard\nmore"))
    assert found.best is None
    assert found.refused[0].why == "RuntimeError: Could not guard"


def test_kept_programs_are_those_that_call_the_functions() -> None:
    programs = [("a", "x.roll(1)"), ("b", "torch.roll(x, 1)"), ("c", "torch.rolling(x)"), ("d", "x.roll(1)")]
    assert [one.name for one in calling(["torch.roll"], programs)] == ["a", "b"]
    assert calling([], programs) == []


FILE = "torch/nn/functional.py"
PROGRAM = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "2 u0=3"]):
    return torch.nn.functional.softsign(x)
"""


@pytest.mark.slow
def test_a_planted_branch_is_answered_and_patched() -> None:
    path = Path(torch.__file__).parents[1] / FILE
    before = path.read_text()
    planted = before.replace(
        "    return input / (input.abs() + 1)\n",
        "    if input.size(-1) == 1:\n        input = input.clone()\n    return input / (input.abs() + 1)\n",
    )
    assert planted != before
    line = planted.splitlines().index("    if input.size(-1) == 1:") + 1
    program = NamedProgram("planted", ProgramSubject(PROGRAM))
    with patched(FILE, planted):
        found = experiment([program], "aot", observe)
        assert (str(found.site), found.line, found.code) == (f"{FILE}:softsign", line, "input.size(-1) == 1")
        assert found.verdict == "either answer here"
        candidates = patches(Source(planted), FILE, line, found.code)
        tried = try_patches(candidates, (line, found.code), [program], [], "aot", observe_patched)
    assert tried.best is not None
    assert tried.best.patch.form == "guard_or_false"
    assert "+    if guard_or_false(input.size(-1) == 1):" in tried.best.patch.diff.splitlines()
    assert tried.best.evidence.kept == Score(agree=1, same=1)
    assert path.read_text() == before
    assert first_guard(program.subject, "aot", observe) is None


def test_a_planted_error_of_eager_is_seen() -> None:
    before = (Path(torch.__file__).parents[1] / FILE).read_text()
    wrong = before.replace("    return input / (input.abs() + 1)\n", "    return input / (input.abs() + 2)\n")
    run = Run(ProgramSubject(PROGRAM), "export", calls=("example", "0"))
    (example, empty) = observe_patched(PatchedRun(run, FILE, wrong, eager=True)).calls
    assert (example.agreement, empty.agreement) == ("differs", "same")


@pytest.mark.slow
def test_the_patch_of_a_real_finding() -> None:
    call = "return torch.channel_shuffle(x, 2)"
    text = f'# ddefuzz program v1\n# inputs: x = normal\ndef program(x: Float32[Tensor, "2 4 u0=3 2"]):\n    {call}\n'
    sample = text.replace("u0=3", "u0=5")
    runners = Runners(observe, observe_patched, lambda _request: (sample,))
    done = answer_guard(
        [NamedProgram("one", ProgramSubject(text))], [], ("channel_shuffle",), ["aot"], None, runners, patching=True
    )
    assert done.experiment.verdict == "either answer here"
    assert done.patches is not None
    best = done.patches.best
    assert best is not None
    assert best.evidence.is_right
    assert best.evidence.samples == Score(agree=1, same=1)
    stored = done.evidence("2.13.0")
    assert stored.patch == best.evidence
    assert msgspec.json.decode(msgspec.json.encode(stored), type=type(stored)) == stored
