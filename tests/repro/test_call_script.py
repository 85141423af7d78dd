"""Tests of the script of a captured program that is wrong: its verdicts, and that it shows planted faults of torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature, Site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import (
    EXPLICIT,
    SIZE_OBLIVIOUS,
    Call,
    CallEnd,
    Difference,
    NodeDifference,
    Observation,
    Stage,
)
from ddefuzz.findings.model import Finding
from ddefuzz.oracles.metas import READ
from ddefuzz.oracles.table import ORACLES
from ddefuzz.program.evaluate import materialize
from ddefuzz.program.sizes import at_data_size
from ddefuzz.program.text import parse
from ddefuzz.repro.captures import CALLED as CAPTURES
from ddefuzz.repro.finding import finding_script, finding_snippet
from tests.oracles.planted_kinds import STRIDED, relu_says_other_strides

RUNNER = Path(__file__).with_name("fork_scripts.py")

SCALED = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0"]):
    a = torch.cat((x, torch.zeros(2)))
    return torch.mul(a, a.shape[0])
"""
MASKED = """\
# ddefuzz program v1
# inputs: x = normal, grad; mask = trues(3)
def program(x: Float32[Tensor, "u0=3"], mask: Bool[Tensor, "6"]):
    return (x.mul(2), mask.nonzero())
"""
SELECTED = """\
# ddefuzz program v1
# inputs: x = normal; mask = trues(6)
def program(x: Float32[Tensor, "6"], mask: Bool[Tensor, "6"]):
    return torch.cat((x[mask], torch.zeros(2)))
"""
AGREES = Call("2", CallEnd(), CallEnd(), "same")
MESSAGE = "AssertionError: Runtime assertion failed for expression Eq(u0, 6) on node 'eq'"
REFUSED = CallEnd(MESSAGE, "Eq(u0, 6)")


def differs(*whats: Any) -> Call:
    return msgspec.structs.replace(
        AGREES, agreement="differs", differences=tuple(Difference(what, "result", "how") for what in whats)
    )


def finding(kind: str, call: Call, text: str = SCALED, stage: Stage = "aot", **fields: Any) -> Finding:
    site = Site("Python", "torch/_refs/__init__.py", "cat")
    failure = Failure(kind, Observation(stage, EXPLICIT, "ok", calls=(call,)), "evidence", call.size, **fields)
    signature = Signature(kind, site, "anchor")
    return Finding(id=signature.key, signature=signature, cause="wrong-capture", failure=failure, original=text)


KINDS = {
    "wrong-result": differs("strides", "values"),
    "wrong-layout": differs("strides"),
    "over-strict": Call("2", CallEnd(), REFUSED),
    "missing-assertion": Call("2", CallEnd("RuntimeError: no such size"), CallEnd()),
    "lost-assertion": Call("2", CallEnd("RuntimeError: no such size"), CallEnd()),
    "specialized": Call("2", CallEnd(), REFUSED),
    "narrowed": Call("2", CallEnd(), REFUSED),
    "changed": Call("2", CallEnd(), REFUSED),
    "diverged": differs("values"),
    "wrong-meta": msgspec.structs.replace(AGREES, node=NodeDifference("mul", "strides", "(2,)", "aten::mul")),
}
"""For each kind of captured programs that are wrong, a call that shows it."""

IN_THE_CAPTURE = {"late-assertion", "repeated-assertion", "lost-message"}
"""Kinds that no call shows: eager and the captured program end alike."""


@cache
def script_of(kind: str) -> str:
    return finding_script(finding(kind, KINDS[kind]))


def namespace_of(script: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "repro", "__file__": "repro.py"}
    exec(compile(script, "repro.py", "exec", dont_inherit=True), namespace)
    return namespace


