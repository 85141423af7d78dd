"""Parses dynamo's graph-break messages: which function dynamo does not trace, and the reason.

A message has a title, an explanation, hints and a "developer debug context". The file of dynamo that raises it
changes between versions. The function and the title do not.
"""

from __future__ import annotations

import re

from ddefuzz.instrument import torch_api

NOT_TRACED = "dynamo does not trace it"
"""The reason for a function that dynamo is configured to skip, or does not know. The title depends on how it is
called.
"""

_UNTRACED_TITLES = re.compile(r"^(?:Attempted to call function marked as skipped|Unsupported Tensor\.\w+\(\) call)$")

_QUALIFIED = re.compile(r"module: (?P<module>[\w.]+), qualname: (?P<name>[\w.<>]+)")
_TARGET = re.compile(r"op: (?P<op>\w+); target: (?:<built-in method )?(?P<name>[\w.]+)")
_DELAYED = re.compile(r"when calling `[^`]+`\. Reason: (?P<reason>[^\n]+)")
_FILE = re.compile(r"in file `(?P<file>[^`]+)`")
_NAMES = re.compile(r"`(?P<name>(?:torch|Tensor)\.[\w.]+?)\.?(?:\(\))?`|\b(?P<bare>(?:torch|Tensor)\.[\w.]+\*?)\(\)")
_VARIABLES = f"torch.{torch_api.VARIABLE_FUNCTIONS.name}."


def refused(message: str) -> tuple[str, str]:
    """The function's name, and the reason without that name.

    The name is empty if the message has none, and unqualified (`is_same_size`) if the message has it so.
    """
    title, _, rest = message.strip().partition("\n")
    title = title.strip()
    delayed = _DELAYED.search(rest)
    if delayed:
        return "", delayed["reason"].strip()
    reason = NOT_TRACED if _UNTRACED_TITLES.match(title) else _NAMES.sub("…", title)
    return _function(title, rest), reason


def _function(title: str, rest: str) -> str:
    if qualified := _QUALIFIED.search(rest):
        file = _FILE.search(rest)
        # Dynamo reports functions that this file wraps as code of this file, all of a module alike.
        if file is not None and file["file"] in torch_api.DISABLE_DYNAMO_FILE:
            return f"{qualified['module']}.*"
        return _plain(f"{qualified['module']}.{qualified['name'].partition('.<locals>')[0]}")
    if target := _TARGET.search(rest):
        owner = "Tensor." if target["op"] == "call_method" else ""
        return f"{owner}{target['name']}"
    for text in (title, _explanation(rest)):
        if named := _NAMES.search(text):
            return _plain(named["name"] or named["bare"])
    return ""


def _plain(name: str) -> str:
    """The name as users write it. An in-place function becomes the method of that name."""
    if not name.startswith(_VARIABLES):
        return name.rstrip("*")
    name = name.removeprefix(_VARIABLES)
    return f"Tensor.{name}" if name.endswith("_") else f"torch.{name}"


def _explanation(rest: str) -> str:
    found = re.search(r"^\s*Explanation:(.*)$", rest, re.MULTILINE)
    return found[1] if found else ""
