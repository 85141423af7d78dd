"""The way from a line of the user's to nodes, kernels and time, and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.artifacts.caches import uses_in
from ddefuzz.artifacts.model import Artifacts, CacheUse, Kernel, Link, Part, Source, StageOutput
from ddefuzz.artifacts.page import html_page, write_folder
from ddefuzz.artifacts.trace import Entry
from ddefuzz.artifacts.way import Way
from ddefuzz.artifacts.worker import sources_of
from ddefuzz.cli.artifacts import command
from ddefuzz.show.blocks import Code, Details, spans
from tests.browsers import chromium

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[u0, 4]", w: "f32[4, 4]"):
        mm: "f32[u0, 4]" = torch.ops.aten.mm.default(x, w);  x = w = None
        relu: "f32[u0, 4]" = torch.ops.aten.relu.default(mm);  mm = None
        exp: "f32[u0, 4]" = torch.ops.aten.exp.default(relu);  relu = None
        return (exp,)
"""
CODE = """\
cpp_fused_exp_relu_0 = async_compile.cpp_pybinding(['float*'], '''...''')
def call(args):
    extern_kernels.mm(arg1_1, arg2_1, out=buf0)
    cpp_fused_exp_relu_0(buf0)
"""
LINKS = (
    Link("model.py:3 y = x @ w", "mm", "aten.mm.default", "extern_kernels.mm", 3),
    Link("model.py:4 return y.relu().exp()", "relu", "aten.relu.default", "cpp_fused_exp_relu_0", 4),
    Link("model.py:4 return y.relu().exp()", "exp", "aten.exp.default", "cpp_fused_exp_relu_0", 5),
)
SOURCE = Source("model.py", 2, "def f(x, w):\n    y = x @ w\n    return y.relu().exp()\n")
STAGE = StageOutput(
    "inductor",
    "explicit",
    "ok",
    parts=(
        Part("graph that inductor lowers", "graph-that-inductor-lowers.py", "graph", GRAPH, (), 3),
        Part("generated code", "generated-code.py", "code", CODE, (), 2),
    ),
    links=LINKS,
    kernels=(Kernel("extern_kernels.mm", 1, 30.0), Kernel("cpp_fused_exp_relu_0", 1, 10.0)),
    sources=(SOURCE,),
)


def hrefs(text: object) -> list[str]:
    return [span.href for span in spans(text) if span.href]  # type: ignore[arg-type]


def test_below_a_line_are_its_nodes_and_kernels_with_their_times() -> None:
    (details,) = Way(STAGE, "inductor").sources()
    assert isinstance(details, Details)
    (code,) = details.blocks
    assert isinstance(code, Code)
    assert [(mark.first, mark.last) for mark in code.marks] == [(3, 3), (4, 4)]
    text = code.marks[1].below[0].text  # type: ignore[union-attr]
    assert "".join(span.text for span in spans(text)) == "nodes: relu, exp → cpp_fused_exp_relu_0 10.0 µs"
    graph, generated = "#inductor-graph-that-inductor-lowers-py-", "#inductor-generated-code-py-"
    assert hrefs(text) == [f"{graph}4", f"{graph}5", f"{generated}1"]


def test_kernels_and_nodes_lead_back_to_the_line() -> None:
    way = Way(STAGE, "inductor")
    by_graph, by_code = (way.marks(part) for part in STAGE.parts)
    assert [mark.first for mark in by_graph] == [3, 5]  # one note for the two nodes of one line and kernel
    assert [mark.first for mark in by_code] == [1, 3]
    for mark in (*by_graph, *by_code):
        assert any(href.startswith("#inductor-source-0-") for href in hrefs(mark.below[0].text))  # type: ignore[union-attr]


def test_the_slowest_kernel_is_first() -> None:
    _, kernels = Way(STAGE, "inductor").kernels()
    first = kernels.rows[0].cells  # type: ignore[union-attr]
    assert [spans(cell)[0].text for cell in first][:4] == ["extern_kernels.mm", "1", "30.0", "75%"]


def test_only_the_users_own_files_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("".join(f"line {number}\n" for number in range(1, 20)))
    links = [Link(f"{file}:{number} x", "n", "op") for number in (7, 9)]
    links += [Link("torch/nn/functional.py:12 y", "n", "op"), Link("", "n", "op")]
    (source,) = sources_of(links)
    assert (source.file, source.first) == (str(file), 5)
    assert source.text.splitlines()[-1] == "line 11"


def test_every_link_of_the_page_has_its_target() -> None:
    page = html_page(Artifacts("2.13.0", "f", "", (STAGE,)))
    targets = {part.partition('"')[0] for part in page.split('href="#')[1:]}
    assert targets
    assert {target for target in targets if f'id="{target}"' not in page} == set()


@pytest.mark.slow
def test_one_gets_from_a_line_to_its_kernel_and_back_in_a_browser(tmp_path: Path) -> None:
    index = write_folder(Artifacts("2.13.0", "f", "", (STAGE,)), tmp_path / "made")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(index.as_uri())
        line, kernel = page.locator("#inductor-source-0-4"), page.locator("#inductor-generated-code-py-1")
        assert line.is_visible()
        assert not kernel.is_visible()
        page.locator(".site-note", has_text="cpp_fused_exp_relu_0 10.0").first.get_by_role(
            "link", name="cpp_fused_exp_relu_0"
        ).click()
        assert kernel.is_visible(), "the text that has it opens"
        page.locator(".site-note", has_text="10.0 µs; from model.py:4").get_by_role("link", name="model.py:4").click()
        assert page.url.endswith("#inductor-source-0-4")
        assert page.evaluate("document.querySelector(':target').id") == "inductor-source-0-4"
        page.get_by_role("link", name="relu", exact=True).first.click()
        assert page.url.endswith("#inductor-graph-that-inductor-lowers-py-4")


@pytest.mark.slow
@pytest.mark.long
def test_kernels_are_timed_and_lead_to_the_file_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "import torch\ndef f(x, w):\n    y = torch.relu(x @ w)\n    return torch.exp(y) + y\n"
        "f_args = (torch.ones(6, 4), torch.ones(4, 4))\n"
    )
    made = tmp_path / "made"
    words = [f"{file}:f", "--unbacked", "x:0", "--stage", "inductor", "--time", "--folder", str(made)]
    CliRunner().invoke(command, words, catch_exceptions=False)
    page = (made / "index.html").read_text()
    assert "extern_kernels.mm" in page
    assert "CPU µs" in page
    assert f"{file.name}:3" in page
    assert page.count("µs") >= 4
    assert "beginning with empty caches" in page
    (stage,) = msgspec.json.decode((made / "artifacts.json").read_bytes())["stages"]
    assert [(use["cache"], use["compilation"], use["use"]) for use in stage["caches"]] == [
        ("AOTAutograd", 1, "miss"),
        ("FX graph", 1, "miss"),
        ("FX graph", 2, "hit"),
        ("AOTAutograd", 2, "hit"),
    ]


def test_a_cache_that_was_not_asked_has_a_reason() -> None:
    log = [
        Entry("fx_graph_cache_bypass", '{"cache_bypass_reason": "No\\n cond", "key": null}', "0/0"),
        Entry("aotautograd_cache_hit", '{"cache_state": "hit"}', "0/0"),
        Entry("dynamo_output_graph", "", "0/0"),
    ]
    assert list(uses_in(log, 2)) == [
        CacheUse("FX graph", 2, "bypass", "No cond"),
        CacheUse("AOTAutograd", 2, "hit"),
    ]
