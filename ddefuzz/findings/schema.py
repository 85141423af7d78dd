"""The tables of the findings database, and the rows of findings.

A finding is a JSON document (`documents`) with what lists show of it, and columns by which findings are selected and
sorted (`findings`). They are apart, so that a list does not read the documents: programs and failures are long. The
columns of a table that stores a record are the fields of the record.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    RowMapping,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session

from ddefuzz.classify.failure import Failure
from ddefuzz.errors import InputError, RowError, refusals, refuse
from ddefuzz.files import MAX_UNPACKED
from ddefuzz.findings.decisions import check_finding
from ddefuzz.findings.ledger import SiteKey, SiteRecord
from ddefuzz.findings.model import (
    Campaign,
    Finding,
    FindingSummary,
    Occurrence,
    Progress,
    Result,
    Token,
    normalized,
    sequence_of,
    summary_of,
)
from ddefuzz.records import fault

Given = TypeVar("Given")
Record = TypeVar("Record")
Struct = TypeVar("Struct", bound=msgspec.Struct)

METADATA: Final = MetaData()

_COLUMN_TYPES: Final = {
    msgspec.inspect.StrType: Text,
    msgspec.inspect.LiteralType: Text,
    msgspec.inspect.IntType: BigInteger,
    msgspec.inspect.FloatType: Double,
    msgspec.inspect.BoolType: Boolean,
}
"""The types of columns by that of a field. Any other is stored as JSON."""


def _table(name: str, record: type[msgspec.Struct], key: Iterable[str], *others: Column[Any]) -> Table:
    """A table of records: a column for each field that is not among the `others`. `key` names the primary key."""
    info = msgspec.inspect.type_info(record)
    assert isinstance(info, msgspec.inspect.StructType)
    columns: dict[str, Column[Any]] = {column.name: column for column in others}
    for field in info.fields:
        kind = _COLUMN_TYPES.get(type(field.type), JSON)
        columns.setdefault(field.name, Column(field.name, kind, primary_key=field.name in key, nullable=False))
    return Table(name, METADATA, *columns.values())


def _owner(table: str, *, key: bool = True) -> Column[Any]:
    name = f"{table.removesuffix('s')}_id"
    return Column(name, ForeignKey(f"{table}.id", ondelete="CASCADE"), primary_key=key, nullable=False, index=not key)


FINDINGS: Final = Table(
    "findings",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("key", Text, nullable=False, index=True),
    Column("sequence", Integer, nullable=False),
    *(Column(name, Text, nullable=False, index=True) for name in ("kind", "cause", "state")),
    Column("language", Text, nullable=False),
    *(Column(name, Text) for name in ("module", "function")),
    *(Column(name, Text, nullable=False) for name in ("anchor", "owner", "priority")),
    Column("labels", JSON, nullable=False),
    Column("fixed_in", JSON, nullable=False),
    Column("former", JSON, nullable=False),
    # Deferred, so that one transaction can add findings in any order.
    Column("duplicate_of", ForeignKey("findings.id", deferrable=True, initially="DEFERRED")),
    Column("steps", BigInteger),
    Column("data_dependent", Boolean),
    Column("count", BigInteger, nullable=False, index=True),
    *(Column(name, Text, index=True) for name in ("first_seen", "last_seen")),
    Column("searched", Text, nullable=False),
)
"""The columns by which findings are selected and sorted. Each follows from the document (`_columns`)."""

DOCUMENTS: Final = Table(
    "documents",
    METADATA,
    _owner("findings"),
    Column("summary", Text, nullable=False),
    Column("document", Text, nullable=False),
)
"""`model.FindingSummary` without `COUNTED`, and `model.Finding` without its occurrences, as JSON."""

COUNTED: Final = ("count", "first_seen", "last_seen")
"""What each sighting changes. Only columns have it, so that counting a sighting writes no document."""

OCCURRENCES: Final = _table(
    "occurrences",
    Occurrence,
    ("torch", "stage", "semantics", "op"),
    _owner("findings"),
    Column("observed", LargeBinary),
)
"""`observed` is compressed JSON (`codec`)."""

Index("ix_occurrences_verdict", OCCURRENCES.c.verdict, OCCURRENCES.c.finding_id)

SEEN: Final = Table(
    "seen",
    METADATA,
    _owner("findings"),
    *(Column(name, Text, primary_key=True) for name in ("torch", "stage")),
    Column("count", BigInteger, nullable=False),
    *(Column(name, Text, nullable=False) for name in ("first_seen", "last_seen")),
    sqlite_with_rowid=False,
)
"""The sightings of a finding under a version of torch in a stage: the sums of its occurrences. Pages about all findings
read these rows, of which there are far fewer.
"""

CAMPAIGNS: Final = _table("campaigns", Campaign, (), Column("id", Integer, primary_key=True))
PROGRESS: Final = _table("progress", Progress, ("when",), _owner("campaigns"))

KEPT_POINTS: Final = 190
"""About how many counts over time are kept of a campaign that has ended. One that runs saves one every 10 seconds."""

LATEST: Final = 8
"""The number of a campaign's latest counts that are always kept, and read: its rate is that of the last minute."""

