"""Records in which every free text is replaced."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

NOT_TEXT = frozenset(
    {"kind", "stage", "stages", "semantics", "state", "cause", "verdict", "verdicts", "outcome", "outcomes", "schema"}
    | {"status", "language", "oracle", "explicit", "size_oblivious", "confirmed", "strategies", "calls", "digests"}
    | {"first_seen", "last_seen", "duplicate_of", "expires", "harm", "when"}
)
"""Fields that are keys of tables or dates, whatever their type. Readers of records refuse other values in them."""


def infected(record: T, text: str, kept: frozenset[str] = frozenset()) -> T:
    """The record with `text` as the value of every field of type `str`, also in what it holds, but those in `kept`."""
    made: T = _value(record, type(record), text, NOT_TEXT | kept)
    return made


_hints = cache(get_type_hints)


def _value(value: Any, of: Any, text: str, kept: frozenset[str]) -> Any:
    origin, arguments = get_origin(of), get_args(of)
    if value is None or origin is typing.Literal:
        return value
    if origin in (Union, types.UnionType):
        if str in arguments:
            return text
        of_value = next((one for one in arguments if get_origin(one) is type(value)), type(value))
        return _value(value, of_value, text, kept)
    if of is str:
        return text
    if isinstance(value, msgspec.Struct):
        hints = _hints(type(value))
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in kept}
        return msgspec.structs.replace(
            value, **{name: _value(one, hints[name], text, kept) for name, one in fields.items()}
        )
    if isinstance(value, tuple) and origin is tuple:
        types_ = arguments[:1] * len(value) if arguments[-1] is ... else arguments
        return tuple(_value(one, of_one, text, kept) for one, of_one in zip(value, types_, strict=True))
    if isinstance(value, Mapping) and origin is not None:
        return {name: _value(one, arguments[1], text, kept) for name, one in value.items()}
    return value
