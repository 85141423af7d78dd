"""The calls that lead from the user's code to a failure, and where the sizes in its guard come from."""

from __future__ import annotations

import msgspec

from ddefuzz.checking.owner import Owner, owner_of
from ddefuzz.checking.symbols import NUMBERS
from ddefuzz.classify.plumbing import is_framework, is_python_plumbing
from ddefuzz.classify.site import inside_tracer
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import Frame, Raised, SymbolOrigin
from ddefuzz.oracles.recompilation import Repeated


class Caller(msgspec.Struct, frozen=True):
    """A line of the user's code, or of a package that it calls, on the way to the failure."""

    file: str
    line: int
    function: str
    code: str
    owner: Owner


class Symbol(msgspec.Struct, frozen=True):
    """Where a symbol of the guard comes from: a dim of an input (`dim 1 of ids`), or an op and its line."""

    symbol: str
    origin: str
    op: str = ""
    file: str = ""
    line: int = 0


def stacks_of(seen: Observation) -> tuple[tuple[Frame, ...], tuple[Frame, ...], tuple[Frame, ...]]:
    """The Python stack, the stack that dynamo traced, and the C++ stack of a failure, or of the guard for which
    torch.compile compiled again.
    """
    repeated = seen.measurement(Repeated)
    decided = seen.raised or (repeated.failed if repeated is not None else None)
    if decided is not None:
        return decided.python, decided.traced, decided.native
    exceptions = seen.exceptions
    return (
        next((exception.frames for exception in reversed(exceptions) if exception.frames), ()),
        next((exception.traced for exception in exceptions if exception.traced), ()),
        (),
    )


def chain_of(seen: Observation) -> tuple[Caller, ...]:
    """The lines of the user's code and of packages that lead to a failure, outermost first, each once."""
    python, traced, _ = stacks_of(seen)
    frames = [*traced, *inside_tracer(python)] if traced else list(python)
    callers = [_caller(one) for one in frames if not is_framework(one) and not is_python_plumbing(one)]
    return tuple(dict.fromkeys(one for one in callers if one.owner.kind in ("yours", "package")))


def own_caller(chain: tuple[Caller, ...]) -> Caller | None:
    """The innermost line."""
    return chain[-1] if chain else None


def symbols_of(raised: Raised | None) -> tuple[Symbol, ...]:
    """The symbols of the guard by their origin."""
    return tuple(map(_symbol, raised.symbols)) if raised is not None else ()


def _caller(frame: Frame) -> Caller:
    return Caller(frame.file, frame.line, frame.function, frame.code.strip(), owner_of(frame.file))


def _symbol(one: SymbolOrigin) -> Symbol:
    if one.source:
        return Symbol(one.symbol, one.source)
    if one.op == "input":
        return Symbol(one.symbol, "a size of an input")
    what = f"{'value of ' if one.op in NUMBERS else ''}{one.op}()" if one.op else "an op"
    if one.frame is None:
        return Symbol(one.symbol, f"{what}, called by PyTorch", one.op)
    return Symbol(one.symbol, f"{what} at {one.frame.file}:{one.frame.line}", one.op, one.frame.file, one.frame.line)
