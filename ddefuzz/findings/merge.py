"""Join records of the same finding: from two databases (`merged`), or when the rules of classification change
(`reclassified`).

Merging databases is commutative, associative and idempotent. So shards can be merged in any order, and more than once.

When rules change, findings can move, merge or split. The failure of the smallest program, else the first one seen,
decides a finding's new identity. Decisions, notes and links of people go with it. Each occurrence moves by its own
failure; one without a stored failure stays with its finding. No occurrence, note or link is lost. When findings merge,
the smallest confirmed program is kept. Findings of the oracles that call captured programs stay as they are:
experiments found their places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from ddefuzz.classify.cause import Classification, by_experiment
from ddefuzz.classify.evidence import failing_ops
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.findings.decisions import Field
from ddefuzz.findings.ledger import SiteRecord, together
from ddefuzz.findings.model import (
    MOST_SIGHTINGS,
    Confirmation,
    Finding,
    HistoryEntry,
    Occurrence,
    id_of,
    normalized,
    sequence_of,
    stamp,
)
from ddefuzz.oracles.capture import KINDS
from ddefuzz.oracles.table import stored

DECIDED = get_args(Field)
"""The fields that people decide."""

TOGETHER: tuple[tuple[str, ...], ...] = (
    ("state", "duplicate_of", "fixed_in"),
    *((name,) for name in DECIDED if name not in ("state", "duplicate_of", "fixed_in")),
)
"""Those that belong together, and each of the others. Each group comes from the record that decided on it last."""

FIRST_SEEN = ("original", "failure")
"""What a finding was first seen with."""

SMALLEST = ("minimal", "steps", "attempts", "confirmed", "shown", "control", "answers")
"""The smallest program with its replays, control runs and experiment."""

UNITED = ("links", "notes", "history", "former", "models")

WHO = "findings reclassify"
"""The name in the history for changes that the rules make."""

Rank = tuple[str | int, ...]
Classify = Callable[[Failure], Classification]


class Change(msgspec.Struct, frozen=True):
    """A change of one finding. `sightings` is the number that move from `finding` to `becomes`."""

    change: str
    finding: str
    becomes: str
    before: str
    after: str
    sightings: int = 0


class Counts(msgspec.Struct, frozen=True):
    """The numbers of findings and sightings (each an observed failure), and of changes by kind."""

    findings: int
    findings_after: int
    moved: int
    merged: int
    split_off: int
    other_cause: int
    sightings: int
    sightings_after: int
    sightings_moved: int
    occurrences_unobserved: int
    causes: dict[Cause, int]
    causes_after: dict[Cause, int]


class Reclassification(msgspec.Struct, frozen=True, kw_only=True):
    """All findings under the current rules, what changes, and the ids that no finding has any more (`Finding.former`
    has them).
    """

    findings: tuple[Finding, ...]
    changes: tuple[Change, ...]
    counts: Counts
    gone: frozenset[str]


def merged(a: Finding, b: Finding) -> Finding:
    """The record of one finding from two databases.

    Collections are united. The smaller of two smallest programs is kept, with its replays and control runs. What people
    decide (state, title, cause and so on) comes from the record in which it was decided later, each by itself.
    """
    both = normalized(a), normalized(b)
    decided: dict[str, Any] = {}
    for names in TOGETHER:
        decided |= _taken(both, names, partial(_last_decision, names), max)
    return normalized(
        replace(
            both[0],
            **{**_united(both), "links": _links(both)},
            **decided,
            **_taken(both, FIRST_SEEN, _first_seen),
            **_taken(both, SMALLEST, _size),
            # Counts are not added, because both may contain the same sightings.
            occurrences=_occurrences(both, max),
        )
    )


def joined_duplicates(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The duplicates among findings whose originals are duplicates themselves, each with the original at the end. In a
    cycle, which two databases may make together, none is a duplicate any more.
    """
    by_id = {finding.id: finding for finding in findings}
    chained = [
        one for one in by_id.values() if (original := by_id.get(one.duplicate_of or "")) and original.duplicate_of
    ]
    return tuple(_without_chains(finding, by_id, {}) for finding in chained)


