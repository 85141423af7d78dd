"""Records of checks of custom ops: what is checked, and what is wrong. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from ddefuzz.instrument.events import Frame

SCHEMA: Final = "ddefuzz.op/1"

CheckName: TypeAlias = Literal[
    "runs",
    "accepts",
    "structure",
    "sizes",
    "layout",
    "dtype",
    "aliasing",
    "mutation",
    "values",
    "gradient",
    "vmap",
    "out",
]

CHECKS: Final[Mapping[CheckName, str]] = MappingProxyType(
    {
        "runs": "the fake kernel runs with unbacked sizes, and so does the backward",
        "accepts": "the fake kernel takes all sizes that the real kernel takes, and its bounds hold",
        "structure": "the fake result has the tensors, lists and numbers of the real one",
        "sizes": "the fake result has the sizes of the real one",
        "layout": "the fake result has the strides and the storage offset of the real one",
        "dtype": "the fake result has the dtype and the device of the real one",
        "aliasing": "results share memory with arguments, and with each other, only as the schema says",
        "mutation": "the real kernel changes the arguments that the schema says, and no others",
        "values": "the real kernel returns the same values in every layout of its arguments",
        "gradient": "the autograd formula computes the derivative of the real kernel (finite differences)",
        "vmap": "the vmap rule computes what calls one after the other compute",
        "out": "the out= overload writes what the functional overload returns, and returns it",
    }
)
"""What is checked of an op, in the order of the report."""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `place` is the part of the result, or the argument.

    `call` is the first call that shows it. It was seen `tried` times, at `sizes` among others. `fake` and `real` are
    what the two kernels give. `frames` are the lines of the user's code (or torch's) that decided it.
    """

    check: CheckName
    place: str
    why: str
    call: str
    sizes: tuple[str, ...] = ()
    tried: int = 1
    fake: str = ""
    real: str = ""
    frames: tuple[Frame, ...] = ()

    apart: str = ""
    """Two sizes that are equal in the example, and not in any call that shows it. They may have to agree."""

    accepted: str = ""
    """Why it does not fail, from the file of accepted problems."""

    @property
    def key(self) -> str:
        """What names it in that file: `sizes`, `sizes: result[1]`."""
        return f"{self.check}: {self.place}" if self.place else self.check


class CheckResult(msgspec.Struct, frozen=True):
    """A check of an op. It was tried so often. `skipped` says why it was not tried."""

    name: CheckName
    tried: int
    problems: tuple[Problem, ...] = ()
    skipped: str = ""


class OpReport(msgspec.Struct, frozen=True):
    """What is known of an op. `reason` says why it was not judged. `kernel` is the file and name of its fake kernel.

    `inputs` say what the sizes are that were changed, for each example. `refused` counts the calls that the real kernel
    refused. `crashes` are the calls that ended the process.
    """

    op: str
    schema: str = ""
    kernel: str = ""
    inputs: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    calls: int = 0
    refused: int = 0
    cpu_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    is_cut: bool = False
    """Whether the budget ended before all was tried."""

    crashes: tuple[str, ...] = ()
    reason: str = ""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Those of all checks."""
        return tuple(problem for result in self.checks for problem in result.problems)

    @property
    def failing(self) -> tuple[Problem, ...]:
        """Those that are not accepted."""
        return tuple(problem for problem in self.problems if not problem.accepted)

    @property
    def ok(self) -> bool:
        """Whether it was judged, and nothing is wrong that is not accepted."""
        return not self.reason and not self.failing


class OpsReport(msgspec.Struct, frozen=True):
    """The reports of all ops."""

    torch: str
    ops: tuple[OpReport, ...]
    interrupted: bool = False
    schema: str = SCHEMA


class Source(msgspec.Struct, frozen=True):
    """Where ops and examples come from: the modules (names, or paths of files) that register ops, and the place of the
    examples, `MODULE`, `FILE` or either with `:NAME`.
    """

    modules: tuple[str, ...] = ()
    examples: str = ""


class OpList(msgspec.Struct, frozen=True):
    """The names of ops, and a digest of all files that the libraries and the examples were imported from."""

    names: tuple[str, ...]
    files: str


class ListTask(msgspec.Struct, frozen=True):
    """Find the ops that names and globs (`mylib::*`) mean. Without names, those that have examples."""

    source: Source
    names: tuple[str, ...]


class OpTask(msgspec.Struct, frozen=True):
    """Check one op, for about so many CPU seconds."""

    source: Source
    op: str
    without: tuple[CheckName, ...] = ()
    budget: float = 30.0
    seed: int = 0

    careful: bool = False
    """Whether each call of the real kernel is tried in a process of its own first, because one has ended a worker."""
