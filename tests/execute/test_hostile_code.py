"""What user code does to Python itself, and exceptions whose classes raise, end nothing but their own case."""

from __future__ import annotations

import collections
import importlib
import io
import linecache
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ddefuzz import internal
from ddefuzz.classify.rules import current
from ddefuzz.errors import InputError
from ddefuzz.execute.isolation import FREE, kept_intact
from ddefuzz.execute.observe import captured_output, observe
from ddefuzz.execute.protocol import CallableSubject, Run
from ddefuzz.execute.subject import seed
from ddefuzz.instrument import frames
from ddefuzz.instrument.recorder import modules_in


class TextError(Exception):
    """Without a message."""

    def __str__(self) -> str:
        raise SystemExit(1)


class AttributesError(Exception):
    """With no attribute that can be read."""

    def __getattribute__(self, name: str) -> object:
        raise OSError(name)


class TracebackError(Exception):
    """With a traceback that cannot be read."""

    @property
    def __traceback__(self) -> None:  # type: ignore[override]
        raise OSError

    @property
    def __cause__(self) -> int:  # type: ignore[override]
        return 5

    @property
    def real_stack(self) -> None:
        """What torch's exceptions have."""
        raise OSError


class StackError(Exception):
    """With a stack that is not torch's."""

    def __init__(self) -> None:
        self.real_stack = [1, None]


HOSTILE = (TextError, AttributesError, TracebackError, StackError)


@pytest.mark.parametrize("kind", HOSTILE)
def test_exceptions_are_reported_whatever_their_classes_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[], Exception]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with internal.apart() as noted, internal.guarded("a case"):
        raise kind()
    (error,) = noted
    assert "test_hostile_code.py" in Path(error.report).read_text()


@pytest.mark.parametrize("change", [{"co_linetable": b""}, {"co_filename": "\ud800"}])
def test_code_without_lines_or_a_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    def fails() -> None:
        raise ValueError("a bug")

    fails.__code__ = fails.__code__.replace(**change)  # type: ignore[arg-type]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with internal.apart() as noted, internal.guarded("a case"):
        fails()
    assert "ValueError: a bug" in Path(noted[0].report).read_text()


RAISING = f"""\
import torch
from {__name__} import HOSTILE
class Model(torch.nn.Module):
    def __hash__(self):
        raise OSError
    def forward(self, kind):
        raise HOSTILE[kind]()
def example():
    return Model(), (KIND,)
def linear():
    return bare, ()
def bare():
    raise ValueError("a")
bare.__code__ = bare.__code__.replace(co_linetable=b"")
"""


@pytest.mark.parametrize("kind", range(len(HOSTILE)), ids=[kind.__name__ for kind in HOSTILE])
def test_exceptions_are_observed_whatever_their_classes_do(tmp_path: Path, kind: int) -> None:
    (tmp_path / "raising.py").write_text(RAISING.replace("KIND", str(kind)))
    seen = observe(Run(CallableSubject(str(tmp_path / "raising.py"), "example"), "eager"))
    assert (seen.outcome, seen.exceptions[0].type.rpartition(".")[2]) == ("fail", HOSTILE[kind].__name__)


def test_code_without_lines_is_observed(tmp_path: Path) -> None:
    (tmp_path / "raising.py").write_text(RAISING.replace("KIND", "0"))
    seen = observe(Run(CallableSubject(str(tmp_path / "raising.py"), "linear"), "eager"))
    assert seen.exceptions[0].frames[-1].function == "bare"


def test_modules_have_the_paths_that_torch_gives_them() -> None:
    shared = torch.nn.Linear(1, 1)
    model = torch.nn.Sequential(torch.nn.Sequential(shared, torch.nn.ReLU()), shared, torch.nn.Tanh())
    model.add_module("again", model)
    assert list(modules_in(model)) == list(model.named_modules())


def test_source_that_is_no_source_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linecache.cache, "a.py", None)
    monkeypatch.setitem(linecache.cache, "b.py", (1, 2))
    assert [frames.line_text(name, 1) for name in ("a.py", "b.py")] == ["", ""]
    with kept_intact("user.py"):
        pass
    assert not {"a.py", "b.py"} & linecache.cache.keys()


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [closed(), SimpleNamespace(write=len), SimpleNamespace(flush=sys.exit), None])
def test_streams_that_user_code_puts_there_are_not_relied_on(monkeypatch: pytest.MonkeyPatch, stream: object) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    with captured_output() as output:
        sys.stdout.write("a")
        sys.stdout.detach()  # type: ignore[union-attr]
        sys.stdout = stream
        sys.stderr.close()
        os.write(1, b"b")
    assert output.read() == "ab"


def test_modules_that_user_code_replaces_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    known = sys.modules["ast"]
    for name in ("os.fake", 5):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[misc]
    with kept_intact("user.py"):
        sys.modules["ast"] = None  # type: ignore[assignment]
    assert sys.modules["ast"] is known


def test_a_module_of_torch_that_is_removed_from_another_is_back_and_named() -> None:
    known = torch._dynamo
    with pytest.raises(InputError, match=r"removes or replaces torch\._dynamo in its"), kept_intact("user.py"):
        torch._dynamo = None  # type: ignore[assignment]
    assert torch._dynamo is known


def test_the_environment_that_is_removed_is_back_and_named() -> None:
    known = os.environ
    with pytest.raises(InputError, match=r"removes or replaces os\.environ in its worker"), kept_intact("user.py"):
        os.environ = None  # type: ignore[assignment]  # noqa: B003
        assert current() is not None
    assert os.environ is known


def test_classes_of_a_library_of_which_ddefuzz_imports_names_are_back() -> None:
    known = collections.deque
    with kept_intact("user.py"):
        collections.deque = None  # type: ignore[assignment,misc]
    assert collections.deque is known


def test_modules_that_user_code_imports_again_are_the_known_ones() -> None:
    known = sys.modules["abc"]
    with kept_intact("user.py"):
        del sys.modules["abc"]
        importlib.import_module("abc")
    assert sys.modules["abc"] is known


@pytest.mark.parametrize("numpy", [None, object()])
def test_numpy_that_user_code_replaces_is_not_needed(monkeypatch: pytest.MonkeyPatch, numpy: object) -> None:
    monkeypatch.setitem(sys.modules, "numpy", numpy)
    seed()


def test_a_profiler_that_user_code_leaves_on_is_stopped() -> None:
    before = sys.getprofile()
    with kept_intact("user.py"):
        sys.setprofile(lambda *_: None)
    assert sys.getprofile() is before


def test_code_that_leaves_no_descriptors_is_said() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 4 * FREE, hard))
    try:
        with pytest.raises(InputError, match="opens all files that it may"), kept_intact("user.py"), suppress(OSError):
            while True:
                opened.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
