"""A planted fault for each kind of failure: a change of torch, or of what the hooks answer, that makes it occur."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ddefuzz.classify.failure import Kind
from ddefuzz.execute.pool import Pool
from ddefuzz.execute.protocol import (
    EXPLICIT,
    SIZE_OBLIVIOUS,
    CallableSubject,
    Observation,
    Run,
    Semantics,
    Stage,
    Subject,
    subject_of,
)
from ddefuzz.instrument.events import Answer, Fault
from ddefuzz.keys.case import KeyCase, Options, PropertyName, TensorSpec, print_key
from ddefuzz.oracles.blame import OracleInput
from ddefuzz.oracles.keys import KIND_OF
from ddefuzz.oracles.oracle import Oracle
from ddefuzz.oracles.program import look, observe
from ddefuzz.program.sizes import CALL_SIZES, REPEATED_SIZES, CallSize
from tests.oracles import test_growth, test_lowering, test_mechanism, test_planted_assertions, test_recompilation
from tests.oracles.planted_growth import quadratic
from tests.oracles.planted_lowering import falling_back, loops_not_fused, never_fused, without_vectors
from tests.oracles.planted_relations import FAULTS

HEADER = "# ddefuzz program v1\n# inputs: "
NONZERO = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "6"]):
    return torch.relu(torch.nonzero(x))
"""
CHECKED = f"""{HEADER}x = normal; mask = trues(3)
def program(x: Float32[Tensor, "6 4"], mask: Bool[Tensor, "6"]):
    kept = x[mask]
    torch._check(kept.shape[0] <= 3)
    return kept + 1
"""
Patch = pytest.MonkeyPatch


class Planted(NamedTuple):
    """A program in a stage with a fault, called at these sizes. The text is that of a program, or user's code.

    `plant` changes torch. `semantics` has the faults that the hooks plant, chosen by a run without.
    """

    text: str
    stage: Stage
    plant: Callable[[Patch], AbstractContextManager[None] | None] = lambda patch: None
    semantics: Callable[[Observation], Semantics] = lambda healthy: EXPLICIT
    calls: tuple[CallSize, ...] = ()


@contextmanager
def seen(planted: Planted, oracle: Oracle, patch: Patch, folder: Path) -> Iterator[OracleInput]:
    """What a run with the fault does. The fault is there until this is left."""
    run = Run(_subject(planted.text, folder), planted.stage, calls=planted.calls)
    semantics = planted.semantics(observe(run))
    with planted.plant(patch) or nullcontext():
        faulty = Run(run.subject, run.stage, semantics, calls=run.calls)
        (found,) = look(faulty, observe, (SIZE_OBLIVIOUS,) if oracle.compares else ())
        yield found


def _subject(text: str, folder: Path) -> Subject:
    if text.startswith(HEADER[:9]):
        return subject_of(text)
    path = folder / "code.py"
    path.write_text(text)
    return CallableSubject(str(path), name="program")


class InWorker(NamedTuple):
    """User code that ends its worker, or does not end, while it is captured or in the captured program."""

    name: str
    limit: float = 60.0


ENDS = """\
import ctypes, torch
@torch.library.custom_op("ends::{op}", mutates_args=())
def {op}(x: torch.Tensor) -> torch.Tensor:
    {how}
{op}.register_fake(torch.empty_like)
"""
DIES, LASTS = "ctypes.string_at(0)", "sum(range(10**12))"
CODE = f"""\
{ENDS.format(op="dies", how=DIES)}
{ENDS.format(op="lasts", how=LASTS)}
def capture_dies(x):
    return {DIES} if torch.compiler.is_compiling() else x + 1
def capture_lasts(x):
    return {LASTS} if torch.compiler.is_compiling() else x + 1
def call_dies(x):
    return dies(x) if torch.compiler.is_compiling() else x + 1
def call_lasts(x):
    return lasts(x) if torch.compiler.is_compiling() else x + 1
example_args = (torch.ones(3),)
"""


def lost(planted: InWorker, path: str, pool: Pool) -> OracleInput:
    """What is known of a run whose worker ended. `path` is a file with `CODE`."""
    run = Run(CallableSubject(path, name=planted.name), "export", calls=("example",))
    return OracleInput("", pool.observe(run, planted.limit))


