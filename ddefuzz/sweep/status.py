"""The status of an op, from what its samples showed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ddefuzz.sweep.tasks import Failed, Status, Swept

UNSUPPORTED = frozenset({"data-dependent-output", "unsupported", "pending-unbacked"})


def with_status(swept: Swept) -> Swept:
    """The same record with the statuses that its failures imply."""
    explicit, size_oblivious = status_of(swept)
    return msgspec.structs.replace(swept, explicit=explicit, size_oblivious=size_oblivious)


def status_of(swept: Swept) -> tuple[Status, Status]:
    """The statuses under explicit and under size-oblivious semantics. The worst status of any sample counts."""
    if not swept.runs:
        return ("other", "other") if swept.lost else ("none", "none")
    explicit = _worst(swept.failures, bool(swept.lost))
    if swept.rescued:
        return explicit, "dde"
    return explicit, _worst((failed for failed in swept.failures if failed.verdict != "regressed"), bool(swept.lost))


def _worst(failures: Iterable[Failed], lost: bool) -> Status:
    kinds = {failed.signature.kind for failed in failures if failed.counts}
    if "dde" in kinds:
        return "dde"
    if kinds & UNSUPPORTED:
        return "unsupported"
    return "other" if kinds or lost else "ok"