MET: Final = Table(
    "met",
    METADATA,
    _owner("campaigns"),
    Column("finding_id", Text, primary_key=True),
)
"""The findings that a campaign has seen. Those that are not in the database any more stay."""

REACHED: Final = Table(
    "reached",
    METADATA,
    _owner("campaigns"),
    *(Column(name, Integer if name == "line" else Text, primary_key=True) for name in SiteKey._fields),
)
"""The guard sites that a campaign has reached."""

STEPS: Final = Table(
    "steps",
    METADATA,
    Column("id", Integer, primary_key=True),
    _owner("campaigns", key=False),
    Column("counted", LargeBinary, nullable=False),
)
"""What an unfinished campaign has counted at once, as compressed JSON (`codec`)."""

LESSONS: Final = Table(
    "lessons",
    METADATA,
    Column("id", Integer, primary_key=True),
    _owner("campaigns", key=False),
    Column("key", Text, nullable=False, index=True),
    Column("heard", Integer, nullable=False),
    Column("learned", LargeBinary, nullable=False),
)
"""What a round of a campaign has taught, as compressed JSON (`codec`), for the campaigns of the same `key`. `heard` is
the latest lesson of others that was taken in after the round.
"""

SITES: Final = _table(
    "sites", SiteRecord, ("language", "file", "line", "function"), Column("torch", Text, primary_key=True)
)

SWEPT: Final = Table(
    "swept",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("key", "op")),
    Column("result", Text, nullable=False),
)
"""The result of a sweep of one op, as JSON. `key` has everything that decides it."""

RESULTS: Final = _table("results", Result, ("case", "torch"))
TOKENS: Final = _table("tokens", Token, ("name",))

_MISFITS = (InputError, msgspec.MsgspecError, TypeError, ValueError, RecursionError)
"""What converting stored values raises: of another type, bad JSON, a packed value that is damaged."""


def readable(table: str, rows: Iterable[Given], convert: Callable[[Given], Record]) -> Iterator[Record]:
    """The records of rows. A row that does not fit raises `RowError`, or is left out (`refusals`)."""
    for row in rows:
        try:
            record = convert(row)
        except _MISFITS as error:
            key = row[0] if isinstance(row, Row | tuple) else row
            problem = f"{table} {str(key)[:80]!r} in the database: {' '.join(str(error).split())[:300]}"
            refuse(RowError(problem))
        else:
            yield record


def only(records: Iterator[Record]) -> Record | None:
    """The record, None if there is none. Raises `RowError` if it cannot be read."""
    with refusals() as refused:
        record = next(records, None)
    if refused:
        raise RowError(next(iter(refused)))
    return record


def to_record(row: Row[Any] | RowMapping, record: type[Struct]) -> Struct:
    """The record of a row that has its fields as columns. Other columns are left out."""
    mapping = row if isinstance(row, RowMapping) else row._mapping
    fields = {name: mapping[name] for name in record.__struct_fields__}
    for name, value in fields.items():
        if isinstance(value, str) and "\0" in value:
            raise InputError(f"found NUL in {name}, expected text without")
    return msgspec.convert(fields, record)


def whole_findings(session: Session, condition: ColumnElement[bool], *, observed: bool = True) -> Iterator[Finding]:
    """The findings that fit, by id; unless `observed`, their occurrences without failures."""
    columns = [column for column in OCCURRENCES.c if observed or column.name != "observed"]
    occurrences: dict[str, list[RowMapping]] = {}
    ids = select(FINDINGS.c.id).where(condition)
    for seen in session.execute(select(*columns).where(OCCURRENCES.c.finding_id.in_(ids))).mappings():
        occurrences.setdefault(seen["finding_id"], []).append(seen)
    rows = _selected(session, DOCUMENTS.c.document, condition)
    return readable("finding", rows, lambda row: _finding(row, occurrences.get(row.finding_id, ())))