def withheld(healthy: Observation) -> Semantics:
    return Semantics(without=(healthy.guards[0].place,))


def answered(expression: str, function: str) -> Callable[[Observation], Semantics]:
    def semantics(healthy: Observation) -> Semantics:
        guard = next(one for one in healthy.guards if (one.expression, one.function) == (expression, function))
        return Semantics(answers=(Answer(guard.place, not guard.fallback, guard.expression),))

    return semantics


def asserted(healthy: Observation) -> Semantics:
    guard = next(one for one in healthy.guards if one.expression == "Eq(u0, 0)")
    return Semantics(faults=(Fault(guard.place, "add assertion", 1),))


def nonzero_fails(error: Callable[..., Exception]) -> Callable[[Patch], None]:
    def fake(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        raise error(func)

    def plant(patch: Patch) -> None:
        patch.setitem(fake_impls.op_implementations_dict, torch.ops.aten.nonzero.default, fake)

    return plant


def relu_says_other_strides(patch: Patch) -> None:
    """The fake kernel of relu makes a transposed tensor."""

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty_strided(x.shape, (1, x.shape[0]))

    patch.setitem(torch._decomp.decomposition_table, torch.ops.aten.relu.default, transposed)


def relu_is_skipped(patch: Patch) -> None:
    patch.setattr(torch, "relu", torch._dynamo.disable(torch.relu))  # type: ignore[no-untyped-call]


def one_more_symbol(patch: Patch) -> None:
    """Each op that makes an unbacked symbol makes another one, which nothing has."""
    env = torch.fx.experimental.symbolic_shapes.ShapeEnv
    make = env.create_unbacked_symint
    patch.setattr(env, "create_unbacked_symint", lambda self, *args: (make(self, *args), make(self, *args))[1])


def strided_otherwise(patch: Patch) -> None:
    """`torch.relu` of dynamo's graph gives other strides."""

    def change(graph: torch.fx.Graph, _: Any) -> None:
        node = next(one for one in graph.nodes if one.target is torch.relu)
        node.target = relu

    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).t().contiguous().t()

    test_planted_assertions.plant_in_dynamo(patch, change)


def unchecked(patch: Patch) -> None:
    """`torch._check` checks nothing while a program is captured."""
    check = torch._check
    patch.setattr(torch, "_check", lambda *args: None if torch.compiler.is_compiling() else check(*args))  # type: ignore[no-untyped-call]


def in_dynamo(change: test_planted_assertions.Change) -> Callable[[Patch], None]:
    return lambda patch: test_planted_assertions.plant_in_dynamo(patch, change)


def narrowed(patch: Patch) -> None:
    test_planted_assertions.plant_in_symbols(
        patch, lambda env, symbol: env._update_var_to_range(symbol, ValueRanges(2, int_oo))
    )


def abs_asks_for_sizes(patch: Patch) -> None:
    """`torch.abs` asks for each of the sizes at which it is called."""
    absolute = torch.abs

    def planted(x: torch.Tensor) -> torch.Tensor:
        for size in (5, 7, 9, 11):
            if x.shape[0] == size:
                return absolute(x)
        return absolute(x)

    patch.setattr(torch, "abs", planted)


MESSAGE = """\
import torch
def program(x, mask):
    kept = x[mask]
    torch._check(kept.shape[0] <= 4, lambda: "four rows at most")
    return kept + 1
example_args = (torch.ones(6, 4), torch.arange(6) < 3)
"""
STRIDED = f'{HEADER}x = normal\ndef program(x: Float32[Tensor, "u0 4"]):\n    return torch.relu(x)\n'
TWO_LOOPS = """\
# ddefuzz program v1
# inputs: x = normal
def program(x: Float32[Tensor, "u0=64 64"]):
    t0 = torch.relu(x)
    t1 = torch.exp(x)
    return (t0, t1)
"""
TWO_RESULTS = f"""{HEADER}x = normal
def program(x: Float32[Tensor, "u0=64 64"]):
    t0 = torch.relu(x)
    return (t0, t0.sum(1))
"""
CAT, NARROWED = test_mechanism.TEXT, test_planted_assertions.CHECKED
SCALAR = TensorSpec((), ())
WRONG_KEYS: tuple[tuple[str, PropertyName, tuple[TensorSpec, ...]], ...] = (
    ("returns_list", "gives-a-key", (SCALAR,)),
    ("asks_sizes", "adds-no-guard", (TensorSpec((2,), (1,), kind="fake"),)),
    ("forgets_strides", "tells-apart", (TensorSpec((2,), (0,)), TensorSpec((2,), (1,)))),
    ("tells_offset", "shares", (SCALAR, TensorSpec((), (), offset=4))),
    ("keeps_tensor", "holds-no-tensor", (SCALAR,)),
    ("hashes_text", "same-in-other-process", (SCALAR,)),
)
KEY_CASES = tuple(
    KeyCase(f"ddefuzz.keys.planted:{function}", violates, Options(), tensors)
    for function, violates, tensors in WRONG_KEYS
)
"""A case for each planted key function. The fault is in the function, and not in torch."""

