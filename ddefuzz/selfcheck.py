"""One line of a self-test. `ddefuzz doctor` prints them."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One line of a self-test: its name, whether it holds, and why not (or what was found)."""

    name: str
    ok: bool
    detail: str
