"""Which module of a model was running: the path of the innermost nn.Module on the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

import torch

from ddefuzz.instrument import frames, torch_api

_CHILD = re.compile(r"\._modules\['([^']+)'\]|\['([^']+)'\]|\[(\d+)\]")
_WRAPPERS = ("ddefuzz.", "torch.export", "torch._")
"""The start of the names of modules whose classes are put around a user's model."""
_ROOT = re.compile(r"L\['\w+'\]\.?")


def module_path(frame: FrameType | None) -> str:
    """The path of the innermost module under a frame, as `named_modules` has it; empty for none and for the model."""
    running: list[Any] = []
    traced = ""
    while frame is not None:
        if frame.f_code is frames.step_code():
            traced = traced or _traced_path(frame.f_locals["self"])
        owner = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames else None
        if isinstance(owner, torch.nn.Module) and not type(owner).__module__.startswith(_WRAPPERS):
            running.append(owner)
        frame = frame.f_back
    return traced or _path(running)


def module_in(traceback: TracebackType | None) -> str:
    """The same for the innermost frame of a traceback."""
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return module_path(traceback.tb_frame) if traceback is not None else ""


def _path(running: list[Any]) -> str:
    """The path of the first of these modules in the outermost that contains it."""
    for root in reversed(running):
        for name, module in root.named_modules():
            if module is running[0]:
                return str(name)
    return ""


def _traced_path(translator: Any) -> str:
    """The path that dynamo has for the module whose code it interprets."""
    stack = list(getattr(translator, torch_api.MODULE_STACK, {}).values())
    if not stack:
        return ""
    found = _ROOT.sub("", str(stack[-1][0]), count=1)
    return ".".join(_parts(found))


def _parts(path: str) -> Iterator[str]:
    for part in _CHILD.sub(lambda match: "." + "".join(filter(None, match.groups())), path).split("."):
        if part and part != torch_api.EXPORT_ROOT:
            yield part