def verdict(script: str, compute: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit code and what was seen, if `compute` is what was captured."""
    namespace = namespace_of(script)
    namespace["capture"] = lambda: (compute, lambda: 1)
    code = namespace["main"]()
    result = json.loads(capsys.readouterr().out)
    assert result.keys() == {"torch", "stage", "verdict", "expected", "seen"}
    return code, result["seen"]


def eager(x: torch.Tensor) -> torch.Tensor:
    a = torch.cat((x, torch.zeros(2)))
    return torch.mul(a, a.shape[0])


def refuses(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("Runtime assertion failed for expression Eq(u3, 6) on node 'eq_1'")


def strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((eager(x), eager(x)), dim=1)[:, 0]


@pytest.mark.slow
def test_every_kind_of_captured_programs_has_a_script() -> None:
    calling = [oracle for oracle in ORACLES if oracle.calls and oracle.is_for("compile")]
    called = {kind for oracle in calling for kind in oracle.kinds} - {"regressed"}
    assert called == KINDS.keys() | IN_THE_CAPTURE
    for kind in IN_THE_CAPTURE:
        with pytest.raises(InputError, match="only the captured graph shows it"):
            finding_script(finding(kind, AGREES))
    ways = [(kind, "aot") for kind in KINDS] + [("wrong-result", stage) for stage in CAPTURES]
    ways += [("wrong-meta", stage) for stage in READ]
    for kind, stage in ways:
        script = finding_script(finding(kind, KINDS[kind]), stage)
        compile(script, "repro.py", "exec")
        assert "import ddefuzz" not in script


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "compute", "code"),
    [
        ("wrong-result", lambda x: eager(x) + 1, 1),
        ("wrong-result", eager, 0),
        ("wrong-result", strided, 3),
        ("wrong-result", lambda x: eager(x)[:2], 3),
        ("wrong-result", lambda x: eager(x) * (1 + 1e-6), 0),
        ("wrong-result", refuses, 3),
        ("wrong-layout", strided, 1),
        ("wrong-layout", lambda x: eager(x) + 1, 3),
        ("over-strict", refuses, 1),
        ("over-strict", eager, 0),
        ("over-strict", lambda x: eager(x) + 1, 3),
        ("specialized", refuses, 1),
        ("missing-assertion", eager, 0),
        ("changed", refuses, 1),
        ("diverged", lambda x: eager(x) + 1, 1),
    ],
)
def test_the_verdicts(kind: str, compute: Callable[..., Any], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict(script_of(kind), compute, capsys)[0] == code


LOST = Call("2", CallEnd(), CallEnd("SIGSEGV"))
FOREVER = "called = ended(lambda: [None for _ in iter(int, 1)], (), 0)"
RETURNS = "called = ended(Captured(), call_inputs(), 0)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "at", "code", "seen"),
    [
        ("crash-in-call", "called = ended(os.kill, (os.getpid(), 11), 0)", 1, {"captured": "ends the process"}),
        ("crash-in-call", "before = os.kill(os.getpid(), 11)", 3, {"capture": "ends the process"}),
        pytest.param(
            "crash-in-call",
            "called = ended(lambda: [None for _ in iter(int, 1)], (), 0)",
            3,
            {"captured": "does not end"},
            marks=pytest.mark.long,
        ),
        pytest.param(
            "timeout-in-call",
            "called = ended(lambda: [None for _ in iter(int, 1)], (), 0)",
            1,
            {"captured": "does not end"},
            marks=pytest.mark.long,
        ),
        (
            "timeout-in-call",
            "called = ended(Captured(), call_inputs(), 0)",
            0,
            {"eager": "returns", "captured": "returns"},
        ),
    ],
)
def test_a_call_that_loses_its_process_is_made_in_a_child(
    kind: str, at: str, code: int, seen: dict[str, str], tmp_path: Path
) -> None:
    """`git bisect run` ends at a script that a signal ends."""
    script = finding_script(finding(kind, LOST)).replace("import json\n", "import json\nimport os\n", 1)
    (line,) = re.findall(rf"{at.partition('=')[0]}= .*", script)
    (tmp_path / "repro.py").write_text(script.replace(line, at).replace("(60, 65)", "(20, 25)"))
    done = subprocess.run([sys.executable, "repro.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["seen"]) == (code, seen)


def test_a_missing_assertion(capsys: pytest.CaptureFixture[str]) -> None:
    text = SCALED.replace("a.shape[0])", "x[2:3].view(1))")
    error = "shape '[1]' is invalid for input of size 0"
    script = finding_script(finding("missing-assertion", Call("2", CallEnd(f"RuntimeError: {error}"), CallEnd()), text))
    assert verdict(script, eager, capsys) == (1, {"eager": "raises", "captured": "returns", "message": error})
    assert verdict(script, refuses, capsys) == (0, {"eager": "raises", "captured": "raises"})


def test_what_cannot_be_judged(capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of("wrong-result")
    assert verdict(script.replace("torch.cat(", "torch.no_such_op("), eager, capsys)[0] == 125

    def changed(replaced: str, **names: Any) -> int:
        namespace = namespace_of(replaced)
        namespace |= {"capture": lambda: (eager, lambda: 1), **names}
        code: int = namespace["main"]()
        capsys.readouterr()
        return code

    captures = count()
    assert changed(script, capture=lambda: (eager, lambda: next(captures))) == 125
    assert changed(script.replace("torch.mul(a, a.shape[0])", "a * next(numbers)"), numbers=count(1)) == 125


def test_the_inputs_are_those_of_the_call() -> None:
    marked = namespace_of(finding_script(finding("wrong-result", differs("values"), MASKED)))
    program = parse(MASKED, "masked").program
    for name, size in (("make_inputs", "example"), ("call_inputs", "2")):
        expected = materialize(at_data_size(program, size)).values()
        assert all(map(torch.equal, marked[name](), expected))
    assert marked["call_inputs"]()[0].requires_grad

    exported = namespace_of(finding_script(finding("wrong-result", differs("values"), MASKED, "export")))
    x, mask, keep = exported["call_inputs"]()
    assert (x.shape, int(mask.sum()), keep.tolist()) == ((3,), 2, [True, True, False])


def test_a_program_that_is_wrong_only_under_emulated_semantics_has_no_script() -> None:
    other = Observation("aot", SIZE_OBLIVIOUS, "ok", calls=(differs("values"),))
    with pytest.raises(InputError, match="only under emulated semantics"):
        finding_script(finding("diverged", AGREES, second=other))


OVER_STRICT = """\
import torch

class Program(torch.nn.Module):
    def forward(self, x, keep_u0):
        x = x.index_select(0, keep_u0.nonzero().squeeze(1))
        a = torch.cat((x, torch.zeros(2)))
        return torch.mul(a, a.shape[0])

inputs = (torch.randn((6,)), torch.ones(6, dtype=torch.bool))
captured = torch.export.export(Program(), inputs, strict=False).module()
inputs = (torch.randn((6,)), torch.arange(6) < 2)
Program()(*inputs)  # eager takes these inputs
captured(*inputs)
"""
WRONG = """\
import torch
from torch._dynamo.decorators import mark_unbacked
def program(x):
    a = torch.cat((x, torch.zeros(2)))
    return torch.mul(a, a.shape[0])
inputs = (torch.randn((6,)),)
mark_unbacked(inputs[0], 0)
torch._dynamo.config.capture_scalar_outputs = True
torch._dynamo.config.capture_dynamic_output_shape_ops = True
captured = torch.compile(program, backend="aot_eager", fullgraph=True)
captured(*inputs)
inputs = (torch.randn((2,)),)
mark_unbacked(inputs[0], 0)
torch.testing.assert_close(captured(*inputs), program(*inputs))
"""


@pytest.mark.parametrize(
    ("kind", "stage", "text"), [("over-strict", "export", OVER_STRICT), ("wrong-result", "aot", WRONG)]
)
def test_a_snippet_captures_and_calls(kind: str, stage: Stage, text: str) -> None:
    assert finding_snippet(finding(kind, KINDS[kind], stage=stage)) == text


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        ("wrong-layout", "torch.testing.assert_close(captured(*inputs), program(*inputs), check_stride=True)\n"),
        ("missing-assertion", "captured(*inputs)  # takes inputs that eager refuses\nprogram(*inputs)\n"),
    ],
)
def test_the_end_of_a_snippet(kind: str, end: str) -> None:
    assert finding_snippet(finding(kind, KINDS[kind])).endswith(end)


def test_a_snippet_of_what_changes_its_inputs_copies_them() -> None:
    text = SCALED.replace("torch.mul(a, a.shape[0])", "x.add_(1)").replace(
        "    a = torch.cat((x, torch.zeros(2)))\n", ""
    )
    snippet = finding_snippet(finding("wrong-result", KINDS["wrong-result"], text))
    assert snippet.startswith("from copy import deepcopy\n")
    assert snippet.endswith("assert_close(captured(*deepcopy(inputs)), program(*inputs))\n")
    with pytest.raises(InputError, match="found a difference of mutation, expected a difference of the result"):
        finding_snippet(finding("wrong-result", differs("mutation"), text))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # run_decompositions uses what torch deprecates
@pytest.mark.parametrize("stage", READ)
def test_a_node_of_which_the_graph_is_wrong_is_shown(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "relu" if stage in ("compile", "aot") else "relu.default"
    node = NodeDifference(target, "strides", "(1, 2)", "aten::relu")
    shown = finding("wrong-meta", msgspec.structs.replace(AGREES, node=node), STRIDED, stage)
    module = types.ModuleType("script_of_a_node")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dynamo looks for it
    exec(compile(finding_script(shown), "script.py", "exec"), vars(module))
    assert module.main() == 0
    torch._dynamo.reset()
    with monkeypatch.context() as patch:
        relu_says_other_strides(patch)
        assert module.main() == 1
        torch._dynamo.reset()
        capsys.readouterr()
        if stage in ("export", "aot"):
            exec(finding_snippet(shown), vars(module))
            assert " but ((4, 1), 0)" in capsys.readouterr().out
    torch._dynamo.reset()


PLANTED = {
    "export": ("guard_or_false(tensor.shape[0] == 0):", "True:", differs("values"), "wrong-result"),
    "aot": (
        "guard_or_false(tensor.shape[0] == 0):",
        "isinstance(tensor.shape[0], torch.SymInt) and torch._check(tensor.shape[0] > 3):",
        Call("2", CallEnd(), CallEnd("AssertionError: Runtime assertion failed", "u0 >= 4")),
        "over-strict",
    ),
}
"""Faults of `torch.cat`, an inverted fallback and an assertion that is too strict: what is replaced, and its effect."""


@pytest.mark.slow
def test_a_planted_fault_of_torch_is_shown(tmp_path: Path) -> None:
    file = str(Path(torch.__file__).with_name("_refs") / "__init__.py")
    source = Path(file).read_text()
    tasks = []
    for stage, (branch, fault, call, kind) in PLANTED.items():
        assert f"if tensor.ndim == 1 and {branch}" in source
        text = source.replace(f"if tensor.ndim == 1 and {branch}", f"if tensor.ndim == 1 and {fault}")
        text_of_program = SCALED if stage == "export" else SELECTED
        script = finding_script(finding(kind, call, text_of_program, stage))
        (tmp_path / f"{stage}.py").write_text(script)
        (tmp_path / f"healthy-{stage}.py").write_text(script)
        (tmp_path / f"snippet-{stage}.py").write_text(finding_snippet(finding(kind, call, text_of_program, stage)))
        tasks += [
            {"script": str(tmp_path / f"snippet-{stage}.py")},
            {"script": str(tmp_path / f"{stage}.py"), "file": file, "text": text},
            {"script": str(tmp_path / f"healthy-{stage}.py")},
        ]
    done = subprocess.run(
        [sys.executable, RUNNER, "300"],
        input="".join(json.dumps(task) + "\n" for task in tasks),
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(Path(row["script"]).stem, row["code"]) for row in rows] == [
        ("snippet-export", 0),
        ("export", 1),
        ("healthy-export", 0),
        ("snippet-aot", 0),
        ("aot", 1),
        ("healthy-aot", 0),
    ], done.stderr[-2000:]


def test_a_process_that_an_oracle_s_stage_ended_has_no_script() -> None:
    ended = finding("crash", AGREES, stage="grow")
    with pytest.raises(InputError, match=f"{ended.id}: found the stage grow, expected one of eager, "):
        finding_script(ended)
