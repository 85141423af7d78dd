"""Programs of one op of the catalogue, after only the steps that its arguments need."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from ddefuzz.generate.choices import WORD_BITS, Choices
from ddefuzz.generate.eager import strict_eager
from ddefuzz.generate.lockstep import Lockstep
from ddefuzz.generate.strategies import STARTS, attempt, inputs_read
from ddefuzz.ops.spec import OpSpec
from ddefuzz.program.model import Program

ATTEMPTS: Final = 40
NUMBERS: Final = tuple(spec for spec in STARTS if "item()" in str(spec))
"""What begins a program whose op takes no tensor: it wants a size at hand, and no op before it that might fail."""


def singles(spec: OpSpec, count: int, word: int = 0) -> Iterator[Program]:
    """Up to `count` programs of an op, the same at every call, different for another `word`."""
    found: set[Program] = set()
    of_word = f":{word}" if word else ""
    for number in range(ATTEMPTS):
        if len(found) == count:
            return
        lockstep = Lockstep("2")
        choices = Choices(random.Random(f"{spec}:{number}{of_word}").getrandbits(WORD_BITS))
        with strict_eager():
            if number >= ATTEMPTS // 2 and not attempt(lockstep, choices, choices.pick(NUMBERS)):
                continue
            if not attempt(lockstep, choices, spec):
                continue
        program = lockstep.program()
        if lockstep.steps and len(program.inputs) == len(inputs_read(program)) and program not in found:
            found.add(program)
            yield program
