"""Findings as text for review: a folder each (finding.toml, minimal.py, original.py), and one known.toml with
decisions.

The file observed.json.gz in each folder has what people do not review: raw frames, and what changes with every campaign
(counts, dates). So finding.toml changes only when the finding does. The same findings give the same bytes. Programs are
parsed, never executed. An unknown key is an error. `known.toml` overrides the folders, because people write their
decisions in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
import tomli_w

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.errors import InputError, refuse
from ddefuzz.files import (
    MAX_OCCURRENCES,
    MAX_TOML,
    SOURCE,
    check_folder,
    entries,
    is_file,
    is_folder,
    is_there,
    read_bytes,
    read_toml,
    remove_abandoned,
    write_files,
)
from ddefuzz.findings.decisions import (
    By,
    changed,
    check_finding,
    check_text,
    check_together,
    checked_url,
    checked_version,
    link,
)
from ddefuzz.findings.lifecycle import ROWS, State, in_versions, recurs
from ddefuzz.findings.model import ID, SCHEMA, Finding, HistoryEntry, Number, Occurrence, normalized, portable
from ddefuzz.findings.schema import PackedError, packed, unpacked
from ddefuzz.oracles.program import check_case, read_case
from ddefuzz.oracles.table import kinds
from ddefuzz.records import record_of


class KnownDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A decision in a known.toml. `title` and `site` are for its readers."""

    state: State
    title: str = ""
    site: str = ""
    reason: str = ""
    url: str = ""
    expires: date | None = None
    versions: tuple[str, ...] = ()
    duplicate_of: str | None = None
    fixed_in: tuple[str, ...] = ()


class Now(NamedTuple):
    """Which findings are known now, and which were known until a date that has passed."""

    known: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()


NONE = Now()
"""Nothing is known."""


def read_known(path: Path) -> dict[str, KnownDecision]:
    """The decisions in a file, by id. Raises `InputError`."""
    return {name: _known(path, name, table) for name, table in read_toml(path).items()}


def _known(path: Path, name: str, table: object) -> KnownDecision:
    known = record_of(table, KnownDecision, f"{path}: [{name}]")
    check_text(f"{path}: [{name}]: reason", known.reason)
    for version in (*known.versions, *known.fixed_in):
        checked_version(version, f"{path}: [{name}]: ")
    if known.url:
        checked_url(known.url, f"{path}: [{name}]: URL: ")
    return known


def known_of(finding: Finding) -> KnownDecision:
    """The decision on a finding as a known.toml has it. The reason is that of the latest change of its state."""
    entries = sorted((entry for entry in finding.history if entry.field == "state"), key=lambda entry: entry.when)
    return KnownDecision(
        state=finding.state,
        title=finding.title,
        site=str(finding.site),
        reason=entries[-1].why if entries else "",
        url=next(iter(finding.links), ""),
        expires=date.fromisoformat(finding.expires) if finding.expires else None,
        versions=finding.known_in,
        duplicate_of=finding.duplicate_of,
        fixed_in=finding.fixed_in,
    )


def fields_of(known: KnownDecision) -> dict[str, Any]:
    """The fields of a decision that a known.toml has: those that are not empty."""
    fields = msgspec.structs.asdict(known)
    return {name: value for name, value in fields.items() if value not in ("", (), None)}


def known_now(decisions: Mapping[str, KnownDecision], torch: str, today: date) -> Now:
    """The decisions that hold for a version of torch on a day, and those that have expired by then."""
    decided = {
        name: one
        for name, one in decisions.items()
        if ROWS[one.state].decided and in_versions(one.versions, torch) and not recurs(one.state, one.fixed_in, torch)
    }
    expired = {name for name, one in decided.items() if one.expires is not None and one.expires < today}
    return Now(frozenset(decided.keys() - expired), frozenset(expired))


def decided(findings: Iterable[Finding]) -> dict[str, KnownDecision]:
    """The decisions on these findings, by id."""
    return {finding.id: known_of(finding) for finding in findings if ROWS[finding.state].decided}


FINDING, MINIMAL, ORIGINAL, KNOWN = "finding.toml", "minimal.py", "original.py", "known.toml"
OBSERVED = "observed.json.gz"
FILES = (MINIMAL, ORIGINAL, OBSERVED, FINDING)

