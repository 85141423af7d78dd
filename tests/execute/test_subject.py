"""Subjects: program texts, user code by name, and the cases of a module."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ddefuzz.errors import InputError, ProgramError
from ddefuzz.execute import worker
from ddefuzz.execute.preparation import UnbackedDim, inputs_of, leaf_names
from ddefuzz.execute.protocol import CallableSubject, ProgramSubject
from ddefuzz.execute.subject import case_ids, prepare

MODULE = """\
import torch

def double(x):
    return x * 2
double_args = (torch.ones(3),)
double_unbacked = {0: [0]}

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        return x * self.scale

layer = Layer()

def example_args():
    return (torch.ones(3),)

def make():
    return Layer(), (torch.ones(2, 3),)

wrong_args = 3
def wrong(x):
    return x

CASES = [
    {"id": "one", "fn": double, "args": example_args, "unbacked": {0: [0]}},
    {"id": "two", "fn": Layer, "args": example_args, "dynamic_shapes": lambda dim: ({0: dim},)},
]
"""


ONE_TENSOR = "import torch\ndef f(x): ...\nf_args = (torch.ones(2),)"

MUTE = "class Mute(Exception):\n    def __str__(self): raise SystemExit"


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "user_module.py"
    path.write_text(MODULE)
    return str(path)


def test_a_module_without_cases_names_one_of_its_own_callables(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from torch import nn\ndef f_args(): ...\ndef _own(x): ...\ndef branchy(x): ...\n")
    with pytest.raises(InputError, match=f"or FILE:NAME, such as {re.escape(str(path))}:branchy$"):
        case_ids(str(path))


@pytest.mark.parametrize("name", ["double", "Layer", "layer", "make"])
def test_each_form_of_user_code(module: str, name: str) -> None:
    prepared = prepare(CallableSubject(module, name=name))
    result = prepared.call(*prepared.args)
    assert isinstance(result, torch.Tensor)
    assert prepared.unbacked == ((UnbackedDim(0, 0, "u0"),) if name == "double" else ())


def test_arguments_are_fresh_at_each_preparation(module: str) -> None:
    first, second = (prepare(CallableSubject(module, name="layer")).args[0] for _ in range(2))
    assert first is not second


def test_cases(module: str) -> None:
    assert case_ids(module) == ("one", "two")
    assert prepare(CallableSubject(module, case="one")).unbacked == (UnbackedDim(0, 0, "u0"),)
    two = prepare(CallableSubject(module, case="two"))
    assert isinstance(two.call, torch.nn.Module)
    assert two.dynamic_shapes == ({0: torch.export.Dim.DYNAMIC},)


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({"name": "nothing"}, "found no such name, expected a callable; the module has .*double"),
        ({"name": "wrong"}, "wrong_args: found int, expected a tuple"),
        ({"case": "three"}, "found no case 'three', expected one of one, two"),
        ({}, "found neither a name nor a case"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(module: str, subject: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as info:
        prepare(CallableSubject(module, **subject))
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.py", None, "found no such file"),
        ("broken.py", "1 / 0", "a module that raises ZeroDivisionError"),
        ("syntax.py", "def", "a module that raises SyntaxError"),
        ("script.py", "raise SystemExit(0)", "a module that raises SystemExit: 0"),
        (
            "raises.py",
            "def f(x): ...\ndef f_args(): raise ValueError('a\\nb')",
            "whose construction raises ValueError: a b",
        ),
        ("base.py", "class Own(BaseException): ...\nraise Own('mine')", "a module that raises Own: mine"),
        ("closes.py", "raise GeneratorExit", "a module that raises GeneratorExit"),
        ("types.py", "raise KeyboardInterrupt('typed')", "a module that raises KeyboardInterrupt: typed"),
        ("mute.py", f"{MUTE}\nraise Mute", "a module that raises Mute: <SystemExit in __str__>"),
        ("leaves.py", "def f(): raise SystemExit(0)", "whose construction raises SystemExit: 0"),
        ("mapping.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {0: 1}", r"found \{0: 1\}, expected \{arg"),
        (
            "sequence.py",
            "def f(x): ...\nf_args = (1,)\nf_unbacked = [0]",
            r"f_unbacked: found \[0\], expected \{argument",
        ),
        ("whole.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = 3", r"f_unbacked: found 3, expected \{argument"),
        (
            "named.py",
            "def f(x): ...\nf_args = (1,)\nf_unbacked = {'y': [0]}",
            "found argument 'y' to make unb.*one of x$",
        ),
        (
            "whose.py",
            "def f(x): ...\nf_args = (1,)\nf_unbacked = {'x': [0]}",
            "where x is of type int, exp",
        ),
        ("truth.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {0: [True]}", r"found \{0: \[True\]\}, expected"),
        ("minus.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {-1: [0]}", "found dim 0 of argument -1 to make unb"),
        ("last.py", f"{ONE_TENSOR}\nf_unbacked = {{0: [-1]}}", "found dim -1 of argument 0 to make unb"),
        ("number.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {0: [1]}", "found dim 1 of argument 0 to make unb"),
        ("twice.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {0: [1, 1]}", r"\[1, 1\]\}, expected each dim once"),
        ("long.py", "raise ValueError('x' * 10**7)", r"ValueError: x{988}… \(10000012 characters\)$"),
        ("absent.py", "def f(x): ...\nf_args = (1,)\nf_unbacked = {3: [0]}", "found dim 0 of argument 3 to make unb"),
        ("data.txt", "x", "expected a Python module"),
        ("bare.py", "def f(x):\n    return x\n", "found no example arguments, expected f_args or example_args"),
    ],
)
def test_a_module_that_cannot_be_used(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        prepare(CallableSubject(str(tmp_path / name), name="f"))


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("sys.modules.clear()", "ddefuzz"),
        ("import ddefuzz.execute.worker\nddefuzz.execute.worker.perform = None", "ddefuzz.execute.worker.perform"),
    ],
)
def test_a_module_that_changes_ddefuzz_is_named_and_undone(tmp_path: Path, body: str, named: str) -> None:
    (tmp_path / "user.py").write_text(f"import sys\n{body}\n")
    before, perform = sys.modules["torch"], worker.perform
    with pytest.raises(InputError, match=f"found code that removes or replaces {named} in its worker"):
        prepare(CallableSubject(str(tmp_path / "user.py"), name="f"))
    assert sys.modules["torch"] is before
    assert worker.perform is perform


def test_ids_of_cases_are_found_by_their_text(tmp_path: Path) -> None:
    path = tmp_path / "cases.py"
    path.write_text("CASES = [{'id': 1, 'fn': abs, 'args': tuple}]")
    assert case_ids(str(path)) == ("1",)
    assert prepare(CallableSubject(str(path), case="1")).call is abs
    path = tmp_path / "twice.py"
    path.write_text("CASES = [{'id': id, 'fn': abs, 'args': tuple} for id in (1, '1')]")
    with pytest.raises(InputError, match="found two cases with the id '1', expected one of each"):
        case_ids(str(path))


def test_files_of_one_name_do_not_share_globals(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "model.py" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(f"FOLDER = {path.parent.name!r}\ndef f(x): ...\nf_args = (1,)\n")
    for path in (*paths, *paths):
        called = prepare(CallableSubject(str(path), name="f")).call
        assert vars(sys.modules[called.__module__])["FOLDER"] == path.parent.name


def test_programs_share_one_unbacked_size() -> None:
    text = (
        "# ddefuzz program v1\n"
        "# inputs: x = normal; y = normal\n"
        'def program(x: Float32[Tensor, "u0 4"], y: Float32[Tensor, "2 u0"]):\n'
        "    return y @ x\n"
    )
    prepared = prepare(ProgramSubject(text))
    assert prepared.unbacked == (UnbackedDim(0, 0, "u0"), UnbackedDim(1, 1, "u0"))
    assert prepared.call(*prepared.args).shape == (2, 4)


def test_a_text_that_is_no_program_runs_nothing() -> None:
    with pytest.raises(ProgramError, match="<program>:"):
        prepare(ProgramSubject("# ddefuzz program v1\nimport os\n"))


CACHE = """\
import torch