PLANTS: Mapping[Kind, Planted | InWorker] = {
    "dde": Planted(CAT, "export", semantics=withheld),
    "pending-unbacked": Planted(NONZERO, "export", one_more_symbol),
    "data-dependent-output": Planted(NONZERO, "export", nonzero_fails(DataDependentOutputException)),
    "unsupported": Planted(NONZERO, "compile", relu_is_skipped),
    "crash": InWorker("capture_dies"),
    "timeout": InWorker("capture_lasts", 6.0),
    "crash-in-call": InWorker("call_dies"),
    "timeout-in-call": InWorker("call_lasts", 6.0),
    "internal-error": Planted(NONZERO, "export", nonzero_fails(lambda func: RuntimeError("planted"))),
    "wrong-result": Planted(CAT, "export", semantics=answered("Eq(u0, 0)", "cat"), calls=CALL_SIZES),
    "wrong-layout": Planted(STRIDED, "compile", strided_otherwise, calls=("2",)),
    "wrong-meta": Planted(STRIDED, "export", relu_says_other_strides, calls=("example",)),
    "specialized": Planted(NARROWED, "compile", test_planted_assertions.plant_a_number, calls=CALL_SIZES),
    "narrowed": Planted(test_planted_assertions.KEPT, "export", narrowed, calls=CALL_SIZES),
    "over-strict": Planted(CAT, "export", semantics=asserted, calls=CALL_SIZES),
    "missing-assertion": Planted(CHECKED, "export", unchecked, calls=CALL_SIZES),
    "lost-assertion": Planted(NARROWED, "compile", in_dynamo(test_planted_assertions.drop), calls=CALL_SIZES),
    "late-assertion": Planted(NARROWED, "compile", in_dynamo(test_planted_assertions.delay), calls=CALL_SIZES),
    "repeated-assertion": Planted(NARROWED, "compile", in_dynamo(test_planted_assertions.repeat), calls=CALL_SIZES),
    "lost-message": Planted(MESSAGE, "compile", in_dynamo(test_planted_assertions.silence), calls=("example",)),
    "regressed": Planted(CAT, "export", semantics=answered("Eq(u0, 1)", "_broadcast_shapes"), calls=("2",)),
    "changed": Planted(test_mechanism.STACKED, "aot", semantics=answered("Eq(u0, 0)", "cat"), calls=CALL_SIZES),
    "diverged": Planted(CAT, "export", semantics=answered("Eq(u0, 0)", "cat"), calls=CALL_SIZES),
    "recompiles": Planted(test_recompilation.ABS, "recompile", abs_asks_for_sizes, calls=REPEATED_SIZES),
    "slow-export": Planted(test_growth.TEXT, "grow", lambda patch: quadratic()),
    "falls-back": Planted(test_lowering.TEXT, "lower", lambda patch: falling_back()),
    "more-kernels": Planted(TWO_RESULTS, "lower", lambda patch: never_fused()),
    "more-passes": Planted(TWO_LOOPS, "lower", lambda patch: loops_not_fused()),
    "not-vectorized": Planted(test_lowering.TEXT, "lower", lambda patch: without_vectors()),
    **{f"differs-{stage}": Planted(text, stage, plant) for stage, (text, plant) in FAULTS.items()},
    **{KIND_OF[one.violates]: Planted(print_key(one), "key") for one in KEY_CASES},
}
"""The planted fault of each kind."""

NOT_PLANTED: Mapping[Kind, str] = {}
"""The kinds for which no fault can be planted, each with the reason. There is none."""
