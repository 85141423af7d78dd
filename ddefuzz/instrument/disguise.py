"""Gives hooks the file name of the torch function that they replace."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from ddefuzz.instrument.torch_api import Api


def disguised(api: Api, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return `hook` with the file name of the function that it replaces, in its nested functions too.

    torch's error messages name the first frame outside its own files in "Caused by:". Without this, that would
    be the hook.
    """
    if not isinstance(hook, FunctionType):
        raise TypeError(f"a hook is a function, not {hook!r}")
    hook.__code__ = _of_file(hook.__code__, sys.modules[api.here().partition(":")[0]].__file__ or "")
    return hook


def _of_file(code: CodeType, file: str) -> CodeType:
    inner = tuple(_of_file(one, file) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)
