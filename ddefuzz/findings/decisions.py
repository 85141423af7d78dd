"""What people decide about a finding: functions from a record to the changed record.

Each changed field gets an entry in the history: who, when, the value before and after, and why. `undo` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from ddefuzz.errors import InputError
from ddefuzz.findings.lifecycle import State, check_transition
from ddefuzz.findings.model import Finding, HistoryEntry, Note, normalized, stamp

UNDONE = "undo"
"""The reason in the history entries that `undo` adds."""

Field: TypeAlias = Literal[
    "state", "duplicate_of", "fixed_in", "cause", "given_title", "owner", "priority", "labels", "expires", "known_in"
]
"""The fields that people decide. `links` and `notes` are only added to."""


class By(NamedTuple):
    """Who decides, when and why."""

    who: str
    when: datetime
    why: str = ""


def set_state(finding: Finding, state: State, by: By, fixed_in: Iterable[str] = ()) -> Finding:
    """Change the state as `lifecycle` allows, but not to `duplicate`. Setting `fixed` again adds versions."""
    if state == "duplicate":
        raise InputError(f"{finding.id}: found the state 'duplicate', expected `findings dup {finding.id} OTHER`")
    versions = set(fixed_in)
    if versions and state == finding.state == "fixed":
        return changed(finding, by, fixed_in=tuple(sorted({*finding.fixed_in, *versions})))
    check_transition(finding.id, finding.state, state)
    return changed(finding, by, state=state, duplicate_of=None, fixed_in=tuple(sorted(versions)))


def dup(finding: Finding, original: Finding, repeats: Iterable[str], by: By) -> Finding:
    """Mark a finding as a duplicate of another one. `repeats` are the duplicates of the finding itself."""
    if finding.id == original.id:
        raise InputError(f"{finding.id}: found the same finding twice, expected a finding and its original")
    if original.duplicate_of is not None:
        raise InputError(f"{original.id}: found a duplicate, expected its original {original.duplicate_of}")
    if own := sorted(repeats):
        raise InputError(f"{finding.id}: found duplicates of it, expected `undup` of {', '.join(own)} first")
    check_transition(finding.id, finding.state, "duplicate")
    return changed(finding, by, state="duplicate", duplicate_of=original.id)


def undup(finding: Finding, by: By) -> Finding:
    """Undo `dup`: the state is again the one before it."""
    if finding.state != "duplicate":
        raise InputError(f"{finding.id}: found the state {finding.state!r}, expected a duplicate")
    entries = sorted(finding.history, key=lambda entry: entry.when)
    before = next((e.before for e in reversed(entries) if (e.field, e.after) == ("state", "duplicate")), "new")
    return changed(finding, by, state=before, duplicate_of=None)


def link(finding: Finding, url: str, by: By) -> Finding:
    """Add the URL of an upstream issue, pull request or commit. Adding the same URL again changes nothing."""
    return finding if url in finding.links else changed(finding, by, links=(*finding.links, url))


def note(finding: Finding, text: str, by: By) -> Finding:
    """Add a note."""
    _check_text(finding.id, by.who, text)
    return normalized(msgspec.structs.replace(finding, notes=(*finding.notes, Note(stamp(by.when), by.who, text))))


def undo(finding: Finding, by: By) -> Finding:
    """Reverse the latest decision that is not undone yet. Raises `InputError` if there is none.

    All entries of one person at one time are one decision. The history keeps both the decision and its reversal.
    """
    entries = sorted(finding.history, key=lambda entry: (entry.when, entry.who))
    groups = [tuple(group) for _, group in groupby(entries, key=lambda entry: (entry.when, entry.who))]
    undone = 0
    for group in reversed(groups):
        if all(entry.why == UNDONE for entry in group):
            undone += 1
        elif undone:
            undone -= 1
        else:
            return _reversed(finding, group, by)
    raise InputError(f"{finding.id}: found no decision in its history, expected one to undo")


def _reversed(finding: Finding, group: Iterable[HistoryEntry], by: By) -> Finding:
    fields: dict[str, Any] = {}
    for entry in group:
        if entry.field == "links":
            others = (url for url in fields.get("links", finding.links) if url != entry.after)
            fields["links"] = tuple(sorted({*others, *filter(None, [entry.before])}))
        elif entry.field in get_args(Field):
            fields[entry.field] = _value(entry.field, entry.before)
    identity = {name: getattr(finding, name) for name in ("id", "kind", "cause", "site", "anchor")}
    try:
        msgspec.convert({**identity, **fields}, Finding)
    except msgspec.ValidationError as error:
        raise InputError(f"{finding.id}: found a value in its history that it cannot have again: {error}") from error
    return changed(finding, By(by.who, by.when, UNDONE), **fields)


def changed(finding: Finding, by: By, **fields: Any) -> Finding:
    """The finding with these values, and a history entry for each that differs."""
    before = {name: getattr(finding, name) for name in fields}
    history = tuple(
        HistoryEntry(stamp(by.when), by.who, name, was, now, by.why)
        for name, value in fields.items()
        for was, now in _written(name, before[name], value)
    )
    if not history:
        return finding
    _check_text(finding.id, by.who, by.why, *(entry.after for entry in history))
    return normalized(msgspec.structs.replace(finding, **fields, history=(*finding.history, *history)))


def _check_text(finding_id: str, *texts: str) -> None:
    """Raise `InputError` for what databases cannot store: a byte of the command line that is no UTF-8, and NUL."""
    for text in texts:
        if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise InputError(f"{finding_id}: found {text[:80]!a}, expected text in UTF-8 without NUL")


def _written(name: str, before: Any, after: Any) -> Iterable[tuple[str, str]]:
    """The values before and after as the history has them. Each link is an entry of its own."""
    if name != "links":
        return () if before == after else ((text_of(before), text_of(after)),)
    gone, came = set(before) - set(after), set(after) - set(before)
    return (*((url, "") for url in sorted(gone)), *(("", url) for url in sorted(came)))


def text_of(value: str | tuple[str, ...] | None) -> str:
    """A value of a field as the history stores it."""
    return " ".join(value) if isinstance(value, tuple) else value or ""


def _value(name: str, text: str) -> str | tuple[str, ...] | None:
    """The inverse of `text_of`."""
    if name in ("fixed_in", "labels", "known_in"):
        return tuple(text.split())
    return (text or None) if name == "duplicate_of" else text


def parse_date(text: str, where: str = "") -> date:
    """A date such as 2027-01-31. Raises `InputError`, which begins with `where`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError(f"{where}found the date {text!r}, expected one such as 2027-01-31") from None
