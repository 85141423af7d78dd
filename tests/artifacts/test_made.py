"""What stages of a real torch make, and where torch.compile(fullgraph=False) breaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddefuzz.artifacts.breaks import find_breaks
from ddefuzz.artifacts.model import Artifacts, MakeTask
from ddefuzz.artifacts.page import about, html_page
from ddefuzz.artifacts.worker import make
from ddefuzz.cli.artifacts import command
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import ProgramSubject, Stage
from ddefuzz.findings.textform import read_finding
from ddefuzz.oracles import keys
from tests.typed import typed

TEXT = """\
# ddefuzz program v1
# inputs: x = normal, grad; w = normal
def program(x: Float32[Tensor, "u0 8"], w: Float32[Tensor, "8 8"]):
    y = torch.nn.functional.linear(x, w)
    z = y[y > 0]
    torch._check(z.shape[0] >= 1)
    return torch.relu(y).sum(1), torch.tanh(z)
"""

FAILS = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 8"]):
    y = torch.relu(x)
    return torch.diff(y, dim=0)
"""


def test_an_exported_graph_has_ranges_and_lines_of_the_program() -> None:
    made = make(MakeTask(ProgramSubject(TEXT), "export"))
    assert (made.outcome, [part.name for part in made.parts]) == ("ok", ["export graph"])
    (part,) = made.parts
    marked = [part.text.splitlines()[number - 1] for number in part.assertions]
    assert len(marked) == made.assertions > 0
    assert all("_assert_scalar" in line for line in marked)
    ranges = {symbol.name: (symbol.range, symbol.op, symbol.line) for symbol in made.symbols}
    assert ranges["u1"] == ("1 to 48", "aten.index.Tensor", "<program>:5 z = y[y > 0]")
    assert ranges["u0"] == ("0 to 6", "input", "")
    assert any(link.op == "aten.linear.default" and link.line.startswith("<program>:4") for link in made.links)


def test_a_failed_stage_has_its_site_and_the_graph_before_it() -> None:
    made = make(MakeTask(ProgramSubject(FAILS), "export"))
    assert made.outcome == "fail"
    assert made.failure is not None
    assert (made.failure.kind, made.failure.site) == ("dde", "at::native::diff_helper")
    assert made.failure.line == "<program>:5 torch.diff(y, dim=0)"
    (part,) = made.parts
    assert part.name == "graph up to the failure"
    assert "aten.relu.default" in part.text


def test_a_graph_break_has_its_site_once() -> None:
    broken = find_breaks(ProgramSubject(FAILS))
    (found,) = broken.breaks
    assert (found.cause.kind, found.cause.site, found.cause.cause) == ("dde", "at::native::diff_helper", "avoidable")
    assert found.cause.line == "<program>:5 torch.diff(y, dim=0)"
    assert "1 > u0" in found.reason
    assert (broken.graphs, broken.error) == (1, "")
    assert find_breaks(ProgramSubject(TEXT)).breaks == ()


@pytest.mark.slow
def test_inductor_has_every_graph_its_code_and_the_kernel_of_each_node() -> None:
    made = make(MakeTask(ProgramSubject(TEXT), "inductor"))
    names = [part.name for part in made.parts if part.kind != "log"]
    assert names == [
        "dynamo graph",
        "joint graph",
        "forward graph",
        "backward graph",
        "graph that inductor lowers",
        "graph that inductor lowers 2",
        "generated code",
        "generated code 2",
        "guards",
        "post-grad passes",
    ]
    logged = {part.name for part in made.parts if part.kind == "log"}
    assert logged >= {"ir pre fusion", "ir post fusion", "fx graph runnable", "compilation metrics", "timeline"}
    code = next(part for part in made.parts if part.name == "generated code")
    lines = code.text.splitlines()
    assert "if not (u1 >= 1):" in [lines[number - 1].strip() for number in code.assertions]
    kernels = {link.op: link.kernel for link in made.links}
    assert kernels["aten.mm.default"] == "extern_kernels.mm"
    assert kernels["aten.index.Tensor"] == "torch.ops.aten.index.Tensor"
    assert kernels["aten.relu.default"].startswith("cpp_fused_")


@pytest.mark.slow
def test_the_command_writes_a_folder_of_a_users_model(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n\n\ndef model(x, mask):\n    return torch.roll(x[mask], 1, 0)\n\n\n"
        "model_args = (torch.randn(4, 2), torch.tensor([True, False, True, True]))\n"
    )
    words = ["artifacts", "model.py:model", "--stage", "export", "--diff", "export", "compile", "--format", "json"]
    ran = typed(*words, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert [(stage["stage"], stage["outcome"]) for stage in document["stages"]] == [
        ("export", "fail"),
        ("compile", "fail"),
    ]
    assert document["stages"][0]["failure"]["site"] == "torch/_refs/__init__.py:roll"
    assert document["broken"]["breaks"][0]["cause"]["line"].endswith("torch.roll(x[mask], 1, 0)")
    assert document["diffs"][0]["note"] == "no graph: export, compile"
    assert (tmp_path / "artifacts-model" / "index.html").is_file()


def test_a_target_that_is_missing_is_told_before_anything_starts() -> None:
    with pytest.raises(InputError, match=r"nothing\.py: found no such file, expected a program"):
        CliRunner().invoke(command, ["nothing.py"], catch_exceptions=False)


FINDINGS = Path(__file__).parents[2] / "findings"
STAGE_OF: dict[str, Stage] = {"compile": "compile", "recompile": "compile", "aot": "compile", "inductor": "compile"}
"""A cheap stage of those in which kinds are seen. Others: export."""


@pytest.mark.slow
def test_one_finding_of_each_kind_has_a_page() -> None:
    firsts = {path.name.rsplit("-", 1)[0]: path for path in sorted(FINDINGS.glob("*-*"), reverse=True)}
    for kind, place in firsts.items():
        if kind in keys.KINDS:
            continue
        finding = read_finding(place)
        text = finding.minimal or finding.original
        assert text is not None
        stages = [make(MakeTask(ProgramSubject(text), STAGE_OF.get(finding.stages[0], "export")))]
        page = html_page(
            Artifacts(
                "2.13.0",
                finding.id,
                text,
                tuple(stages),
                about=about(finding.title, finding.kind, finding.stages, finding.evidence),
            )
        )
        assert f"<code>{kind}</code>: " in page
        assert stages[0].failure is not None or stages[0].graph is not None, finding.id
        assert all(part.text.strip() for part in stages[0].parts), finding.id
        assert [one for one in stages[0].symbols if "int_oo" in one.range] == []
