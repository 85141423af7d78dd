"""Two records of one finding become one; the order and the number of times do not matter.

Merging is commutative, associative and idempotent, so that shards can be merged in any order and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import msgspec

from ddefuzz.findings.model import Confirmation, Finding, Occurrence, normalized


def merged(a: Finding, b: Finding) -> Finding:
    """What is known of one finding from two databases.

    Sets are united; of two minimal programs the smaller stays, of two confirmations the one with more replays; what
    people decided (state, title, cause …) is taken from the record with the latest history.
    """
    a, b = normalized(a), normalized(b)
    decided = max(a, b, key=lambda finding: (_latest(finding), _content(finding)))
    smaller = min(a, b, key=_minimal_order)
    seen_first = min(a, b, key=lambda finding: (finding.first_seen or "~", finding.original is None, _content(finding)))
    return normalized(
        msgspec.structs.replace(
            decided,
            expression=seen_first.expression,
            original=seen_first.original,
            failure=seen_first.failure,
            minimal=smaller.minimal,
            steps=smaller.steps,
            attempts=smaller.attempts,
            confirmed=max(a.confirmed, b.confirmed, key=_confirmation_order),
            occurrences=_merged_occurrences((*a.occurrences, *b.occurrences)),
            links=a.links + b.links,
            notes=a.notes + b.notes,
            history=a.history + b.history,
        )
    )


def _latest(finding: Finding) -> str:
    return max((entry.when for entry in finding.history), default="")


def _content(finding: Finding) -> bytes:
    return msgspec.json.encode(finding)


def _minimal_order(finding: Finding) -> tuple[bool, int, int, str, int]:
    text = finding.minimal or ""
    return finding.minimal is None, finding.steps or 0, len(text), text, finding.attempts or 0


def _confirmation_order(confirmed: Confirmation | None) -> tuple[int, int]:
    return (-1, 0) if confirmed is None else (confirmed.n, confirmed.k)


def _merged_occurrences(occurrences: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """One a place. Counts are not added: the same sightings may be in both."""
    together = []
    for _, group in groupby(sorted(occurrences, key=lambda seen: (seen.place, seen)), key=lambda seen: seen.place):
        same = list(group)
        latest = max(same, key=lambda seen: (seen.last_seen, seen))
        together.append(
            msgspec.structs.replace(
                latest, count=max(seen.count for seen in same), first_seen=min(seen.first_seen for seen in same)
            )
        )
    return tuple(together)
