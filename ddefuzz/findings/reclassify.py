"""Apply the current rules of classification to stored failures: findings can move, merge or split.

The failure of the smallest program, else the first one seen, decides a finding's new identity. Decisions, notes and
links of people go with it. Each occurrence moves by its own failure; one without a stored failure stays with its
finding. No occurrence, note or link is lost. When findings merge, the smallest confirmed program is kept.
Findings of the oracles that call captured programs stay as they are: experiments found their places.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

import msgspec

from ddefuzz.classify.cause import by_experiment
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.op import failing_ops
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.findings.ids import id_of, sequence_of
from ddefuzz.findings.merge import DECIDED, first_seen_group, merged_occurrences, smallest_group
from ddefuzz.findings.model import Finding, HistoryEntry, Occurrence, normalized, stamp
from ddefuzz.oracles.capture import KINDS

WHO = "findings reclassify"
"""The name in the history for changes that the rules make."""


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


class Reclassified(msgspec.Struct, frozen=True, kw_only=True):
    """All findings under the current rules, what changes, and the ids that no finding has any more (`Finding.former`
    has them).
    """

    findings: tuple[Finding, ...]
    changes: tuple[Change, ...]
    counts: Counts
    gone: frozenset[str]


Classify = Callable[[Failure], Classified]


class _Home(msgspec.Struct, frozen=True):
    """The new signature and id of a finding."""

    finding: Finding
    signature: Signature
    id: str


def reclassified(findings: Iterable[Finding], classify: Classify, when: datetime) -> Reclassified:
    """The findings under the current rules. Applying it twice gives the same result as once."""
    before = sorted(map(normalized, findings), key=lambda finding: finding.id)
    results: dict[bytes, Classified] = {}

    def known(failure: Failure) -> Classified:
        key = msgspec.json.encode(failure)  # a failure that holds a mapping has no hash
        if key not in results:
            results[key] = classify(failure)
        return results[key]

    def signature_of(failure: Failure) -> Signature:
        return known(failure).signature

    homes = [_home(finding, signature_of) for finding in before]
    owned: dict[str, list[_Home]] = defaultdict(list)
    for home in homes:
        owned[home.id].append(home)
    parts: dict[str, list[Finding]] = defaultdict(list)
    counts: dict[str, dict[str, int]] = {}
    for home in homes:
        whole = _as_it_is_now(home, when)
        counts[home.finding.id] = {}
        for target, part in _parts(whole, home, signature_of, owned, when):
            parts[target].append(part)
            if target != home.id:
                counts[home.finding.id][target] = part.count
    renamed = {home.finding.id: home.id for home in homes}
    after = {}
    for target, pieces in sorted(parts.items()):
        deciding = _deciding(owned[target], renamed) if target in owned else None
        after[target] = with_cause(_together(target, pieces, deciding), known, when if deciding else None)
    after = {name: _without_chains(finding, after, renamed) for name, finding in after.items()}
    changes = tuple(change for home in homes for change in _changes(home, after, counts[home.finding.id], owned))
    findings = tuple(map(normalized, after.values()))
    return Reclassified(
        findings=findings,
        changes=changes,
        counts=_counts(before, findings, changes, len(set(parts) - set(owned))),
        gone=frozenset(renamed) - {finding.id for finding in findings},
    )


def _changes(
    home: _Home, after: Mapping[str, Finding], parts: Mapping[str, int], owned: Mapping[str, list[_Home]]
) -> Iterator[Change]:
    """What changes for one finding. `parts` counts its sightings that move to other findings."""
    finding, cause = home.finding, after[home.id].cause
    if home.id != finding.id:
        what = "merged" if len(owned[home.id]) > 1 else "moved"
        yield Change(what, finding.id, home.id, *_apart(finding.signature, home.signature))
    if cause != finding.cause:
        yield Change("cause", finding.id, home.id, finding.cause, cause)
    for target, sightings in sorted(parts.items()):
        yield Change("split", finding.id, target, *_apart(finding.signature, after[target].signature), sightings)


def _apart(before: Signature, after: Signature) -> tuple[str, str]:
    """Two signatures with only the parts in which they differ: site, language, anchor, kind."""
    forms: tuple[Callable[[Signature], str], ...] = (
        lambda one: str(one.site),
        lambda one: f"{one.site} ({one.site.language})",
        lambda one: f"{one.site} [{one.anchor}]",
    )
    pairs = ((form(before), form(after)) for form in forms)
    return next((pair for pair in pairs if pair[0] != pair[1]), (str(before), str(after)))


def _counts(before: Sequence[Finding], after: Sequence[Finding], changes: Sequence[Change], split_off: int) -> Counts:
    kinds = Counter(change.change for change in changes)
    return Counts(
        findings=len(before),
        findings_after=len(after),
        moved=kinds["moved"],
        merged=kinds["merged"],
        split_off=split_off,
        other_cause=kinds["cause"],
        sightings=sum(finding.count for finding in before),
        sightings_after=sum(finding.count for finding in after),
        sightings_moved=sum(change.sightings for change in changes),
        occurrences_unobserved=sum(seen.observed is None for finding in before for seen in finding.occurrences),
        causes=dict(sorted(Counter(finding.cause for finding in before).items())),
        causes_after=dict(sorted(Counter(finding.cause for finding in after).items())),
    )


def only_observed(finding: Finding) -> Finding:
    """The finding without occurrences that have no stored failure, except those of the displayed failure."""
    evidence = finding.evidence
    if evidence is None:
        return finding
    shown = {(evidence.observation.stage, op) for op in failing_ops(evidence.observation) or ("",)}
    kept = [seen for seen in finding.occurrences if seen.observed is not None or (seen.stage, seen.op) in shown]
    kept = kept or [seen for seen in finding.occurrences if seen.stage == evidence.observation.stage]
    return msgspec.structs.replace(finding, occurrences=tuple(kept))


def _home(finding: Finding, signature_of: Callable[[Failure], Signature]) -> _Home:
    if finding.evidence is None or finding.kind not in KINDS:
        return _Home(finding, finding.signature, finding.id)
    signature = signature_of(finding.evidence)
    return _Home(finding, signature, id_of(signature.key, sequence_of(finding.id, finding.signature) or 1))


def _as_it_is_now(home: _Home, when: datetime) -> Finding:
    """The finding with its new signature and id, with the changes in its history."""
    old = home.finding
    renamed = home.id != old.id
    history = (HistoryEntry(stamp(when), WHO, "id", old.id, home.id),) if renamed else ()
    return msgspec.structs.replace(
        old,
        id=home.id,
        signature=home.signature,
        history=old.history + history,
        former=(*old.former, old.id) if renamed else old.former,
        # The confirmation was for the old signature. Only a stored failure shows the new one.
        confirmed=None if renamed and old.shown is None else old.confirmed,
        # The experiment was on the old signature's guard.
        answers=None if renamed else old.answers,
    )


def _parts(
    whole: Finding,
    home: _Home,
    signature_of: Callable[[Failure], Signature],
    owned: Mapping[str, list[_Home]],
    when: datetime,
) -> Iterable[tuple[str, Finding]]:
    """The finding, and the parts of it that move: occurrences, and the original program."""
    number = sequence_of(whole.id, whole.signature) or 1

    def place_of(failure: Failure | None) -> tuple[Signature, str]:
        signature = home.signature if failure is None or failure.kind not in KINDS else signature_of(failure)
        return signature, whole.id if signature == home.signature else _id_there(signature, number, owned)

    sent: dict[str, list[Occurrence]] = defaultdict(list)
    signatures: dict[str, Signature] = {}
    for seen in whole.occurrences:
        signature, target = place_of(seen.observed)
        sent[target].append(seen)
        signatures[target] = signature
    signature, first = place_of(whole.failure)
    signatures[first] = signature
    for target in sorted(signatures.keys() - {whole.id}):
        occurrences = tuple(sent[target])
        observed = [seen for seen in occurrences if seen.observed is not None]
        earliest = min(observed, key=lambda seen: (seen.first_seen, seen.order), default=None)
        yield (
            target,
            Finding(
                id=target,
                signature=signatures[target],
                cause="unclassified",
                occurrences=occurrences,
                original=whole.original if target == first else None,
                failure=whole.failure if target == first or earliest is None else earliest.observed,
                history=(HistoryEntry(stamp(when), WHO, "split", home.finding.id, target),),
            ),
        )
    kept = first == whole.id
    yield (
        whole.id,
        msgspec.structs.replace(
            whole,
            occurrences=tuple(sent[whole.id]),
            original=whole.original if kept else None,
            failure=whole.failure if kept else None,
        ),
    )


def _id_there(signature: Signature, number: int, owned: Mapping[str, list[_Home]]) -> str:
    """The id of the finding of a signature with this number, else of its last finding, else a new first id."""
    same = id_of(signature.key, number)
    if same in owned:
        return same
    numbers = [sequence_of(name, signature) for name in owned]
    return id_of(signature.key, max((found for found in numbers if found), default=1))


def _deciding(homes: list[_Home], renamed: Mapping[str, str]) -> Finding:
    """The finding whose decisions are kept: the one that people decided on last, else the one that keeps its id.

    A duplicate of a finding with which it merges does not count.
    """

    def rank(home: _Home) -> tuple[bool, str, bool, str]:
        finding = home.finding
        within = finding.duplicate_of is not None and renamed.get(finding.duplicate_of) == home.id
        decided = max((entry.when for entry in finding.history if entry.who != WHO), default="")
        return not within, decided, finding.id == home.id, _reversed(finding.first_seen or "~")

    return max(sorted(homes, key=lambda home: home.finding.id, reverse=True), key=rank).finding


def _reversed(text: str) -> str:
    """Text that sorts in reverse, for choosing the earlier of two times."""
    return "".join(chr(0x10FFFF - ord(char)) for char in text)


def _together(target: str, pieces: list[Finding], deciding: Finding | None) -> Finding:
    """Merge findings into one. Collections are united; decisions come from one of them."""
    seen_first = [piece for piece in pieces if piece.failure is not None] or pieces
    shown = [piece for piece in pieces if piece.shown is not None] or pieces
    chosen = min(map(first_seen_group, seen_first)).fields | min(map(smallest_group, shown)).fields
    own = pieces[0] if deciding is None else deciding
    decided = {name: getattr(own, name) for name in DECIDED}
    return msgspec.structs.replace(
        pieces[0],
        id=target,
        **chosen,
        **decided,
        occurrences=_added(seen for piece in pieces for seen in piece.occurrences),
        links=tuple(link for piece in pieces for link in piece.links),
        notes=tuple(note for piece in pieces for note in piece.notes),
        history=tuple(entry for piece in pieces for entry in piece.history),
        former=tuple(name for piece in pieces for name in piece.former),
    )


def with_cause(finding: Finding, classify: Classify, when: datetime | None) -> Finding:
    """The finding with the cause from the rules and its experiment, unless a person set the cause.

    A change is logged at `when`.
    """
    by_hand = any(entry.field == "cause" and entry.who != WHO for entry in finding.history)
    if by_hand or finding.evidence is None or finding.kind not in KINDS:
        return finding
    cause = by_experiment(classify(finding.evidence).cause, finding.answers.verdict if finding.answers else None)
    if cause == finding.cause:
        return finding
    log = () if when is None else (HistoryEntry(stamp(when), WHO, "cause", finding.cause, cause),)
    return msgspec.structs.replace(finding, cause=cause, history=finding.history + log)


def _added(occurrences: Iterable[Occurrence]) -> tuple[Occurrence, ...]:
    """One occurrence for each place, with counts added: sightings of different findings are different sightings."""
    together = []
    for _, group in groupby(sorted(occurrences, key=lambda seen: seen.order), key=lambda seen: seen.place):
        same = list(group)
        (one,) = merged_occurrences(same)
        together.append(msgspec.structs.replace(one, count=sum(seen.count for seen in same)))
    return tuple(together)


def _without_chains(finding: Finding, after: Mapping[str, Finding], renamed: Mapping[str, str]) -> Finding:
    """The finding with the new id of the finding that it duplicates. Chains are followed to their end; cycles are
    removed.
    """
    target = finding.duplicate_of
    met = {finding.id}
    while target is not None:
        target = renamed.get(target, target)
        if target in met or target not in after:
            return msgspec.structs.replace(finding, state="new", duplicate_of=None)
        if after[target].duplicate_of is None:
            return msgspec.structs.replace(finding, duplicate_of=target)
        met.add(target)
        target = after[target].duplicate_of
    return finding