def merged_site(a: SiteRecord, b: SiteRecord) -> SiteRecord:
    """The record of one guard site from two databases. Counts are not added: both may contain the same cases."""
    example, stage = min((one.example, one.stage) for one in (a, b) if one.example or not (a.example or b.example))
    return replace(together(a, b, max), call=min(a.call, b.call), example=example, stage=stage)


def _united(findings: Iterable[Finding]) -> dict[str, Any]:
    records = list(findings)
    return {name: tuple(item for one in records for item in getattr(one, name)) for name in UNITED}


def _links(findings: Iterable[Finding]) -> tuple[str, ...]:
    """The links of some records, without those whose removal is the last that was decided on them."""
    last: dict[str, HistoryEntry] = {}
    records = list(findings)
    for entry in sorted(entry for one in records for entry in one.history if entry.field == "links"):
        last[entry.before or entry.after] = entry
    return tuple(url for one in records for url in one.links if url not in last or last[url].after)


def _taken(
    findings: Iterable[Finding], names: Sequence[str], rank: Callable[[Finding], Rank], first: Callable[..., Any] = min
) -> dict[str, Any]:
    """Fields that are taken together from the finding that is first by its rank. The choice depends only on the rank
    and on these fields: if it depended on others, a merge could change them and so change the next choice.
    """
    fields = [(rank(finding), {name: getattr(finding, name) for name in names}) for finding in findings]
    chosen: dict[str, Any] = first(fields, key=lambda pair: (pair[0], msgspec.json.encode(pair[1])))[1]
    return chosen


def _last_decision(names: Sequence[str], finding: Finding) -> Rank:
    return (max((entry.when for entry in finding.history if entry.field in names), default=""),)


def _first_seen(finding: Finding) -> Rank:
    return finding.first_seen or "~", finding.original is None


def _size(finding: Finding) -> Rank:
    """The rank of a smallest program. Of equal programs, the one with more results is kept."""
    text, replays = finding.minimal or "", finding.confirmed or Confirmation(0, 0)
    unknown = (finding.shown is None, finding.control is None, finding.answers is None)
    return (finding.minimal is None, finding.steps or 0, len(text), text, *unknown, -replays.n, -replays.k)


def _occurrences(findings: Iterable[Finding], count: Callable[[Iterable[int]], int]) -> tuple[Occurrence, ...]:
    """One occurrence for each place. `count` makes one number of those of several findings."""
    together = []
    everything = sorted((seen for finding in findings for seen in finding.occurrences), key=lambda seen: seen.order)
    for _, group in groupby(everything, key=lambda seen: seen.place):
        same = list(group)
        observed = [seen.observed for seen in same if seen.observed is not None]
        together.append(
            replace(
                max(same, key=lambda seen: (seen.last_seen, seen.order)),
                count=min(count(seen.count for seen in same), MOST_SIGHTINGS),
                first_seen=min(seen.first_seen for seen in same),
                observed=min(observed, key=msgspec.json.encode, default=None),
            )
        )
    return tuple(together)


def reclassified(findings: Iterable[Finding], classify: Classify, when: datetime) -> Reclassification:
    """The findings under the current rules. Applying it twice gives the same result as once."""
    before = sorted(map(normalized, findings), key=lambda finding: finding.id)
    results: dict[bytes, Classification] = {}

    def known(failure: Failure) -> Classification:
        key = msgspec.json.encode(failure)  # a failure that holds a mapping has no hash
        if key not in results:
            results[key] = classify(failure)
        return results[key]

    now = {finding.id: _as_it_is_now(finding, known, when) for finding in before}
    owned: dict[str, list[Finding]] = defaultdict(list)
    for finding in before:
        owned[now[finding.id].id].append(finding)
    pieces: dict[str, list[Finding]] = defaultdict(list)
    sent: dict[str, dict[str, int]] = {}
    for name, whole in now.items():
        parts = dict(_parts(whole, name, known, owned, when))
        sent[name] = {target: part.count for target, part in parts.items() if target != whole.id}
        for target, part in parts.items():
            pieces[target].append(part)
    renamed = {name: whole.id for name, whole in now.items()}
    joined = {target: _together(target, found, owned, renamed) for target, found in sorted(pieces.items())}
    causes = {name: with_cause(one, known, when if name in owned else None) for name, one in joined.items()}
    after = {name: normalized(_without_chains(one, causes, renamed)) for name, one in causes.items()}
    changes = [change for one in before for change in _changes(one, now[one.id], after, sent[one.id], owned)]
    kinds = Counter(change.change for change in changes)
    return Reclassification(
        findings=tuple(after.values()),
        changes=tuple(changes),
        counts=Counts(
            findings=len(before),
            findings_after=len(after),
            moved=kinds["moved"],
            merged=kinds["merged"],
            split_off=len(pieces.keys() - owned.keys()),
            other_cause=kinds["cause"],
            sightings=sum(finding.count for finding in before),
            sightings_after=sum(finding.count for finding in after.values()),
            sightings_moved=sum(change.sightings for change in changes),
            occurrences_unobserved=sum(seen.observed is None for finding in before for seen in finding.occurrences),
            causes=dict(sorted(Counter(finding.cause for finding in before).items())),
            causes_after=dict(sorted(Counter(finding.cause for finding in after.values()).items())),
        ),
        gone=frozenset(renamed.keys() - after.keys()),
    )


