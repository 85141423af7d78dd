"""Tests that this torch has every private name of the table, that a missing one is reported, and that no other
module has any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.torch_api import Api, TorchFile

PACKAGE = Path(__file__).parents[2] / "ddefuzz"

SOURCE_DATA = "a reviewed table of places in torch's source, which are compared with recorded frames and not used"

ALLOWED = {
    "instrument/torch_api.py": "the table",
    "classify/plumbing.py": SOURCE_DATA,
    "classify/reviews.py": SOURCE_DATA,
    "classify/aliases.py": SOURCE_DATA,
    "oracles/reference.py": SOURCE_DATA,
    "oracles/acceptance.py": SOURCE_DATA,
    "oracles/verdict.py": SOURCE_DATA,
    "findings/unreached_sites.py": SOURCE_DATA,
    "ops/references.py": "functions that programs may call; one that this torch does not have is not drawn",
    "ops/higher_order.py": "as ops/references.py",
    "ops/dtensors.py": "as ops/references.py",
    "program/options.py": "settings that programs may change; the run of one that this torch lacks ends in one line",
    "program/expressions.py": "names of functions that programs may call",
    "program/plain.py": "what these functions mean, by name; torch's own module of trees",
    "keys/case.py": "the key functions of torch that a stored case may call; tests call them",
    "keys/argument_lists.py": "code of symbolic tensors, which scripts have too; tests run it",
    "repro/script.py": "templates of scripts that run without ddefuzz, under torch 2.6 and later; tests run them",
    "repro/captures.py": "as repro/script.py",
    "execute/metas.py": "copied into scripts: as repro/script.py",
    "oracles/growth.py": "as repro/script.py",
    "oracles/keys.py": "as repro/script.py",
    "oracles/lowering.py": "as repro/script.py",
    "oracles/metas.py": "as repro/script.py",
    "oracles/recompilation.py": "as repro/script.py",
    "oracles/relations.py": "as repro/script.py",
    "repro/fork_server.py": "modules to import early; it runs without ddefuzz, and skips those that torch lacks",
    "repro/finding.py": "lines of code to paste into an issue, and files for PyTorch's repository; tests run them",
    "answers/patch.py": "imports that patches of torch's own files need, and calls in them that they replace",
    "fixes/change.py": "as answers/patch.py",
    "fixes/verify.py": "files that eager does not run, and the module that scripts their functions; tests run it",
    "fixes/native.py": "texts of changes of PyTorch",
    "fixes/out_meta.py": "the file of torch that it changes; without it there is no change",
    "fixes/texts.py": "as repro/finding.py",
    "checking/rewrites.py": "calls that are offered to users",
    "sweep/recompile_reviewed.py": SOURCE_DATA,
    "classify/recognition.py": "the plumbing of these scripts: data about torch's source",
}
"""The modules that may contain private names, and why."""

DOCUMENTED = frozenset({"torch._check"})
"""Public although it has an underscore: https://docs.pytorch.org/docs/stable/generated/torch._check.html."""

INTERNAL = re.compile(
    r"\btorch(?:[./]\w+)*?[./](?:_(?!_)\w+|fx[./]experimental\b)(?:[./]\w+)*|\btorch[./](?:utils|testing)[./]_(?!_)\w+"
)
"""A dotted name or a path with a part that begins with one underscore, or one in torch.fx.experimental."""


def private_names(source: str) -> Iterator[str]:
    """The private names of torch in a module: in text other than docstrings, in imports and as attributes."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    modules = {"torch"}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names, level=0):
                texts = [f"{module}.{alias.name}" for alias in names]
                modules |= {alias.asname or alias.name for alias in names if module.split(".")[0] == "torch"}
            case ast.Import(names=names):
                texts = [alias.name for alias in names]
            case ast.Constant(value=str(text)) if id(node) not in prose:
                texts = [text]
            case ast.Attribute():
                root = ast.unparse(node)
                texts = [f"torch.{root}" if root.split(".")[0] != "torch" else root]
                if root.split(".")[0] not in modules:
                    continue
            case _:
                continue
        for text in texts:
            yield from (found for found in INTERNAL.findall(text) if found not in DOCUMENTED)


@pytest.mark.parametrize("row", torch_api.table(), ids=lambda row: row.path)
def test_every_row_is_there(row: Api | TorchFile) -> None:
    assert row.problem() == ""
    assert row.purpose


def test_every_row_is_named_once() -> None:
    paths = [path for row in torch_api.table() for path in (row.path, *row.otherwise)]
    assert len(paths) == len(set(paths)) >= 70


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_private_names_are_in_the_table_only(path: Path) -> None:
    if str(path.relative_to(PACKAGE)) not in ALLOWED:
        assert not list(private_names(path.read_text()))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch._dynamo", ["torch._dynamo"]),
        ("from torch._ops import OpOverload", ["torch._ops.OpOverload"]),
        ("from torch.utils._pytree import tree_map", ["torch.utils._pytree.tree_map"]),
        (
            "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
            ["torch.fx.experimental.symbolic_shapes.ShapeEnv"],
        ),
        ("torch._C._log_api_usage_once('x')", ["torch._C._log_api_usage_once", "torch._C"]),
        ("from torch import fx\nfx._symbolic_trace", ["torch.fx._symbolic_trace"]),
        ("NAME = 'torch._inductor.config'", ["torch._inductor.config"]),
        ("FILE = f'{folder}/torch/_refs/__init__.py'", ["torch/_refs/__init__.py"]),
        ("FILE = 'torch/fx/experimental/sym_node.py'", ["torch/fx/experimental/sym_node.py"]),
        ("def f():\n    'torch._dynamo does this'\n    torch.cat  # torch._refs.cat", []),
        ("text = 'torch._check(u0 >= 0)'; torch.__version__; named._replace(x=1)", []),
    ],
)
def test_the_scan_finds_private_names(source: str, found: list[str]) -> None:
    assert list(private_names(source)) == found


def test_the_allowed_modules_have_private_names() -> None:
    for module in ALLOWED:
        if (PACKAGE / module).exists():
            assert list(private_names((PACKAGE / module).read_text())), module


@pytest.mark.parametrize(
    "row",
    [
        Api("torch.no_such_module:x", "a test"),
        Api("torch.fx.experimental.symbolic_shapes:ShapeEnv.gone", "a test", otherwise=("torch.gone:x",)),
    ],
)
def test_a_missing_row_is_unsupported(row: Api) -> None:
    with pytest.raises(UnsupportedError, match=r"has no .* \(a test\).*expected torch 2.13 to"):
        row.get()
    assert all(path in row.problem() for path in (row.path, *row.otherwise))


def test_the_first_alternative_that_is_there_is_taken() -> None:
    there = torch_api.EVALUATE_EXPR
    moved = Api("torch.gone:ShapeEnv.evaluate_expr", "a test", there.parameters, otherwise=("torch.gone:x", there.path))
    assert moved.problem() == ""
    assert moved.here() == there.path
    assert (moved.owner(), moved.get(), moved.name) == (there.owner(), there.get(), there.name)


RENAMED = """
class Env:
    @staticmethod
    def evaluate(expr):
        return expr

