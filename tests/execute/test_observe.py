"""One run is one record, in every stage, and independent of what ran before."""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path

import msgspec
import pytest
import torch
from torch._inductor import config as inductor_config

from ddefuzz.execute.observe import observe
from ddefuzz.execute.protocol import (
    CAPTURE_STAGES,
    COMPILES,
    EXPLICIT,
    SIZE_OBLIVIOUS,
    STAGES,
    CallableSubject,
    ExceptionInfo,
    Observation,
    ProgramSubject,
    Run,
    Semantics,
    Stage,
)
from ddefuzz.internal import exception_chain

HEADER = "# ddefuzz program v1\n"
OK = f"""{HEADER}# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "u0 4"]):
    kept = torch.relu(x)[mask]
    return kept + 1
"""
CHUNK = f"""{HEADER}# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[mask]
    parts = torch.chunk(kept, 2)
    return parts[0]
"""
BRANCH = f"""{HEADER}# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    n = x[mask].size(0)
    return x * 2 if n > 3 else x
"""
PADDED = f"""{HEADER}# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    return torch.constant_pad_nd(x[mask], (0, 0))
"""
CASES = (OK, CHUNK, BRANCH)
TRACED: tuple[Stage, ...] = ("fake", "export", "export-strict", "compile", "aot")


def steady(seen: Observation) -> Observation:
    """The observation without what it costs."""
    return msgspec.structs.replace(seen, cpu_seconds=0.0, seconds=0.0, peak_rss_mb=0.0)


def module_with(tmp_path: Path, body: str) -> CallableSubject:
    path = tmp_path / "subject.py"
    path.write_text(f"import sys, warnings, random, torch\n{body}")
    return CallableSubject(str(path), name="run")


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(stage, marks=[pytest.mark.slow] if stage in COMPILES else [])
        for stage in STAGES
        if stage != "inductor"
    ],
)
def test_a_program_that_captures(stage: Stage) -> None:
    seen = observe(Run(ProgramSubject(OK), stage, graph=True, calls=("example", "all")))
    assert (seen.stage, seen.outcome, seen.exceptions, seen.raised) == (stage, "ok", (), None)
    assert (seen.graph is not None) == (stage in CAPTURE_STAGES)
    assert bool(seen.guards) == (stage not in {"eager", "unflatten"})
    assert [call.agreement for call in seen.calls] == (["same", "same"] if stage in CAPTURE_STAGES else [])
    assert seen.compiles == (1 if stage in {"export-strict", "compile", "aot", "aot-decomposed", "cpp-wrapper"} else 0)
    assert seen.cpu_seconds > 0
    assert 100 < seen.peak_rss_mb < 5000


def test_the_fake_stage_uses_the_decompositions_that_captures_use() -> None:
    """The C++ kernel of this op takes ints; no capture ever runs it on fake tensors."""
    assert observe(Run(ProgramSubject(PADDED), "export")).outcome == "ok"
    assert observe(Run(ProgramSubject(PADDED), "fake")).outcome == "ok"


@pytest.mark.parametrize("stage", TRACED)
def test_a_data_dependent_error_in_cpp(stage: Stage) -> None:
    seen = observe(Run(ProgramSubject(CHUNK), stage))
    assert seen.outcome == "fail"
    assert "GuardOnDataDependentSymNode" in [error.name for error in seen.exceptions]
    assert seen.raised is not None
    assert (seen.raised.expression, seen.raised.place.language) == ("Eq(((u0 + 1)//2), 0)", "C++")
    assert any(frame.function.startswith("at::native::chunk(") for frame in seen.raised.native)
    (origin,) = seen.raised.symbols
    assert (origin.symbol, origin.op, origin.frame and origin.frame.code) == ("u0", "nonzero", "x[mask]")


@pytest.mark.parametrize("stage", TRACED)
def test_a_branch_of_the_users_has_the_same_anchor_everywhere(stage: Stage) -> None:
    raised = observe(Run(ProgramSubject(BRANCH), stage)).raised
    assert raised is not None
    user = [frame for frame in (*raised.python, *raised.traced) if frame.file == "<program>"][-1]
    assert (user.function, user.line, user.exact) == ("program", 5, True)
    assert user.code == "n > 3"
    assert (raised.place.file, raised.place.line) == ("<program>", 5)


@pytest.mark.parametrize("stage", TRACED)
def test_the_same_case_first_last_and_alone(stage: Stage) -> None:
    runs = [Run(ProgramSubject(text), stage, graph=True) for text in CASES]
    first = [steady(observe(run)) for run in runs]
    last = [steady(observe(run)) for run in reversed(runs)]
    assert first == last[::-1]


def test_an_input_keeps_its_gradient_where_its_dims_are_rebuilt() -> None:
    program = (
        "# ddefuzz program v1\n"
        "# inputs: x = normal, grad\n"
        'def program(x: Float32[Tensor, "u0 4"]):\n'
        "    grad = (x.mul(2).sum().backward(), x.grad)[1]\n"
        "    return grad.clone()\n"
    )
    seen = observe(Run(ProgramSubject(program), "export"))
    assert (seen.outcome, seen.exceptions) == ("ok", ())


