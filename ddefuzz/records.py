"""Records of what text files have. What does not fit one is said as: what was found, where, what was expected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from ddefuzz.errors import InputError

Record = TypeVar("Record")

_WORDS: Final = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
"""The types of msgspec's messages."""

_MESSAGE: Final = re.compile(
    r"Object contains unknown field `(?P<unknown>.*)`|Object missing required field `(?P<missing>.*)`"
    r"|Invalid enum value (?P<value>.*)|Invalid RFC3339 encoded (?P<day>date)"
    r"|Expected (?P<expected>.*?)(, got (`(?P<got>.*)`|[0-9]+))?",
    re.DOTALL,
)

_MOST: Final = 80
"""How many characters of a value are shown."""


def record_of(value: object, record: type[Record], where: object, keys: Iterable[str] = ()) -> Record:
    """The record of literals. Raises `InputError`, which begins with `where`.

    `keys` are those that a file may have, where they are not the fields of the record.
    """
    try:
        return msgspec.convert(value, record)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {fault(str(error), value, record, keys)}") from error


def fault(message: str, value: Any, record: type[Any], keys: Iterable[str] = ()) -> str:
    """A message of msgspec about a value that does not fit the record, as `PLACE: found …, expected …`."""
    reason, _, path = message.partition(" - at `$")
    path = path.removesuffix("`")
    place = path.removeprefix(".")
    match = _MESSAGE.fullmatch(reason)
    if match is None:  # it is that of a record, which says what was found
        return " ".join(reason.split()) + (f" ({place})" if place else "")
    kinds: list[inspect.Type] = [inspect.type_info(record)]
    for name, number in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        key = int(number) if number.isdecimal() else name or number  # of a table of any keys, msgspec says `...`
        kinds = [inner for kind in kinds for inner in _inner(kind, key)]
        value = _item(value, key)
    expected = " or ".join(dict.fromkeys(filter(None, map(_choices, kinds))))
    if keys and not place:
        expected = f"the keys {', '.join(keys)}"
    if match["unknown"] is not None:
        actual = f"the unknown key {match['unknown'][:_MOST]!r}"
    elif match["missing"] is not None:
        actual = f"no {match['missing']}"
    elif match["value"] is not None:
        actual = match["value"][:_MOST]
    elif match["day"]:
        actual, expected = repr(value)[:_MOST], "a date such as 2027-01-31"
    else:
        actual = _in_words(f"`{match['got']}`") if match["got"] else repr(value)[:_MOST]
        expected = _in_words(match["expected"]) + (f" with {expected}" if expected.startswith("the keys") else "")
    return (f"{place}: " if place else "") + f"found {actual}, expected {expected}"


def _in_words(text: str) -> str:
    return re.sub(r"`([^`]*)`", lambda match: " or ".join(_WORDS.get(one, one) for one in match[1].split(" | ")), text)


def _plain(kind: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(kind, inspect.UnionType):
        for plain in kind.types:
            yield from _plain(plain)
    else:
        yield from _plain(kind.type) if isinstance(kind, inspect.Metadata) else (kind,)


def _inner(kind: inspect.Type, name: str | int) -> Iterator[inspect.Type]:
    """The types of what is in a value by this name or number."""
    for plain in _plain(kind):
        if isinstance(plain, inspect.StructType):
            yield from (field.type for field in plain.fields if field.encode_name == name)
        elif isinstance(plain, inspect.DictType):
            yield plain.value_type
        elif isinstance(plain, inspect.ListType | inspect.VarTupleType):
            yield plain.item_type
        elif isinstance(plain, inspect.TupleType) and isinstance(name, int):
            yield from plain.item_types[name : name + 1]


def _choices(kind: inspect.Type) -> str:
    """The keys of a table, or the values to choose from; empty for other types."""
    for plain in _plain(kind):
        if isinstance(plain, inspect.StructType):
            return f"the keys {', '.join(field.encode_name for field in plain.fields)}"
        if isinstance(plain, inspect.LiteralType):
            return f"one of {', '.join(str(choice) or repr(choice) for choice in plain.values)}"
    return ""


def _item(value: Any, name: str | int) -> Any:
    try:
        return value[name]
    except (LookupError, TypeError):
        return None
