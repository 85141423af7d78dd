"""The meaning of the words in tables, for new users."""

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
        "diverged": "the captured program computes other values than eager",
        "not-judged": "no verdict: a run was not judged",
    }
)
"""The verdicts: what happens with explicit unbacked semantics, compared with size-oblivious semantics."""


def verdicts_line(shown: Iterable[str | None]) -> str:
    """The meaning of the verdicts on a page, except `ok`."""
    said = set(shown) - {"ok"}
    return "; ".join(f"{name}: {meaning}" for name, meaning in VERDICTS.items() if name in said)
