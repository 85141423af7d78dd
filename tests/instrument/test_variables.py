"""The variables of the user's function where a guard is evaluated."""

from __future__ import annotations

import sys
from types import FrameType

import torch

from ddefuzz.instrument import frames


def test_tensors_have_shapes_and_numbers_values() -> None:
    x, n, name = torch.ones(2, 3), 4, "no number"  # noqa: F841 they are what is read

    def called(frame: FrameType) -> tuple[tuple[str, str], ...]:
        return frames.variables(frame)

    assert called(sys._getframe()) == (("x", "(2, 3) float32"), ("n", "4"))
    assert frames.variables(None) == ()
