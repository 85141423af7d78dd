"""Decisions derived from one drawn integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

WORD_BITS: Final = 192
WORDS: Final = st.integers(0, 2**WORD_BITS - 1)
"""One attempt at a step is one draw, so a mutated byte redraws that step and leaves the others their choices.

It also keeps Hypothesis's cost of a draw (20 µs) off the small decisions.
"""


class Choices:
    """The mixed-radix digits of an integer (a word), least significant first. After the last, every digit is 0."""

    __slots__ = ("_word",)

    def __init__(self, word: int) -> None:
        self._word = word

    def below(self, n: int) -> int:
        """A number in [0, n)."""
        self._word, digit = divmod(self._word, n)
        return digit

    def between(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + self.below(high - low + 1)

    def pick(self, options: Sequence[T]) -> T:
        """One of `options`, which must not be empty."""
        return options[self.below(len(options))]

    def one_in(self, n: int) -> bool:
        """True with probability 1/`n`. False when the digits are used up."""
        return self.below(n) == n - 1
