"""What all tests need of their process."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from ddefuzz import internal

# A shell starts what it runs in the background with Ctrl-C ignored, and processes inherit that: those of tests, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without it, each new process that calls compiled code compiles files to try vector instructions, for 10 CPU seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# On a busy machine any example may take seconds.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def no_internal_error(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that expects exceptions of ddefuzz itself takes their notes."""
    for name in ("PLACE", "DRAFTS"):
        monkeypatch.setattr(internal, name, str(tmp_path_factory.getbasetemp()))
    internal.take()
    yield
    left = internal.take()
    assert not left, "\n".join(map(str, left))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the fault matrix, and of the tests of scripts."""
    parser.addoption(
        "--all-scripts", action="store_true", help="scripts of findings, plain calls: all, not only some of each kind"
    )
    parser.addoption(
        "--all-payloads", action="store_true", help="hostile findings, damaged databases: all kinds and values"
    )
    parser.addoption("--all-moments", action="store_true", help="faults: each moment, not only the one in the middle")
    parser.addoption("--long", action="store_true", help="also the tests that take more than about 10 CPU seconds")
    parser.addoption(
        "--write-faults", action="store_true", help="faults: write what is seen to tests/faults/results.json"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long has shorter tests beside it, and is left out, unless one test is named."""
    if config.getoption("--long") or any("::" in argument for argument in config.args):
        return
    left = [item for item in items if item.get_closest_marker("long") is not None]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]


# Torch and all tests are imported now, and nothing of that is garbage: collections would take 10 CPU seconds.
gc.disable()


def pytest_collection_finish() -> None:
    """Without this, each full collection visits the millions of objects of torch and of all tests."""
    gc.collect()
    gc.freeze()
    gc.enable()
