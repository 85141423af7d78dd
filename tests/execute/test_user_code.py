"""What users have: files in packages, modules by name, saved programs, nested arguments; what is dynamic in them."""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ddefuzz.errors import InputError
from ddefuzz.execute.isolation import kept_intact
from ddefuzz.execute.observe import observe
from ddefuzz.execute.preparation import UnbackedDim, leaf_names, leaves_of
from ddefuzz.execute.protocol import NO_VALUES, CallableSubject, Observation, Run, Stage
from ddefuzz.execute.subject import case_ids, prepare

NESTED = """\
from dataclasses import dataclass
import torch
from torch.export import Dim

@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor
torch.export.register_dataclass(Batch)

def pairs(batch, extra, *, scale):
    return batch.ids * batch.mask + extra["bias"][0] * scale

def example():
    return Batch(torch.ones(4, 3), torch.ones(4, 3)), {"bias": [torch.ones(3)]}

pairs_args = example
pairs_kwargs = {"scale": torch.ones(3)}
pairs_unbacked = {"batch.ids": {0: "b"}, "batch.mask": {0: "b"}, "scale": [0]}

class Model(torch.nn.Module):
    def forward(self, ids, mask=None):
        return ids * 2 if mask is None else ids * mask

def by_dim():
    n = Dim("n", min=2, max=9)
    shapes = {"ids": {0: n}, "mask": {0: n}}
    return {"callable": Model(), "args": (torch.ones(4, 3),), "kwargs": {"mask": torch.ones(4, 3)},
            "dynamic_shapes": shapes}

def automatic():
    return {"callable": Model(), "args": (torch.ones(4, 3),), "dynamic_shapes": ({0: Dim.AUTO},)}

def positional(ids, mask):
    return ids * mask
positional_args = (torch.ones(4, 3), torch.ones(4, 3))
positional_dynamic_shapes = {"ids": {0: Dim("n")}, "mask": {0: Dim("n")}}

def wrong():
    return {"callable": Model(), "args": (torch.ones(4, 3),), "dynamic_shapes": {"idz": {0: Dim.AUTO}}}

def marked():
    ids, mask = torch.ones(4, 3), torch.ones(4, 3)
    torch._dynamo.decorators.mark_unbacked(ids, 0, shape_id="n")
    torch._dynamo.decorators.mark_unbacked(mask, 0, shape_id="n")
    return Model(), (ids, mask)

def three():
    return Model(), (torch.ones(4, 3),), {"mask": torch.ones(4, 3)}

def unknown():
    return {"callable": Model(), "arguments": ()}

class Cache:
    def __init__(self, keys):
        self.keys = [key.to(key.dtype) for key in keys]
torch.utils._pytree.register_pytree_node(
    Cache,
    lambda cache: ([cache.keys], None),
    lambda parts, _: Cache(parts[0]),
    flatten_with_keys_fn=lambda cache: ([(torch.utils._pytree.GetAttrKey("keys"), cache.keys)], None),
    serialized_type_name="ddefuzz_test.Cache",
)

def cached():
    def attend(x, cache, batch):
        return x * cache.keys[1].shape[0] + batch.mask.sum()
    batch = Batch(torch.ones(4, 3), torch.ones(4, 3))
    args = (torch.ones(3), Cache([torch.ones(2, 3), torch.ones(2, 3)]), batch)
    return {"callable": attend, "args": args, "unbacked": {"cache": {0: "n"}, "batch.mask": [0]}}
"""

STAGES: tuple[Stage, ...] = ("eager", "fake", "export", "export-strict", "compile", "aot")


@pytest.fixture
def nested(tmp_path: Path) -> str:
    path = tmp_path / "nested_model.py"
    path.write_text(NESTED)
    return str(path)