def summaries(session: Session, condition: ColumnElement[bool]) -> Iterator[FindingSummary]:
    """What lists show of the findings that fit, by id."""
    rows = _selected(session, DOCUMENTS.c.summary, condition)
    return readable("finding", rows, _summary)


class Programs(msgspec.Struct, frozen=True):
    """The programs of a finding, without the rest of its document."""

    original: str | None = None
    minimal: str | None = None


def programs(session: Session, condition: ColumnElement[bool]) -> dict[str, str]:
    """The smallest program of each finding that fits, else its first one. Those without a program are left out."""
    rows = _selected(session, DOCUMENTS.c.document, condition)
    read = readable(
        "finding", rows, lambda row: (row.finding_id, msgspec.json.decode(_document(row.document), type=Programs))
    )
    return {name: program for name, known in read if (program := known.minimal or known.original)}


def _summary(row: Row[Any]) -> FindingSummary:
    summary = msgspec.json.decode(_document(row.summary), type=FindingSummary)
    counted = {name: row._mapping[name] for name in COUNTED}
    return msgspec.convert({**msgspec.structs.asdict(summary), **counted}, FindingSummary)


def _selected(session: Session, column: Column[Any], condition: ColumnElement[bool]) -> Iterable[Row[Any]]:
    """The column of the findings that fit, None where a finding has no document: then the row is damaged."""
    counted = (FINDINGS.c[name] for name in COUNTED)
    rows = select(FINDINGS.c.id.label("finding_id"), column, *counted).select_from(FINDINGS).outerjoin(DOCUMENTS)
    return session.execute(rows.where(condition).order_by(FINDINGS.c.id))


def _document(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"found {'no document' if value is None else type(value).__name__}, expected its JSON document"
        )
    return value


def _finding(row: Any, occurrences: Iterable[RowMapping]) -> Finding:
    finding = msgspec.json.decode(with_measured(_document(row.document).encode()), type=Finding)
    if finding.id != row.finding_id:
        raise InputError(f"found the id {finding.id!r}, expected that of its row")
    msgspec.json.encode(finding)  # JSON may spell lone surrogates, which nothing can write again
    seen = []
    for occurrence in occurrences:
        stored = occurrence.get("observed")
        fields = {name: occurrence[name] for name in _BRIEF}
        observed = None if stored is None else unpacked(stored, Failure)
        seen.append(msgspec.convert({**fields, "observed": observed}, Occurrence))
    finding = normalized(msgspec.structs.replace(finding, occurrences=tuple(seen)))
    check_finding(finding)
    return finding


_BRIEF: Final = tuple(name for name in Occurrence.__struct_fields__ if name != "observed")
"""The fields of an occurrence but its failure."""


def add_finding(session: Session, finding: Finding) -> None:
    """Add a finding that is not in the database, with its occurrences."""
    finding = normalized(finding)
    for table in (DOCUMENTS, OCCURRENCES, SEEN):  # rows that a deletion without foreign keys left
        session.execute(delete(table).where(table.c.finding_id == finding.id))
    session.execute(insert(FINDINGS).values(id=finding.id, **_columns(finding)))
    session.execute(insert(DOCUMENTS).values(finding_id=finding.id, **_documents(finding)))
    add_occurrences(session, finding.id, finding.occurrences)
    if rows := _sums(finding):
        session.execute(insert(SEEN), rows)


def save_finding(session: Session, finding: Finding) -> None:
    """Replace a finding that is in the database. Its stored occurrences stay as they are."""
    finding = normalized(finding)
    session.execute(update(FINDINGS).where(FINDINGS.c.id == finding.id).values(**_columns(finding)))
    session.execute(update(DOCUMENTS).where(DOCUMENTS.c.finding_id == finding.id).values(**_documents(finding)))


def add_occurrences(session: Session, finding_id: str, occurrences: Iterable[Occurrence]) -> None:
    """Add occurrences of a finding."""

    def row(seen: Occurrence) -> dict[str, object]:
        observed = None if seen.observed is None else packed(seen.observed)
        return {"finding_id": finding_id, "observed": observed, **{name: getattr(seen, name) for name in _BRIEF}}

    if rows := list(map(row, occurrences)):
        session.execute(insert(OCCURRENCES), rows)


