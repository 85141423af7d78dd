"""What launches cost by their keys: every kind is measured, and ratios are over the floor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ci.bench import keys
from ci.bench.command import Session
from ci.bench.keys import AsInt, KeysResult, LaunchTime, concrete, wrapped
from ddefuzz.cli.output import LiveLine
from ddefuzz.keys.properties import symbolic_tensor
from tests.bench.typed_bench import text_of


def test_every_launch_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "TENSORS", (2,))
    with LiveLine("") as live:
        measured = keys.run(Session(live, tmp_path), 1, 1)
    assert isinstance(measured.record, KeysResult)
    assert len(measured.record.launches) == 10
    text = text_of(list(measured.blocks))
    assert "wrapped ints over concrete ints, 2 plain tensors" in text
    assert "ddefuzz, safe path over wrapped ints, 2 symbolic tensors" in text


def test_the_floor_is_subtracted() -> None:
    floor, launch = LaunchTime("no key", "plain", 4, 1.0), LaunchTime("other", "plain", 4, 3.0)
    assert keys.more_for_each(launch, [floor, launch]) == 0.5


def test_wrapped_ints_are_compared_without_a_guard() -> None:
    tensor, env = symbolic_tensor((2, 3), exact=False)
    other, _ = symbolic_tensor((2, 3), False, env, "y")
    assert wrapped(tensor) == wrapped(tensor) != wrapped(other)
    assert not env.guards
    assert AsInt(2) != 2
    assert concrete(torch.zeros(2)) != concrete(torch.zeros(3))