@pytest.fixture(autouse=True)
def same_imports() -> Iterator[None]:
    """What a test imports is gone after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("ddefuzz_user_code", "own_")):
            del sys.modules[name]


def run(path: str, name: str | None, stage: Stage, unbacked: str = "") -> Observation:
    return observe(Run(CallableSubject(path, name, unbacked=unbacked), stage, graph=True))


def test_nested_arguments_have_the_names_that_users_write(nested: str) -> None:
    prepared = prepare(CallableSubject(nested, "pairs"))
    assert leaf_names(prepared) == ("batch.ids", "batch.mask", "extra['bias'][0]", "scale")
    assert prepared.unbacked == (UnbackedDim(0, 0, "b"), UnbackedDim(1, 0, "b"), UnbackedDim(3, 0, "u2"))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["by_dim", "automatic", "positional", "marked", "three"])
def test_each_form_is_captured(nested: str, name: str, stage: Stage) -> None:
    seen = run(nested, name, stage)
    assert seen.outcome == "ok", seen.exceptions


def test_unbacked_dims_of_nested_arguments(nested: str) -> None:
    seen = run(nested, "pairs", "export")
    assert seen.outcome == "ok", seen.exceptions
    assert seen.graph is not None
    assert seen.graph.count("nonzero") == 2


def test_backed_dims_of_classes_that_a_library_registers(nested: str) -> None:
    subject = CallableSubject(nested, "cached", backed=True)
    dim = {0: torch.export.Dim.AUTO}
    assert prepare(subject).dynamic_shapes == {"x": None, "cache": [[dim, dim]], "batch": [None, dim]}
    seen = observe(Run(subject, "export", graph=True))
    assert seen.outcome == "ok", seen.exceptions
    assert (seen.graph or "").count("sym_size") >= 1


def test_marks_on_examples_are_unbacked_in_every_capture(nested: str) -> None:
    assert prepare(CallableSubject(nested, "marked")).unbacked == (UnbackedDim(0, 0, "n"), UnbackedDim(1, 0, "n"))
    assert "nonzero" in (run(nested, "marked", "export").graph or "")


def test_dims_that_the_command_line_names(nested: str) -> None:
    def unbacked(spec: str) -> tuple[UnbackedDim, ...]:
        return prepare(CallableSubject(nested, "three", unbacked=spec)).unbacked

    assert unbacked("ids:0,1") == (UnbackedDim(0, 0, "u0"), UnbackedDim(0, 1, "u1"))
    assert unbacked("ids:0=n;mask:0=n") == (UnbackedDim(0, 0, "n"), UnbackedDim(1, 0, "n"))
    assert len(unbacked("all")) == 4


@pytest.mark.parametrize(
    ("name", "spec", "message"),
    [
        ("three", "ids", "--unbacked: found 'ids', expected NAME:DIM,DIM such as ids:0,1"),
        ("three", "x:0", "--unbacked: found argument 'x' to make unbacked, expected one of ids, mask"),
        (
            "three",
            "ids:2",
            r"--unbacked: found dim 2 of argument ids .*, expected a dim of its shape \(4, 3",
        ),
        ("wrong", "", "wrong_dynamic_shapes: found .*, expected what torch.export takes for these arguments: .*idz"),
        ("unknown", "", "found the key 'arguments' in what it returns, expected callable, args, kwargs, unbacked"),
    ],
)
def test_what_is_no_dim_is_said(nested: str, name: str, spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(CallableSubject(nested, name, unbacked=spec))


def test_relative_imports_and_modules_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "own_package" / "models"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "parts.py").write_text("FACTOR = 3\n")
    (package / "model.py").write_text("from .parts import FACTOR\ndef f(x):\n    return x * FACTOR\nf_args = (1,)\n")
    (tmp_path / "own_beside.py").write_text("FACTOR = 5\n")
    (tmp_path / "script.py").write_text("import own_beside\ndef f(x):\n    return own_beside.FACTOR\nf_args = (1,)\n")
    assert prepare(CallableSubject(str(package / "model.py"), "f")).call(2) == 6
    monkeypatch.chdir(tmp_path)
    assert prepare(CallableSubject("own_package.models.model", "f")).call(2) == 6
    assert prepare(CallableSubject("script.py", "f")).call(2) == 5
    with pytest.raises(InputError, match=r"own_package\.none: found a module that raises ModuleNotFoundError"):
        prepare(CallableSubject("own_package.none", "f"))


@pytest.mark.slow
def test_a_saved_program_has_its_own_arguments_and_dynamic_dims(tmp_path: Path) -> None:
    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return x[keep] * 2

    path = tmp_path / "twice.pt2"
    args = (torch.ones(4, 3), torch.tensor([True, False, True, True]))
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Twice(), args, dynamic_shapes=({0: rows}, {0: rows}))
    torch.export.save(program, path)
    prepared = prepare(CallableSubject(str(path)))
    assert [dict(one) for one in prepared.dynamic_shapes.values()] == [{0: torch.export.Dim.AUTO}] * 2
    for stage in STAGES:
        assert run(str(path), None, stage).outcome == "ok", stage
    with pytest.raises(InputError, match=r"none\.pt2: found no such file"):
        prepare(CallableSubject(str(tmp_path / "none.pt2")))


def test_sizes_can_all_be_static(nested: str) -> None:
    prepared = prepare(CallableSubject(nested, "marked", static=True))
    assert prepared.unbacked == ()
    assert not any(vars(leaf) for leaf in leaves_of(prepared))


FROM_ARGS = "make_args = lambda: (torch.randn(3, 5),)"
DRAWN = "N = {draw}\ndef make():\n    k = {draw}\n    return (lambda x: x * k), (torch.ones(3),)"
CACHE = """class Cache(torch.nn.Module):
    seen = None
    def forward(self, x):
        if self.seen is None:
            self.seen = 1
            return x + 1
        return x
