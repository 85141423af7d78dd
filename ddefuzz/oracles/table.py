"""The table of oracles, and look-ups of a kind of failure in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module

from ddefuzz.classify.cause import Classification
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.signature import Signature
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import STAGES, Runner, Stage
from ddefuzz.internal import guarded
from ddefuzz.oracles import capture
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.oracle import SEVERITIES, KindRow, Oracle, OwnStage, attributed, measured_in
from ddefuzz.program.sizes import CALL_SIZES, CallSize

NAMES: tuple[str, ...] = (
    "capture",
    "agreement",
    "specialization",
    "assertions",
    "mechanism",
    "recompilation",
    "growth",
    "relations",
    "lowering",
    "keys",
)
"""All oracles, in the order in which their failures are reported. Each is the module of this name."""

ORACLES: tuple[Oracle, ...] = tuple(import_module(f"ddefuzz.oracles.{name}").ORACLE for name in NAMES)

OF_PROGRAMS: tuple[str, ...] = tuple(oracle.name for oracle in ORACLES if oracle.of_programs)
"""The oracles that judge programs and models."""

BY_DEFAULT: tuple[str, ...] = tuple(oracle.name for oracle in ORACLES if oracle.by_default)
"""The oracles of a campaign that chooses none."""

APART: tuple[str, ...] = tuple(oracle.name for oracle in ORACLES if oracle.stages and oracle.of_programs)
"""The oracles of programs with stages of their own. A check uses them only if they are chosen."""


def check_choice(what: str, names: Sequence[str], known: Iterable[str], *, some: bool = False) -> None:
    """Raises `InputError` for a name that is not known and, if there have to be `some`, where there is none."""
    wrong = [repr(name) for name in names if name not in tuple(known)] or (["none"] if some and not names else [])
    if wrong:
        raise InputError(f"{what}: found {wrong[0]}, expected some of {', '.join(known)}")


def stages() -> tuple[Stage, ...]:
    """All stages: the captures, then those that oracles bring."""
    return (*STAGES, *(stage.name for oracle in ORACLES for stage in oracle.stages))


def own_stage(name: Stage | None) -> OwnStage | None:
    """The stage of this name that an oracle brings; None if none does."""
    return next((stage for oracle in ORACLES for stage in oracle.stages if stage.name == name), None)


def check_stored(kind: Kind, failures: Iterable[Failure]) -> None:
    """Raises `InputError` for a failure that the oracle of a finding's kind cannot have reported for it."""
    oracle = oracle_of(kind)
    # A process may end in any stage.
    known = tuple(stage for stage in stages() if oracle.kinds[kind].deadly or oracle.is_for(stage))
    for failure in failures:
        if failure.kind != kind:
            raise InputError(f"found a stored failure of kind {failure.kind!r}, expected {kind!r}")
        for observation in filter(None, (failure.observation, failure.second)):
            if observation.stage not in known:
                raise InputError(f"found the stage {observation.stage!r}, expected one of {', '.join(known)}")
        if oracle.measures is not None:
            measured_in(failure, oracle.measures)
        elif (measured := failure.observation.measured) is not None:
            raise InputError(f"found a measurement of type {measured.get('type')!r}, expected none of a {kind}")


def kinds() -> dict[Kind, KindRow]:
    """All kinds of failures."""
    return {kind: row for oracle in ORACLES for kind, row in oracle.kinds.items()}


def oracle_of(kind: Kind) -> Oracle:
    """The oracle that reports a kind. Raises `InputError` if none does."""
    for oracle in ORACLES:
        if kind in oracle.kinds:
            return oracle
    raise InputError(f"found the kind {kind!r}, expected one of {', '.join(kinds())}")


def row_of(kind: Kind) -> KindRow:
    """The row of a kind."""
    return oracle_of(kind).kinds[kind]


def severity_rank(kind: str) -> int:
    """The place of a kind among `SEVERITIES`, the worst first. Kinds that are not known come last."""
    row = kinds().get(kind)
    return len(SEVERITIES) if row is None else SEVERITIES.index(row.severity)


def stored(failure: Failure, signature: Signature) -> Classification:
    """A failure that a finding stores. Nothing is run: only failed captures are classified by the rules again."""
    oracle = oracle_of(failure.kind)
    cause = oracle.kinds[failure.kind].cause
    if cause is None:
        return capture.classify(failure)
    return Classification(failure, signature, cause(failure, signature.site) if callable(cause) else cause, oracle.name)


def calls_of(names: Iterable[str]) -> tuple[CallSize, ...]:
    """The sizes at which the named oracles need calls."""
    needed = {size for oracle in ORACLES if oracle.name in set(names) for size in oracle.calls}
    return tuple(size for size in CALL_SIZES if size in needed)


def comparing(names: Iterable[str]) -> tuple[str, ...]:
    """The named oracles that need the run under other semantics too."""
    return tuple(oracle.name for oracle in ORACLES if oracle.name in set(names) and oracle.compares)


def shows_failure(seen: OracleInput, names: Iterable[str] = NAMES) -> bool:
    """Whether one of the named oracles reports a failure for an observation. It is not located."""
    stage = seen.observation.stage
    return any(one.name in set(names) and one.is_for(stage) and bool(one.judge(seen)) for one in ORACLES)


def classified(seen: OracleInput, runner: Runner, names: Iterable[str] = NAMES) -> tuple[Classification, ...]:
    """The failures that the named oracles report for one observation, each with its site.

    An exception of ddefuzz in one of them is noted, and leaves the failures of the others.
    """
    stage, failures = seen.observation.stage, list[Classification]()
    for oracle in (one for one in ORACLES if one.name in set(names) and one.is_for(stage)):
        with guarded(stage), guarded(f"the oracle {oracle.name}"):
            for failure in oracle.judge(seen):
                with guarded(failure.kind):
                    failures.append(attributed(oracle, failure, seen, runner))
    return tuple(failures)
