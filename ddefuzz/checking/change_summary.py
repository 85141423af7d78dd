"""A failure in words: what happened, the user's line, and where each size comes from."""

from __future__ import annotations

from ddefuzz.checking.diffs import owner_of
from ddefuzz.checking.loops import loop_at
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.site import inside_tracer, user_frame
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import Frame, SymbolOrigin


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


def origin_line(origin: SymbolOrigin) -> str:
    if origin.source:
        return f"{origin.symbol} is {origin.source}"
    if origin.frame is None:
        return f"{origin.symbol} is an unbacked size of an input"
    by = f"`{origin.op}`" if origin.op else "an op"
    return f"{origin.symbol} comes from {by} at {origin.frame.file}:{origin.frame.line}: {origin.frame.code.strip()}"


def error_of(failure: Classified) -> str:
    """The first line of the final exception, else the anchor, which names its type and the code that raises it."""
    exceptions = failure.failure.observation.exceptions
    first = exceptions[0].message.strip().partition("\n")[0] if exceptions else ""
    return f"{exceptions[0].name}: {first}" if first else f"{failure.signature.anchor}."


def summary(failure: Classified) -> str:
    signature, raised = failure.signature, failure.failure.observation.raised
    guard = f", guard `{raised.expression}`" if raised is not None else ""
    wanted = f"`{raised.expression}`" if raised is not None else str(signature.site)
    own = own_line(failure.failure.observation)
    whose = (owner_of(own.file) if own is not None else "") or "Your code"
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
