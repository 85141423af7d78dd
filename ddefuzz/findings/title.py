"""The default title of a finding: the op, the call site, and the expression that capture could not decide."""

from __future__ import annotations

import re

from ddefuzz.classify.failure import Failure
from ddefuzz.classify.kind import decisive
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.classify.site import USER_SITE
from ddefuzz.control.model import Control
from ddefuzz.execute.protocol import ExceptionInfo
from ddefuzz.instrument import torch_api
from ddefuzz.oracles.table import oracle_of

MOST = 72
"""The maximum number of characters of an expression or a message in a title."""

COMPARISONS = {"Eq": "==", "Ne": "!="}
"""How sympy prints comparisons as functions, and the operator in Python."""

FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

WANTED = {"guard_int": " as an int", "guard_float": " as a float"}
"""The type of number that a guard needs, by the method of the guard. All other methods need a truth value."""

NO_DATA = {
    "UnsupportedOperatorException": "{op} has no fake kernel",
    "DynamicOutputShapeException": "the sizes that {op} returns depend on the data",
    "DataDependentOutputException": "the value of {op} depends on the data",
}
"""What FakeTensorMode's exceptions mean, by their class. `op` is the overload that they name."""

_NUMBER_FIRST = re.compile(r"(-?\d+) (<|<=|>|>=) ([^<>=&|]+)")
_COMPARISON = re.compile(r"(\w+)\((.*)\)")
_END = re.compile(r"[\s,&|)]+(?=\S)")
"""Where an expression or a message may be cut."""


def title_of(
    signature: Signature,
    cause: Cause,
    failure: Failure | None = None,
    ops: tuple[str, ...] = (),
    control: Control | None = None,
    *,
    data_dependent: bool | None = None,
) -> str:
    """`torch.diff: at::native::diff_helper needs 2*u0 < 1`, and similar titles for failures that are not guards.

    `failure` is the displayed failure of the finding; `ops` are the functions that reach its site.
    """
    said = f"{signature.kind} at {signature.site}" if failure is None else _said(signature, cause, failure)
    op = _shortened(ops[0]) if ops else ""
    if op and not said.startswith(f"{op} "):
        said = f"{op}: {said}"
    return said + _without_data(control, data_dependent=data_dependent)


def question(expression: str) -> str:
    """A guard's expression for people. `Eq(u1, 0)` becomes `u1 == 0`. Symbols keep the names of torch's
    message. Long expressions are cut.
    """
    return _shortened(_compared(expression))


def _said(signature: Signature, cause: Cause, failure: Failure) -> str:
    observation = failure.observation
    site = "the program" if cause == "user" else str(signature.site)
    match signature.kind:
        case "crash":
            return f"capture in {observation.stage} ends the process: {_shortened(failure.evidence)}"
        case "timeout":
            return f"capture in {observation.stage} does not end: {_shortened(failure.evidence)}"
        case "pending-unbacked":
            return f"{site} makes an unbacked symint that no output has"
        case "unsupported":
            refusing = "dynamo" if site in {torch_api.DYNAMO_FILES.path.rstrip("/"), str(USER_SITE)} else site
            return f"{refusing} refuses: {_shortened(signature.anchor)}"
        case "data-dependent-output":
            return _without_value(site, decisive(observation)[1], signature.anchor)
        case "internal-error":
            return f"{site} raises {_shortened(signature.anchor)}"
    titles = oracle_of(signature.kind).titles
    if signature.kind in titles:
        return titles[signature.kind].format(site=site, evidence=_shortened(failure.evidence))
    raised = observation.raised
    if raised is None:
        return f"{site} needs a value that depends on the data"
    if signature.site == USER_SITE and cause != "user":
        site = "the binding"
    return f"{site} needs {question(raised.expression)}{WANTED.get(raised.method, '')}"


def _without_value(site: str, exception: ExceptionInfo, anchor: str) -> str:
    overload = exception.message.strip().partition("\n")[0]
    named = re.fullmatch(r"[\w:]+\.[\w.]+", overload)
    if named is None:
        return f"{site}: {_shortened(anchor)}"
    said = NO_DATA.get(exception.name, "{op} cannot be run without data").format(op=overload)
    op = ".".join(overload.split(".")[:2]).replace(".", "::", 1)
    return said if site == op or site == str(USER_SITE) else f"{site}: {said}"


def _compared(expression: str) -> str:
    """The outermost comparison as Python writes it, with a number on its right."""
    flipped = _NUMBER_FIRST.fullmatch(expression)
    if flipped is not None:
        return f"{flipped[3]} {FLIPPED[flipped[2]]} {flipped[1]}"
    match = _COMPARISON.fullmatch(expression)
    operator = COMPARISONS.get(match[1]) if match else None
    if match is None or operator is None:
        return expression
    depth, commas = 0, []
    for at, char in enumerate(match[2]):
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return expression  # `Eq(…) | Eq(…)`
        if char == "," and depth == 0:
            commas.append(at)
    if len(commas) != 1:
        return expression
    return f"{match[2][: commas[0]].strip()} {operator} {match[2][commas[0] + 1 :].strip()}"


def _shortened(text: str) -> str:
    """One line of at most `MOST` characters, cut at the end of a word or a term."""
    line = " ".join(text.split())
    if len(line) <= MOST:
        return line
    ends = [match.start() for match in _END.finditer(line, 0, MOST) if match.start() > MOST // 2]
    return f"{line[: ends[-1] if ends else MOST - 2].rstrip()} …"


def _without_data(control: Control | None, *, data_dependent: bool | None) -> str:
    if data_dependent is not False or control is None:
        return ""
    return f" (fails with {'static' if control.static == 'fails' else 'backed'} sizes, too)"