def _changes(
    finding: Finding,
    now: Finding,
    after: Mapping[str, Finding],
    sent: Mapping[str, int],
    owned: Mapping[str, Sequence[Finding]],
) -> Iterator[Change]:
    """What changes for one finding. `sent` counts its sightings that move to other findings."""
    if now.id != finding.id:
        what = "merged" if len(owned[now.id]) > 1 else "moved"
        yield Change(what, finding.id, now.id, *_apart(finding.signature, now.signature))
    if (cause := after[now.id].cause) != finding.cause:
        yield Change("cause", finding.id, now.id, finding.cause, cause)
    for target, sightings in sorted(sent.items()):
        yield Change("split", finding.id, target, *_apart(finding.signature, after[target].signature), sightings)


def _apart(before: Signature, after: Signature) -> tuple[str, str]:
    """Two signatures with only the parts in which they differ: site, language, anchor, kind."""
    for form in ("{0.site}", "{0.site} ({0.site.language})", "{0.site} [{0.anchor}]"):
        if form.format(before) != form.format(after):
            return form.format(before), form.format(after)
    return str(before), str(after)


def only_observed(finding: Finding) -> Finding:
    """The finding without occurrences that have no stored failure, except those of the displayed failure."""
    evidence = finding.evidence
    if evidence is None:
        return finding
    shown = {(evidence.observation.stage, op) for op in failing_ops(evidence.observation) or ("",)}
    kept = [seen for seen in finding.occurrences if seen.observed is not None or (seen.stage, seen.op) in shown]
    kept = kept or [seen for seen in finding.occurrences if seen.stage == evidence.observation.stage]
    return replace(finding, occurrences=tuple(kept))


def _as_it_is_now(finding: Finding, classify: Classify, when: datetime) -> Finding:
    """The finding with its new signature and id, with the changes in its history. Its parts did not move yet."""
    if finding.evidence is None or finding.kind not in KINDS:
        return finding
    signature = classify(finding.evidence).signature
    name = id_of(signature.key, sequence_of(finding.id, finding.signature) or 1)
    if name == finding.id:
        return finding
    return replace(
        finding,
        id=name,
        signature=signature,
        history=(*finding.history, HistoryEntry(stamp(when), WHO, "id", finding.id, name)),
        former=(*finding.former, finding.id),
        # The confirmation was for the old signature. Only a stored failure shows the new one.
        confirmed=None if finding.shown is None else finding.confirmed,
        # The experiment was on the old signature's guard.
        answers=None,
    )


