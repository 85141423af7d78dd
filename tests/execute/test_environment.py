"""The environment that is stored with observations."""

from __future__ import annotations

import msgspec
import pytest
import torch

from ddefuzz.execute.environment import current
from ddefuzz.execute.protocol import Environment


def test_it_says_what_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDYNAMO_A_SWITCH", "1")
    monkeypatch.setenv("UNRELATED", "1")
    found = current()
    assert found.torch == torch.__version__
    settings = dict(found.settings)
    assert settings["TORCHDYNAMO_A_SWITCH"] == "1"
    assert settings["torch.fx.experimental._config:backed_size_oblivious"] == "False"
    assert "UNRELATED" not in settings
    assert msgspec.json.decode(msgspec.json.encode(found), type=Environment) == found
