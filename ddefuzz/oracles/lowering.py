"""The lowering oracle: inductor's code for unbacked sizes must not be worse than its code for backed sizes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ddefuzz.classify.chain import Located
from ddefuzz.classify.classify import Classified
from ddefuzz.classify.expected import Expected
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.errors import InputError
from ddefuzz.execute.kernels import Kernels, worse_in
from ddefuzz.execute.protocol import LOWER, ProgramSubject, Run, Runner
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Answer, Guard
from ddefuzz.oracles.oracle import KindRow, Oracle
from ddefuzz.oracles.seen import Seen, at_guard, fewest, unknown

MOST = 6
"""How many undecided guards are tried: each needs a run of inductor, and often two."""


def judge(seen: Seen) -> tuple[Failure, ...]:
    """Report the first way in which the code for unbacked sizes is worse."""
    lowered = seen.observation.lowered
    found = worse_in(lowered.unbacked, lowered.backed) if lowered is not None and lowered.backed is not None else {}
    return tuple(Failure(kind, seen.observation, evidence) for kind, evidence in found.items())[:1]


def locate(failure: Failure, seen: Seen, runner: Runner) -> Located:
    """The undecided guard that decided: with its other answer, inductor's code is not worse any more. Those of inductor
    itself are tried first. Without one, the site is the first kernel that only the code for unbacked sizes calls.
    """
    found = failure.observation.lowered
    backed = found.backed if found is not None else None
    if found is None or backed is None:
        return unknown(seen)
    of_kernel = _of_kernel(failure.kind, found.unbacked, backed) or unknown(seen)
    if not seen.text:
        return of_kernel

    def is_enough(chosen: tuple[Guard, ...]) -> bool:
        before = seen.observation.semantics
        answers = tuple(Answer(one.place, not one.fallback, one.expression) for one in chosen)
        semantics = msgspec.structs.replace(before, answers=(*answers, *before.answers))
        again = runner(Run(ProgramSubject(seen.text), LOWER, semantics))
        return again.lowered is not None and failure.kind not in worse_in(again.lowered.unbacked, backed)

    suspects = tuple(sorted(seen.observation.guards, key=lambda one: one.place.file not in torch_api.INDUCTOR_FILES))
    blamed = fewest(suspects[:MOST], is_enough)
    return at_guard(blamed[0]) if blamed else of_kernel


def _of_kernel(kind: Kind, unbacked: Kernels, backed: Kernels) -> Located | None:
    """The first kernel that only the code for unbacked sizes calls."""
    only = sorted(set(unbacked.called) - set(backed.called))
    return Located(Site("op", None, only[0]), None, kind) if only else None


def expected(classified: Classified, same_program: bool) -> Expected:
    """By the kernels of inductor's code a script recognizes it."""
    del same_program
    lowered = classified.failure.observation.lowered
    if lowered is None:
        raise InputError("found no kernels in its stored failure, expected those of inductor's code")
    seen = {"kind": classified.failure.kind, "kernels": str(lowered.unbacked.number)}
    return Expected("by_kernels", seen)


KINDS: Mapping[Kind, KindRow] = {
    kind: KindRow(meaning, title, locate, expected, "avoidable", about_data=True)
    for kind, meaning, title in (
        (
            "falls-back",
            "inductor's code for unbacked sizes calls an eager op where its code for backed sizes does not",
            "{site} makes inductor fall back: {evidence}",
        ),
        (
            "more-kernels",
            "inductor's code for unbacked sizes calls more kernels than its code for backed sizes",
            "{site} makes inductor call more kernels: {evidence}",
        ),
        (
            "not-vectorized",
            "inductor's code for unbacked sizes has no vector instructions, and its code for backed sizes has",
            "{site} keeps inductor from using vectors: {evidence}",
        ),
    )
}

ORACLE = Oracle("lowering", KINDS, judge, stages=(LOWER,), by_default=False)
"""Not by default: if no guard decides, the site is the name of a generated kernel, which few programs share."""
