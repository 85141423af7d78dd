"""The records between who verifies a change and the process that runs it."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from ddefuzz.execute.protocol import Observation, Stage
from ddefuzz.program.sizes import CallSize


class Truths(NamedTuple):
    """The truths of a guard with static sizes: at usual sizes, and where a size is 0 or 1."""

    usual: tuple[bool, ...] = ()
    small: tuple[bool, ...] = ()


SMALL: Final[tuple[CallSize, ...]] = ("0", "1")
"""The sizes that code treats apart most often."""


class Calls(NamedTuple):
    """Sizes of calls: those at which a captured program agrees with eager, and those that both refuse."""

    agree: tuple[CallSize, ...] = ()
    refuse: tuple[CallSize, ...] = ()


class Task(msgspec.Struct, frozen=True):
    """What to run. `programs` are captured in the stages beside them and called; `functions` reach the guard.

    `file` is a file of torch that changes. `scripted` is what `torch.jit.script` has to compile as before: a function
    (`torch.nn.functional:mse_loss`), the modules of a class (`torch.nn.modules.rnn:RNNBase`), or what a module compiles
    when it is imported (`torch._decomp.decompositions_for_jvp`). `test` is the text of a test. `noting` is the text of
    the file with a guard that notes its truth. `stage` is that in which samples are captured and truths are noted. With
    `is_changed` a test that fails is enough: samples are not run then. `of_numbers` is that of a `SampleRequest`.
    """

    programs: tuple[tuple[str, tuple[Stage, ...]], ...]
    functions: tuple[str, ...]
    file: str
    scripted: tuple[str, ...] = ()
    test: str = ""
    stage: Stage = "aot"
    noting: str = ""
    is_changed: bool = False
    of_numbers: bool = False


class Sights(msgspec.Struct, frozen=True):
    """What was seen. `eager` are the programs in eager at each size, `samples` what torch's own samples do, by name.

    `of_samples` are captures of samples, each with the text of its program. `truths` are those of the guard.
    """

    captured: tuple[Observation, ...] = ()
    eager: tuple[Observation, ...] = ()
    of_samples: tuple[tuple[str, Observation], ...] = ()
    samples: dict[str, str] = {}
    scripted: dict[str, str] = {}
    test: str = ""
    truths: Truths = Truths()
