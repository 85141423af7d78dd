"""An oracle with a stage of its own, in one file: a program must not call one op of ATen twice.

`test_new_oracle.py` puts it into a copy of the package, and names it in `oracles.table`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from ddefuzz.classify.chain import Location
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Site
from ddefuzz.execute.protocol import Observation, Run, Runner, Stage, measured
from ddefuzz.execute.worker import late
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.blame import OracleInput, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage, Script
from ddefuzz.program.code import module_of


class Dispatched(msgspec.Struct, frozen=True, tag="dispatched"):
    """How often eager called each op."""

    times: dict[str, int]


def run(task: Run) -> Observation:
    """Count the ops that eager calls."""
    mode, prepare = late("torch.utils._python_dispatch").TorchDispatchMode, late("ddefuzz.execute.subject").prepare
    times: Counter[str] = Counter()

    class Counting(mode):  # type: ignore[misc, valid-type]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            times[str(op)] += 1
            return op(*args, **(kwargs or {}))

    prepared = prepare(task.subject)
    with Counting():
        prepared.call(*prepared.args, **prepared.kwargs)
    return Observation(task.stage, task.semantics, "ok", measured=measured(Dispatched(dict(times))))


def twice(observation: Observation) -> tuple[str, ...]:
    dispatched = observation.measurement(Dispatched)
    times = {} if dispatched is None else dispatched.times
    return tuple(sorted(op for op, number in times.items() if number > 1))


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    return tuple(
        Failure("calls-twice", seen.observation, f"{op} is called twice") for op in twice(seen.observation)[:1]
    )


def locate(failure: Failure, seen: OracleInput, runner: Runner) -> Location:
    ops = twice(failure.observation)
    return Location(Site("op", None, ops[0]), None, "twice") if ops else unknown(seen)


def facts(failure: Failure) -> Iterator[tuple[str, str]]:
    yield "called twice", ", ".join(twice(failure.observation))


_SCRIPT = Script(
    verdicts=("the program calls the op of EXPECTED twice", "", "", "it raises"),
    body="""\
$subject

EXPECTED = $expected
""",
    attempt="""\
called = []

class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        called.append(str(op))
        return op(*args, **(kwargs or {}))

inputs = make_inputs()
with Counting():
    Captured()(*inputs)
found = {"op": EXPECTED["op"], "times": called.count(EXPECTED["op"])}
verdict = "shows" if found["times"] > 1 else "passes\"""",
    copied="from torch.utils._python_dispatch import TorchDispatchMode",
)


def script(text: str, stage: Stage, failure: Failure) -> Script:
    subject = module_of(parse(text, "<program>").program, "eager").replace("$", "$$")
    return _SCRIPT._replace(expected={"op": twice(failure.observation)[0]}, parts={"subject": subject})


def snippet(text: str, stage: Stage, failure: Failure) -> str:
    return f"# {failure.evidence} by this program.\n{text}"


ORACLE = Oracle(
    "toy",
    "a program calls an op of ATen twice",
    {
        "calls-twice": KindRow(
            "eager calls one op of ATen twice",
            "{site} is called again: {evidence}",
            locate,
            cause="avoidable",
            script=script,
            snippet=snippet,
        )
    },
    judge,
    stages=(
        OwnStage("dispatch", run="ddefuzz.oracles.toy:run", label="eager's dispatcher", every=2, beside=("export",)),
    ),
    measures=Dispatched,
    facts=facts,
)
