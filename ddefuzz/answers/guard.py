"""Everything about one guard: the experiment on its programs, and the patch of torch's source."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from ddefuzz.answers.experiment import Asked, experiment, first_guard
from ddefuzz.answers.installed import source_of
from ddefuzz.answers.model import Answers, Experiment
from ddefuzz.answers.patch import patches
from ddefuzz.answers.tried_patches import TriedPatches, try_patches
from ddefuzz.answers.verdict import unchecked
from ddefuzz.classify.signature import Signature
from ddefuzz.execute.protocol import PatchedRunner, ProgramSubject, Runner, Stage
from ddefuzz.execute.worker import late

MOST = 6
"""Samples of one op."""

MADE = 30
"""Samples of one op that are made, to choose unlike ones from."""


class SampleRequest(msgspec.Struct, frozen=True):
    """The functions by which programs reach a site, as findings name them: `torch.roll`, `Tensor.roll`."""

    functions: tuple[str, ...]


def samples(request: SampleRequest) -> tuple[str, ...]:
    """The programs of all samples, as a task of a worker."""
    return tuple(chain.from_iterable(islice(_samples(name), MOST) for name in request.functions))


def _samples(function: str) -> Iterator[str]:
    opinfo, variants = late("ddefuzz.generate.opinfo"), late("ddefuzz.generate.variants")
    text, spread = late("ddefuzz.program.text"), late("ddefuzz.generate.make")
    for name in (name for name in opinfo.entries() if _is_of(name, function)):
        for dtype in opinfo.dtypes(name)[:1]:
            for program in spread.spread(opinfo.samples(name, dtype, most=MADE)):
                for variant in variants.variants(program, ("all",)):
                    if opinfo.accepts(variant.program):
                        yield text.print_program(variant.program)


def _is_of(entry: str, function: str) -> bool:
    """Whether an entry of OpInfo has the samples of a function: `add.alpha` is one of `torch.add`."""
    short = function.removeprefix("torch.").removeprefix("Tensor.").removeprefix("ops.aten.").rstrip("_")
    return entry == short or entry.startswith(f"{short}.")


MOST_KEPT = 6
"""How many kept programs that call the same functions are tried, besides those of the finding itself."""


class Runners(NamedTuple):
    """The functions that run programs, run them with a change of torch, and make torch's sample calls."""

    observe: Runner
    observe_patched: PatchedRunner
    samples: Callable[[SampleRequest], tuple[str, ...]]


class GuardResult(NamedTuple):
    """The results for one guard. `patches` is None if no patch was asked for, or the guard is not in torch's Python."""

    experiment: Experiment
    patches: TriedPatches | None

    def evidence(self, torch: str) -> Answers:
        """What a finding keeps."""
        found = self.experiment
        best = self.patches.best if self.patches is not None else None
        return Answers(
            verdict=found.verdict,
            stage=found.stage,
            torch=torch,
            programs=len(found.programs),
            tallies=found.tallies,
            patch=None if best is None else best.evidence,
        )


def answer_guard(
    own: Iterable[Asked],
    others: Iterable[Asked],
    functions: tuple[str, ...],
    stages: Sequence[Stage],
    signature: Signature | None,
    runners: Runners,
    *,
    patching: bool,
) -> GuardResult:
    """Answer the guard of the first of a finding's `own` programs. `functions` are those that reach it.

    `others` are kept programs. Those that come to the same guard are part of the experiment, those that evaluate the
    same branch are run with its patch. The first of `stages` is used in which the first program shows `signature`,
    else the last one.
    """
    programs = [*own, *others]
    stage = next((one for one in stages[:-1] if _shows(programs[0], one, signature, runners)), stages[-1])
    found = experiment(programs, stage, runners.observe)
    if not patching or found.site is None or found.site.language != "Python" or found.site.module is None:
        return GuardResult(found, None)
    source = source_of(found.site.module)
    candidates = () if source is None else tuple(patches(source, found.site.module, found.line, found.code))
    if not candidates:
        return GuardResult(found, TriedPatches(None, ()))
    texts = runners.samples(SampleRequest(functions))
    samples = [Asked(f"sample {number}", ProgramSubject(one)) for number, one in enumerate(texts)]
    place = (found.line, found.code)
    tried = try_patches(
        candidates, place, programs, samples, stage, runners.observe_patched, unchecked(found.programs[0])
    )
    return GuardResult(found, tried)


def _shows(asked: Asked, stage: Stage, signature: Signature | None, runners: Runners) -> bool:
    found = first_guard(asked.subject, stage, runners.observe)
    return found is not None and found[0] == signature


def calling(functions: Iterable[str], programs: Iterable[tuple[str, str]]) -> list[Asked]:
    """Of programs with a name each, the first that call one of these functions, each text once."""
    names = "|".join(sorted({re.escape(name.rpartition(".")[2].rstrip("_")) for name in functions}))
    calls = re.compile(rf"\.(?:{names})_?\(")
    found: dict[str, Asked] = {}
    for name, text in programs:
        if names and text not in found and calls.search(text):
            found[text] = Asked(name, ProgramSubject(text))
    return list(found.values())[:MOST_KEPT]
