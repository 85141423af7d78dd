"""What people decide about a finding: functions from a record to the changed record, and the table of all decisions.

The options and commands of `ddefuzz findings`, the keys of `triage` and the forms of the dashboard are made from
`DECISIONS`. Each changed field gets an entry in the history: who, when, the value before and after, and why. `undo`
reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec

from ddefuzz.classify.signature import Cause
from ddefuzz.errors import InputError
from ddefuzz.findings.lifecycle import ROWS, State, check_transition
from ddefuzz.findings.model import ID, Finding, HistoryEntry, Note, Priority, normalized, sequence_of, stamp
from ddefuzz.oracles.table import check_stored

VERSION = re.compile(r"(?=.{,100}\Z)\d+\.\d+\.\d+((a|b|rc)\d+)?(\.(post|dev)\d+)?(\+[\w.]+)?", re.ASCII)
"""A version of torch as `torch.__version__` has it."""

LABEL = re.compile(r"[+-]?[^\s+-]\S*")
"""A label to add (`+`, or nothing before it) or to remove (`-`)."""

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


def check_original(finding: Finding, original: Finding, repeats: Iterable[str]) -> None:
    """Raise `InputError` unless one finding can be a duplicate of the other. `repeats` are its own duplicates."""
    if finding.id == original.id:
        raise InputError(f"{finding.id}: found the same finding twice, expected a finding and its original")
    if original.duplicate_of is not None:
        raise InputError(f"{original.id}: found a duplicate, expected its original {original.duplicate_of}")
    if own := sorted(repeats):
        raise InputError(f"{finding.id}: found duplicates of it, expected `undup` of {', '.join(own)} first")


def check_together(finding: Finding, where: str = "") -> None:
    """Raise `InputError`, which begins with `where`, unless the state and `duplicate_of` belong together."""
    state, duplicate_of = finding.state, finding.duplicate_of
    if (state == "duplicate") != (duplicate_of is not None):
        raise InputError(f"{where}found state {state!r} and duplicate_of {duplicate_of!r}, expected both or neither")


def dup(finding: Finding, original: str, by: By) -> Finding:
    """Mark a finding as a duplicate of the one with this id (`check_original`)."""
    check_transition(finding.id, finding.state, "duplicate")
    return changed(finding, by, state="duplicate", duplicate_of=original)


def undup(finding: Finding, by: By) -> Finding:
    """Undo `dup`: the state is again the one before it."""
    if finding.state != "duplicate":
        raise InputError(f"{finding.id}: found the state {finding.state!r}, expected a duplicate")
    entries = sorted(finding.history, key=lambda entry: entry.when)
    states = (e.before for e in reversed(entries) if (e.field, e.after) == ("state", "duplicate"))
    before = next((state for state in states if state in ROWS and state != "duplicate"), "new")
    return changed(finding, by, state=before, duplicate_of=None)


def link(finding: Finding, url: str, by: By) -> Finding:
    """Add the URL of an upstream issue, pull request or commit. Adding the same URL again changes nothing."""
    return finding if url in finding.links else changed(finding, by, links=(*finding.links, url))


def note(finding: Finding, text: str, by: By) -> Finding:
    """Add a note."""
    check_text(finding.id, by.who, text)
    return normalized(msgspec.structs.replace(finding, notes=(*finding.notes, Note(stamp(by.when), by.who, text))))


def undo(finding: Finding, by: By) -> Finding:
    """Reverse the latest decision that is not undone yet. Raises `InputError` if there is none.

    All entries of one person at one time are one decision. The history keeps both the decision and its reversal.
    """
    entries = sorted(finding.history, key=lambda entry: (entry.when, entry.who))
    groups = [tuple(group) for _, group in groupby(entries, key=lambda entry: (entry.when, entry.who))]
    standing: list[tuple[HistoryEntry, ...]] = []
    for group in groups:
        if any(entry.why != UNDONE for entry in group):
            standing.append(group)
            continue
        taken_back = {(entry.field, entry.after, entry.before) for entry in group}
        for at in reversed(range(len(standing))):
            if taken_back <= {(entry.field, entry.before, entry.after) for entry in standing[at]}:
                del standing[at]  # if two databases undid it, and were merged, the second undo finds nothing
                break
    for group in reversed(standing):
        if (before := _reversed(finding, group, by)) != finding:
            return before
    raise InputError(f"{finding.id}: found no decision in its history, expected one to undo")


def can_undo(finding: Finding) -> bool:
    """Whether there is a decision that is not undone yet."""
    with suppress(InputError):
        return bool(undo(finding, By("", datetime.now(UTC))))
    return False


def _reversed(finding: Finding, group: Iterable[HistoryEntry], by: By) -> Finding:
    fields: dict[str, Any] = {}
    for entry in group:
        if entry.field == "links":
            others = (url for url in fields.get("links", finding.links) if url != entry.after)
            fields["links"] = tuple(sorted({*others, *filter(None, [entry.before])}))
        elif entry.field in get_args(Field):
            many = entry.field in ("fixed_in", "labels", "known_in")
            nothing = None if entry.field == "duplicate_of" else ""
            fields[entry.field] = tuple(entry.before.split()) if many else entry.before or nothing
    identity = {name: getattr(finding, name) for name in ("id", "signature", "cause")}
    try:
        check_finding(msgspec.convert({**identity, **fields}, Finding))
    except (msgspec.ValidationError, InputError) as error:
        raise InputError(f"{finding.id}: found a value in its history that it cannot have again: {error}") from error
    return changed(finding, By(by.who, by.when, UNDONE), **fields)


def changed(finding: Finding, by: By, **fields: Any) -> Finding:
    """The finding with these values, and a history entry for each that differs."""
    entries: list[tuple[str, str, str]] = []
    for name, value in fields.items():
        before = getattr(finding, name)
        if name == "links":  # each is an entry of its own
            entries += [(name, url, "") for url in sorted({*before} - {*value})]
            entries += [(name, "", url) for url in sorted({*value} - {*before})]
        elif before != value:
            entries.append((name, text_of(before), text_of(value)))
    if not entries:
        return finding
    check_text(finding.id, by.who, by.why, *(after for _, _, after in entries))
    history = (HistoryEntry(stamp(by.when), by.who, *entry, by.why) for entry in entries)
    return normalized(msgspec.structs.replace(finding, **fields, history=(*finding.history, *history)))


def check_text(where: str, *texts: str) -> None:
    """Raise `InputError` for what databases cannot store: a byte of the command line that is no UTF-8, and NUL."""
    for text in texts:
        if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
            raise InputError(f"{where}: found {text[:80]!a}, expected text in UTF-8 without NUL")


def _check_columns(finding: Finding, where: str) -> None:
    """The same for the texts of a finding that columns have. Programs and failures are stored as JSON."""
    stored = dict.fromkeys(("minimal", "original", "failure", "shown", "control", "answers"))
    seen = tuple(msgspec.structs.replace(one, observed=None) for one in finding.occurrences)
    small = msgspec.structs.replace(finding, occurrences=seen, **stored)
    with suppress(UnicodeEncodeError):
        if b"\\u0000" not in msgspec.json.encode(small):
            return
    waiting = [("", msgspec.to_builtins(small))]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name}.{key}" if name else key, item) for key, item in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(f"{name}[{at}]", item) for at, item in enumerate(value)]
        elif isinstance(value, str):
            check_text(f"{where}{name}", value)


def text_of(value: str | tuple[str, ...] | None) -> str:
    """A value of a field as the history stores it."""
    return " ".join(value) if isinstance(value, tuple) else value or ""


def checked_url(url: str, where: str = "") -> str:
    """The URL. Raises `InputError`, which begins with `where`, if it is none."""
    if not url.startswith(("https://", "http://")) or not url.isprintable() or " " in url:
        raise InputError(
            f"{where}found {url[:300]!r}, expected one that starts with https:// and has no space or control character"
        )
    if not _has_host(url):
        raise InputError(f"{where}found {url[:300]!r}, expected one with a host, such as https://github.com/")
    return url


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # an address in IPv6 without its ], a port that is no number
        return False


def checked_version(version: str, where: str = "") -> str:
    """The version of torch. Raises `InputError`, which begins with `where`, if it is none."""
    if not VERSION.fullmatch(version):
        raise InputError(f"{where}found {version[:60]!r}, expected a version of torch such as 2.14.0")
    return version


def check_finding(finding: Finding, where: str = "") -> None:
    """Raise `InputError`, which begins with `where`, unless the parts of a stored finding belong together."""
    if sequence_of(finding.id, finding.signature) is None:
        raise InputError(f"{where}id {finding.id!r} is not of this signature, expected {finding.signature.key!r}")
    _check_columns(finding, where)
    for version in (*finding.fixed_in, *finding.known_in, *(seen.torch for seen in finding.occurrences)):
        checked_version(version, where)
    for url in finding.links:
        checked_url(url, f"{where}URL: ")
    if wrong := [label for label in finding.labels if label[:1] in ("+", "-") or not _is_label(label)]:
        raise InputError(f"{where}found the label {wrong[0][:60]!r}, expected a word such as backward")
    if (times := finding.confirmed) is not None and times.k > times.n:
        raise InputError(f"{where}found a confirmation by {times.k} of {times.n} runs, expected at most all of them")
    if wrong := [former for former in finding.former if not ID.fullmatch(former)]:
        raise InputError(f"{where}found the former id {wrong[0][:60]!r}, expected one such as dde-1937c0d9a9")
    try:
        check_stored(finding.kind, finding.failures)
    except InputError as error:
        raise InputError(f"{where}{error}") from error


class Value(NamedTuple):
    """What is typed for a decision.

    `name` is the parameter and the field of the form, `label` what people read next to it, `hint` an example. `check`
    gives the text in its stored form, or raises `InputError`; of `many` words it checks each. `signed` words are added,
    or removed if they begin with `-`. `option`, `metavar` and `help` are for the command line.
    """

    name: str
    label: str
    check: Callable[[str], str] = str.strip
    option: str = ""
    metavar: str = "TEXT"
    help: str = ""
    hint: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    signed: bool = False
    input: Literal["text", "url", "date", "lines"] = "text"

    def checked(self, text: str) -> str:
        """The text in its stored form. Raises `InputError`, which begins with the label."""
        try:
            return " ".join(map(self.check, words(text))) if self.many else self.check(text)
        except InputError as error:
            raise InputError(f"{self.label}: {error}") from error


class Decision(NamedTuple):
    """One decision.

    `change` makes the changed finding from the finding, the checked text and who decides. `sentence` tells what has
    changed, by the findings before and after. `group` says how it is typed: as the state of `findings set`, as an
    option of it, or as a command of its own. `key` is that of `triage`. `form` is the form of the dashboard that it is
    in, its own if empty, with `title` above it and `button` below. `fits` says for which findings it is offered.
    """

    name: str
    group: Literal["state", "field", "command"]
    help: str
    change: Callable[[Finding, str, By], Finding]
    sentence: Callable[[Finding, Finding], str]
    value: Value | None = None
    key: str = ""
    form: str = ""
    title: str = ""
    button: str = ""
    fits: Callable[[Finding], bool] = lambda _finding: True
    has_reason: bool = True


def words(text: str) -> tuple[str, ...]:
    """The words of a text, which spaces or commas separate."""
    return tuple(filter(None, re.split(r"[\s,]+", text)))


def _is_label(word: str) -> bool:
    return LABEL.fullmatch(word) is not None and word.isprintable()


def _label(word: str) -> str:
    if not _is_label(word):
        raise InputError(f"found {word!r}, expected a word such as backward or -backward")
    return word


def _date(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        raise InputError(f"found the date {text!r}, expected one such as 2027-01-31") from None


def _not_over(text: str, by: By) -> None:
    """Raise `InputError` for a last day that has passed: the decision would not hold at all."""
    if text and date.fromisoformat(text) < by.when.date():
        raise InputError(f"decision until: found {text}, expected a day from {by.when.date()} on")


def _text(text: str) -> str:
    if not text.strip():
        raise InputError("found no text, expected some")
    return text.replace("\r\n", "\n").strip()


ISSUE = Value("url", "issue", lambda text: checked_url(text.strip()), hint="its URL")
FINDING = Value("of", "id", metavar="OF")
"""The beginning of the id of another finding. `Database.apply` replaces it by the id."""


def _state(state: State, key: str = "", value: Value | None = None) -> Decision:
    """The decision for a state. What is typed for it are versions of torch with the fix, or the URL of the issue."""

    def change(finding: Finding, typed: str, by: By) -> Finding:
        after = set_state(finding, state, by, words(typed) if state == "fixed" else ())
        return link(after, typed, by) if value is ISSUE and typed else after

    return Decision(
        state,
        "state",
        ROWS[state].meaning,
        change,
        sentence=lambda before, after: f"state {before.state} → {_state_of(after)}",
        value=value,
        key=key,
        form="state",
        fits=lambda finding: state in ROWS[finding.state].to,
    )


def _state_of(finding: Finding) -> str:
    if finding.state != "fixed":
        return f"{finding.state} ({ROWS[finding.state].meaning})"
    if finding.fixed_in:
        return f"fixed in {', '.join(finding.fixed_in)} (a failure in one of them is a new finding)"
    return "fixed in all versions of torch (a failure in any is a new finding); name some with --in 2.14.0"


def _field(
    name: str,
    check: Callable[[str], str] = str.strip,
    *,
    label: str = "",
    option: str = "",
    form: str = "details",
    key: str = "",
    refuse: Callable[[str, By], None] = lambda _text, _by: None,
    **typed: Any,
) -> Decision:
    """The decision that replaces a field of the finding. Its label and its option are like the name by default.
    `refuse` raises `InputError` for what cannot be decided now.
    """
    shown = name.removeprefix("given_")
    value = Value(shown, label or shown, check, option or f"--{shown.replace('_', '-')}", **typed)

    def change(finding: Finding, text: str, by: By) -> Finding:
        refuse(text, by)
        if not value.many:
            return changed(finding, by, **{name: text})
        chosen = set(getattr(finding, name)) if value.signed else set()
        for word in words(text):
            (chosen.discard if value.signed and word.startswith("-") else chosen.add)(
                word.lstrip("+-") if value.signed else word
            )
        return changed(finding, by, **{name: tuple(sorted(chosen))})

    def sentence(before: Finding, after: Finding) -> str:
        was, now = (text_of(getattr(finding, name)) or "-" for finding in (before, after))
        return f"{shown} {was} → {now}"

    return Decision(name, "field", value.help, change, sentence, value, key, form)


def _undone(_before: Finding, after: Finding) -> str:
    latest = max(entry.when for entry in after.history)
    entries = [entry for entry in after.history if entry.when == latest]
    return "; ".join(f"{entry.field} {entry.before or '-'} → {entry.after or '-'}" for entry in entries)


DECISIONS: tuple[Decision, ...] = (
    _state("new"),
    _state("triaged", "t"),
    _state("reported", "r", ISSUE),
    _state("fix-pending", "p"),
    _state(
        "fixed",
        "f",
        Value(
            "fixed_in",
            "fixed in",
            checked_version,
            option="--in",
            metavar="VERSION",
            help="With the state fixed: a version of torch in which it is fixed, such as 2.14.0. Can be repeated. If "
            "the finding is fixed already, the version is added. Default: all versions.",
            hint="2.14.0 (empty: all versions)",
            many=True,
        ),
    ),
    _state("by-design", "b"),
    _state("wont-fix", "w"),
    _state("invalid", "i"),
    _state("flaky", "k"),
    _field(
        "known_in",
        checked_version,
        label="decision for",
        form="state",
        metavar="VERSION",
        help="A version of torch for which the decision holds. Can be repeated. Default: all versions.",
        hint="2.13.0 (empty: all versions)",
        many=True,
    ),
    _field(
        "expires",
        _date,
        label="decision until",
        form="state",
        refuse=_not_over,
        metavar="DATE",
        help="The last day on which the decision holds, such as 2027-01-31. A campaign then counts the finding as new. "
        "Empty for no end.",
        input="date",
    ),
    Decision(
        "undup",
        "command",
        "Undo `findings dup`.",
        lambda finding, _typed, by: undup(finding, by),
        sentence=lambda _before, after: f"no duplicate any more; again {after.state}",
        button="Not a duplicate",
        fits=lambda finding: finding.duplicate_of is not None,
    ),
    Decision(
        "undo",
        "command",
        "Reverse the latest decision on a finding. Repeat it to reverse the one before.\n\n"
        "The history keeps the decision and its reversal. Notes are not reversed.",
        lambda finding, _typed, by: undo(finding, by),
        sentence=_undone,
        button="Undo the latest decision",
        fits=can_undo,
        has_reason=False,
    ),
    _field("priority", metavar="P", help="high, medium, low, or empty.", choices=get_args(Priority)),
    _field("owner", key="o", metavar="NAME", help="Who works on it. Empty for nobody."),
    _field(
        "labels",
        _label,
        option="--label",
        metavar="L",
        help="Add a label; -L removes it. Repeatable.",
        many=True,
        signed=True,
    ),
    _field("cause", metavar="CAUSE", help="Replace the cause.", choices=get_args(Cause)),
    _field("given_title", help="Replace the title.", hint="made from op, site and condition"),
    Decision(
        "note",
        "command",
        "Add a note to a finding.",
        note,
        sentence=lambda before, after: "noted: " + " ".join(one.text for one in after.notes if one not in before.notes),
        value=Value("text", "note", _text, input="lines"),
        key="n",
        title="add a note",
        button="Add note",
        has_reason=False,
    ),
    Decision(
        "link",
        "command",
        "Add the URL of an issue, pull request or commit to a finding.",
        link,
        sentence=lambda _before, after: f"linked to {' '.join(after.links)}",
        value=Value(
            "url", "URL", ISSUE.check, metavar="URL", hint="https://github.com/pytorch/pytorch/issues/…", input="url"
        ),
        title="add a link",
        button="Add link",
    ),
    Decision(
        "dup",
        "command",
        "Mark finding ID as a duplicate of finding OF.",
        dup,
        sentence=lambda _before, after: f"a duplicate of {after.duplicate_of}",
        value=FINDING,
        key="d",
        title="duplicate of another finding",
        button="Mark as duplicate",
        fits=lambda finding: finding.duplicate_of is None,
    ),
)
"""All decisions. Forms, keys and help pages have them in this order."""
