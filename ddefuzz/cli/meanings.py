"""What the words in tables mean, for who sees them for the first time."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from ddefuzz.oracles.verdict import Verdict

VERDICTS: MappingProxyType[Verdict, str] = MappingProxyType(
    {
        "ok": "captured, as with size-oblivious semantics",
        "rescued": "captured, where size-oblivious semantics cannot decide a guard",
        "fails": "not captured",
        "changed": "captured as another graph than with size-oblivious semantics",
        "regressed": "not captured, but captured with size-oblivious semantics",
        "diverged": "the captured program computes something else than eager",
        "not-judged": "no verdict: a run was not judged",
    }
)
"""What explicit unbacked semantics do, compared with the size-oblivious ones that they replace."""


def verdicts_line(shown: Iterable[str | None]) -> str:
    """What the verdicts of a page mean: those that are no success."""
    said = set(shown) - {"ok"}
    return "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in said)
