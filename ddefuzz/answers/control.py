"""Does the control runs in a worker: the smallest program with static sizes, then with backed sizes."""

from __future__ import annotations

from collections.abc import Callable

from ddefuzz.answers.control_forms import static
from ddefuzz.answers.control_model import NOT_JUDGED, Control, ControlOutcome
from ddefuzz.classify.chain import lasting
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.kind import decisive
from ddefuzz.execute.protocol import APART, SIZE_OBLIVIOUS, ProgramSubject, Run, Runner
from ddefuzz.oracles.capture import classify
from ddefuzz.oracles.program import look
from ddefuzz.oracles.table import oracle_of, row_of
from ddefuzz.program.model import Program, functions_in
from ddefuzz.program.resize import at_data_size
from ddefuzz.program.sizes import CallSize
from ddefuzz.program.text import print_program


def control(
    program: Program,
    shown: Failure,
    ops: tuple[str, ...],
    without_sources: Callable[[Program], Program | None],
    runner: Runner,
) -> Control:
    """Capture `program` in the stage and semantics of its failure, with static and with backed sizes.

    `ops` are the functions that fail. If all of them are sources of data-dependent sizes, the program has no
    such variant.
    """
    if shown.observation.stage in APART:  # other sizes, or repetition, are what shows it
        return NOT_JUDGED
    called = shown.observation.calls
    if called:  # the failure shows at this size, so make it the example size
        program = at_data_size(program, called[0].size)
    form = without_sources(program) if not row_of(shown.kind).deadly else None
    if form is None or _lost(program, form, ops):
        return NOT_JUDGED
    backed = ProgramSubject(print_program(form), backed=True)
    return Control(
        static=_outcome(ProgramSubject(print_program(static(form))), shown, runner),
        backed=_outcome(backed, shown, runner),
    )


def _lost(program: Program, form: Program, ops: tuple[str, ...]) -> bool:
    before, after = (set(functions_in(one)).intersection(ops) for one in (program, form))
    return bool(before) and not after


def _outcome(subject: ProgramSubject, shown: Failure, runner: Runner) -> ControlOutcome:
    calls: tuple[CallSize, ...] = ("example",) if shown.observation.calls else ()
    own = oracle_of(shown.kind)
    run = Run(subject, shown.observation.stage, shown.observation.semantics, calls=calls)
    (seen,) = look(run, runner, (SIZE_OBLIVIOUS,) if own.compares else ())
    if seen.observation.outcome in {"crash", "timeout", "not-judged"}:
        return "not judged"
    judging = (oracle_of("dde"), *((own,) if own.calls else ()))
    failures = [failure for oracle in judging for failure in oracle.judge(seen)]
    if not failures:
        return "passes"
    return "fails" if any(_same(failure, shown) for failure in failures) else "fails otherwise"


def _same(failure: Failure, shown: Failure) -> bool:
    """Whether two failures are the same: by signature. Errors other than guards may also have the same
    exception and message. For a wrong captured program the kind is enough: the guard that is blamed may be gone.
    """
    if oracle_of(shown.kind).calls:
        return failure.kind == shown.kind
    if failure.kind != shown.kind:
        return False
    if classify(failure).signature == classify(shown).signature:
        return True
    if row_of(shown.kind).about_data:
        return False
    _, seen = decisive(failure.observation)
    _, known = decisive(shown.observation)
    return (seen.name, lasting(seen.message)) == (known.name, lasting(known.message))
