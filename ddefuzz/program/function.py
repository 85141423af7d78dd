"""A program as a Python function, for what must see code: `torch.export`, dynamo, tracebacks."""

from __future__ import annotations
import __future__

import linecache
from collections.abc import Callable
from typing import Any, Final, cast

import torch

from ddefuzz.program.model import Program
from ddefuzz.program.text import digest, print_program

FILENAME_PREFIX: Final = "<ddefuzz program "
"""How the file name of every frame of a program starts; its first 12 hex digits of the digest follow."""


def as_function(program: Program) -> Callable[..., Any]:
    """The program compiled from its canonical text; its arguments are the inputs, in order.

    The text is registered in `linecache`, so that tracebacks show it, and its only global is `torch`. The program
    must have been parsed or generated, since its text is executed here.
    """
    text = print_program(program)
    filename = f"{FILENAME_PREFIX}{digest(program)[:12]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    # Annotations are for readers: with this flag they are never evaluated.
    code = compile(text, filename, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    namespace: dict[str, Any] = {"torch": torch, "__name__": "ddefuzz_program"}
    exec(code, namespace)
    return cast("Callable[..., Any]", namespace["program"])
