"""Compressed JSON of failures with their raw frames. The same record always gives the same bytes.

Data that unpacks to more than a limit is rejected. Frames repeat from call to call, so their JSON shrinks to a seventh.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, TypeVar

import msgspec

from ddefuzz.files import MAX_UNPACKED

Record = TypeVar("Record")

_GZIP = 16 + zlib.MAX_WBITS
"""The number by which `zlib` selects the gzip format. The header that it writes has no name and no time."""

_LEVEL = 9


class PackedError(ValueError):
    """The bytes were not made by `packed`."""


def packed(record: msgspec.Struct | tuple[Any, ...]) -> bytes:
    """The record as JSON in gzip format, without a date."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
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
        return msgspec.json.decode(with_measured(raw), type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackedError(str(error)) from error


_SEPARATE = ("repeated", "growths", "lowered", "keyed")
"""The fields that observations had in place of `measured`, one for each type of measurement."""

_HAS_SEPARATE = re.compile(rb'"(?:repeated|lowered|keyed)":\{|"growths":\[\{')


def with_measured(raw: bytes) -> bytes:
    """JSON of failures, in which each observation has its measurement as `measured`. Older versions wrote others."""
    return msgspec.json.encode(_moved(msgspec.json.decode(raw))) if _HAS_SEPARATE.search(raw) else raw


def _moved(value: Any) -> Any:
    if isinstance(value, list):
        return [_moved(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _moved(item) for name, item in value.items()}
    for name in _SEPARATE if {"stage", "semantics", "outcome"} <= fields.keys() else ():
        found = fields.pop(name, None)
        if found:
            fields["measured"] = {"type": name, **(found if isinstance(found, dict) else {"counts": found})}
    return fields
