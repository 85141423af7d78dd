"""Compiles a subject twice in an empty cache, and reads what inductor's caches do. Runs in a worker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from ddefuzz.artifacts.model import CacheUse
from ddefuzz.artifacts.trace import Entry, traced
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.stages import compiled
from ddefuzz.instrument import torch_api

CACHES = {"aotautograd_cache": "AOTAutograd", "fx_graph_cache": "FX graph"}
"""The caches, by the name with which their entries in torch's trace log start."""

_ENTRY = re.compile(r"(?P<cache>\w+_cache)_(?P<use>hit|miss|bypass)")

_REASON = "cache_bypass_reason"
"""In an entry: why the cache was not asked (torch/_functorch/_aot_autograd/autograd_cache.py)."""


def cache_uses(make: Callable[[], PreparedSubject]) -> tuple[CacheUse, ...]:
    """What each cache did for each graph of the first compilation and of the second. What torch raises is raised."""
    settings: dict[torch_api.Api, Any] = {torch_api.NO_INDUCTOR_CACHES: False, torch_api.COMPILE_THREADS: 1}
    uses: list[CacheUse] = []
    with (
        torch_api.bound(torch_api.INDUCTOR_FRESH_CACHE)(),
        torch_api.changed_settings(torch_api.INDUCTOR_CONFIG, settings),
    ):
        for compilation in (1, 2):
            torch_api.bound(torch_api.DYNAMO_RESET)()
            with traced() as log:
                compiled("inductor")(make())
            uses += uses_in(log, compilation)
    return tuple(uses)


def uses_in(log: Iterable[Entry], compilation: int) -> Iterator[CacheUse]:
    """The uses of caches that a log has."""
    for entry in log:
        match = _ENTRY.fullmatch(entry.name)
        if match is not None and match["cache"] in CACHES:
            about: dict[str, Any] = msgspec.json.decode(entry.text)
            yield CacheUse(
                CACHES[match["cache"]], compilation, match["use"], " ".join(str(about.get(_REASON) or "").split())
            )