def _parts(
    whole: Finding, name: str, classify: Classify, owned: Mapping[str, object], when: datetime
) -> Iterator[tuple[str, Finding]]:
    """The finding, and the parts of it that move: occurrences, and the original program. `name` was its id."""
    number = sequence_of(whole.id, whole.signature) or 1
    sent: dict[str, list[Occurrence]] = defaultdict(list)
    signatures: dict[str, Signature] = {}

    def place_of(failure: Failure | None) -> str:
        judged = classify(failure) if failure is not None and failure.kind in KINDS else None
        signature = whole.signature if judged is None else judged.signature
        target = whole.id if signature == whole.signature else _id_there(signature, number, owned)
        signatures[target] = signature
        return target

    for seen in whole.occurrences:
        sent[place_of(seen.observed)].append(seen)
    first = place_of(whole.failure)
    for target in sorted(signatures.keys() - {whole.id}):
        observed = [seen for seen in sent[target] if seen.observed is not None]
        earliest = min(observed, key=lambda seen: (seen.first_seen, seen.order), default=None)
        yield (
            target,
            Finding(
                id=target,
                signature=signatures[target],
                cause="unclassified",
                occurrences=tuple(sent[target]),
                original=whole.original if target == first else None,
                failure=whole.failure if target == first or earliest is None else earliest.observed,
                history=(HistoryEntry(stamp(when), WHO, "split", name, target),),
            ),
        )
    original, failure = (whole.original, whole.failure) if first == whole.id else (None, None)
    yield whole.id, replace(whole, occurrences=tuple(sent[whole.id]), original=original, failure=failure)


def _id_there(signature: Signature, number: int, owned: Iterable[str]) -> str:
    """The id of the finding of a signature with this number, else of its last finding, else a new first id."""
    numbers = [found for found in (sequence_of(name, signature) for name in owned) if found]
    return id_of(signature.key, number if number in numbers else max(numbers, default=1))


def _together(
    target: str, pieces: Sequence[Finding], owned: Mapping[str, Sequence[Finding]], renamed: Mapping[str, str]
) -> Finding:
    """The pieces as one finding. Counts are added: sightings of different findings are different sightings."""
    own = _deciding(owned[target], renamed) if target in owned else pieces[0]
    return replace(
        pieces[0],
        id=target,
        **_united(pieces),
        **{name: getattr(own, name) for name in DECIDED},
        **_taken([one for one in pieces if one.failure is not None] or pieces, FIRST_SEEN, _first_seen),
        **_taken([one for one in pieces if one.shown is not None] or pieces, SMALLEST, _size),
        occurrences=_occurrences(pieces, sum),
    )


def _deciding(findings: Sequence[Finding], renamed: Mapping[str, str]) -> Finding:
    """The finding whose decisions are kept: the one that people decided on last, else the one that keeps its id, else
    the one seen first. A duplicate of a finding with which it merges does not count.
    """

    def rank(finding: Finding) -> tuple[bool, str, bool]:
        within = renamed.get(finding.duplicate_of or "") == renamed[finding.id]
        decided = max((entry.when for entry in finding.history if entry.who != WHO), default="")
        return not within, decided, finding.id == renamed[finding.id]

    last_id_first = sorted(findings, key=lambda finding: finding.id, reverse=True)
    return max(sorted(last_id_first, key=lambda finding: finding.first_seen or "~"), key=rank)


def with_cause(finding: Finding, classify: Classify, when: datetime | None) -> Finding:
    """The finding with the cause from the rules and its experiment, unless a person set the cause. That of a captured
    program is its oracle's.

    A change is logged at `when`.
    """
    by_hand = any(entry.field == "cause" and entry.who != WHO for entry in finding.history)
    if by_hand or finding.evidence is None:
        return finding
    if finding.kind in KINDS:
        cause = by_experiment(classify(finding.evidence).cause, finding.answers.verdict if finding.answers else None)
    else:
        cause = stored(finding.evidence, finding.signature).cause
    if cause == finding.cause:
        return finding
    log = () if when is None else (HistoryEntry(stamp(when), WHO, "cause", finding.cause, cause),)
    return replace(finding, cause=cause, history=finding.history + log)


def _without_chains(finding: Finding, after: Mapping[str, Finding], renamed: Mapping[str, str]) -> Finding:
    """The finding with the new id of the finding that it duplicates. Chains are followed to their end; cycles are
    removed.
    """
    target = finding.duplicate_of
    met = {finding.id}
    while target is not None:
        target = renamed.get(target, target)
        if target in met or target not in after:
            return replace(finding, state="new", duplicate_of=None)
        if after[target].duplicate_of is None:
            return replace(finding, duplicate_of=target)
        met.add(target)
        target = after[target].duplicate_of
    return finding