def test_an_observation_survives_the_wire() -> None:
    for text in CASES:
        seen = observe(Run(ProgramSubject(text), "export-strict"))
        assert msgspec.json.decode(msgspec.json.encode(seen), type=Observation) == seen


def test_size_oblivious_and_planted_faults_are_semantics() -> None:
    program = f"""{HEADER}# inputs: n = sizes(3); x = normal
def program(n: Int64[Tensor, "1"], x: Float32[Tensor, "6 4"]):
    return x[:n.item()]
"""
    explicit = observe(Run(ProgramSubject(program), "export", EXPLICIT))
    assert explicit.outcome == "ok"
    assert {guard.counterfactual for guard in explicit.guards} == {"undecided"}
    assert observe(Run(ProgramSubject(program), "export", SIZE_OBLIVIOUS)).outcome == "fail"
    place = explicit.guards[0].place
    planted = observe(Run(ProgramSubject(program), "export", Semantics("explicit", (place,))))
    assert planted.raised is not None
    assert (planted.raised.place, planted.raised.withheld) == (place, True)
    assert observe(Run(ProgramSubject(program), "export", Semantics("aggressive-2"))).outcome == "ok"


def test_graphs_of_two_traces_are_equal_text() -> None:
    texts = {observe(Run(ProgramSubject(OK), "export", graph=True)).graph for _ in range(2)}
    assert len(texts) == 1


def test_what_a_case_leaves_behind_is_reset(tmp_path: Path) -> None:
    subject = module_with(
        tmp_path,
        "def run(x):\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "    torch.set_grad_enabled(False)\n"
        "    warnings.simplefilter('error')\n"
        "    return torch.rand(1), random.random(), x\n"
        "run_args = (torch.ones(2),)\n",
    )
    filters, values = list(warnings.filters), (torch.get_default_dtype(), torch.is_grad_enabled())
    observe(Run(subject, "eager"))
    assert warnings.filters == filters
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == values


def test_random_numbers_are_the_same_in_every_run(tmp_path: Path) -> None:
    subject = module_with(
        tmp_path, "def run(x):\n    print(torch.rand(1).item(), random.random())\nrun_args = (torch.ones(2),)\n"
    )
    first = observe(Run(subject, "eager")).output
    random.random()
    torch.rand(3)
    assert observe(Run(subject, "eager")).output == first != ""


def test_output_of_both_descriptors_is_captured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    body = (
        "import os\ndef run(x):\n    print('p' * 9000)\n    os.write(2, b'below')\n    print('end')\nrun_args = (1,)\n"
    )
    seen = observe(Run(module_with(tmp_path, body), "eager"))
    assert "below" in seen.output
    assert "end" in seen.output
    assert len(seen.output) <= 2000
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("raised", ["SystemExit(3)", "ValueError('no')", "ValueError('\\ud800')", "RecursionError()"])
def test_whatever_the_subject_raises_is_observed(tmp_path: Path, raised: str) -> None:
    subject = module_with(tmp_path, f"def run(x):\n    raise {raised}\nrun_args = (1,)\n")
    seen = observe(Run(subject, "eager"))
    assert seen.outcome == "fail"
    (error,) = seen.exceptions
    assert error.type == f"builtins.{raised.partition('(')[0]}"
    assert [(frame.function, frame.code) for frame in error.frames] == [("run", f"raise {raised}")]
    assert msgspec.json.decode(msgspec.json.encode(error), type=ExceptionInfo) == error


def test_a_lack_of_memory_says_nothing_about_the_subject(tmp_path: Path) -> None:
    subject = module_with(tmp_path, "def run(x):\n    raise MemoryError\nrun_args = (1,)\n")
    with pytest.raises(MemoryError):
        observe(Run(subject, "eager"))


def test_an_interrupt_that_the_subject_raises_is_an_observation(tmp_path: Path) -> None:
    subject = module_with(tmp_path, "def run(x):\n    raise KeyboardInterrupt\nrun_args = (1,)\n")
    seen = observe(Run(subject, "eager"))
    assert (seen.outcome, seen.exceptions[0].name) == ("fail", "KeyboardInterrupt")


def test_nothing_of_a_failed_run_is_kept(tmp_path: Path) -> None:
    body = (
        "import weakref\n"
        "def run(x):\n    run.alive = weakref.ref(torch.ones(3)); y = torch.ones(3); run.alive = weakref.ref(y)\n"
        "    raise ValueError(y)\n"
        "run_args = (1,)\n"
    )
    subject = module_with(tmp_path, body)
    observe(Run(subject, "eager"))
    assert sys.modules["ddefuzz_user_code_subject"].run.alive() is None


def test_the_chain_follows_cause_then_context_and_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    second.__context__ = first
    third = ValueError("3")
    third.__cause__, third.__context__ = second, KeyError("not followed")
    assert exception_chain(third) == [third, second, first]
    first.__context__ = third
    assert exception_chain(third) == [third, second, first]


def test_inductor_needs_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with inductor_config.patch({"cpp.cxx": (None, "/nowhere/c++")}):
        assert observe(Run(ProgramSubject(OK), "inductor")).outcome == "ok"
