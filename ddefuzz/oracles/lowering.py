"""The lowering oracle: inductor's code for unbacked sizes must not be worse than its code for backed sizes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Final

import msgspec

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Observation, ProgramSubject, Run, Runner, Stage, measured, not_judged
from ddefuzz.execute.worker import late
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Answer, Guard
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles import kernels
from ddefuzz.oracles.blame import OracleInput, at_guard, fewest, unknown
from ddefuzz.oracles.kernels import Kernels, kernels_in, worse_in
from ddefuzz.oracles.oracle import CAUGHT, KindRow, Oracle, OwnStage, Script, measured_in
from ddefuzz.program.code import marks_of, module_of

STAGE: Final = OwnStage(
    "lower",
    run="ddefuzz.oracles.lowering:run",
    label="inductor",
    every=117,
    turn=12,
    beside=("compile", "inductor"),
    slower=6,
    shown_by="inductor",
    hint="# With TORCH_LOGS=output_code, compare with maybe_mark_dynamic in place of mark_unbacked.",
)

MOST = 6  # how many undecided guards are tried: each needs a run of inductor, and often two


class KernelPair(msgspec.Struct, frozen=True, tag="lowered"):
    """The kernels that inductor's code calls for unbacked sizes, and for backed sizes unless guards are answered."""

    unbacked: Kernels
    backed: Kernels | None = None


def run(task: Run) -> Observation:
    """Generate inductor's code with unbacked and with backed sizes. It is not judged if one of the two fails."""
    observing = late("ddefuzz.execute.observe")
    backed = Run(msgspec.structs.replace(task.subject, backed=True), task.stage)
    if not observing.prepare(task.subject).unbacked:
        return not_judged(task, "it has no unbacked dim that could be backed")
    compiled: list[Kernels] = []
    code: list[str] = []
    observation = Observation(task.stage, task.semantics, "ok")
    for version in (task,) if task.semantics.answers else (backed, task):
        code.clear()
        observation = observing.observe_again("inductor", version, lambda capture: code.extend(capture.generated()))
        if observation.outcome != "ok" or not code:
            raised = observation.exceptions
            reason = raised[-1].message.partition("\n")[0] if raised else observation.reason
            sizes = "backed" if version is backed else "unbacked"
            return not_judged(task, f"inductor generates no code for {sizes} sizes: {reason}")
        compiled.append(kernels_in(code[0]))
    return msgspec.structs.replace(observation, measured=measured(KernelPair(compiled[-1], *compiled[:-1])))


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report the first way in which the code for unbacked sizes is worse."""
    lowered = seen.observation.measurement(KernelPair)
    worse = worse_in(lowered.unbacked, lowered.backed) if lowered is not None and lowered.backed is not None else {}
    return tuple(Failure(kind, seen.observation, evidence) for kind, evidence in worse.items())[:1]


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    """The undecided guard that decided: with its other answer, inductor's code is not worse any more. Those of inductor
    itself are tried first. Without one, the site is the first kernel that only the code for unbacked sizes calls.
    """
    lowered = measured_in(failure, KernelPair)
    backed = lowered.backed
    if backed is None:
        return unknown(seen)
    only = sorted(set(lowered.unbacked.called) - set(backed.called))
    of_kernel = Location(Site("op", None, only[0]), None, failure.kind) if only else unknown(seen)
    if not seen.text:
        return of_kernel

    def is_enough(chosen: tuple[Guard, ...]) -> bool:
        before = seen.observation.semantics
        answers = tuple(Answer(one.place, not one.fallback, one.expression) for one in chosen)
        semantics = msgspec.structs.replace(before, answers=(*answers, *before.answers))
        again = runner(Run(ProgramSubject(seen.text), STAGE.name, semantics)).measurement(KernelPair)
        return again is not None and failure.kind not in worse_in(again.unbacked, backed)

    suspects = tuple(sorted(seen.observation.guards, key=lambda one: one.place.file not in torch_api.INDUCTOR_FILES))
    blamed = fewest(suspects[:MOST], is_enough)
    return at_guard(blamed[0]) if blamed else of_kernel


_SCRIPT: Final = Script(
    needs="only torch (2.6 or later) and a C++ compiler. It prints one JSON line, and exits with",
    verdicts=(
        "inductor's code for unbacked sizes is worse than that for backed sizes, as described at EXPECTED",
        ": it is not worse",
        ": torch.compile raises, or the code is worse in another way",
        "eager PyTorch raises for the program, or there is no C++ compiler",
    ),
    body='''\
$subject

def marked_inputs(mark):
    """The inputs, with the dims marked whose sizes are dynamic."""
    inputs = make_inputs()
    $marks
    return inputs


def code_for(mark):
    """The code that inductor generates."""
    from torch._dynamo import config
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    torch._inductor.config.force_disable_caches = True
    config.capture_scalar_outputs = True
    config.capture_dynamic_output_shape_ops = True
    inputs = marked_inputs(mark)
    return run_and_get_code(torch.compile(Captured(), fullgraph=True), *inputs)[1][0]


# The rest only reads the kernels in the code.

EXPECTED = $expected

$functions
''',
    attempt="""\
Captured()(*make_inputs())
verdict = "fails otherwise"
from torch._dynamo import maybe_mark_dynamic
from torch._dynamo.decorators import mark_unbacked

unbacked, backed = kernels_in(code_for(mark_unbacked)), kernels_in(code_for(maybe_mark_dynamic))
worse = worse_in(unbacked, backed)
found = {"kind": ", ".join(worse), "kernels": str(unbacked.number)}
if EXPECTED["kind"] in worse:
    verdict = "shows"
elif not worse:
    verdict = "passes\"""",
    caught=f"""\
{CAUGHT}
if "InvalidCxxCompiler" in str(found):
    verdict = "not judged\"""",
    copied=inspect.getsource(kernels),
)


def script(text: str, _stage: Stage, failure: Failure) -> Script:
    """The script compares inductor's code for unbacked sizes with that for backed sizes."""
    lowered = measured_in(failure, KernelPair)
    program = parse(text, "<program>").program
    marks = (line.replace("mark_unbacked(", "mark(") for line in marks_of(program))
    return _SCRIPT._replace(
        expected={"kind": failure.kind, "kernels": str(lowered.unbacked.number)},
        parts={"subject": module_of(program, "inductor"), "marks": "\n    ".join(marks)},
    )


KINDS: Mapping[Kind, KindRow] = {
    kind: KindRow(meaning, title, locate, cause="avoidable", about_data=True, severity="slow", script=script)
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
            "more-passes",
            "inductor's code for unbacked sizes goes over memory in more loops than its code for backed sizes",
            "{site} makes inductor go over memory more often: {evidence}",
        ),
        (
            "not-vectorized",
            "inductor's code for unbacked sizes has no vector instructions, and its code for backed sizes has",
            "{site} keeps inductor from using vectors: {evidence}",
        ),
    )
}

ORACLE = Oracle(
    "lowering",
    "inductor's code for unbacked sizes is worse than for backed sizes",
    KINDS,
    judge,
    stages=(STAGE,),
    by_default=False,
    measures=KernelPair,
)
"""Not by default: if no guard decides, the site is the name of a generated kernel, which few programs share."""
