"""The record of a failure: an observation that an oracle judged wrong, and the kind of a failed run."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ddefuzz.execute.protocol import ExceptionInfo, Observation
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.torch_api import names_of
from ddefuzz.program.sizes import CallSize

Kind: TypeAlias = str
"""The name of a kind of failures. The file of an oracle states its kinds (`oracles.oracle.KindRow`)."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An observation that an oracle judged wrong: the kind, the observation itself, and one line of evidence.

    `size` names the call that shows it, if a call does. `second` is the same run under other semantics, if the failure
    is a difference between the two. `path` are the frames that lead to the guard that an experiment blames.
    """

    kind: Kind
    observation: Observation
    evidence: str
    size: CallSize | None = None
    second: Observation | None = None
    path: tuple[Frame, ...] = ()


GUARD_EXCEPTIONS = names_of([torch_api.GUARD_ERROR])

KINDS: tuple[tuple[frozenset[str], Kind], ...] = (
    (GUARD_EXCEPTIONS, "dde"),
    (names_of([torch_api.PENDING_ERROR]), "pending-unbacked"),
    (names_of(torch_api.OUTPUT_ERRORS), "data-dependent-output"),
    (names_of([torch_api.DYNAMO_INTERNAL_ERROR]), "internal-error"),
    (names_of(torch_api.DYNAMO_REFUSALS), "unsupported"),
)
"""The kind for each class of exception, anywhere in the chain: dynamo wraps exceptions in `UserError`,
`Unsupported` or `InternalTorchDynamoError`. The first row that applies decides. Without one, the kind is an
internal error.
"""


def decisive(observation: Observation) -> tuple[Kind, ExceptionInfo]:
    """The kind of a failed observation, and the exception of its chain that decides it.

    C++ may catch a data-dependent error and quote it in another error. That removes it from the chain, but the
    recorder saw it (`Recorder.raised`). It is treated as if it were in the chain.
    """
    root = observation.exceptions[-1] if observation.exceptions else ExceptionInfo("", observation.reason)
    if observation.raised is not None and not any(e.name in GUARD_EXCEPTIONS for e in observation.exceptions):
        return "dde", root
    for names, kind in KINDS:
        for exception in observation.exceptions:
            if exception.name in names:
                return kind, exception
    return "internal-error", root
