"""From what an oracle calls wrong to a sighting, which is what a campaign or a sweep records."""

from __future__ import annotations

from ddefuzz.classify.chain import op_name
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.op import failing_ops
from ddefuzz.findings.model import Sighting
from ddefuzz.ops import catalogue
from ddefuzz.program.model import functions_in


def sighting(failure: Classified, program: str | None, verdict: str, torch: str) -> Sighting:
    """One sighting; `program` is None where there was none yet."""
    return Sighting(
        signature=failure.signature,
        cause=failure.cause,
        failure=failure.failure,
        verdict=verdict,
        ops=_ops(failure, program or ""),
        torch=torch,
        program=program,
    )


def _ops(failure: Classified, program: str) -> tuple[str, ...]:
    """The function of the program that leads to the site; of a captured program that is wrong, the op blamed."""
    site = failure.signature.site
    if failure.cause == "wrong-capture" and site.language == "op" and program:
        called = functions_in(catalogue.parse(program, "<program>").program)
        return tuple(name for name in called if op_name(name) == site.function)[:1]
    return failing_ops(failure.failure.observation, program)