_FOR_READERS = ("title", "expression", "stage", "data_dependent", "ops", "stages", "torch_versions")
"""Properties that are written to finding.toml for its readers. They follow from other stored fields."""


class ObservedFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a `Finding` that are stored in observed.json.gz."""

    schema: Literal["ddefuzz.observed/1"] = "ddefuzz.observed/1"
    attempts: Number | None = None
    occurrences: Annotated[tuple[Occurrence, ...], msgspec.Meta(max_length=MAX_OCCURRENCES)] = ()
    failure: Failure | None = None
    shown: Failure | None = None


class KnownFinding(msgspec.Struct, frozen=True):
    """A finding that is known: the torch versions in which it is fixed, and links to its report.

    `op` is the op of the program that showed it first. The site may be reached by other ops as well.
    """

    id: str
    title: str
    state: str
    fixed_in: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    op: str = ""

    def __str__(self) -> str:
        fixed = f", fixed in {', '.join(self.fixed_in)}" if self.fixed_in else ""
        links = f", {' '.join(self.links)}" if self.links else ""
        first = f"the same site, first seen with {self.op}" if self.op else self.title
        return f"{self.id}, {self.state}{fixed}{links}: {first}"


_SIGNATURE = Signature.__struct_fields__

_APART = ObservedFields.__struct_fields__[1:]

_KEYS = (
    *("schema", *_FOR_READERS, *_SIGNATURE),
    *(name for name in Finding.__struct_fields__ if name not in {"signature", "minimal", "original", *_APART}),
)
"""The keys that finding.toml may have."""


def write_findings(findings: Iterable[Finding], folder: Path, *, whole: bool = True) -> int:
    """Write exactly these findings to `folder` in their text form, and count them. Other files in it are left alone.

    A finding in it that cannot be read is refused (`errors.refuse`), and stays. Unless `whole`, all others stay too,
    with their decisions: they may be those of the database that could not be read. A finding that could not be read
    again is refused, and stays as it is there.

    Raises `InputError` if its known.toml has a decision that was not imported yet, or cannot be read.
    """
    wanted, contents = list[Finding](), dict[str, dict[str, str | bytes | None]]()
    for finding in sorted(map(normalized, findings), key=lambda finding: finding.id):
        try:
            contents[finding.id] = _contents(finding, folder / finding.id)
            wanted.append(finding)
        except InputError as error:
            refuse(error)
            whole = False
    # Other folders may have a file finding.toml too.
    own = {place.name for place in _finding_folders(folder) if ID.fullmatch(place.name) and not place.is_symlink()}
    check_folder(folder, [KNOWN, *(f"{one}/{name}" for one in {*own, *(f.id for f in wanted)} for name in FILES)])
    files = {f"{name}/{file}": content for name, there in contents.items() for file, content in there.items()}
    gone = own - {finding.id for finding in wanted}
    unread = {*_unread(folder, gone)} if whole and gone else gone
    gone = gone - unread
    before = read_known(folder / KNOWN) if is_there(folder / KNOWN) else {}
    kept = {name: one for name, one in before.items() if name in unread}
    by_id = {finding.id: finding for finding in wanted}
    for name, decision in before.items():
        if name not in kept and not _is_taken(folder, name, decision, by_id):
            raise InputError(
                f"{folder / KNOWN}: [{name}]: found a decision that only this file has, expected "
                "`ddefuzz findings import` to read it first"
            )
    known = kept | decided(wanted)
    decisions = _toml({name: fields_of(known[name]) for name in sorted(known)})
    write_files(folder, {name: content for name, content in files.items() if content is not None} | {KNOWN: decisions})
    unwanted = [name for name, content in files.items() if content is None]
    unwanted += [f"{place}/{name}" for place in gone for name in FILES]
    for name in unwanted:
        (folder / name).unlink(missing_ok=True)
    for place in (folder / name for name in sorted(own)):
        remove_abandoned(place)
        if place.name in gone and not any(place.iterdir()):
            place.rmdir()
    return len(wanted)


def _unread(folder: Path, names: Iterable[str]) -> Iterator[str]:
    """The findings of a folder that an import leaves out: damaged ones, and duplicates of these. Each is refused."""
    readable = dict[str, Finding]()
    for name in names:
        try:
            readable[name] = read_finding(folder / name)
        except InputError as error:
            refuse(error)
            yield name
    there = {place.name for place in _finding_folders(folder)}.difference(names) | readable.keys()
    while dangling := [one for one in readable.values() if one.duplicate_of and one.duplicate_of not in there]:
        for finding in dangling:
            refuse(
                InputError(f"{folder / finding.id}: found a duplicate of {finding.duplicate_of!r}, which is not here")
            )
            there.discard(finding.id)
            del readable[finding.id]
            yield finding.id


def _is_taken(folder: Path, name: str, decision: KnownDecision, findings: Mapping[str, Finding]) -> bool:
    """Whether importing a decision would change nothing in the finding, or in what was exported of it before."""

    def has(finding: Finding) -> bool:
        others = {decision.duplicate_of or ""}
        return _with_decision(finding, decision, folder / KNOWN, datetime.now(UTC), others) == finding

    return (name in findings and has(findings[name])) or (
        is_there(folder / name / FINDING) and has(read_finding(folder / name))
    )


def _contents(finding: Finding, place: Path) -> dict[str, str | bytes | None]:
    """The files of a finding; None: there must be none. A file that need not be written again is left out.

    Raises `InputError` for what could not be read again: a file that is too large, a program that is none.
    """
    for text in filter(None, (finding.minimal, finding.original)):
        check_case(text, finding.id)
    check_size(finding)
    observed = portable(ObservedFields(**{name: getattr(finding, name) for name in _APART}))
    as_read = msgspec.structs.replace(finding, **{name: getattr(observed, name) for name in _APART})
    files: dict[str, str | bytes | None] = {
        MINIMAL: finding.minimal,
        ORIGINAL: finding.original,
        FINDING: _toml(_fields(as_read)),
    }
    with suppress(InputError):  # a damaged file is written again
        if _read_observed(place / OBSERVED) == observed:  # another zlib makes other bytes of the same content
            return files
    return files | {OBSERVED: None if observed == ObservedFields() else packed(observed)}


def check_size(finding: Finding) -> None:
    """Raise `InputError` for more than is read again of the text form of a finding."""
    if (size := len(_toml(_fields(finding)).encode())) > MAX_TOML:
        raise InputError(
            f"{finding.id}: found {size} bytes of notes and other text, expected at most the {MAX_TOML} that the text "
            "form of a finding may have"
        )
    if (seen := len(finding.occurrences)) > MAX_OCCURRENCES:
        raise InputError(f"{finding.id}: found {seen} occurrences, expected at most {MAX_OCCURRENCES}")


def read_findings(folder: Path, when: datetime) -> tuple[Finding, ...]:
    """The findings of a text form, by id. One that cannot be read is refused (`errors.refuse`).

    Raises `InputError` with the path, what was found and what was expected if known.toml is wrong: decisions are read
    all or not at all.

    `when` is the time of the decisions that known.toml adds to the folders.
    """
    if not is_folder(folder):
        raise InputError(f"{folder}: found no such folder, expected one that `ddefuzz findings export` wrote")
    if is_there(folder / FINDING):
        raise InputError(f"{folder}: found a finding, expected the folder that it is in")
    findings, unread = dict[str, Finding](), set[str]()
    for place in _finding_folders(folder):
        try:
            finding = read_finding(place)
            findings[finding.id] = finding
        except InputError as error:
            refuse(error)
            unread.add(place.name)
    every = findings.keys() | unread
    for finding_id, known in read_known(folder / KNOWN).items() if is_there(folder / KNOWN) else ():
        if finding_id not in every:
            raise InputError(
                f"{folder / KNOWN}: found {finding_id!r}, expected the id of a finding that has a folder there"
            )
        if finding_id in findings:
            findings[finding_id] = _with_decision(findings[finding_id], known, folder / KNOWN, when, every)
    # A duplicate of what is refused is refused, too, and so are its own duplicates.
    while dangling := dict(_dangling(folder, findings)):
        for finding_id, refusal in dangling.items():
            refuse(refusal)
            del findings[finding_id]
    return tuple(findings[finding_id] for finding_id in sorted(findings))


def _dangling(folder: Path, findings: Mapping[str, Finding]) -> Iterator[tuple[str, InputError]]:
    for finding in findings.values():
        try:
            _check_dup(str(folder / finding.id / FINDING), finding, findings)
        except InputError as error:
            yield finding.id, error


def _finding_folders(folder: Path) -> list[Path]:
    return [place for place in entries(folder) if is_there(place / FINDING)] if is_folder(folder) else []


def _fields(finding: Finding) -> dict[str, Any]:
    """The content of finding.toml, with the failure first. The programs have files of their own."""
    fields: dict[str, Any] = msgspec.to_builtins(finding)
    for name in ("minimal", "original", *_APART):
        del fields[name]
    for entry in fields["history"]:
        if not entry["why"]:
            del entry["why"]
    fields |= fields.pop("signature")
    head = {name: fields.pop(name) for name in ("id", "kind", "cause", "site", "anchor")}
    given = {"given_title": fields.pop("given_title") or None}
    shown: dict[str, Any] = {name: getattr(finding, name) for name in _FOR_READERS}
    whole = {"schema": SCHEMA, "title": shown.pop("title"), **given, **head, **shown, **fields}
    return {name: value for name, value in whole.items() if value not in ("", [], ())}


def _read_observed(path: Path) -> ObservedFields:
    if not is_there(path):
        return ObservedFields()
    try:
        return unpacked(read_bytes(path), ObservedFields)
    except PackedError as error:
        wanted = "" if ", expected " in str(error) else ", expected what `findings export` writes"
        raise InputError(f"{path}: {error}{wanted}") from error


def _toml(fields: dict[str, Any]) -> str:
    """Without what is None, because TOML has no null."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items() if item is not None}
        return [known(item) for item in value] if isinstance(value, list | tuple) else value

    text = tomli_w.dumps(known(fields), multiline_strings=False)
    if tomllib.loads(text) != known(fields):
        raise AssertionError("a finding does not survive TOML")
    return text


