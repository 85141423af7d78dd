"""Failures with their raw frames as compressed JSON: the same record gives the same bytes, and bombs are refused.

Frames repeat themselves from call to call, so that JSON of them shrinks to a seventh.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeVar

import msgspec

Record = TypeVar("Record")

MOST_BYTES = 256 * 2**20
"""Of JSON, unpacked: ten times the largest that 48 observations of a deep stack make."""

_GZIP = 16 + zlib.MAX_WBITS
"""`zlib`'s number for the format of gzip; the header that it writes has no name and no time."""

_LEVEL = 9


class PackedError(ValueError):
    """Bytes that are not what `packed` makes."""


def packed(record: msgspec.Struct | tuple[Any, ...]) -> bytes:
    """The record as JSON in gzip's format, with no date in it."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return compressor.compress(msgspec.json.encode(record)) + compressor.flush()


def unpacked(data: bytes, type_: type[Record], most: int = MOST_BYTES) -> Record:
    """The record that `packed` was given; raises `PackedError` for anything else, and for more than `most` bytes."""
    decompressor = zlib.decompressobj(_GZIP)
    try:
        raw = decompressor.decompress(data, most)
    except zlib.error as error:
        raise PackedError(f"found bytes that gzip cannot read ({error})") from error
    if decompressor.unconsumed_tail or (not decompressor.eof and len(raw) >= most):
        raise PackedError(f"found more than {most // 2**20} MiB when unpacked")
    if not decompressor.eof or decompressor.unused_data:
        raise PackedError("found a gzip file that is cut short or has more behind its end")
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackedError(str(error)) from error
