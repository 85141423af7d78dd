"""The budget of a campaign (a time, a number of cases or CPU seconds), and which cases belong to a shard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from ddefuzz.errors import InputError

UNITS = {"s": 1, "m": 60, "h": 3600}
SECONDS = re.compile(r"(?:[0-9]{1,12}(?:[.][0-9]{1,12})?[smh]){1,3}")
CPU_SECONDS = re.compile(r"([0-9]{1,12}(?:[.][0-9]{1,12})?)cpu")
CASES = re.compile(r"([0-9]{1,12})x")

CLOSING_SHARE = 0.1
CLOSING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one is set: `seconds` of wall-clock time, `cases` over all shards, or `cpu_seconds` of the workers."""

    seconds: float | None = None
    cases: int | None = None
    cpu_seconds: float | None = None

    @property
    def drawing_seconds(self) -> float | None:
        """When to stop drawing, so that findings until then can be minimized and confirmed within the budget."""
        if self.seconds is None:
            return None
        return self.seconds - min(CLOSING_SECONDS, CLOSING_SHARE * self.seconds)

    def __str__(self) -> str:
        if self.cpu_seconds is not None:
            return f"{self.cpu_seconds:g}cpu"
        return f"{self.cases}x" if self.cases is not None else f"{self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th (from 1) of `total` parts: the cases whose index is congruent to it."""

    index: int = 1
    total: int = 1

    def cases(self, budget: Budget) -> Iterator[int]:
        """The indices of this shard's cases, in order."""
        for index in count():
            if budget.cases is not None and index >= budget.cases:
                return
            if index % self.total == self.index - 1:
                yield index

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"


WHOLE = Shard()
"""All cases."""


def parse_budget(text: str) -> Budget:
    """Parse `90s`, `10m`, `1h30m`, `1000x` or `600cpu`. Raises `InputError`."""
    if (match := CPU_SECONDS.fullmatch(text)) and float(match[1]) > 0:
        return Budget(cpu_seconds=float(match[1]))
    if match := CASES.fullmatch(text):
        if int(match[1]) > 0:
            return Budget(cases=int(match[1]))
    elif SECONDS.fullmatch(text):
        seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([0-9.]+)([smh])", text))
        if seconds > 0:
            return Budget(seconds=seconds)
    raise InputError(
        f"--budget: found {text[:40]!r}, expected a time such as 90s, 10m, 1h30m, "
        "a number of cases such as 1000x or CPU seconds such as 600cpu"
    )


def parse_shard(text: str) -> Shard:
    """Parse `1/2`, the first of two shards. Raises `InputError`."""
    match = re.fullmatch(r"([0-9]{1,12})/([0-9]{1,12})", text)
    if match and 1 <= int(match[1]) <= int(match[2]):
        return Shard(int(match[1]), int(match[2]))
    raise InputError(f"--shard: found {text[:40]!r}, expected i/n with 1 ≤ i ≤ n, such as 1/4")
