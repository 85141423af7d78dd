"""Properties of drawn programs, and the share of the programs of each profile that is captured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import torch

from ci.bench.command import Result, Session
from ddefuzz.campaign.tasks import CaseResult, CaseTask, run_case
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import EXPLICIT, Stage
from ddefuzz.generate.draw import Drawn, drawn_case, generator_key
from ddefuzz.generate.lockstep import REFUSALS, tolerant_eager
from ddefuzz.generate.profiles import CAPTURES, PROFILES, profile_named
from ddefuzz.ops.catalogue import DRAWN
from ddefuzz.program.evaluate import evaluate, materialize, run_step
from ddefuzz.program.model import Binary, Call, Constant, Name, Program, Unary, functions_in, names_in, walk
from ddefuzz.program.sizes import DATA_SIZES, at_data_size
from ddefuzz.show.blocks import Block, prose, table

STEPS_ON_UNBACKED = 3

SHARED_STAGES: tuple[Stage, ...] = ("aot", "export")
"""The stages in which the share of captured programs is measured."""

CASE_SECONDS = 120.0


class GenerationRecord(msgspec.Struct, frozen=True):
    """Fractions are of `draws`, from 0 to 1. `view` defines each in a row.

    `captured` has the share of the programs of each profile that is captured, by stage, if it was measured.
    """

    key: str
    draws: int
    kept_steps: float
    carried: float
    kept_and_carried: float
    valid: float
    returned_differ: float
    new_skeletons: float
    mean_steps: float
    mean_steps_on_unbacked: float
    programs_per_cpu_second: float
    callables_drawn: int
    callables_never_drawn: tuple[str, ...]
    captured: dict[str, dict[str, float]] = {}
    schema: str = "ddefuzz.bench.generation/1"


class _Traits(NamedTuple):
    """Properties of one program."""

    kept: bool
    on_unbacked: int
    valid: bool
    differs: bool


def run(session: Session, draws: int, seed: int, profile: str, captures: int, jobs: int) -> Result:
    """Measure the programs of a profile, and capture some of each."""
    profile_named(profile)
    record = measure_generation(draws, seed, profile)
    if captures:
        shares = capture_shares(PROFILES, seed, captures, jobs, session.live.update)
        record = msgspec.structs.replace(record, captured=shares)
    return Result([record], list(view(record)))


def capture_shares(
    profiles: Iterable[str], seed: int, draws: int, jobs: int, say: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """The share of the first `draws` cases of each profile that is captured, by stage. A lost worker captures none."""
    shares: dict[str, dict[str, float]] = {}
    with Pool(jobs) as pool:
        for profile in profiles:
            say(f"capturing {draws} programs of profile {profile}")
            tasks = [CaseTask(profile, seed, index, SHARED_STAGES) for index in range(draws)]
            done = [future.result() for future in [pool.submit(run_case, task, CASE_SECONDS) for task in tasks]]
            shares[profile] = shares_of([one for one in done if isinstance(one, CaseResult)], draws)
    return shares


def shares_of(results: list[CaseResult], draws: int) -> dict[str, float]:
    """The share of cases that is captured, by stage, of `draws` in all."""
    ended = [(one.stage, one.outcome) for each in results for one in each.outcomes if one.semantics == str(EXPLICIT)]
    return {stage: ended.count((stage, "ok")) / draws for stage in SHARED_STAGES}


def measure_generation(draws: int, seed: int, profile: str = "default") -> GenerationRecord:
    """Draw the first cases of a campaign and measure their properties. Only drawing is timed."""
    started = time.process_time()
    drawn = [drawn_case(profile, seed, index) for index in range(draws)]
    seconds = time.process_time() - started
    traits = [_traits(each) for each in drawn]
    called = {function for each in drawn for function in functions_in(each.program)}

    def share(count: int) -> float:
        return count / draws

    return GenerationRecord(
        key=generator_key(profile, seed),
        draws=draws,
        kept_steps=share(sum(each.kept for each in traits)),
        carried=share(sum(each.on_unbacked >= STEPS_ON_UNBACKED for each in traits)),
        kept_and_carried=share(sum(each.kept and each.on_unbacked >= STEPS_ON_UNBACKED for each in traits)),
        valid=share(sum(each.valid for each in traits)),
        returned_differ=share(sum(each.differs for each in traits)),
        new_skeletons=share(len({skeleton(each.program) for each in drawn})),
        mean_steps=share(sum(len(each.program.steps) for each in drawn)),
        mean_steps_on_unbacked=share(sum(each.on_unbacked for each in traits)),
        programs_per_cpu_second=draws / seconds,
        callables_drawn=len(called),
        callables_never_drawn=tuple(sorted(DRAWN - called)),
    )


def skeleton(program: Program) -> tuple[tuple[str, ...], ...]:
    """The ops of each step and the steps that they read from, without numbers, choices and input shapes."""
    made_by = {target: str(number) for number, step in enumerate(program.steps) for target in step.targets}
    return tuple(tuple(_skeleton_of(step.value, made_by)) for step in program.steps)


def _skeleton_of(expr: Any, made_by: Mapping[str, str]) -> Iterator[str]:
    for node in walk(expr):
        match node:
            case Name(id):
                yield made_by.get(id, "input")
            case Call(function):
                yield function
            case Binary(op) | Unary(op):
                yield op
            case Constant(path):
                yield path
            case _:
                yield type(node).__name__


def is_valid(program: Program) -> bool:
    """Whether the program runs in eager at its example size and at least one other data size."""
    others = (at_data_size(program, size) for size in DATA_SIZES)
    return _run(program) is not None and any(_run(other) is not None for other in others if other != program)


def _traits(drawn: Drawn) -> _Traits:
    program = drawn.program
    # Lockstep ran the program at one of these two sizes and at the example size.
    runs = (_run(at_data_size(program, size)) for size in ("2", "1"))
    left, right = _run(program), next((run for run in runs if run is not None), None)
    kept, valid = len(program.steps) >= drawn.requested, is_valid(program)
    if left is None or right is None:
        return _Traits(kept, 0, valid, differs=False)
    varying = {name for name in left if _size_of(left[name]) != _size_of(right[name])}
    on_unbacked = sum(not varying.isdisjoint(names_in(step.value)) for step in program.steps)
    differs = _shapes(evaluate(program.returns, left)) != _shapes(evaluate(program.returns, right))
    return _Traits(kept, on_unbacked, valid, differs)


def _run(program: Program) -> dict[str, object] | None:
    """Every value of a run by name. None if the program fails in eager."""
    try:
        with tolerant_eager():
            env: dict[str, object] = dict(materialize(program))
            for step in program.steps:
                env |= run_step(step, env)
    except REFUSALS:
        return None
    return env


def _size_of(value: object) -> object:
    """What data can decide about a value: the shapes of its tensors, and its ints."""
    return value if isinstance(value, int) else _shapes(value)


def _shapes(value: object) -> tuple[object, ...]:
    """The shapes of the tensors in a value, and the number of tensors."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    return tuple(map(_shapes, value)) if isinstance(value, tuple | list) else ()


