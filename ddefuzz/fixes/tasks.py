"""The records between who verifies a change and the process that runs it."""

from __future__ import annotations

import msgspec

from ddefuzz.execute.protocol import Observation, Stage


class Task(msgspec.Struct, frozen=True):
    """What to run. `programs` are captured in the stages beside them and called; `functions` reach the guard.

    `file` is a file of torch that changes, and `scripted` a function of it (`torch.nn.functional:mse_loss`). `test` is
    the text of a test. `noting` is the text of the file with a guard that notes its truth.
    """

    programs: tuple[tuple[str, tuple[Stage, ...]], ...]
    functions: tuple[str, ...]
    file: str
    scripted: tuple[str, ...] = ()
    test: str = ""
    stage: Stage = "aot"
    noting: str = ""


class Sights(msgspec.Struct, frozen=True):
    """What was seen. `eager` are the programs in eager at each size, `samples` what torch's own samples do, by name.

    `truths` are those of the guard with static sizes, the first program's example first.
    """

    captured: tuple[Observation, ...] = ()
    eager: tuple[Observation, ...] = ()
    of_samples: tuple[Observation, ...] = ()
    samples: dict[str, str] = {}
    scripted: dict[str, str] = {}
    test: str = ""
    truths: tuple[bool, ...] = ()
