"""The page, the folder and the diffs, from records made by hand."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ddefuzz.artifacts.graph import diffs_of
from ddefuzz.artifacts.model import (
    About,
    Artifacts,
    Break,
    Cause,
    Diff,
    Frame,
    GraphBreaks,
    Link,
    Part,
    StageOutput,
    Symbol,
)
from ddefuzz.artifacts.page import MASKS, about, artifacts_view, files_of, html_page, said_of, write_folder
from ddefuzz.cli.artifacts import default_stages, target_of
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Call, CallEnd, Difference, Stage
from ddefuzz.findings.textform import read_finding
from ddefuzz.instrument.events import Guard, Place
from ddefuzz.oracles import keys
from ddefuzz.show.terminal import terminal

FINDINGS = Path(__file__).parents[2] / "findings"
HOSTILE = "<script>alert(1)</script>"

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[u0]"):
        relu: "f32[u0]" = torch.ops.aten.relu.default(x);  x = None
        return (relu,)
"""
CAUSE = Cause(
    "dde", "at::native::diff_helper", "operator>", "avoidable", "1 > u0", HOSTILE, "<program>:4 torch.diff(x)"
)


def made(stage: Stage, text: str = GRAPH, semantics: str = "explicit") -> StageOutput:
    name = {"export": "export graph", "aot": "forward graph"}.get(stage, "dynamo graph")
    return StageOutput(
        stage,
        semantics,
        "ok",
        parts=(Part(name, f"{name.replace(' ', '-')}.py", "graph", text, (3,), 1),),
        symbols=(Symbol("u0", "0 to ∞", "input", "<program>:4"),),
        links=(Link("<program>:4 y", "relu", "aten.relu.default", "cpp_fused_relu_0"),),
        fallbacks=(Guard(Place("Python", "torch/_inductor/ir.py", 486), "guard_or_false", "Eq(u0, 1)", False, "same"),),
    )


FAILED = StageOutput("inductor", "explicit", "fail", failure=CAUSE)
BROKEN = GraphBreaks(2, (Break(f"cannot trace {HOSTILE}", CAUSE),))
ALL = Artifacts("2.13.0", f"of {HOSTILE}", f"# {HOSTILE}\n", (made("export"), made("aot"), FAILED), BROKEN)


def test_everything_on_the_page_is_escaped_and_nothing_is_loaded() -> None:
    page = html_page(msgspec.structs.replace(ALL, diffs=(Diff("a to b", "diffs/a.diff", f"+{HOSTILE}\n-x\n"),)))
    assert "<script" not in page
    assert "&lt;script" in page
    assert re.findall(r"(?:src|href)=\"(?!#)([^\"]*)\"", page) == ["export/export-graph.py", "aot/forward-graph.py"]
    assert "@import" not in page
    assert "url(" not in page


def test_the_frames_of_a_broken_model_have_their_files() -> None:
    graph = Part("dynamo graph", "dynamo-graph.py", "graph", GRAPH, (3,), 1)
    log = Part("fx graph runnable", "fx-graph-runnable.txt", "log", HOSTILE)
    frames = (
        Frame("0/0", HOSTILE, "line 5", (graph, log)),
        Frame("1/0", "torch_dynamo_resume_in_f_at_9", failure=CAUSE),
    )
    broken = msgspec.structs.replace(ALL, broken=msgspec.structs.replace(BROKEN, frames=frames))
    page = html_page(broken)
    assert "<script" not in page
    assert 'href="frame-0-0/fx-graph-runnable.txt"' in page
    assert page.count("torch_dynamo_resume_in_f_at_9") == 2
    assert dict(files_of(broken))["frame-0-0/dynamo-graph.py"] == GRAPH
    alone = msgspec.structs.replace(ALL, broken=msgspec.structs.replace(BROKEN, frames=frames[:1]))
    assert not [path for path, _ in files_of(alone) if path.startswith("frame-")]


def test_the_page_of_a_finding_says_what_it_is_about() -> None:
    finding = read_finding(FINDINGS / "recompiles-05043ab947")
    page = html_page(
        msgspec.structs.replace(ALL, about=about(finding.title, finding.kind, finding.stages, finding.evidence))
    )
    assert (
        '<p class="prose bold">torch.kron: at::native::(anonymous namespace)::KronImpl::KronImpl makes torch.compile'
        in page
    )
    assert "torch.compile compiles a function again for other sizes, and nothing in it needs that." in page
    assert "This page does not have them" in page
    assert "<tr><td>5</td><td>compiled</td></tr>" in page
    assert "One graph is right for the sizes 5, 7, 9. The guard Eq(s77, 7) was false." in page


def test_a_stage_of_the_finding_is_said_to_be_missing_only_if_it_is() -> None:
    page = html_page(msgspec.structs.replace(ALL, about=About("t", "dde", "m", ("export", "compile"))))
    assert "Seen in the stages export, compile." in page
    assert "This page does not have" not in page


def test_the_stages_of_a_finding_are_made_too() -> None:
    finding = read_finding(FINDINGS / "lost-assertion-4ed41e0680")
    assert "export-strict" in default_stages(finding)
    assert "export-strict" not in default_stages(None)


def test_a_call_says_how_both_ended() -> None:
    differs = Call(
        "0", CallEnd(), CallEnd(), "differs", (Difference("strides", "result", "(2, 1), eager has (1, 10)"),)
    )
    assert said_of(differs) == "result: (2, 1), eager has (1, 10)"
    assert said_of(Call("0", CallEnd(), CallEnd(), "same")) == "the same result"
    failing = Call("0", CallEnd(), CallEnd(), "same", failing="u0 >= 2")
    assert said_of(failing) == "the same result, although the assertion u0 >= 2 of the capture is not true"
    assert said_of(Call("0", CallEnd("ValueError: no"), CallEnd())) == "eager: ValueError: no; captured: returns"


