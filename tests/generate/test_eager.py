"""Running eager torch during generation prints nothing."""

from __future__ import annotations

import pytest
import torch

from ddefuzz.generate.lockstep import strict_eager


def test_what_cpp_warns_of_before_it_raises_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with strict_eager(), pytest.raises(RuntimeError, match="Incompatible shapes"):
        torch.lu_solve(torch.ones(3, 2), torch.ones(4, 4), torch.ones(3, dtype=torch.int32))
    assert capfd.readouterr().err == ""
