"""Imported once by the fork server of campaigns: what `preload` imports, and torch's samples of ops."""

from __future__ import annotations

from ddefuzz.execute.preload import preload
from ddefuzz.instrument import torch_api

preload(torch_api.PRELOADED_SAMPLES)