def _sums(finding: Finding) -> list[dict[str, object]]:
    """The rows of `SEEN` of a finding."""
    together: dict[tuple[str, str], list[Occurrence]] = {}
    for seen in finding.occurrences:
        together.setdefault((seen.torch, seen.stage), []).append(seen)
    return [
        {
            "finding_id": finding.id,
            "torch": torch,
            "stage": stage,
            "count": sum(seen.count for seen in same),
            "first_seen": min(seen.first_seen for seen in same),
            "last_seen": max(seen.last_seen for seen in same),
        }
        for (torch, stage), same in together.items()
    ]


def _columns(finding: Finding) -> Mapping[str, object]:
    sequence = sequence_of(finding.id, finding.signature)
    if sequence is None:
        raise RowError(f"finding {finding.id!r}: not an id of its signature, expected {finding.signature.key}")
    site = finding.site
    texts = (finding.id, site.module, site.function, finding.anchor, finding.given_title, finding.owner)
    more = (*finding.labels, *(note.text for note in finding.notes), *finding.links, *finding.ops)
    same = ("kind", "cause", "state", "anchor", "owner", "priority", "duplicate_of", "steps", "data_dependent")
    return {
        **{name: getattr(finding, name) for name in (*same, "count", "first_seen", "last_seen")},
        "key": finding.signature.key,
        "sequence": sequence,
        **msgspec.structs.asdict(site),
        "labels": list(finding.labels),
        "fixed_in": list(finding.fixed_in),
        "former": list(finding.former),
        "searched": "\n".join(text for text in (*texts, *more) if text).lower(),
    }


def _documents(finding: Finding) -> Mapping[str, object]:
    whole = msgspec.structs.replace(finding, occurrences=())
    summary = msgspec.structs.replace(summary_of(finding), count=0, first_seen=None, last_seen=None)
    return {
        "summary": msgspec.json.encode(summary).decode(),
        "document": msgspec.json.encode(whole).decode(),
    }


_GZIP = 16 + zlib.MAX_WBITS
"""The number by which `zlib` selects the gzip format. The header that it writes has no name and no time."""

_LEVEL = 9


class PackedError(ValueError):
    """The bytes were not made by `packed`."""


def packed(record: msgspec.Struct | tuple[Any, ...], level: int = _LEVEL) -> bytes:
    """The record as JSON in gzip format, without a date."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return compressor.compress(msgspec.json.encode(record)) + compressor.flush()


def unpacked(data: bytes, type_: type[Record], most: int = MAX_UNPACKED) -> Record:
    """The record given to `packed`. Raises `PackedError` for other bytes, and for more than `most` bytes of JSON."""
    decompressor = zlib.decompressobj(_GZIP)
    try:
        raw = decompressor.decompress(data, most)
    except zlib.error as error:
        raise PackedError(f"found bytes that gzip cannot read ({error})") from error
    if decompressor.unconsumed_tail or (not decompressor.eof and len(raw) >= most):
        raise PackedError(f"found more than {most // 2**20} MiB when unpacked")
    if not decompressor.eof or decompressor.unused_data:
        raise PackedError("found a gzip file that is cut short or has data after its end")
    try:
        raw = with_measured(raw)
        return msgspec.json.decode(raw, type=type_)
    except msgspec.ValidationError as error:
        try:
            problem = fault(str(error), msgspec.json.decode(raw), type_)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as damage:  # after what does not fit
            raise PackedError(f"found {damage}") from damage
        raise PackedError(problem) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackedError(str(error)) from error


_SEPARATE = ("repeated", "growths", "lowered", "keyed")
"""The fields that observations had in place of `measured`, one for each type of measurement."""


def with_measured(raw: bytes) -> bytes:
    """JSON of failures, in which each observation has its measurement as `measured`. Older versions wrote others."""
    named = any(f'"{name}"'.encode() in raw for name in _SEPARATE)
    return msgspec.json.encode(_moved(msgspec.json.decode(raw))) if named else raw


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _moved(item) for name, item in value.items()}
    for name in _SEPARATE if {"stage", "semantics", "outcome"} <= fields.keys() else ():
        moved = fields.pop(name, None)
        if moved:
            fields["measured"] = {"type": name, **(moved if isinstance(moved, dict) else {"counts": moved})}
    return fields
