"""Listens to torch's structured trace log: the texts that dynamo, AOTAutograd and inductor write about their work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from ddefuzz.instrument import torch_api


class Entry(NamedTuple):
    """An entry of the log: its name (`aot_forward_graph`; for an artifact, the artifact's), and its text."""

    name: str
    text: str


class _Listener(logging.Handler):
    """Keeps the entries that have a text."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__(logging.NOTSET)
        self.entries = entries

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one entry. torch passes its metadata and its text as attributes of the record."""
        metadata: dict[str, Any] = getattr(record, "metadata", {})
        text = getattr(record, "payload", None)
        if metadata and isinstance(text, str):
            name = next(iter(metadata))
            said = metadata[name]
            self.entries.append(Entry(said.get("name", name) if isinstance(said, dict) else name, text))


@contextmanager
def traced() -> Iterator[list[Entry]]:
    """The entries that are written meanwhile."""
    entries: list[Entry] = []
    log: logging.Logger = torch_api.TRACE_LOG.get()
    listener = _Listener(entries)
    level = log.level
    log.addHandler(listener)
    log.setLevel(logging.DEBUG)
    try:
        yield entries
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
