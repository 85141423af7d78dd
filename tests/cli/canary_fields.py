"""Puts text that would execute code into every text field of what ddefuzz stores, found by the types of the records."""

from __future__ import annotations

import gzip
import io
import json
import keyword
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import tomli_w
from msgspec import inspect as types

from ddefuzz.findings.model import SCHEMA, Finding
from ddefuzz.findings.textform import FINDING, MINIMAL, OBSERVED, ORIGINAL, ObservedFields
from ddefuzz.oracles.table import ORACLES

Field: TypeAlias = tuple[str, ...]
"""A field of a record by the names on the way to it. `*` is an element of a list, `**` a value of a table, `**key` one
of its keys.
"""

APART: Final = frozenset(ObservedFields.__struct_fields__) - {"schema"}

FOR_READERS: Final = ("title", "expression", "stage", "ops", "stages", "torch_versions")
"""What finding.toml has for its readers alone."""


def _unquoted(text: str) -> str:
    return f"({int.from_bytes(text.encode())}).to_bytes({len(text)}).decode()"


def code_that_touches(canary: Path) -> str:
    """An expression without quotes that makes the file."""
    return f"__import__({_unquoted('pathlib')}).Path({_unquoted(str(canary))}).touch()"


def payloads(canary: Path) -> dict[str, str]:
    """The texts by what each would leave: a string, a comment, a docstring, brackets, a word of a shell."""
    code = code_that_touches(canary)
    lines = "".join(f"\n{' ' * depth}{code}" for depth in (0, 4, 8, 12))
    return {
        '"': f'x"; {code}; "',
        "'": f"x'; {code}; '",
        '"""': f'x""" + str({code}) + """',
        '""" and a line': f'x"""\n{code}\n"""',
        "'''": f"x'''\n{code}\n'''",
        "escaped quote": f'x\\"; {code}; \\"',
        "escape": f'x\\\n"""\n{code}\n"""\\',
        "a line": f"x{lines}\n#",
        "a line of a class": f"x\n    {code}\n    #",
        "a line after a decorator": f"x\n    def f(self): pass\n\n    {code}\n\n    @property  #",
        "a line of a test": f"x\n        {code}\n        #",
        "another line end": f"x\r{code}\r#\x0c{code}\u2028{code}\x85{code}",
        '")': f'x"), {code}, ("',
        ")]}": f"x)]}}\n{code}\n#",
        "a module": f"torch.x;{code}#:f",
        "a call": f"torch:{code}",
        "an expression": code,
        "a template": f"$title ${{title}} {{0}} {{code}} %s {{{code}}}",
        "a shell": f"x; touch {canary} #",
        "a shell's quote": f"x'; touch {canary}; '\"; touch {canary}; \"",
        "a shell's command": f"$(touch {canary})`touch {canary}`\ntouch {canary}\n",
        "an option": f"--trust={canary}",
        "NUL": f"x\x00{code}",
    }


# The fields of a type


def type_of(field: types.Field) -> types.Type:
    """The type of a field. What an observation measured is the record of an oracle."""
    return MEASURED if field.name == "measured" else field.type


MEASURED: Final = types.UnionType(
    (types.NoneType(), *(types.type_info(one.measures) for one in ORACLES if one.measures is not None))
)


def fields_of(record: types.Type) -> Iterator[Field]:
    """Every field whose value is text, and every key."""
    match record:
        case types.StrType() | types.AnyType():
            yield ()
        case types.LiteralType(values) if any(isinstance(value, str) for value in values):
            yield ()
        case types.DateType():
            yield ()
        case types.StructType(fields=fields):
            yield from ((one.encode_name, *rest) for one in fields for rest in fields_of(type_of(one)))
        case types.ListType(item) | types.VarTupleType(item):
            yield from (("*", *rest) for rest in fields_of(item))
        case types.TupleType(items):
            yield from ((str(place), *rest) for place, item in enumerate(items) for rest in fields_of(item))
        case types.DictType(key, value):
            yield from (("**key", *rest) for rest in fields_of(key))
            yield from (("**", *rest) for rest in fields_of(value))
        case types.UnionType(members):
            yield from dict.fromkeys(field for one in members for field in fields_of(one))
        case _:
            return


_known: Final[dict[int, tuple[types.Type, frozenset[Field]]]] = {}
"""The fields of types by their identity: a type has no hash. Each is kept, so that no other one gets its identity."""


def _all_fields(record: types.Type) -> frozenset[Field]:
    if id(record) not in _known:
        _known[id(record)] = record, frozenset(fields_of(record))
    return _known[id(record)][1]


