"""The recompilation oracle: calls that differ only in sizes must share a graph, if one is right for all of them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from ddefuzz.classify.anchor import expression_shape, short_anchor
from ddefuzz.classify.chain import Location
from ddefuzz.classify.evidence import NUMBER_METHODS
from ddefuzz.classify.failure import Failure, Kind
from ddefuzz.classify.plumbing import is_framework
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.classify.site import USER_SITE, site
from ddefuzz.errors import InputError
from ddefuzz.execute.protocol import Observation, Runner, Stage, measured
from ddefuzz.instrument.events import Constraint, RaisedError
from ddefuzz.instrument.truth import parsed
from ddefuzz.ops.catalogue import parse
from ddefuzz.oracles.blame import OracleInput, unknown
from ddefuzz.oracles.oracle import KindRow, Oracle, OwnStage, Script, measured_in
from ddefuzz.program.code import callable_of, setup_of, short_value, tuple_of, values_of
from ddefuzz.program.model import Program
from ddefuzz.program.sizes import REPEATED_SIZES, at_data_size
from ddefuzz.syntax import COMPARISONS

Mode: TypeAlias = Literal["default", "dynamic", "marked", "unbacked"]
"""
default   torch.compile with its own settings: the first size is static, then automatic dynamic shapes
dynamic   torch.compile(dynamic=True)
marked    every dim that differs between the calls is marked dynamic
unbacked  every dim that differs between the calls is marked unbacked; dims of one size share a symbol
"""

MODES: tuple[Mode, ...] = get_args(Mode)

MODE_OF: Final[Mapping[Stage, Mode]] = {"recompile": "default", "recompile-dynamic": "dynamic"}
"""The mode of torch.compile in each stage of this oracle."""

_DYNAMIC: Final[Mapping[Mode, str]] = {"default": "None", "dynamic": "True"}
"""The argument `dynamic` of torch.compile. With None, torch's own default, the first graph is static."""

KIND: Kind = "recompiles"

_NAME: Mapping[str, ast.cmpop] = {"Eq": ast.Eq(), "Ne": ast.NotEq()}  # sympy's names of comparisons

_FROM: Mapping[type[ast.cmpop], tuple[int, ...]] = {
    ast.Eq: (0, 1),
    ast.NotEq: (0, 1),
    ast.Lt: (1, 2),
    ast.GtE: (1, 2),
    ast.LtE: (0, 1),
    ast.Gt: (0, 1),
}
"""The numbers that a comparison has if it separates the sizes 0 and 1 from others, or from each other."""


class CallSequence(msgspec.Struct, frozen=True, omit_defaults=True, tag="repeated"):
    """What a sequence of calls did. `compiled` are the calls that compiled something, by their number.

    `allowed` is the number of compilations that the policy allows, `shareable` are the calls that could have shared a
    graph. `guard` is the guard that was false at the first call that should have reused a graph, `failed` the same with
    the stacks of the code that made it; without `failed`, it is an equality of two sizes that torch assumes because
    they are the same in one call. `error` is what ended the sequence, `raised` the data-dependent error of it.
    """

    compiled: tuple[int, ...]
    allowed: int
    shareable: tuple[tuple[int, ...], ...] = ()
    guard: str = ""
    failed: Constraint | None = None
    error: str = ""
    raised: RaisedError | None = None

    @property
    def is_above(self) -> bool:
        """Whether more was compiled than the policy allows."""
        return len(self.compiled) > self.allowed


def judge(seen: OracleInput) -> tuple[Failure, ...]:
    """Report more compilations than the policy allows, if a guard over sizes is the reason."""
    repeated = seen.observation.measurement(CallSequence)
    if repeated is None or not repeated.is_above or repeated.failed is None or asks_for_0_or_1(repeated.guard):
        return ()
    return (Failure(KIND, seen.observation, _said(seen.observation, repeated)),)


def asks_for_0_or_1(guard: str) -> bool:
    """Whether a guard asks if a computed size is 0 or 1. torch tells such sizes apart on purpose, as those of arguments
    (`recompilation_run.POLICY`). `Eq(Mod(n, 4), 0)` asks whether one number divides another.
    """
    match parsed(guard):
        case ast.Call(ast.Name(name), [left, right], []) if name in _NAME:
            compared, number, operator = left, right, _NAME[name]
        case ast.Compare(ast.Constant() as left, [operator], [right]) if type(operator) in COMPARISONS:
            compared, number, operator = right, left, COMPARISONS[type(operator)].turned()
        case ast.Compare(left, [operator], [right]):
            compared, number = left, right
        case _:
            return False
    if not isinstance(number, ast.Constant) or isinstance(compared, ast.Name | ast.Constant):
        return False
    smallest = _FROM.get(type(operator), ())
    divides = isinstance(compared, ast.Call) and ast.unparse(compared.func) in {"Mod", "PythonMod"}
    return number.value in smallest and not (divides and number.value == 0)


def _said(observation: Observation, repeated: CallSequence) -> str:
    sizes = ", ".join(call.size for call in observation.calls)
    return f"{repeated.guard}: compiles {len(repeated.compiled)} times at sizes {sizes}; {repeated.allowed} would do"