make = Cache()
make_args = (torch.zeros(3),)
"""
LAYERS = "torch.nn.Sequential(torch.nn.Linear(5, 5), torch.nn.Linear(5, 2))"

RANDOM = {
    "weights": "W = torch.randn(5)\ndef make():\n    return torch.nn.Linear(5, 5), (torch.randn(3, 5),)",
    "instance": f"make = torch.nn.Linear(5, 5)\n{FROM_ARGS}",
    "dropout": "make = torch.nn.Dropout(0.5)\nmake_args = (torch.randn(3, 5),)",
    "statistics": "make = torch.nn.BatchNorm1d(5)\nmake_args = (torch.randn(3, 5),)",
    "python": "import random\n" + DRAWN.format(draw="random.random()"),
    "numpy": "import numpy\n" + DRAWN.format(draw="numpy.random.rand()"),
    "in place": "def make(x):\n    return x.add_(1)\nmake_args = (torch.zeros(3),)",
    "class": f"class make(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(5, 5)\n{FROM_ARGS}",
    "cache": CACHE,
    "nested": f"torch.randn(3)\ndef make():\n    return {LAYERS}, (torch.randn(3, 5),)",
}


@pytest.mark.slow
@pytest.mark.parametrize("text", RANDOM.values(), ids=RANDOM)
def test_every_run_begins_in_the_same_state(tmp_path: Path, text: str) -> None:
    path = tmp_path / "drawing.py"
    path.write_text(f"import torch\n{text}\n")

    def once() -> list[torch.Tensor]:
        prepared = prepare(CallableSubject(str(path), "make"))
        module = prepared.call
        state = list(module.state_dict().values()) if isinstance(module, torch.nn.Module) else []
        args = [leaf.clone() for leaf in leaves_of(prepared)]
        return [*(one.clone() for one in state), *args, prepared.call(*prepared.args)]

    first = once()
    torch.randn(7)
    for _ in range(20):
        assert all(torch.equal(one, other) for one, other in zip(first, once(), strict=True))


MOVING = """\
import os, pathlib, torch
os.chdir(pathlib.Path(__file__).parent / "data")
def reads(x):
    return x * len(pathlib.Path("weights").read_text())
def removes(x):
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    raise ValueError("no folder")
example_args = (torch.ones(2),)
"""


def test_the_current_folder_is_that_of_the_module_and_only_in_a_run(tmp_path: Path) -> None:
    path, before = tmp_path / "moving.py", Path.cwd()
    path.write_text(MOVING)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights").write_text("12")
    for name, outcome in (("reads", "ok"), ("removes", "fail"), ("reads", "ok")):
        seen = observe(Run(CallableSubject(str(path), name=name), "eager"))
        assert (name, seen.outcome) == (name, outcome), seen
        assert Path.cwd() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from ddefuzz.errors import UnsupportedError\nraise UnsupportedError('a\\nb')",
            "raises UnsupportedError: a b",
        ),
        ("from ddefuzz.errors import InputError\nraise InputError('a')", "found a module that raises InputError: a"),
        (
            "class Id:\n    def __str__(self): raise KeyboardInterrupt\nCASES = [dict(id=Id(), fn=print, args=tuple)]",
            "found a list CASES that raises KeyboardInterrupt:",
        ),
    ],
)
def test_what_a_module_raises_is_its_own(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "raises.py").write_text(text)
    with pytest.raises(InputError, match=said):
        case_ids(str(tmp_path / "raises.py"))


def test_ids_are_text_once(tmp_path: Path) -> None:
    (tmp_path / "changes.py").write_text(
        "from itertools import count\nclass Id:\n    of = count()\n"
        "    def __str__(self): return f'\\ud800{next(self.of)}'\n"
        "CASES = [dict(id=Id(), fn=print, args=tuple)] * 2"
    )
    assert case_ids(str(tmp_path / "changes.py")) == ("\\ud8000", "\\ud8001")


HOOKING = """\
import sys, torch
def refuse(event, _):
    if event.startswith("pickle"):
        raise RuntimeError(event)