def read_finding(place: Path) -> Finding:
    """The finding of one folder, without the decisions in known.toml. Raises `InputError`."""
    path = place / FINDING
    fields = read_toml(path)
    if (schema := fields.pop("schema", None)) != SCHEMA:
        raise InputError(f"{path}: found schema {schema!r}, expected {SCHEMA!r}")
    for name, allowed in (("cause", get_args(Cause)), ("kind", tuple(kinds()))):
        if name in fields and (value := fields[name]) not in allowed:
            raise InputError(f"{path}: found the {name} {value!r}, expected one of {', '.join(allowed)}")
    for name, file in {"minimal": MINIMAL, "original": ORIGINAL, **dict.fromkeys(_APART, OBSERVED)}.items():
        if name in fields:
            raise InputError(f"{path}: found the key {name!r}, expected it in {file}")
    for_readers = {name: fields.pop(name) for name in _FOR_READERS if name in fields}
    if not isinstance(title := for_readers.get("title", ""), str):
        raise InputError(f"{path}: found the title {title!r}, expected text")
    observed = _read_observed(place / OBSERVED)
    programs = {
        name: read_case(place / file) if is_there(place / file) else None
        for name, file in (("minimal", MINIMAL), ("original", ORIGINAL))
    }
    if "signature" in fields:
        raise InputError(f"{path}: found the key 'signature', expected {', '.join(_SIGNATURE)}")
    signature = {"anchor": ""} | {name: fields.pop(name) for name in _SIGNATURE if name in fields}
    if isinstance(site := signature.get("site"), dict):
        signature["site"] = {"module": None, "function": None, **site}
    whole = {**fields, **programs, "signature": record_of(signature, Signature, path)}
    read = record_of(whole, Finding, path, _KEYS)
    finding = normalized(msgspec.structs.replace(read, **{name: getattr(observed, name) for name in _APART}))
    if len({seen.place for seen in finding.occurrences}) < len(finding.occurrences):
        raise InputError(
            f"{place / OBSERVED}: found two occurrences of one torch, stage, semantics and op, expected one of each"
        )
    if finding.id != place.name:
        raise InputError(f"{path}: found id {finding.id!r}, expected that of its folder")
    check_finding(finding, f"{path}: ")
    for name, shown in for_readers.items():
        expected = msgspec.json.decode(msgspec.json.encode(getattr(finding, name)))
        if shown != expected and name != "title":  # the rules for titles may have changed
            raise InputError(f"{path}: found {name} {shown!r}, expected {expected!r} as {OBSERVED} says")
    return finding


