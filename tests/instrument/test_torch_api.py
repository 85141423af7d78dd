"""The table of private APIs holds for this torch, and says so where it does not."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.torch_api import Api


@pytest.mark.parametrize("row", torch_api.table(), ids=lambda row: row.path)
def test_every_row_is_there(row: Api) -> None:
    assert row.problem() == ""
    assert row.purpose


def test_every_row_is_named_once() -> None:
    paths = [row.path for row in torch_api.table()]
    assert len(paths) == len(set(paths)) >= 25


@pytest.mark.parametrize(
    "row",
    [Api("torch.no_such_module:x", "a test"), Api("torch.fx.experimental.symbolic_shapes:ShapeEnv.gone", "a test")],
)
def test_a_missing_row_is_unsupported(row: Api) -> None:
    with pytest.raises(UnsupportedError, match=r"has no .* \(a test\).*expected torch"):
        row.get()
    assert "has no" in row.problem()


def test_a_missing_parameter_is_a_problem() -> None:
    row = Api(torch_api.DOOR.path, "a test", ("orig_expr", "not_a_parameter"))
    assert "lacks the parameters ['not_a_parameter']" in row.problem()


def test_this_torch_is_supported() -> None:
    torch_api.require()


@pytest.mark.parametrize("version", ["2.6.0+cpu", "1.13.1", "2.12.1"])
def test_an_older_torch_is_unsupported_in_one_line(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UnsupportedError) as info:
        torch_api.require()
    assert version in str(info.value)
    assert "\n" not in str(info.value)
