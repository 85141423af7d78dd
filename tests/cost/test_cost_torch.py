"""`ddefuzz cost` on real torch: what decides is found, and a planted slow function is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from click.testing import CliRunner

from ddefuzz.cli.cost import command
from ddefuzz.cost.export import export_cost
from ddefuzz.cost.model import ExportTask, LookTask, TimeTask
from ddefuzz.cost.worker import _wrong, look, scaled, time_versions, version_of
from ddefuzz.errors import InputError
from ddefuzz.execute.preparation import leaves_of
from ddefuzz.execute.protocol import ProgramSubject
from ddefuzz.execute.subject import prepare
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.kernels import passes_in

SOFTMAX = ProgramSubject(Path("corpora/cost/softmax_columns.py").read_text(encoding="utf-8"))
TWO = ProgramSubject(
    "# ddefuzz program v1\n# inputs: x = normal; y = normal\n"
    'def program(x: Float32[Tensor, "u0=8 4"], y: Float32[Tensor, "u1=8 4"]):\n    return torch.cat([x, y], 0)\n'
)
CHAIN = ProgramSubject(
    "# ddefuzz program v1\n# inputs: x = normal; m = trues(6)\n"
    'def program(x: Float32[Tensor, "8 4"], m: Bool[Tensor, "8"]):\n'
    "    y = x[m]\n    return torch.cat([y, y * 2], 0)\n"
)


def test_the_versions_say_what_torch_is_told() -> None:
    prepared = prepare(TWO)
    made = {
        name: version_of(prepared, name) for name in ("static", "backed", "unbacked", "hints", "shape-id", "bounds")
    }
    assert not made["static"].unbacked  # type: ignore[union-attr]
    assert len(made["backed"].backed) == 2  # type: ignore[union-attr]
    assert made["hints"].marks == {"u0": {"hint_override": 8}, "u1": {"hint_override": 8}}  # type: ignore[union-attr]
    assert len({place.symbol for place in made["shape-id"].unbacked}) == 1  # type: ignore[union-attr]
    assert made["bounds"].marks["u1"] == {"min": 2, "max": 16}  # type: ignore[union-attr]
    assert version_of(prepare(SOFTMAX), "shape-id") == "each symbol has another size"


def test_arguments_of_other_sizes_have_the_elements_of_the_example() -> None:
    prepared = prepare(TWO)
    larger = scaled(prepared, prepared.unbacked, 2.0)
    assert larger is not None
    x, y = leaves_of(larger)
    assert (x.shape, y.shape) == ((16, 4), (16, 4))
    assert torch.equal(x[:8], x[8:])
    assert scaled(prepared, prepared.unbacked, 0.1) is None


def test_only_outermost_loops_are_passes() -> None:
    inner = "for(int64_t x1=0; x1<4; x1+=1)\n{\n}\n"
    text = f"{{\n{inner}for(int64_t x0=0; x0<4; x0+=1)\n{{\n{inner}{inner}}}\n}}\n"
    assert passes_in(text) == 2


@pytest.mark.slow
def test_the_guard_that_costs_a_pass_over_memory_is_found() -> None:
    unbacked = look(LookTask(SOFTMAX, 1, "unbacked"))
    assert unbacked.code is not None
    (guard,) = [one for one in unbacked.questions if one.kind == "guard" and one.function.endswith("safe_amax")]
    assert (guard.answer, guard.wish) == ("False", "True")
    answered, backed = look(LookTask(SOFTMAX, 1, "unbacked", (guard,))), look(LookTask(SOFTMAX, 1, "backed"))
    assert answered.code is not None
    assert backed.code is not None
    assert unbacked.code.passes > answered.code.passes == backed.code.passes


@pytest.mark.slow
@pytest.mark.long
def test_all_versions_are_timed_side_by_side() -> None:
    timings = {one.version: one for one in time_versions(TimeTask(SOFTMAX, 1, ("static", "unbacked"), 2))}
    assert set(timings) == {"static", "unbacked", "eager"}
    for one in timings.values():
        assert not one.error
        assert {size: len(rounds) for size, rounds in one.rounds.items()} == {"half": 2, "example": 2, "twice": 2}
    assert timings["unbacked"].phases["C++"] > 0


SLOW = """
def create_unbacked_symint(self, *args, **kwargs):
    made = vars(self).setdefault("made", [])
    made.append(len(made))
    for one in made:
        for _ in range(200_000):
            hash(one)
    return inner(self, *args, **kwargs)
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_planted_slow_function_is_named() -> None:
    api, file = torch_api.SYMBOL_MAKERS[0], torch_api.SYMBOLIC_SHAPES_FILE.paths[0]
    names: dict[str, Any] = {"inner": api.get()}
    exec(compile(SLOW, str(Path(torch_api.torch_parent()) / file), "exec"), names)
    with patch.object(api.owner(), api.name, names[api.name]):
        cost = export_cost(ExportTask(CHAIN, 30.0))
    first = cost.growing[0]
    assert first.function == f"{file}:{api.name}"
    assert first.fit.exponent > 1.3
    assert cost.calls["evaluate_expr"] > 0


@pytest.mark.slow
def test_the_command_measures_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    words = ["corpora/cost/softmax_columns.py", "--rounds", "0", "--questions", "3", "--output", f"json={file}"]
    CliRunner().invoke(command, words, catch_exceptions=False)
    (cost,) = json.loads(file.read_text())
    assert cost["schema"] == "ddefuzz.cost/1"
    assert cost["tried"] == 3
    (decided,) = cost["decided"]
    assert [one["function"] for one in decided["questions"]] == ["_softmax_unbacked_safe_amax"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("corpora/none.py",), "corpora/none.py: found no such file"),
        (("corpora/cost/mlp.py", "--export", "--speedscope", "README.md/x.json"), "README.md/x.json"),
        (("corpora/cost/mlp.py", "--speedscope", "x.json"), "found no --export, expected both"),
        (("corpora/cost/mlp.py", "--export", "--budget", "700"), "expected at most --timeout 600"),
        ((), "found no program, expected FILE, FILE:NAME, --ops N or --draws N"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(command, words)
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


@pytest.mark.slow
def test_one_target_that_cannot_be_measured_leaves_the_others(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\ndef f(x):\n    return x + 1\nf_args = (torch.ones(4),)\n")
    words = [f"{file}:f", "corpora/cost/add_relu.py", "--rounds", "0", "--questions", "0", "--format", "json"]
    bad, good = json.loads(CliRunner().invoke(command, words, catch_exceptions=False).stdout)
    assert "found no dim of an argument that is unbacked" in bad["notes"][0]
    assert {one["outcome"] for one in good["looks"]} == {"ok", "not-judged"}


def test_integers_have_to_be_equal_and_floats_nearly() -> None:
    assert _wrong(torch.tensor([1000, 5]), torch.tensor([1000, 6]))
    assert _wrong(torch.tensor([1 + 2j]), torch.tensor([1 + 5j]))
    assert not _wrong(torch.tensor([1000.0, 5.0]), torch.tensor([1000.0, 5.5]))
    assert _wrong((torch.ones(2), torch.ones(3)), (torch.zeros(2), torch.ones(4)))


@pytest.mark.slow
def test_a_target_without_unbacked_dims_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\ndef f(x):\n    return x + 1\nf_args = (torch.ones(4),)\n")
    result = CliRunner().invoke(command, [f"{file}:f"])
    assert isinstance(result.exception, InputError)
    assert "found no dim of an argument that is unbacked, expected one: --unbacked NAME:DIM" in str(result.exception)
