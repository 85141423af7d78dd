"""The stand-alone repro: a script that shows the failure with torch alone, and makes the very same inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddefuzz.program.inputs import materialize
from ddefuzz.program.recipes import LAYOUTS
from ddefuzz.program.repro import CAPTURES, repro_script
from ddefuzz.program.text import parse

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


def run(script: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    path = tmp_path / "repro.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 1, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result.keys() == {"torch", "stage", "outcome", "exception", "expression", "frames"}
    assert result["torch"] == torch.__version__
    return done.returncode, result


def namespace_of(script: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "repro"}
    exec(compile(script, "repro.py", "exec", dont_inherit=True), namespace)
    return namespace


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        (CHUNK_OF_INPUT, "fake"),
        (CHUNK_OF_INPUT, "export"),
        (CHUNK, "export-strict"),
        (CHUNK_OF_INPUT, "compile"),
    ],
)
def test_the_failure_shows_with_torch_alone(text: str, stage: str, tmp_path: Path) -> None:
    script = repro_script(parse(text, "chunk.py").program, stage, "GuardOnDataDependentSymNode")
    assert len(script.splitlines()) <= 95
    code, result = run(script, tmp_path)
    assert (code, result["stage"], result["outcome"]) == (1, stage, "fail")
    assert result["exception"] == "GuardOnDataDependentSymNode"
    assert result["expression"].startswith("Eq(((u")
    assert any(frame.endswith(" evaluate_sym_node") for frame in result["frames"])


@pytest.mark.parametrize(
    ("text", "looked_for", "outcome", "exception"),
    [
        (ADD, None, "ok", None),
        (GRAD, None, "ok", None),
        (CHUNK, "PendingUnbackedSymbolNotFound", "not-judged", "GuardOnDataDependentSymNode"),
        (CHUNK.replace("torch.chunk", "torch.chunk_of_tomorrow"), None, "not-judged", "AttributeError"),
    ],
    ids=["no failure", "a gradient of an input", "another failure", "an op that this torch does not have"],
)
def test_what_does_not_show_the_failure_exits_with_zero(
    text: str, looked_for: str | None, outcome: str, exception: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    script = repro_script(parse(text, "case.py").program, "export", looked_for)
    code = namespace_of(script)["main"]()
    result = json.loads(capsys.readouterr().out)
    assert (code, result["outcome"], result["exception"]) == (0, outcome, exception)


@pytest.mark.parametrize("stage", CAPTURES)
def test_every_stage_has_a_script_that_compiles(stage: str) -> None:
    script = repro_script(parse(CHUNK_OF_INPUT, "chunk.py").program, stage, title='A "quoted" \\ title')
    compile(script, "repro.py", "exec", dont_inherit=True)
    assert ("mark_unbacked" in script) == (stage in {"export-strict", "compile", "aot", "inductor"})
    assert "ddefuzz" not in script


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


@pytest.mark.parametrize(("recipe", "annotation", "shape"), VALUES)
def test_the_script_makes_the_same_inputs(recipe: str, annotation: str, shape: str) -> None:
    text = f"""\
# ddefuzz program v1
# inputs: first = {recipe}; x = {recipe}
def program(first: {annotation}[Tensor, "{shape}"], x: {annotation}[Tensor, "{shape}"]):
    return x
"""
    program = parse(text, "values.py").program
    made_by_script = namespace_of(repro_script(program, "eager"))["make_inputs"]()
    for made, expected in zip(made_by_script, materialize(program).values(), strict=True):
        assert torch.equal(made, expected)
        assert (made.dtype, made.stride(), made.storage_offset()) == (
            expected.dtype,
            expected.stride(),
            expected.storage_offset(),
        )
        assert made.requires_grad == expected.requires_grad
