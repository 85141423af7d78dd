"""A failure in words: what happened, the user's line, and what to do where no change of the code is tried."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddefuzz.checking.owner import package_of
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.site import inside_tracer, user_frame
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Observation
from ddefuzz.files import read_text
from ddefuzz.instrument.events import Frame, SymbolOrigin

NUMBERS = frozenset({"item", "tolist", "_local_scalar_dense"})
"""The ops whose symbol is the value itself. The symbol of any other op is the size of dim 0 of its result."""

LOOP_REMEDY = (
    "capture unrolls a Python loop, so the number of its rounds must not depend on data. Write it with "
    "torch.while_loop, or call it as one op: torch.library.custom_op, with register_fake for the shape of the result"
)

_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)

DRAWS = re.compile(r"\b(numpy|np)\.random\b")
"""Code that draws random numbers without torch. Capture takes them for data."""

TYPES = re.compile(r"in output, which is not a known type|Unsupported (input|output) type")
"""Errors about the type of an input or output."""

REMEDIES = (
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
        "make the model anew before the capture, without references to its parameters; strict=False does not swap them",
    ),
    (
        r"context manager",
        "enter the context manager outside of the captured code, or export with strict=False, where dynamo does not "
        "trace it",
    ),
    (DRAWS.pattern, "draw with torch (torch.rand, torch.randn), or pass the numbers as an input"),
)
"""A pattern of messages, and what to do."""


def own_line(observation: Observation) -> Frame | None:
    """The innermost frame of the user's own code in a failure."""
    raised = observation.raised
    stacks = [inside_tracer(raised.python), raised.traced] if raised is not None else []
    for exception in observation.exceptions:
        stacks += [exception.traced, inside_tracer(exception.frames)]
    return next((frame for stack in stacks if (frame := user_frame(stack)) is not None), None)


def loop_of(failure: Classified) -> str:
    """The loop of the user's code whose number of rounds the failure's guard decides; empty if there is none."""
    frame = own_line(failure.failure.observation) if failure.cause in ("user", "python-value") else None
    return loop_at(frame.file, frame.line) if frame is not None else ""


def origin_of(origin: SymbolOrigin) -> str:
    """Where a symbol comes from: a dim of an input (`dim 1 of ids`), or an op and its line."""
    if origin.source or origin.op == "input":
        return origin.source or "a size of an input"
    what = f"{'value of ' if origin.op in NUMBERS else ''}{origin.op}()" if origin.op else "an op"
    frame = origin.frame
    return f"{what}, called by PyTorch" if frame is None else f"{what} at {frame.file}:{frame.line}"


def error_of(failure: Classified) -> str:
    """The first line of the final exception, else the anchor, which names its type and the code that raises it."""
    exceptions = failure.failure.observation.exceptions
    first = exceptions[0].message.strip().partition("\n")[0] if exceptions else ""
    return f"{exceptions[0].name}: {first}" if first else f"{failure.signature.anchor}."


def summary(failure: Classified) -> str:
    """What happened, and whose it is to change, in a sentence."""
    signature, raised = failure.signature, failure.failure.observation.raised
    guard = f", guard `{raised.expression}`" if raised is not None else ""
    wanted = f"`{raised.expression}`" if raised is not None else str(signature.site)
    own = own_line(failure.failure.observation)
    whose = (package_of(own.file) if own is not None else "") or "Your code"
    if loop := loop_of(failure):
        return f"How often the loop `{loop}` runs is known only at run time."
    match failure.cause:
        case "user" if raised is not None:
            return f"{whose} branches on `{raised.expression}`, which is known only at run time."
        case "user":
            return f"{whose} branches on the value of a tensor, which is known only at run time."
        case "python-value":
            return f"{whose} needs a Python bool or number that is computed from data: {wanted}."
        case "result-depends-on-data":
            return f"The rank, structure or meaning of the result depends on data ({signature.site}{guard})."
        case "refused":
            return f"Capture refuses this code by design or by a default option, for any sizes: {signature.anchor}."
        case "no-kernel":
            return f"{signature.site} has no fake kernel that capture can use: it is PyTorch's to add, or its author's."
        case "int-required":
            return f"The limitation is PyTorch's: {signature.site} needs a plain int{guard}. Worth an issue upstream."
        case "wrong-capture":
            return f"PyTorch captured something else than your code: {signature.site}. Worth an issue upstream."
        case "wrong-key":
            return f"The key function is wrong: {signature.site}. Change it."
        case "avoidable" | "symbolic-form" | "unclassified" if raised is not None:
            return f"The error is PyTorch's: {signature.site} evaluates `{raised.expression}`. Worth an issue upstream."
        case "avoidable" | "symbolic-form" | "unclassified":
            return f"The error is PyTorch's: it is raised at {signature.site}: {error_of(failure)}"


def remedy(message: str) -> str:
    """What to do about an error with this message: as the table or dynamo's own hint says. Empty if not known."""
    for pattern, what in REMEDIES:
        if re.search(pattern, message):
            return what
    hint = _HINT.search(message)
    return hint[1].strip() if hint is not None else ""


def loop_at(file: str, line: int) -> str:
    """The first line of the `while` loop that the code at this line of a file decides to leave or not.

    The code is the loop's condition, or an `if` in the loop that only breaks. Empty if there is no such loop.
    """
    try:
        source = read_text(Path(file))
        tree = ast.parse(source)
    except (InputError, OSError, SyntaxError, ValueError):
        return ""
    loops = [loop for loop in ast.walk(tree) if isinstance(loop, ast.While) and _decides(loop, line)]
    return source.splitlines()[loops[-1].lineno - 1].strip() if loops else ""


def _decides(loop: ast.While, line: int) -> bool:
    leaving = [one.test for one in _inside(loop.body) if isinstance(one, ast.If) and isinstance(one.body[0], ast.Break)]
    return any(one.lineno <= line <= (one.end_lineno or one.lineno) for one in (loop.test, *leaving))


def _inside(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a loop's body, without those of inner loops and functions."""
    for one in body:
        yield one
        if not isinstance(one, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _inside(getattr(one, field, []))