def minimal(record: types.Type) -> Any:
    """The smallest value of a type, in JSON's types."""
    match record:
        case types.StrType() | types.AnyType():
            return "x"
        case types.LiteralType(values):
            return values[0]
        case types.BoolType():
            return False
        case types.IntType() | types.FloatType():
            return 1
        case types.StructType(fields=fields):
            tag = {} if record.tag_field is None else {record.tag_field: record.tag}
            return tag | {one.encode_name: minimal(one.type) for one in fields if one.required}
        case types.TupleType(items):
            return [minimal(one) for one in items]
        case types.UnionType(members):
            return minimal(next(one for one in members if not isinstance(one, types.NoneType)))
        case types.DictType():
            return {}
        case _:
            return []


def with_text(record: types.Type, value: Any, field: Field, text: str) -> Any:
    """The value with the text in a field. What is missing on the way there is made."""
    if isinstance(record, types.UnionType):
        fitting = [one for one in record.types if field in _all_fields(one)]
        present = (
            one
            for one in fitting
            if isinstance(one, types.StructType)
            and isinstance(value, dict)
            and one.tag_field is not None
            and value.get(one.tag_field) == one.tag
        )
        member = next(present, fitting[0])
        return with_text(member, value, field, text)
    if not field:
        return text
    name, *rest = field
    if value is None:
        value = minimal(record)
    match record:
        case types.StructType(fields=fields):
            inner = next(type_of(one) for one in fields if one.encode_name == name)
            return {**value, name: with_text(inner, value.get(name), tuple(rest), text)}
        case types.ListType(inner) | types.VarTupleType(inner):
            first, *others = value or [minimal(inner)]
            return [with_text(inner, first, tuple(rest), text), *others]
        case types.TupleType(items):
            return [
                with_text(item, one, tuple(rest), text) if place == int(name) else one
                for place, (item, one) in enumerate(zip(items, value, strict=True))
            ]
        case types.DictType(_, inner):
            key = next(iter(value), "x")
            kept = value.get(key)
            rest_of = {other: one for other, one in value.items() if other != key}
            if name == "**key":
                return {text: minimal(inner) if kept is None else kept, **rest_of}
            return {key: with_text(inner, kept, tuple(rest), text), **rest_of}
    raise AssertionError(field)


FINDING_TYPE: Final = types.type_info(Finding)
FINDING_FIELDS: Final = (*fields_of(FINDING_TYPE), *((name,) for name in FOR_READERS))


# Findings as files


def hostile(document: dict[str, Any], field: Field, text: str) -> dict[str, Any]:
    """The document with the text in a field."""
    if field[0] in FOR_READERS:
        return {**document, field[0]: [text] if field[0] in ("ops", "stages", "torch_versions") else text}
    found: dict[str, Any] = with_text(FINDING_TYPE, document, field, text)
    return found


def write_folder(folder: Path, document: dict[str, Any]) -> None:
    """The document as a folder of a finding, whatever is in it."""
    place = folder / folder_name(document["id"])
    place.mkdir(parents=True, exist_ok=True)
    flat = {**document, **document["signature"]}
    named = {name: value for name, value in flat.items() if name not in {*APART, "minimal", "original", "signature"}}
    (place / FINDING).write_text(tomli_w.dumps(_without_none({"schema": SCHEMA, **named})), newline="")
    observed = {"schema": "ddefuzz.observed/1", **{name: document[name] for name in sorted(APART)}}
    (place / OBSERVED).write_bytes(gzip.compress(json.dumps(observed).encode(), 1))
    for name, text in ((MINIMAL, document["minimal"]), (ORIGINAL, document["original"])):
        if text is not None:
            (place / name).write_text(text, newline="")


def folder_name(name: str) -> str:
    """A name that a folder can have."""
    return name.replace("/", "_").replace("\0", "_")[:100]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value


# Case files


def hostile_texts(text: str, payload: str) -> Iterator[tuple[str, str]]:
    """A case file with the payload in place of, and at the end of, each kind of token, with what was replaced.

    Text tokens are replaced as the literal that has the payload as its value, and as they are.
    """
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    done: set[tuple[int, str]] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if not token.string.strip() or keyword.iskeyword(token.string) or (token.type, token.line) in done:
            continue
        done.add((token.type, token.line))
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        before, after, place = text[:begin], text[end:], f"{kind} in line {token.start[0]}"
        yield f"{place}, replaced", before + payload + after
        yield f"{place}, longer", before + token.string + payload + after
        if token.type == tokenize.STRING:
            yield f"{place}, quoted", before + repr(payload) + after
            yield f"{place}, escaped", before + json.dumps(payload) + after
        if token.type == tokenize.COMMENT and ":" in token.string:
            yield f"{place}, value", f"{before}{token.string.partition(':')[0]}: {payload}{after}"
    yield "after the end", f"{text}\n{payload}"
