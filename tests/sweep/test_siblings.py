"""Tests which lines of torch are like the site of a finding, on a small package in the place of torch."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from ddefuzz.cli.findings import command
from ddefuzz.findings.database import Database
from ddefuzz.findings.textform import read_finding
from ddefuzz.sweep.siblings import SCHEMA, LineAlike, form_of, forms_of, siblings
from ddefuzz.syntax import parsed_expression

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("code", "forms"),
    [
        ("a.numel() == 0", {"0 == _.numel()"}),
        ("0 == self.weight.numel()", {"0 == _.numel()"}),
        ("x.shape[0] > n", {"_ < _.shape[_]"}),
        ("n < y.shape[-1]", {"_ < _.shape[_]"}),
        ("x.shape[:2] == y.shape", {"_.shape == _.shape[:]"}),
        ("theta.shape[-1] != 3", {"N != _.shape[_]"}),
        ("dim_size == 1", {"1 == size"}),
        ("bias_shape[dim] == 1", {"1 == size[_]"}),
        ("x.size(0) % 2 != 0", {"0 != _.size(_) Mod N"}),
        ("not (self.numel() == 0 and index.numel() != 0)", {"0 == _.numel()", "0 != _.numel()"}),
        ("any((x.shape[d] == 0 for x in lxs))", {"0 == _.shape[_]"}),
        ("step > 0", set()),
        ("x.shape is None", set()),
        ("len(x.shape) == 2", set()),
        ("0 < x.shape[0] < 4", set()),
        ("result.shape.numel()", set()),
        ("if x == 1:", set()),
    ],
)
def test_the_forms_of_a_piece_of_code(code: str, forms: set[str]) -> None:
    assert forms_of(code) == forms


def test_only_a_comparison_has_a_form() -> None:
    node = parsed_expression("x.numel() == y.numel() == 0")
    assert form_of(node) == ""  # type: ignore[arg-type]


SOURCE = """\
@register_decomposition(aten.roll)
def roll(a):
    if a.numel() == 0:
        return a


@register_decomposition([aten.linalg_cross, torch.ops.aten._cdist_forward.default])
def cross(input):
    return _helper(input)


def _helper(input):
    if guard_or_false(input.numel() == 0):
        return 1
    torch._check(input.numel() == 0)
    torch._check(input.shape == other.shape)
    if 0 == input.grad.numel():
        return 2


class Case:
    def method(self):
        return self.x.shape != self.y.shape, [one for one in xs if one.numel() == 0]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with functions where torch has its decompositions, and where it has none."""
    for name in ("_decomp/decompositions.py", "testing/cases.py"):
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True)
        path.write_text(SOURCE)
    return tmp_path / "torch"


def test_what_is_alike_in_functions_without_a_finding(package: Path) -> None:
    file = "torch/_decomp/decompositions.py"
    found = list(siblings({"0 == _.numel()": ["a", "b"], "_.shape == _.shape": ["c"]}, package, {(file, "roll")}))
    ops, samples = ("_cdist_forward", "linalg_cross"), ("cdist", "linalg.cross")
    assert found == [
        LineAlike(file, 16, "_helper", "input.shape == other.shape", ops, samples, ("c",)),
        LineAlike(file, 17, "_helper", "0 == input.grad.numel()", ops, samples, ("a", "b")),
        LineAlike(file, 23, "method", "one.numel() == 0", (), (), ("a", "b")),
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('siblings')}/ddefuzz.db"
    with Database.open(url) as database:
        database.merge([read_finding(ROOT / "findings" / "dde-8ea756b1c0")])
        database.merge([read_finding(ROOT / "findings" / "dde-08f7b02bbb")])
    return url


@pytest.mark.slow
@pytest.mark.long
def test_the_command_names_the_ops_to_sweep(url: str) -> None:
    shown = CliRunner().invoke(command, ["siblings", "dde-8ea7", "--db", url], catch_exceptions=False)
    assert "torch/_refs/__init__.py" in shown.stdout
    assert "sweep --ops" in shown.stdout
    rows = CliRunner().invoke(command, ["siblings", "--db", url, "--format", "jsonl"], catch_exceptions=False)
    (first, *others) = map(msgspec.json.decode, rows.stdout.splitlines())
    assert (first["schema"], first["findings"], len(others) > 5) == (SCHEMA, ["dde-8ea756b1c0"], True)


def test_a_site_in_another_language_has_no_siblings(url: str) -> None:
    done = CliRunner().invoke(command, ["siblings", "dde-8ea7", "dde-08f7", "--db", url])
    assert str(done.exception).startswith("dde-08f7b02bbb: found a call site that compares no sizes in Python")
