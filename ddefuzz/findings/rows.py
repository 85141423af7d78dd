"""Convert between the records of `model` and the rows of `schema`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Row, RowMapping

from ddefuzz.answers.model import Answers
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError, RowError
from ddefuzz.findings.codec import packed, unpacked, with_measured
from ddefuzz.findings.model import Finding, HistoryEntry, Note, Occurrence, normalized
from ddefuzz.findings.schema import (
    FindingRow,
    HistoryRow,
    LinkRow,
    NoteRow,
    OccurrenceRow,
)
from ddefuzz.oracles.table import check_stored
from ddefuzz.refusals import refuse

Stored = TypeVar("Stored", Failure, Answers)
Given = TypeVar("Given")
Struct = TypeVar("Struct", bound=msgspec.Struct)
Record = TypeVar("Record")

_MISFITS = (InputError, msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""What converting stored values raises: of another type, bad JSON, a packed value that is damaged."""


def readable(table: str, rows: Iterable[Given], convert: Callable[[Given], Record]) -> Iterator[Record]:
    """The records of rows. A row that does not fit raises `RowError`, or is left out (`refusals`)."""
    for row in rows:
        try:
            record = convert(row)
        except (RowError, *_MISFITS) as error:
            refuse(error if isinstance(error, RowError) else _row_error(table, row, error))
        else:
            yield record


def _row_error(table: str, row: Any, error: Exception) -> RowError:
    key = row.id if hasattr(row, "id") else row[0] if isinstance(row, Row | tuple) else row
    return RowError(f"{table} {str(key)[:80]!r} in the database: {' '.join(str(error).split())[:300]}")


def id_of(key: str, sequence: int) -> str:
    """The id of the `sequence`-th finding (from 1) of a signature."""
    return key if sequence == 1 else f"{key}-{sequence}"


def sequence_of(finding_id: str, signature: Signature) -> int | None:
    """The inverse of `id_of`. None if this is not an id of this signature."""
    if finding_id == signature.key:
        return 1
    match = re.fullmatch(re.escape(signature.key) + r"-([2-9]|[1-9][0-9]{1,5})", finding_id)
    return int(match[1]) if match else None


def to_row(finding: Finding) -> FindingRow:
    """A new row for a finding, with its dependent rows."""
    finding = normalized(finding)
    return FindingRow(
        id=finding.id,
        key=finding.signature.key,
        sequence=_check_id(finding),
        kind=finding.kind,
        cause=finding.cause,
        language=finding.site.language,
        module=finding.site.module,
        function=finding.site.function,
        anchor=finding.anchor,
        given_title=finding.given_title,
        state=finding.state,
        duplicate_of=finding.duplicate_of,
        fixed_in=list(finding.fixed_in),
        owner=finding.owner,
        priority=finding.priority,
        labels=list(finding.labels),
        expires=finding.expires,
        known_in=list(finding.known_in),
        original=finding.original,
        minimal=finding.minimal,
        steps=finding.steps,
        attempts=finding.attempts,
        confirmed_k=finding.confirmed.k if finding.confirmed else None,
        confirmed_n=finding.confirmed.n if finding.confirmed else None,
        failure=to_json(finding.failure),
        shown=to_json(finding.shown),
        control_static=finding.control.static if finding.control else None,
        control_backed=finding.control.backed if finding.control else None,
        answers=to_json(finding.answers),
        former=list(finding.former),
        occurrences=[to_occurrence_row(seen) for seen in finding.occurrences],
        links=[LinkRow(url=url) for url in finding.links],
        notes=[NoteRow(**msgspec.structs.asdict(note)) for note in finding.notes],
        history=[HistoryRow(**msgspec.structs.asdict(entry)) for entry in finding.history],
    )


def to_json(record: Failure | Answers | None) -> str | None:
    """A record as its column stores it."""
    return None if record is None else msgspec.json.encode(record).decode()


def _from_json(stored: str | None, kind: type[Stored]) -> Stored | None:
    return None if stored is None else msgspec.json.decode(with_measured(stored.encode()), type=kind)


def to_occurrence_row(seen: Occurrence) -> OccurrenceRow:
    """A new row for an occurrence."""
    observed = None if seen.observed is None else packed(seen.observed)
    return OccurrenceRow(**msgspec.structs.asdict(seen) | {"observed": observed})


def to_finding(row: FindingRow) -> Finding:
    """The record of a row. Raises `RowError` if the stored values do not fit the model."""
    return _to_finding(
        row,
        {
            "links": [link.url for link in row.links],
            "notes": [_fields(note, Note) for note in row.notes],
            "history": [_fields(entry, HistoryEntry) for entry in row.history],
        },
        lambda: {
            "answers": _from_json(row.answers, Answers),
            "occurrences": [_occurrence(seen) for seen in row.occurrences],
        },
    )


def to_listed(row: Row[Any], occurrences: Iterable[RowMapping]) -> Finding:
    """The same of columns, without what lists do not show: the failures of its occurrences, its first failure if
    another one is shown, its answers, links, notes and history.
    """
    seen = [{name: one[name] for name in LISTED} for one in occurrences]
    return _to_finding(row, {}, lambda: {"occurrences": seen})


LISTED: Final = tuple(name for name in Occurrence.__struct_fields__ if name != "observed")
"""The columns of an occurrence that lists show."""


def _to_finding(row: FindingRow | Row[Any], more: dict[str, Any], decode: Callable[[], dict[str, Any]]) -> Finding:
    """The record of the columns, and of what else is read or decoded."""
    fields = {
        **{name: getattr(row, name) for name in _SAME},
        "site": {"language": row.language, "module": row.module, "function": row.function},
        "confirmed": None if row.confirmed_n is None else {"k": row.confirmed_k or 0, "n": row.confirmed_n},
        "control": None if row.control_static is None else {"static": row.control_static, "backed": row.control_backed},
    }
    try:
        raw = {"failure": _from_json(row.failure, Failure), "shown": _from_json(row.shown, Failure), **decode()}
        finding = normalized(msgspec.convert({**fields, **more, **raw}, Finding, from_attributes=True))
        check_stored(finding.failures)
        msgspec.json.encode(finding)  # JSON may spell lone surrogates, which nothing can write again
    except _MISFITS as error:
        raise _row_error("finding", row, error) from error
    _check_id(finding)
    return finding


def _occurrence(row: OccurrenceRow) -> dict[str, Any]:
    observed = None if row.observed is None else unpacked(row.observed, Failure)
    return {**{name: getattr(row, name) for name in LISTED}, "observed": observed}


def _check_id(finding: Finding) -> int:
    """The sequence number in an id. The text form uses an id as folder name, so it must be one that `id_of` makes."""
    sequence = sequence_of(finding.id, finding.signature)
    if sequence is None:
        raise RowError(f"finding {finding.id!r}: not an id of its signature, expected {finding.signature.key}")
    return sequence


_SAME = (
    *("id", "kind", "cause", "anchor", "given_title", "state", "duplicate_of", "fixed_in", "former"),
    *("owner", "priority", "labels", "expires", "known_in"),
    *("original", "minimal", "steps", "attempts"),
)
"""Columns with the name of their field that need no conversion."""


def to_record(row: object, record: type[Struct]) -> Struct:
    """The record of a row that has its fields as columns."""
    return msgspec.convert(_fields(row, record), record)


def _fields(row: object, record: type[msgspec.Struct]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in record.__struct_fields__}
