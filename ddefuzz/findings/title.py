"""The default title of a finding: the op, the call site, and what its kind says."""

from __future__ import annotations

from ddefuzz.answers.model import Control
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature
from ddefuzz.classify.wording import shortened
from ddefuzz.oracles.table import row_of


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
    op = shortened(ops[0]) if ops else ""
    if op and not said.startswith(f"{op} "):
        said = f"{op}: {said}"
    return said + _without_data(control, data_dependent=data_dependent)


def _said(signature: Signature, cause: Cause, failure: Failure) -> str:
    title = row_of(signature.kind).title
    if not isinstance(title, str):
        return title(Classified(failure, signature, cause, ""))
    return title.format(
        site="the program" if cause == "user" else signature.site,
        anchor=shortened(signature.anchor),
        stage=failure.observation.stage,
        evidence=shortened(failure.evidence),
    )


def _without_data(control: Control | None, *, data_dependent: bool | None) -> str:
    if data_dependent is not False or control is None:
        return ""
    return f" (fails with {'static' if control.static == 'fails' else 'backed'} sizes, too)"