def check_findings(where: str, findings: Iterable[Finding], others: Iterable[str]) -> None:
    """Raise `InputError`, which begins with `where`, if a folder of these findings could not be imported again.

    `others` are the ids of the findings that they may be duplicates of besides these.
    """
    by_id = {finding.id: finding for finding in findings}
    ids = {*by_id, *others}
    for name, finding in by_id.items():
        _check_dup(f"{where}: {name}", finding, ids)
        for text in filter(None, (finding.minimal, finding.original)):
            check_case(text, f"{where}: {name}")


def _with_decision(
    finding: Finding, known: KnownDecision, path: Path, when: datetime, findings: Container[str]
) -> Finding:
    """The finding with the decision in `known`. A change is added to its history."""
    after = changed(
        finding,
        By(KNOWN, when, known.reason),
        state=known.state,
        duplicate_of=known.duplicate_of,
        fixed_in=known.fixed_in,
        expires="" if known.expires is None else known.expires.isoformat(),
        known_in=known.versions,
    )
    if known.url:
        after = link(after, known.url, By(KNOWN, when))
    _check_dup(f"{path}: {finding.id}", after, findings)
    return after


def as_decided(finding: Finding, stored: Finding) -> Finding:
    """The finding of a folder, with the decisions of its known.toml that were imported before at the times of then.

    A file that did not change is no new decision: it must not undo what a person decided since.
    """
    before = {(entry.who, entry.field): entry for entry in sorted(stored.history)}

    def then(entry: HistoryEntry) -> HistoryEntry:
        last = before.get((entry.who, entry.field))
        same = last is not None and (last.after, last.why) == (entry.after, entry.why)
        return last if entry.who == KNOWN and same and last is not None else entry

    return normalized(msgspec.structs.replace(finding, history=tuple(map(then, finding.history))))