sys.addaudithook(refuse)
def f(x):
    sys.addaudithook(refuse)
    return x + 1
f_args = (torch.ones(2),)
"""


def test_audit_hooks_of_user_code_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "hooking.py").write_text(HOOKING)
    assert observe(Run(CallableSubject(str(tmp_path / "hooking.py"), "f"), "eager")).outcome == "ok"
    assert pickle.loads(pickle.dumps(Path)) is Path


@pytest.mark.parametrize("how", ["sys.modules['torch'] = None", "del sys.modules['torch.nn.functional']"])
def test_code_that_removes_torch_is_said_and_torch_is_there_for_the_next(tmp_path: Path, how: str) -> None:
    path = tmp_path / "removing.py"
    path.write_text(f"import sys, torch\ndef f(x):\n    {how}\n    return x + 1\nf_args = (torch.ones(2),)\n")
    before = dict(sys.modules)
    with pytest.raises(InputError, match=r"found code that removes or replaces torch.* in its worker"):
        observe(Run(CallableSubject(str(path), "f"), "eager"))
    assert [name for name, module in before.items() if sys.modules.get(name) is not module] == []


TIMING = """\
import signal, torch
def late(*_):
    raise ValueError("late")
def f(x):
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 600)
    return x + 1
f_args = (torch.ones(2),)
"""


@pytest.fixture
def same_alarm() -> Iterator[None]:
    """The handler of SIGALRM, which pytest-timeout has too."""
    handler = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.usefixtures("same_alarm")
def test_timers_of_user_code_end_with_it(tmp_path: Path) -> None:
    (tmp_path / "timing.py").write_text(TIMING)
    before = signal.getitimer(signal.ITIMER_REAL)[0]
    assert observe(Run(CallableSubject(str(tmp_path / "timing.py"), "f"), "eager")).outcome == "ok"
    assert signal.getitimer(signal.ITIMER_REAL)[0] <= before


@pytest.mark.usefixtures("same_alarm")
def test_what_a_handler_raises_in_ddefuzz_is_the_code_s() -> None:
    def late(*_: object) -> None:
        raise ValueError("late")

    said = r"user\.py: found code whose handler of a signal raises ValueError: late when the code has ended"
    with pytest.raises(InputError, match=said), kept_intact("user.py"):
        signal.signal(signal.SIGALRM, late)
        signal.raise_signal(signal.SIGALRM)
    with pytest.raises(ValueError, match="late"), kept_intact("user.py", imported=True):
        signal.raise_signal(signal.SIGALRM)


def test_a_wrong_result_has_the_lines_that_made_it(tmp_path: Path) -> None:
    """The fast path of eager returns other strides than what export decomposes."""
    path = tmp_path / "attention.py"
    path.write_text(
        """import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def forward(self, x):
        with torch.no_grad():
            y = self.attention(x, x, x)[0]
        return x, y

model = Model()
model_args = (torch.randn(2, 3, 4),)
"""
    )
    seen = observe(Run(CallableSubject(str(path), "model", unbacked="x:0"), "export", calls=("example",)))
    (difference,) = seen.calls[0].differences
    assert (difference.what, difference.where) == ("strides", "result[1]")
    outer, inner = difference.frames[0], difference.frames[-1]
    assert (outer.line, outer.code) == (10, "y = self.attention(x, x, x)[0]")
    assert inner.file == "torch/nn/modules/activation.py"


@pytest.mark.parametrize("stage", ["export", "export-strict"])
def test_a_wrong_result_of_a_function_has_its_line(tmp_path: Path, stage: Stage) -> None:
    """torch records the frames of `forward` alone; a function is named so that its frame is recorded, too."""
    path = tmp_path / "transform.py"
    path.write_text(
        """import torch

def model(mask, x):
    return torch.func.jacrev(lambda v: v * v)(x[mask])

model_args = (torch.tensor([True, False, True]), torch.randn(3))
"""
    )
    seen = observe(Run(CallableSubject(str(path), "model"), stage, calls=("example",)))
    (difference,) = seen.calls[0].differences
    assert difference.how == NO_VALUES
    assert (4, "model") in [(one.line, one.function) for one in difference.frames]
