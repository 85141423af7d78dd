"""Tests of the stand-alone script: it shows the failure, distinguishes it from others, and makes the same inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddefuzz.classify.recognition import NATIVE_INTERNAL, PYTHON_INTERNAL, ExpectedFailure
from ddefuzz.program.evaluate import materialize
from ddefuzz.program.recipes import LAYOUTS
from ddefuzz.program.sizes import MARKED
from ddefuzz.program.text import parse
from ddefuzz.repro.captures import CAPTURES
from ddefuzz.repro.script import repro_script

CHUNK = """\
# ddefuzz program v1
# inputs: mask = trues(4); x = normal
def program(mask: Bool[Tensor, "6"], x: Float32[Tensor, "6 4"]):
    kept = x[mask]
    parts = torch.chunk(kept, 2)
    return parts[0]
"""

CHUNK_OF_INPUT = """\
# ddefuzz program v1
# inputs: self = normal, sliced; keep_u0 = normal; n = sizes(3)
def program(self: Float32[Tensor, "u0 4"], keep_u0: Float32[Tensor, "u0"], n: Int64[Tensor, ""]):
    sums = self + keep_u0[:, None]
    k = n.item()
    parts = torch.chunk(sums, 2)
    return (parts[0], k)
"""

GRAD = """\
# ddefuzz program v1
# inputs: x = normal, grad
def program(x: Float32[Tensor, "u0=3 4"]):
    grad = (x.mul(2).sum().backward(), x.grad)[1]
    return grad.clone()
"""

ADD = """\
# ddefuzz program v1
# inputs: mask = trues(4)
def program(mask: Bool[Tensor, "6"]):
    print(mask)
    return mask + 1
"""


GUARD = "GuardOnDataDependentSymNode"
ZERO_CHUNKS = {"exception": GUARD, "function": "at::native::chunk", "evaluated": "Eq(0, (u7 + 1)//2)"}
IN_CHUNK = ExpectedFailure("by_native", ZERO_CHUNKS, NATIVE_INTERNAL)
"""The message of dynamo and export for `torch.chunk`, with another symbol, order and direction."""

IN_EXPAND = ExpectedFailure("by_native", {**ZERO_CHUNKS, "function": "at::native::expand"}, NATIVE_INTERNAL)
ANOTHER_EXPRESSION = ExpectedFailure("by_native", {**ZERO_CHUNKS, "evaluated": "u0 < 3"}, NATIVE_INTERNAL)
DIFFERENT = ExpectedFailure(
    "by_message", {"exception": "PendingUnbackedSymbolNotFound", "message": "Pending unbacked symbols"}
)

LOSS = """\
# ddefuzz program v1
# inputs: x = normal; y = normal
def program(x: Float32[Tensor, "u0=3 4"], y: Float32[Tensor, "u1=3 4"]):
    return torch.nn.functional.l1_loss(x, y)
"""
IN_LOSS = {
    "exception": GUARD,
    "function": "torch/nn/functional.py:l1_loss",
    "evaluated": "target.size() != input.size()",
}


def run(script: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "repro.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 1, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result.keys() == {"torch", "stage", "verdict", "expected", "seen"}
    assert result["torch"] == torch.__version__
    assert done.stderr.splitlines()[-1].startswith(f"{result['verdict']}: ")
    return done.returncode, result


def namespace_of(script: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "repro", "__file__": "repro.py"}
    exec(compile(script, "repro.py", "exec", dont_inherit=True), namespace)
    return namespace


def verdict(script: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, dict[str, str] | None]:
    code = namespace_of(script)["main"]()
    result = json.loads(capsys.readouterr().out)
    return code, result["verdict"], result["seen"]


@pytest.mark.slow
def test_the_failure_shows_with_torch_alone(tmp_path: Path) -> None:
    script = repro_script(parse(CHUNK_OF_INPUT, "chunk.py").program, "export", IN_CHUNK, "a title")
    code, result = run(script, tmp_path)
    assert (code, result["stage"], result["verdict"], result["seen"]) == (1, "export", "shows", IN_CHUNK.seen)


@pytest.mark.parametrize(
    ("text", "stage", "expected"),
    [
        (CHUNK_OF_INPUT, "fake", IN_CHUNK),
        (CHUNK_OF_INPUT, "compile", IN_CHUNK),
        (LOSS, "export-strict", ExpectedFailure("by_python", IN_LOSS, PYTHON_INTERNAL)),
    ],
)
def test_the_failure_shows_in_each_stage(
    text: str, stage: str, expected: ExpectedFailure, capsys: pytest.CaptureFixture[str]
) -> None:
    script = repro_script(parse(text, "chunk.py").program, stage, expected, "a title")
    assert verdict(script, capsys) == (1, "shows", expected.seen)


ELSEWHERE = ExpectedFailure("by_python", {**IN_LOSS, "function": "torch/nn/functional.py:mse_loss"}, PYTHON_INTERNAL)
OTHER_BRANCH = ExpectedFailure("by_python", {**IN_LOSS, "evaluated": "size_average is not None"}, PYTHON_INTERNAL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected", "seen"),
    [
        (CHUNK_OF_INPUT, IN_EXPAND, ZERO_CHUNKS),
        (CHUNK_OF_INPUT, ANOTHER_EXPRESSION, {**ZERO_CHUNKS, "evaluated": "Eq(((u0 + 1)//2), 0)"}),
        (CHUNK_OF_INPUT, DIFFERENT, {"exception": GUARD}),
        (LOSS, ELSEWHERE, {**IN_LOSS, "evaluated": "if target.size() != input.size():"}),
        (LOSS, OTHER_BRANCH, {**IN_LOSS, "evaluated": "if target.size() != input.size():"}),
    ],
    ids=[
        "another C++ function",
        "another expression",
        "another exception",
        "another Python function",
        "another branch",
    ],
)
def test_another_failure_is_reported_with_both_stated(
    text: str, expected: ExpectedFailure, seen: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    script = repro_script(parse(text, "case.py").program, "export", expected, "a title")
    code, said, found = verdict(script, capsys)
    assert (code, said) == (3, "fails otherwise")
    assert (found or {}).items() >= seen.items()


@pytest.mark.parametrize("expected", [IN_CHUNK, DIFFERENT], ids=["guard", "message"])
def test_an_error_of_the_capture_itself_is_no_failure_of_torch(
    expected: ExpectedFailure, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = namespace_of(repro_script(parse(ADD, "case.py").program, "export", expected, "a title"))

    def capture() -> None:
        raise KeyError("an unexpected error")

    namespace["capture"] = capture
    assert namespace["main"]() == 3
    assert json.loads(capsys.readouterr().out)["seen"] == {"exception": "KeyError", "message": "'an unexpected error'"}


@pytest.mark.parametrize(
    ("text", "code", "said", "exception"),
    [
        (ADD, 0, "passes", None),
        (GRAD, 0, "passes", None),
        (CHUNK.replace("torch.chunk", "torch.chunk_of_tomorrow"), 125, "not judged", "AttributeError"),
    ],
    ids=["no failure", "a gradient of an input", "an op that this torch does not have"],
)
def test_scripts_that_pass_or_cannot_be_judged(
    text: str, code: int, said: str, exception: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    script = repro_script(parse(text, "case.py").program, "export", DIFFERENT, "a title")
    found = verdict(script, capsys)
    assert found[:2] == (code, said)
    assert (found[2] or {}).get("exception") == exception


@pytest.mark.slow
@pytest.mark.parametrize("stage", CAPTURES)
@pytest.mark.parametrize("expected", [IN_CHUNK, DIFFERENT, ELSEWHERE], ids=lambda expected: str(expected.recognizer))
def test_every_stage_has_a_script_that_compiles(stage: str, expected: ExpectedFailure) -> None:
    script = repro_script(parse(CHUNK_OF_INPUT, "chunk.py").program, stage, expected, 'A "quoted" \\ title')
    compile(script, "repro.py", "exec", dont_inherit=True)
    assert ("mark_unbacked" in script) == (stage in MARKED)
    assert "ddefuzz" not in script
    # The title is a paragraph of its own, and the program comes before the recognizer.
    assert script.startswith('"""A \'quoted\' \\\\ title\n\n')
    assert script.index("def program") < script.index("EXPECTED =")


