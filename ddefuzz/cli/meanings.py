"""What the words in tables mean, for who sees them for the first time."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from ddefuzz.oracles.verdict import Verdict

VERDICTS: MappingProxyType[Verdict, str] = MappingProxyType(
    {
        "ok": "captured, as under the old mechanism",
        "rescued": "captured, where the old mechanism could not decide",
        "fails": "explicit semantics fail",
        "changed": "captured as another graph than under the old mechanism",
        "regressed": "fails, and did not under the old mechanism",
        "diverged": "computes something else than eager",
        "not-judged": "could not be judged",
    }
)
"""Of explicit unbacked semantics, beside the size-oblivious mechanism that they replace."""


def verdicts_line(shown: Iterable[str | None]) -> str:
    """What the verdicts of a page mean: those that are no success."""
    said = set(shown) - {"ok"}
    return "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in said)
