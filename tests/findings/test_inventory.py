"""The guard calls of torch's source: of a small made-up package, and of the torch that is installed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddefuzz.errors import UnsupportedError
from ddefuzz.findings.inventory import GuardCall, Inventory, installed, part_of, read, version

SOURCE = '''\
"""Mentions guard_or_false(x) without a call."""

from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true


def guard_or_false(a):  # another one's definition
    return a


class Meta:
    def forward(self, x, default=guard_or_true(1)):
        # guard_or_false(x): a comment
        if guard_or_false(x == 1) or guard_or_false(x == 2):
            return [d for d in x if guard_or_true(d)]
        maybe_guard_or_false(x)

        def inner():
            return (
                sizevars
                .guard_or_false(
                    guard_or_true(
                        x
                    )
                )
            )

        return inner, lambda: torch.fx.guard_or_true(x)


LATER = guard_or_true(0)
'''


def test_threads_that_need_the_inventory_at_once_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, is_read, is_asked_again = [], threading.Event(), threading.Event()

    def read_slowly(package: Path) -> Inventory:
        reads.append(package)
        is_read.set()
        is_asked_again.wait(0.2)
        return Inventory("2.13.0", package, ())

    monkeypatch.setattr("ddefuzz.findings.inventory._once", cache(read_slowly))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(installed)
        assert is_read.wait(60)
        second = threads.submit(installed)
        assert first.result() == second.result()
    assert len(reads) == 1


@pytest.fixture
def package(tmp_path: Path) -> Path:
    files = {
        "version.py": "__version__ = '2.13.0+made.up'\ngit = None\n",
        "_refs/__init__.py": SOURCE,
        "_inductor/ir.py": "def size(x):\n    return V.guard_or_true(x)\n",
        "distributed/tensor.py": "async def size(x):\n    return guard_or_false(x)\n",
        "fx/experimental/sym_node.py": "def guard_or_false(node):\n    return guard_or_false(node)\n",
        "other.py": "guard_size_oblivious(x)\n",
        "notes.txt": "guard_or_false(x)\n",
    }
    for name, text in files.items():
        path = tmp_path / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "torch"


@pytest.fixture(scope="module")
def real() -> Inventory:
    return installed()


def test_calls_and_nothing_else_are_listed(package: Path) -> None:
    found = [
        (call.line, call.first_line, call.last_line, call.function, call.text)
        for call in read(package).calls
        if call.part == "core"
    ]
    assert found == [
        (11, 11, 11, "forward", "guard_or_true(1)"),
        (13, 13, 13, "forward", "guard_or_false(x == 1)"),
        (13, 13, 13, "forward", "guard_or_false(x == 2)"),
        (14, 14, 14, "forward", "guard_or_true(d)"),
        (20, 19, 24, "inner", "sizevars.guard_or_false(guard_or_true(x))"),
        (21, 21, 23, "inner", "guard_or_true(x)"),
        (27, 27, 27, "forward", "torch.fx.guard_or_true(x)"),
        (30, 30, 30, "<module>", "guard_or_true(0)"),
    ]


def test_parts_and_version(package: Path) -> None:
    found = read(package)
    assert found.torch == "2.13.0+made.up"
    assert found.folder == package.parent
    assert [(call.file, call.function) for call in found.calls if call.part != "core"] == [
        ("torch/_inductor/ir.py", "size"),
        ("torch/distributed/tensor.py", "size"),
    ]
    assert part_of("<program>") == "user"


def test_the_line_of_a_call_is_the_one_that_its_frame_reports(package: Path) -> None:
    reported: list[int] = []

    def note(_: object) -> bool:
        reported.append(sys._getframe(1).f_lineno)
        return False

    sizevars = SimpleNamespace(guard_or_false=note)
    names = {"guard_or_false": note, "guard_or_true": note, "maybe_guard_or_false": bool, "sizevars": sizevars}
    at = SOURCE.index("class Meta")
    exec(compile("\n" * SOURCE.count("\n", 0, at) + SOURCE[at:], "made_up.py", "exec"), names)
    inner, _ = names["Meta"]().forward(1)  # type: ignore[operator]
    inner()
    listed = [call.line for call in read(package).calls if call.part == "core"]
    assert sorted(reported) == [line for line in listed if line not in (14, 27)]


def test_what_cannot_be_read_is_said(package: Path) -> None:
    (package / "broken.py").write_text("def f(:\n    guard_or_false(x)\n")
    with pytest.raises(UnsupportedError, match=r"torch/broken.py: found invalid syntax .*expected Python source"):
        read(package)
    (package / "broken.py").write_bytes(b"guard_or_false(\xff)")
    with pytest.raises(UnsupportedError, match=r"broken.py: cannot be read"):
        read(package)
    (package / "version.py").write_text("version = 1\n")
    with pytest.raises(UnsupportedError, match=r"version.py: found no `__version__"):
        version(package)


def test_the_installed_torch_has_the_calls_that_were_counted_by_hand(real: Inventory) -> None:
    assert real.torch.startswith("2.13.0"), "count them again"
    assert Counter(call.part for call in real.calls) == {"core": 99, "inductor": 41, "distributed": 49}


def test_every_call_is_in_the_source_where_it_says(real: Inventory) -> None:
    def at(call: GuardCall) -> str:
        return (real.folder / call.file).read_text().splitlines()[call.line - 1]

    assert [call for call in real.calls if call.call not in at(call)] == []


@pytest.mark.slow
def test_torch_is_not_imported() -> None:
    code = "import sys; from ddefuzz.findings.inventory import installed; installed(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
