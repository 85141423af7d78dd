"""Imported once by the fork server of campaigns: what `preload` imports, and torch's samples of ops."""

from __future__ import annotations

from ddefuzz.execute.preload import ends_with_its_starter, preload
from ddefuzz.instrument import torch_api

with ends_with_its_starter():
    preload(torch_api.PRELOADED_SAMPLES)