evaluate = Env.evaluate
"""


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose names were longer and shorter before."""
    module = ModuleType("ddefuzz_made_up")
    exec(RENAMED, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize("before", ["Env.evaluate_expression", "Env.go", "Environment.evaluate_it", "run", "old.run"])
@pytest.mark.parametrize("now", ["Env.evaluate", "evaluate"])
def test_a_renamed_function_is_hooked_by_the_name_that_it_has_here(before: str, now: str, renamed: ModuleType) -> None:
    row = Api(f"ddefuzz_made_up:{before}", "a test", otherwise=(f"ddefuzz_made_up:{now}",))
    assert row.owner() is (renamed.Env if "." in now else renamed)
    assert (row.name, row.name_here(), row.key_here()) == (before.rpartition(".")[2], "evaluate", now)
    with row.replaced(lambda expr: [expr]):
        assert (row.get()(3), renamed.Env.evaluate(3), renamed.evaluate(3)) == (
            [3],
            [3] if "." in now else 3,
            3 if "." in now else [3],
        )
    assert row.get()(3) == 3
    assert not hasattr(row.owner(), row.name)


def test_a_renamed_setting_is_changed_by_the_name_that_it_has_here() -> None:
    there = torch_api.VECTOR_ISA
    module = there.path.partition(":")[0]
    moved = Api(f"{module}:cpp.is_vectorized", "a test", otherwise=(there.path,))
    before = there.get()
    for value in (True, False):
        with torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, {moved: value}):
            assert there.get() is value
    assert there.get() is before


def test_what_hooks_and_settings_replace_is_named_as_here() -> None:
    own_names = re.compile(r"\bsetattr\(.*\.name\b(?!_here)|patch\.object\(.*\.name\b(?!_here)|_CONFIG\)\(|\[?\.key: ")
    for path in PACKAGE.rglob("*.py"):
        if "torch_api" in (source := path.read_text()) and path.name not in ("torch_api.py", "opinfo.py"):
            assert not own_names.findall(source), path


def test_a_missing_parameter_is_a_problem() -> None:
    row = Api(torch_api.EVALUATE_EXPR.path, "a test", ("orig_expr", "not_a_parameter"))
    assert "lacks the parameters ['not_a_parameter']" in row.problem()


def test_files_are_known_by_the_paths_of_all_versions() -> None:
    moved = TorchFile("torch/gone.py", "a test", ("torch/__init__.py",))
    assert moved.problem() == ""
    assert "torch/gone.py" in moved
    assert "torch/__init__.py" in moved
    assert "torch/gone" not in moved
    assert "torch/_dynamo/exc.py" in torch_api.DYNAMO_FILES
    gone = TorchFile("torch/gone.py", "a test", ("torch/gone_too/",))
    assert "has no file torch/gone.py or torch/gone_too/ (a test)" in gone.problem()


def test_the_table_imports_no_torch() -> None:
    program = "import sys, ddefuzz.instrument.torch_api, ddefuzz.classify.cause; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_what_is_preloaded_is_there() -> None:
    (row,) = (row for row in torch_api.check() if row.name.startswith("modules imported"))
    assert row.detail == f"all {len(torch_api.PRELOADED)}"


def test_this_torch_is_supported() -> None:
    torch_api.require()


@pytest.mark.parametrize("version", ["2.6.0+cpu", "1.13.1", "2.12.1"])
def test_an_older_torch_is_unsupported_in_one_line(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UnsupportedError) as info:
        torch_api.require()
    assert version in str(info.value)
    assert "\n" not in str(info.value)