def locate(failure: Failure, seen: OracleInput, _runner: Runner) -> Location:
    """The code that made the guard which was false at a call that should have reused a graph."""
    repeated = measured_in(failure, CallSequence)
    if repeated.failed is None:
        return unknown(seen)
    place, frame = site(as_raised(repeated.failed))
    in_torch = place.language == "Python" and is_framework(frame)
    return Location(place, frame, short_anchor(frame) if in_torch else expression_shape(repeated.guard))


def as_raised(constraint: Constraint) -> RaisedError:
    """A guard as the record in which sites are looked for."""
    return RaisedError(
        constraint.text, constraint.method, constraint.place, constraint.python, constraint.traced, constraint.native
    )


def keep(failure: Failure) -> Failure:
    """The failure with the fewest first calls that show it, one compilation more than the policy allows.

    What the later calls do does not change what the first ones did.
    """
    observation = failure.observation
    repeated = measured_in(failure, CallSequence)
    if not repeated.is_above:
        return failure
    most = repeated.allowed + 1
    number = repeated.compiled[most - 1] + 1
    fewer = msgspec.structs.replace(repeated, compiled=repeated.compiled[:most])
    kept = msgspec.structs.replace(observation, calls=observation.calls[:number], measured=measured(fewer))
    return msgspec.structs.replace(failure, observation=kept, evidence=_said(kept, fewer))


def cause(failure: Failure, _blamed: Site) -> Cause:
    """Whose code made the guard, and whether it asked for a plain number."""
    repeated = measured_in(failure, CallSequence)
    if repeated.failed is None:
        return "unclassified"
    place, _ = site(as_raised(repeated.failed))
    if place == USER_SITE:
        return "user"
    return "int-required" if repeated.failed.method in NUMBER_METHODS else "avoidable"


_SCRIPT: Final = Script(
    verdicts=(
        "more calls compile a graph than needed (see EXPECTED)",
        ": no more calls compile a graph than needed",
        ": torch.compile raises",
        "eager PyTorch raises for the program",
    ),
    body='''\
$function


def inputs_of_calls():
    """The inputs of each call. They differ in sizes and values alone."""
    return [$calls]


EXPECTED = $expected


def compiling_calls():
    """How many of the calls compile a graph."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(program, backend=backend, dynamic=$dynamic)
    number = 0
    for inputs in inputs_of_calls():
        before = len(graphs)
        compiled(*inputs)
        number += len(graphs) > before
    return number
''',
    start='verdict, found = "not judged", None',
    attempt="""\
for inputs in inputs_of_calls():
    program(*inputs)
verdict = "fails otherwise"
number = compiling_calls()
found = {"compilations": str(number)}
verdict = "shows" if number > int(EXPECTED["needed"]) else "passes\"""",
)


def script(text: str, stage: Stage, failure: Failure) -> Script:
    """The script counts the compilations over calls at the sizes of the failure."""
    repeated, program = _counted(stage, failure), parse(text, "<program>").program
    calls = [values_of(at_data_size(program, call.size), "compile") for call in failure.observation.calls]
    return _SCRIPT._replace(
        expected={"compilations": str(len(repeated.compiled)), "needed": str(repeated.allowed)},
        parts={
            "function": "\n".join(_function(program)),
            "calls": "".join(f"({''.join(f'{value}, ' for value in values)}), " for values in calls),
            "dynamic": _DYNAMIC[MODE_OF[stage]],
        },
    )


def snippet(text: str, stage: Stage, failure: Failure) -> str:
    """The lines that call a compiled function at those sizes, and count its compilations."""
    repeated, program = _counted(stage, failure), parse(text, "<program>").program
    called = [map(short_value, at_data_size(program, call.size).inputs) for call in failure.observation.calls]
    lines = [
        "import torch",
        "from torch._dynamo.testing import CompileCounter",
        "",
        *_function(program),
        "",
        "counter = CompileCounter()",
        f"compiled = torch.compile(program, backend=counter, dynamic={_DYNAMIC[MODE_OF[stage]]})",
        *(f"compiled(*{tuple_of(list(values))})" for values in called),
        f"assert counter.frame_count <= {repeated.allowed}, counter.frame_count",
    ]
    return "\n".join(lines) + "\n"


def _function(program: Program) -> list[str]:
    return [*setup_of(program), *callable_of(program, [item.name for item in program.inputs], [])]


def _counted(stage: Stage, failure: Failure) -> CallSequence:
    if stage not in MODE_OF:
        raise InputError(f"found the stage {stage}, expected one of {', '.join(MODE_OF)}")
    return measured_in(failure, CallSequence)


KINDS: Mapping[Kind, KindRow] = {
    KIND: KindRow(
        "torch.compile compiles a function again for other sizes, and nothing in it needs that",
        "{site} makes torch.compile compile again: {evidence}",
        locate,
        cause=cause,
        about_data=True,
        severity="compiles again",
        script=script,
        snippet=snippet,
    ),
}

ORACLE = Oracle(
    "recompilation",
    "torch.compile compiles again for other sizes without need",
    KINDS,
    judge,
    REPEATED_SIZES,
    keep,
    stages=tuple(
        OwnStage(
            stage,
            run="ddefuzz.oracles.recompilation_run:run",
            label=label,
            every=23,
            turn=5,
            beside=("compile", "aot", "inductor"),
            owners="module: dynamo",
        )
        for stage, label in zip(MODE_OF, ("torch.compile", "torch.compile(dynamic=True)"), strict=True)
    ),
    measures=CallSequence,
)