@pytest.mark.parametrize("kind", sorted({path.name.rsplit("-", 1)[0] for path in FINDINGS.glob("*-*")}))
def test_the_page_says_what_a_finding_of_each_kind_is(kind: str) -> None:
    first = min(FINDINGS.glob(f"{kind}-*"))
    finding = read_finding(first)
    said = about(finding.title, finding.kind, finding.stages, finding.evidence)
    assert (said.kind, said.stages) == (kind, finding.stages)
    if kind in keys.KINDS:
        with pytest.raises(InputError, match="found a finding on a key function, expected one that has a program"):
            target_of(finding)
        return
    assert html_page(msgspec.structs.replace(ALL, about=said)).count(f"<code>{kind}</code>: ") == 1
    assert target_of(finding).case == finding.id


def test_the_page_says_where_masks_come_from() -> None:
    masked = made("export", GRAPH.replace("relu:", f"# File: {MASKS}:84 in forward\n        relu:"))
    assert "masks, which are additional inputs" in html_page(msgspec.structs.replace(ALL, stages=(masked,)))
    assert "masks, which" not in html_page(ALL)


def test_the_page_marks_assertions_and_changed_lines() -> None:
    page = html_page(
        msgspec.structs.replace(ALL, diffs=(Diff("a to b", "diffs/a.diff", "--- a\n+++ b\n+new\n-old\n"),))
    )
    assert '<div class="source-line warn" id="export-export-graph-py-3">' in page
    assert page.count('class="source-line warn"') == 2
    assert '<span class="gi">+new</span>' in page
    assert '<span class="gd">-old</span>' in page


def test_the_page_says_failures_breaks_and_where_kernels_come_from() -> None:
    page = html_page(ALL)
    assert "<code>at::native::diff_helper</code>" in page
    assert "2 graphs, 1 graph break." in page
    assert "cpp_fused_relu_0" in page
    assert "torch/_inductor/ir.py:486" in page


def test_the_folder_has_plain_files_and_the_document(tmp_path: Path) -> None:
    index = write_folder(ALL, tmp_path / "out")
    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert names == {"index.html", *(path for path, _ in files_of(ALL))}
    assert index.name == "index.html"
    read = msgspec.json.decode((tmp_path / "out" / "artifacts.json").read_bytes(), type=Artifacts)
    assert read == ALL


def test_a_second_run_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    write_folder(msgspec.structs.replace(ALL, diffs=(Diff("a", "diffs/a.diff", "+x\n"),)), tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    write_folder(msgspec.structs.replace(ALL, stages=(made("export"),), broken=None), tmp_path)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"index.html", "program.py", "export/export-graph.py", "artifacts.json", "mine.txt"}


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("index.html", b"<p>mine", "found a file that `ddefuzz artifacts` did not write, expected none"),
        ("program.py", b"mine = 1", "found a file that `ddefuzz artifacts` did not write, expected none"),
        (
            "artifacts.json",
            b'{"torch": "\xe9"}',
            "found .*, expected one that this version of",
        ),
        ("artifacts.json", b'{"a": ' + b"[" * 100_000, "found .*, expected one that this version of"),
        ("artifacts.json", b'{"torch": "2.13.0"}', "found .*, expected one that this version of"),
    ],
)
def test_a_file_of_another_origin_is_not_replaced(tmp_path: Path, name: str, content: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=found):
        write_folder(ALL, tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, content)]


def test_a_document_that_names_another_file_does_not_delete_it(tmp_path: Path) -> None:
    document = msgspec.structs.replace(ALL, diffs=(Diff("x", "notes.txt", "x"),))
    (tmp_path / "artifacts.json").write_bytes(msgspec.json.encode(document))
    (tmp_path / "notes.txt").write_text("mine")
    write_folder(ALL, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("width", [60, 160])
def test_the_text_has_a_row_for_each_stage(width: int) -> None:
    said = terminal(artifacts_view(ALL, Path("out/index.html")), width)
    assert all(len(line) <= width for line in said.splitlines() if "called by" not in line)
    assert re.search(r"^export .*\b1 .*\b1\b", said, re.MULTILINE)
    assert "captured in 0.00 s" in said
    assert "with fullgraph=False: 2 graphs, 1 graph break" in said
    assert "dde in at::native::diff_helper [operator>]: 1 > u0 (avoidable)" in " ".join(said.split())


def test_stages_semantics_and_versions_are_compared() -> None:
    other = GRAPH.replace("relu.default", "relu_.default")
    stages = (made("export"), made("aot", other), made("export", other, "size-oblivious"))
    between, semantics = diffs_of(msgspec.structs.replace(ALL, stages=stages), [("export", "aot")])
    assert "-relu: f32[u0] = torch.ops.aten.relu.default(input)\n" in between.text
    assert "+relu_: f32[u0] = torch.ops.aten.relu_.default(input)\n" in between.text
    assert semantics.name == "export: explicit to size-oblivious"
    assert semantics.file == "diffs/export-explicit-to-size-oblivious.diff"
    there = msgspec.structs.replace(ALL, torch="2.15.0")
    same, _, none = diffs_of(ALL, others=[("new", there)])
    assert (same.text, same.note) == ("", "the same graph")
    assert (none.text, none.note) == ("", "no graph: 2.13.0, 2.15.0")
