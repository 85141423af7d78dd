"""Everything about one guard: the experiment on its programs, and the patches of torch that are tried on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from ddefuzz.answers.experiment import Asked, ends, experiment, first_guard
from ddefuzz.answers.model import Answers, Experiment, PatchEvidence, Score, unchecked
from ddefuzz.answers.patch import Patch, Source, located, patches, source_of
from ddefuzz.classify.signature import Signature
from ddefuzz.execute.protocol import Observation, PatchedRun, PatchedRunner, ProgramSubject, Run, Runner, Stage, Subject
from ddefuzz.execute.worker import late
from ddefuzz.program.sizes import CALL_SIZES, CallSize

MARK = "reached by ddefuzz"
"""The message of the error that shows that a program evaluates a branch."""


MOST_SCORED = 3
"""How many patches that are right for the first program are tried with all others."""


class TriedPatch(msgspec.Struct, frozen=True):
    """A patch that captures a finding's smallest program, with the kept programs and the samples of its ops."""

    patch: Patch
    evidence: PatchEvidence


class Refused(msgspec.Struct, frozen=True):
    """A patch that does not capture the smallest program correctly, and why."""

    form: str
    code: str
    why: str


class TriedPatches(msgspec.Struct, frozen=True):
    """The patch to propose, if any, and those that were tried and are worse."""

    best: TriedPatch | None
    refused: tuple[Refused, ...]


def try_patches(
    patches: Iterable[Patch],
    place: tuple[int, str],
    programs: Sequence[Asked],
    samples: Iterable[Asked],
    stage: Stage,
    runner: PatchedRunner,
    unchecked: frozenset[CallSize] = frozenset(),
) -> TriedPatches:
    """The first patch with which the first program is captured and agrees, and nothing else differs.

    `place` are the line and the anchor of the branch. The other programs and `samples` count if they evaluate it.
    At the sizes `unchecked`, what is captured may accept inputs that eager rejects.
    """
    program = programs[0]
    refused: list[Refused] = []
    best: TriedPatch | None = None
    scored = 0
    reaching: tuple[list[Subject], list[Subject]] | None = None
    for patch in patches:
        if scored == MOST_SCORED:
            break
        seen = runner(_run(program.subject, stage, patch))
        why = _fault(seen, unchecked)
        if why:
            refused.append(Refused(patch.form, patch.code, why))
            continue
        if reaching is None:
            probe = _probe(patch, place)
            kept = [one.subject for one in programs if _reaches(one.subject, stage, probe, runner)]
            reaching = kept, [one.subject for one in samples if _reaches(one.subject, stage, probe, runner)]
        scored += 1
        first, second = (_score(subjects, stage, patch, runner, unchecked) for subjects in reaching)
        found = TriedPatch(patch, PatchEvidence(patch.form, patch.code, first, second))
        if best is None or _wrong(found) < _wrong(best):
            if best is not None:
                refused.append(_worse(best))
            best = found
        else:
            refused.append(_worse(found))
        if best.evidence.is_right:
            break
    return TriedPatches(best, tuple(refused))


def _run(subject: Subject, stage: Stage, patch: Patch, *, eager: bool = False) -> PatchedRun:
    return PatchedRun(Run(subject, stage, calls=CALL_SIZES), patch.file, patch.after, eager)


def _fault(seen: Observation, unchecked: frozenset[CallSize] = frozenset()) -> str:
    """Why a run with a patch is not right; empty if it is."""
    if seen.outcome != "ok":
        first = seen.exceptions[-1] if seen.exceptions else None
        return f"{first.name}: {first.message.strip().partition(chr(10))[0][:160]}" if first else seen.outcome
    found = [(ends(call), call.size) for call in seen.calls]
    wrong = [(end, size) for end, size in found if end in {"differs", "refuses", "accepts"}]
    return ", ".join(f"{end} at {size}" for end, size in wrong if end != "accepts" or size not in unchecked)


def _probe(patch: Patch, place: tuple[int, str]) -> Patch:
    """The file with an error in place of the decision."""
    source = Source(patch.before)
    node = located(source, *place)
    assert node is not None
    return Patch("probe", patch.file, "", patch.before, source.edited(node, f'int("{MARK}")'))


def _reaches(subject: Subject, stage: Stage, probe: Patch, runner: PatchedRunner) -> bool:
    seen = runner(PatchedRun(Run(subject, stage), probe.file, probe.after))
    return any(MARK in error.message for error in seen.exceptions)


def _score(
    subjects: Iterable[Subject],
    stage: Stage,
    patch: Patch,
    runner: PatchedRunner,
    unchecked: frozenset[CallSize],
) -> Score:
    counts = dict.fromkeys(Score.__struct_fields__, 0)
    for subject in subjects:
        captured = runner(_run(subject, stage, patch))
        right = "stopped" if captured.outcome != "ok" else "differ" if _fault(captured, unchecked) else "agree"
        counts[right] += 1
        eager = runner(_run(subject, stage, patch, eager=True))
        counts["changed" if _fault(eager) else "same"] += 1
    return Score(**counts)


def _wrong(patch: TriedPatch) -> int:
    return sum(score.differ + score.changed for score in (patch.evidence.kept, patch.evidence.samples))


def _worse(patch: TriedPatch) -> Refused:
    found = patch.evidence
    return Refused(found.form, found.code, f"kept programs: {found.kept}; samples: {found.samples}")


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