class Layer:
    def __init__(self):
        self.keys, self.values = torch.zeros(1, 4), torch.zeros(1, 4)


class Cache:
    def __init__(self, layers):
        self.layers = layers


def to_leaves(cache):
    return [cache.layers[0].keys, cache.layers[0].values], None


def with_keys(cache):
    key = torch.utils._pytree.MappingKey
    leaves, context = to_leaves(cache)
    return list(zip(map(key, ("key_cache", "value_cache")), leaves)), context


def from_leaves(leaves, _):
    layer = Layer()
    layer.keys, layer.values = leaves
    return Cache([layer])


torch.utils._pytree.register_pytree_node(Cache, to_leaves, from_leaves, flatten_with_keys_fn=with_keys)


def f(x, cache):
    return x + cache.layers[0].keys


f_args = (torch.ones(4), Cache([Layer()]))
f_unbacked = {"cache": {1: "cached"}}
g, g_args, g_unbacked = f, f_args, {1: {1: "cached"}}
"""


def test_leaves_of_a_registered_class_are_named_as_the_code_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "cached.py"
    file.write_text(CACHE)
    for name in ("f", "g"):
        prepared = prepare(CallableSubject(str(file), name=name))
        assert leaf_names(prepared) == ("x", "cache.layers[0].keys", "cache.layers[0].values")
        assert prepared.unbacked == (UnbackedDim(1, 1, "cached"), UnbackedDim(2, 1, "cached"))
    seen = inputs_of(prepared).dim("L['cache']['value_cache'].size()[1]", None)
    assert seen == "dim 1 of cache.layers[0].values"


SHARDED = """\
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

if not torch.distributed.is_initialized():
    torch.distributed.init_process_group("fake", rank=0, world_size=4)

def make(layer=False, **options):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    fully_shard(model[1] if layer else model, mesh=init_device_mesh("cpu", (4,)), **options)
    return model

def root():
    return make(), (torch.ones(6, 4),)

def part():
    return make(layer=True), (torch.ones(6, 4),)
"""


@pytest.mark.parametrize(("name", "place"), [("root", ""), ("part", " on its part 1")])
def test_a_module_of_fsdp2_is_refused_in_one_line(name: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "sharded.py"
    path.write_text(SHARDED)
    with pytest.raises(InputError) as error:
        prepare(CallableSubject(str(path), name=name))
    assert str(error.value) == (
        f"{path}:{name}: found fully_shard (FSDP2){place}, whose hooks torch does not trace at any size, "
        "expected the module before fully_shard"
    )


@pytest.mark.parametrize("options", [{}, {"reshard_after_forward": False}])
def test_torch_captures_no_module_of_fsdp2_at_static_sizes(options: dict[str, bool]) -> None:
    """If this fails, they need not be refused any more."""
    names: dict[str, Any] = {}
    exec(SHARDED, names)
    torch.compiler.reset()
    compiled: Any = torch.compile(names["make"](**options), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"(?s)marked as skipped.*torch\._dynamo\.decorators"):
        compiled(torch.ones(6, 4))
