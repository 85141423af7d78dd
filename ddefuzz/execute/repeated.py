"""The record of one function that was compiled once and called at several sizes. Nothing here imports torch."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ddefuzz.instrument.events import Constraint, Raised

Mode: TypeAlias = Literal["default", "dynamic", "marked", "unbacked"]
"""
default   torch.compile with its own settings: the first size is static, then automatic dynamic shapes
dynamic   torch.compile(dynamic=True)
marked    every dim that differs between the calls is marked dynamic
unbacked  every dim that differs between the calls is marked unbacked; dims of one size share a symbol
"""

MODES: tuple[Mode, ...] = ("default", "dynamic", "marked", "unbacked")


class Repeated(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a sequence of calls did. `compiled` are the calls that compiled something, by their number.

    `allowed` is the number of compilations that the policy allows, `shareable` are the calls that could have shared a
    graph. `guard` is the guard that was false at the first call that should have reused a graph, `failed` the same with
    the stacks of the code that made it; without `failed`, it is an equality of two sizes that torch assumes because
    they are the same in one call. `error` is what ended the sequence, `raised` the data-dependent error of it.
    """

    compiled: tuple[int, ...]
    allowed: int
    shareable: tuple[tuple[int, ...], ...] = ()
    guard: str = ""
    failed: Constraint | None = None
    error: str = ""
    raised: Raised | None = None

    @property
    def is_above(self) -> bool:
        """Whether more was compiled than the policy allows."""
        return len(self.compiled) > self.allowed
