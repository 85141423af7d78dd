"""The n-th case of a campaign, as a pure function of the versions, the profile, the seed and the index."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from functools import cache, lru_cache
from itertools import count
from typing import Final, TypeAlias

import hypothesis
import torch
from hypothesis import HealthCheck, given, settings

from ddefuzz.generate.lockstep import WORD_BITS, Journal
from ddefuzz.generate.origin import Draw
from ddefuzz.generate.profiles import PROFILES, drawable, profile_named
from ddefuzz.generate.strategies import Drawn, drawn_programs
from ddefuzz.ops.catalogue import GROUPS, OPS
from ddefuzz.ops.conversions import TEMPLATES
from ddefuzz.program.model import Program

GENERATOR_VERSION: Final = 5
"""Raised when the code of `generate` or of a campaign's guide changes the program of an index. Tables have a digest."""

FOCUS_BYTES: Final = 2
WORD_BYTES: Final = WORD_BITS // 8
WORDS_OF_CASE: Final = 128
CASE_BYTES: Final = FOCUS_BYTES + WORD_BYTES * WORDS_OF_CASE

FOCUSED: Final = tuple(position for position, spec in enumerate(OPS) if spec not in GROUPS["pointwise"])
"""The positions of the ops that take turns in focus. Pointwise ops are left out, because they evaluate few guards."""

STOPPING: Final = tuple(position for position in FOCUSED if OPS[position].stops)
"""Those of them that usually stop capture."""

Fuzz: TypeAlias = Callable[[bytes, Journal | None], Drawn | None]


def generator_key(profile: str, seed: int) -> str:
    """Everything that decides the set of cases, as a line. Two campaigns with the same key draw the same programs."""
    return (
        f"generator={GENERATOR_VERSION} tables={_tables_digest()} torch={torch.__version__} "
        f"hypothesis={hypothesis.__version__} profile={profile} seed={seed}"
    )


def case(profile: str, seed: int, index: int, journal: Journal | None = None) -> Program:
    """The case `index` of a campaign. InputError for an unknown profile.

    `journal` is called with each step before the step runs. So a step that kills the process is known.
    """
    return drawn_case(profile, seed, index, journal).program


def drawn_case(profile: str, seed: int, index: int, journal: Journal | None = None, focus: int | None = None) -> Drawn:
    """The same, with the requested number of steps. `focus` is the op in focus in place of the index's own."""
    chosen = _focus(profile, seed, index) if focus is None else focus
    drawn = (_fuzzer(profile)(_spelling(profile, seed, index, attempt, chosen), journal) for attempt in count())
    return next(found for found in drawn if found is not None)


def respelled(
    profile: str, seed: int, base: Draw, changes: tuple[tuple[int, int], ...], journal: Journal | None = None
) -> Program | None:
    """The bytes of a case with some words (counted modulo) drawn again. None if the bytes give no program."""
    focus = _focus(profile, seed, base.index) if base.focus is None else base.focus
    data = bytearray(_spelling(profile, seed, base.index, 0, focus))
    for word, number in changes:
        begin = FOCUS_BYTES + word % WORDS_OF_CASE * WORD_BYTES
        data[begin : begin + WORD_BYTES] = random.Random(number).randbytes(WORD_BYTES)
    return from_bytes(profile, bytes(data), journal)


def _spelling(profile: str, seed: int, index: int, attempt: int, focus: int) -> bytes:
    stream = random.Random(f"{profile}:{seed}:{index}:{attempt}")
    return focus.to_bytes(FOCUS_BYTES, "big") + stream.randbytes(WORD_BYTES * WORDS_OF_CASE)


def from_bytes(profile: str, data: bytes, journal: Journal | None = None) -> Program | None:
    """The program that a byte string encodes. None if the string is too short or no step of it is accepted.

    The first two bytes choose the op in focus. Every 24 bytes after them are one attempt at a step. So a change
    in the middle keeps the steps before it.
    """
    drawn = _fuzzer(profile)(data, journal)
    return None if drawn is None else drawn.program


@lru_cache(maxsize=8)
def _round(seed: int, number: int, focused: tuple[int, ...]) -> tuple[int, ...]:
    """The ops in focus in one round of cases, each once, so that a campaign reaches every op early."""
    return tuple(random.Random(f"{seed}:{number}").sample(focused, len(focused)))


def _focus(profile: str, seed: int, index: int) -> int:
    """The op in focus. At the start of a campaign every second case has an op that usually stops capture, each
    such op once.

    So a short campaign sees the known failures, and a long one is as even as its rounds. A profile without
    ops that stop capture has none of them in focus.
    """
    if not profile_named(profile).stops:
        focused = tuple(position for position in FOCUSED if OPS[position] in drawable(profile))
        rounds, position = divmod(index, len(focused))
        return _round(seed, rounds, focused)[position]
    opening = len(STOPPING)
    place, is_odd = divmod(index, 2)
    if place < opening:
        if not is_odd:
            return random.Random(f"{seed}:opening").sample(STOPPING, opening)[place]
        rounds, position = divmod(place, len(FOCUSED))
    else:
        rounds, position = divmod(index - opening, len(FOCUSED))
    return _round(seed, rounds, FOCUSED)[position]


@cache
def _fuzzer(profile: str) -> Fuzz:
    """The profile's strategy behind Hypothesis's `fuzz_one_input`, which keeps no examples and reads no database."""
    made: list[Drawn] = []
    listeners: list[Journal] = []

    def test_with(journal: Journal | None) -> Callable[[bytes], bytes | None]:
        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(drawn_programs(profile_named(profile), journal))
        def keep(drawn: Drawn) -> None:
            made.append(drawn)

        fuzz: Callable[[bytes], bytes | None] = keep.hypothesis.fuzz_one_input  # type: ignore[attr-defined]
        return fuzz

    def note(line: str) -> None:
        listeners[-1](line)

    silent, noting = test_with(None), test_with(note)

    def run(data: bytes, journal: Journal | None) -> Drawn | None:
        made.clear()
        if journal is None:
            silent(data)
        else:
            listeners.append(journal)
            try:
                noting(data)
            finally:
                listeners.pop()
        return made.pop() if made else None

    return run


@cache
def _tables_digest() -> str:
    """A digest of the catalogue, the conversions and the profiles."""
    tables = repr((OPS, TEMPLATES, sorted(PROFILES.items())))
    return hashlib.sha256(tables.encode()).hexdigest()[:10]