VALUES = [
    ("normal", "Float32", "2 3"),
    ("normal", "BFloat16", "3"),
    ("normal", "Complex64", "2 3"),
    ("normal", "UInt8", "2 3"),
    ("normal", "Bool", "2 3"),
    ("uniform", "Float64", "2 3"),
    ("uniform", "Int8", "2 3"),
    ("ones", "Float16", "2 3"),
    ("zeros", "Bool", "0 3"),
    ("arange", "Float32", "2 3"),
    ("arange", "Int64", "2 3"),
    ("trues(4)", "Bool", "2 3"),
    ("trues(4)", "Float32", "6"),
    ("distinct(3)", "Int64", "6"),
    ("sizes(2, 4)", "Int64", "2"),
    ("index(5)", "Int32", "2 3"),
    ("spd(3)", "Float32", "2 3 3"),
    ("spd(2)", "Float64", "2 2"),
    ("values([1, -2.5])", "Float32", "2 1"),
    ("values([True])", "Bool", ""),
    *((f"normal, {layout}", "Float32", "2 3 4 5") for layout in LAYOUTS if layout != "channels_last_3d"),
    ("normal, channels_last_3d, grad", "Float32", "1 2 3 4 5"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "annotation", "shape"), VALUES)
def test_the_script_makes_the_same_inputs(recipe: str, annotation: str, shape: str) -> None:
    text = f"""\
# ddefuzz program v1
# inputs: first = {recipe}; x = {recipe}
def program(first: {annotation}[Tensor, "{shape}"], x: {annotation}[Tensor, "{shape}"]):
    return x
"""
    program = parse(text, "values.py").program
    made_by_script = namespace_of(repro_script(program, "eager", DIFFERENT, "values"))["make_inputs"]()
    for made, expected in zip(made_by_script, materialize(program).values(), strict=True):
        assert torch.equal(made, expected)
        assert (made.dtype, made.stride(), made.storage_offset()) == (
            expected.dtype,
            expected.stride(),
            expected.storage_offset(),
        )
        assert made.requires_grad == expected.requires_grad


@pytest.mark.slow
def test_a_branch_that_dynamo_captures_within_export_is_named(tmp_path: Path) -> None:
    """Dynamo drops the frames of causes, also where export has it capture a branch of `torch.cond`."""
    program = parse(
        """\
# ddefuzz program v1
# inputs: mask = ones; x = normal
def program(mask: Bool[Tensor, ""], x: Float32[Tensor, ""]):
    return torch.cond(mask, lambda p: p.nonzero(), lambda p: p.nonzero(), (x,))
""",
        "<program>",
    ).program
    place = "torch/_higher_order_ops/cond.py:_bound_stride"
    seen = {"exception": "GuardOnDataDependentSymNode", "function": place, "evaluated": "a_val == 0"}
    path = tmp_path / "script.py"
    path.write_text(repro_script(program, "export", ExpectedFailure("by_python", seen, PYTHON_INTERNAL), "a branch"))
    assert subprocess.run([sys.executable, path], check=False, capture_output=True).returncode == 1