SHARES = {
    "kept_steps": "have as many steps as requested, none of them dead code",
    "carried": f"have {STEPS_ON_UNBACKED} steps or more, without the source, that read a value whose size data "
    "decides: it differs between two data sizes",
    "kept_and_carried": "both of these; target 80%",
    "valid": "valid: eager accepts the example size and at least one of the data sizes 0, 1, 2, equal, all; target 90%",
    "returned_differ": "return tensors whose shapes differ between two data sizes; target 80%",
    "new_skeletons": "new: no earlier one has the same ops with the same data flow; target 60%",
}
"""What each fraction of the record is the share of."""


def view(record: GenerationRecord) -> Iterator[Block]:
    """A number, what it counts and, if there is one, its target."""
    yield prose("{} programs of {}", record.draws, record.key)
    drawn, never = record.callables_drawn, record.callables_never_drawn
    rows = [
        *((f"{getattr(record, name):.1%}", meaning) for name, meaning in SHARES.items()),
        (f"{record.mean_steps:.1f}", "steps a program"),
        (f"{record.mean_steps_on_unbacked:.1f}", "of them read a value whose size data decides"),
        (f"{record.programs_per_cpu_second:.0f}", "programs drawn a CPU second, both eager runs included"),
        (str(drawn), f"of the catalogue's {drawn + len(never)} callables were drawn"),
        *([("", f"never drawn: {', '.join(never)}")] if never else []),
    ]
    for profile, shares in record.captured.items():
        target = "; target 90%" if profile == CAPTURES else ""
        rows += [
            (f"{share:.1%}", f"of profile {profile} are captured in {stage}{target}") for stage, share in shares.items()
        ]
    yield table(("", "what"), rows, right=("",))
