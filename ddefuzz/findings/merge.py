"""Merge two records of one finding or one guard site, from different databases.

Merging is commutative, associative and idempotent. So shards can be merged in any order, and more than once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

import msgspec

from ddefuzz.classify.failure import Failure
from ddefuzz.coverage.ledger import SiteRecord, together
from ddefuzz.findings.decisions import Field
from ddefuzz.findings.model import Confirmation, Finding, Occurrence, normalized


def merged(a: Finding, b: Finding) -> Finding:
    """The record of one finding from two databases.

    Collections are united. The smaller of two smallest programs is kept, with its replays and control runs. Decisions
    of people (state, title, cause and so on) come from the record with the later history.
    """
    a, b = normalized(a), normalized(b)
    groups = (
        max(_decided(a), _decided(b)),
        min(first_seen_group(a), first_seen_group(b)),
        min(smallest_group(a), smallest_group(b)),
    )
    chosen = {name: value for group in groups for name, value in group.fields.items()}
    return normalized(
        msgspec.structs.replace(
            a,
            **chosen,
            occurrences=merged_occurrences((*a.occurrences, *b.occurrences)),
            links=a.links + b.links,
            notes=a.notes + b.notes,
            history=a.history + b.history,
            former=a.former + b.former,
        )
    )


def merged_site(a: SiteRecord, b: SiteRecord) -> SiteRecord:
    """The record of one guard site from two databases. Counts are not added: both may contain the same cases."""
    example, stage = min((one.example, one.stage) for one in (a, b) if one.example or not (a.example or b.example))
    return msgspec.structs.replace(together(a, b, max), call=min(a.call, b.call), example=example, stage=stage)


@dataclass(frozen=True)
class FieldGroup:
    """Fields that are taken together from one of the two records. The choice depends only on `rank` and these fields.

    If it depended on other fields, a merge could change them and so change the next choice.
    """

    rank: tuple[str | int, ...]
    fields: dict[str, Any]

    def __lt__(self, other: FieldGroup) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[tuple[str | int, ...], bytes]:
        return self.rank, msgspec.json.encode(self.fields)


def _group(finding: Finding, names: tuple[str, ...], *rank: str | int) -> FieldGroup:
    return FieldGroup(rank, {name: getattr(finding, name) for name in names})


DECIDED = get_args(Field)
"""The fields that people decide. They are taken together from one record."""


def _decided(finding: Finding) -> FieldGroup:
    latest = max((entry.when for entry in finding.history), default="")
    return _group(finding, DECIDED, latest)


def first_seen_group(finding: Finding) -> FieldGroup:
    """What the finding was first seen with. The earlier one is kept."""
    return _group(finding, ("original", "failure"), finding.first_seen or "~", finding.original is None)


def smallest_group(finding: Finding) -> FieldGroup:
    """The smallest program with its replays, control runs and experiment.

    Of equal programs, the one with more results is kept.
    """
    text, replays = finding.minimal or "", finding.confirmed or Confirmation(0, 0)
    rank = (finding.minimal is None, finding.steps or 0, len(text), text)
    knows = (finding.shown is None, finding.control is None, finding.answers is None, -replays.n, -replays.k)
    return _group(finding, ("minimal", "steps", "attempts", "confirmed", "shown", "control", "answers"), *rank, *knows)


def _first_observed(same: Iterable[Occurrence]) -> Failure | None:
    kept = [seen.observed for seen in same if seen.observed is not None]
    return min(kept, key=msgspec.json.encode, default=None)


def merged_occurrences(occurrences: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """One occurrence for each place. Counts are not added, because both may contain the same sightings."""
    together = []
    for _, group in groupby(sorted(occurrences, key=lambda seen: seen.order), key=lambda seen: seen.place):
        same = list(group)
        latest = max(same, key=lambda seen: (seen.last_seen, seen.order))
        together.append(
            msgspec.structs.replace(
                latest,
                count=max(seen.count for seen in same),
                first_seen=min(seen.first_seen for seen in same),
                observed=_first_observed(same),
            )
        )
    return tuple(together)
