"""Tries patches of torch: which of them captures a finding's program, and what it does to all other programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ddefuzz.answers.edits import Source
from ddefuzz.answers.experiment import Asked, ends
from ddefuzz.answers.model import PatchEvidence, Score
from ddefuzz.answers.patch import Patch, located
from ddefuzz.execute.protocol import Observation, PatchedRun, PatchedRunner, Run, Stage, Subject
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
    text = source.edited([source.replaced(node, f'int("{MARK}")')])
    return Patch("probe", patch.file, "", patch.before, text)


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
