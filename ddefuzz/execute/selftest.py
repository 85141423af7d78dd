"""Self-tests on real torch of what observations rely on. `ddefuzz doctor` prints them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

from ddefuzz.execute.pool import Lost, Pool
from ddefuzz.execute.protocol import EXPLICIT, Observation, ProgramSubject, Run, Semantics, Stage
from ddefuzz.selfcheck import Check

_SECONDS = 60.0

CHUNK = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return torch.chunk(x, 2)
"""

SYMBOLIZED = (
    ("at::native::chunk", "return torch.chunk(x, 2)"),
    ("at::native::diff_helper", "return torch.diff(x, dim=0)"),
    ("at::native::(anonymous namespace)::resize_fft_input", "return torch.fft.rfft(x, n=3, dim=0)"),
)
"""C++ functions that must be named correctly (an exported one, a static one and an anonymous one), and a program
that reaches each.
"""

FALLING_BACK = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0 4"]):
    return x.view(-1, 2)
"""


def crash(_: str) -> str:
    """A task that reads address 0."""
    return str(ctypes.string_at(0))


def hang(_: str) -> str:
    """A task that never ends."""
    while True:
        time.sleep(1)


def checks(pool: Pool) -> Iterator[Check]:
    """The checks of workers, the cheapest first."""
    yield from _symbolizer(pool)
    yield from _planted(pool)
    yield from _faults(pool)


def _symbolizer(pool: Pool) -> Iterator[Check]:
    for name, line in SYMBOLIZED:
        seen = pool.observe(Run(ProgramSubject(CHUNK.replace("return torch.chunk(x, 2)", line)), "export"), _SECONDS)
        native = seen.raised.native if seen.raised is not None else ()
        found = any(frame.function.startswith(f"{name}(") for frame in native)
        yield Check(f"symbolizer names {name}", found, "named" if found else _told(seen))


def _planted(pool: Pool) -> Iterator[Check]:
    stages: tuple[Stage, ...] = ("export", "export-strict", "compile")
    for stage in stages:
        seen = pool.observe_cold(Run(ProgramSubject(CHUNK), stage), _SECONDS)
        ok = seen.raised is not None and seen.raised.place.language == "C++"
        yield Check(f"a data-dependent error is seen in {stage}, in a cold process", ok, _told(seen))
    watched = pool.observe(Run(ProgramSubject(FALLING_BACK), "export"), _SECONDS)
    if not watched.guards:
        yield Check("a guard that falls back is seen", False, _told(watched))
        return
    place = watched.guards[0].place
    planted = Semantics(EXPLICIT.mechanism, (place,))
    for stage in stages:
        seen = pool.observe(Run(ProgramSubject(FALLING_BACK), stage, planted), _SECONDS)
        ok = seen.raised is not None and seen.raised.withheld and seen.raised.place == place
        yield Check(f"a fault planted at {place.file}:{place.line} is blamed in {stage}", ok, _told(seen))


def _faults(pool: Pool) -> Iterator[Check]:
    died = pool.submit(crash, "", _SECONDS).result()
    yield Check("the crash of a worker is detected", isinstance(died, Lost) and died.outcome == "crash", str(died))
    hung = pool.submit(hang, "", 1.0).result()
    yield Check("a worker that hangs is stopped", isinstance(hung, Lost) and hung.outcome == "timeout", str(hung))


def _told(seen: Observation) -> str:
    if seen.raised is not None:
        return f"{seen.raised.expression} evaluated at {seen.raised.place.file}:{seen.raised.place.line}"
    if seen.exceptions:
        return f"{seen.exceptions[0].name}: {seen.exceptions[0].message.splitlines()[0]}"
    return f"{seen.outcome} {seen.reason}".strip()
