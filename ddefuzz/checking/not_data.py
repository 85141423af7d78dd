"""Hints for errors of a capture that are not about data, by their message."""

from __future__ import annotations

import re

_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)

DRAWS = re.compile(r"\b(numpy|np)\.random\b")
"""Code that draws random numbers without torch. Capture takes them for data."""

TYPES = re.compile(r"in output, which is not a known type|Unsupported (input|output) type")
"""Errors about the type of an input or output."""

REMEDIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (
            r"in output, which is not a known type|outputs? .*not .*supported|Unsupported output type",
            "return tensors in tuples, lists or dicts, or register the type as a pytree (a dataclass with "
            "torch.export.register_dataclass)",
        ),
        (
            r"Unsupported input type|inputs? .*not supported",
            "pass tensors in tuples, lists or dicts, or register the type with torch.export.register_dataclass",
        ),
        (
            r"weakref|swap_tensors|Couldn't swap",
            "make the model anew before the capture, without references to its parameters; strict=False does not "
            "swap them",
        ),
        (
            r"context manager",
            "enter the context manager outside of the captured code, or export with strict=False, where dynamo does "
            "not trace it",
        ),
        (DRAWS.pattern, "draw with torch (torch.rand, torch.randn), or pass the numbers as an input"),
    )
)
"""A pattern of messages, and what to do."""


def remedy(message: str) -> str:
    """What to do about an error with this message: as the table or dynamo's own hint says. Empty if not known."""
    for pattern, what in REMEDIES:
        if pattern.search(message):
            return what
    hint = _HINT.search(message)
    return hint[1].strip() if hint is not None else ""