def _check_dup(where: str, finding: Finding, findings: Container[str]) -> None:
    check_together(finding, f"{where}: ")
    duplicate_of = finding.duplicate_of
    if duplicate_of is not None and (duplicate_of not in findings or duplicate_of == finding.id):
        raise InputError(f"{where}: duplicate_of {duplicate_of!r} is not here, expected the id of another finding")


def default_folder() -> Path | None:
    """The findings of the current folder, else those of the source tree that ddefuzz runs from."""
    for folder in (Path("findings"), SOURCE / "findings"):
        if is_file(folder / KNOWN):
            return folder
    return None


def known_findings(folder: Path, keys: Iterable[str]) -> tuple[KnownFinding, ...]:
    """The findings with these keys, each once. A decision in the folder's known.toml makes a finding known by itself.

    Raises InputError if the folder has neither findings nor a known.toml: then it is another kind of folder.
    """
    has_decisions = is_file(folder / KNOWN)
    if not has_decisions and not any(folder.glob(f"*/{FINDING}")):
        expected = f"a folder of them, as `ddefuzz findings export` writes, or one with a {KNOWN}"
        raise InputError(f"{folder}: found no findings, expected {expected}")
    decisions = read_known(folder / KNOWN) if has_decisions else {}
    known_here = []
    for key in dict.fromkeys(keys):
        path, decision = folder / key / FINDING, decisions.get(key)
        known = _shown_in(key, path) if is_file(path) else None
        if decision is not None:
            known = known or KnownFinding(key, decision.title, decision.state)
            links = (decision.url,) if decision.url else known.links
            known = msgspec.structs.replace(known, state=decision.state, fixed_in=decision.fixed_in, links=links)
        known_here += [] if known is None else [known]
    return tuple(known_here)


def _shown_in(key: str, path: Path) -> KnownFinding:
    """What a finding.toml shows of the finding."""
    fields = read_toml(path)
    lists: list[tuple[str, ...]] = []
    for name in ("fixed_in", "links", "ops"):
        if not isinstance(value := fields.get(name, []), list):
            raise InputError(f"{path}: found {name} = {value!r}, expected a list")
        lists.append(tuple(map(str, value)))
    title, state = str(fields.get("title", "")), str(fields.get("state", "new"))
    return KnownFinding(key, title, state, lists[0], lists[1], next(iter(lists[2]), ""))
