"""Every private torch API in use, each named once: where it is, what for, and what must be true of it.

`ddefuzz doctor` runs `check`; everything else reaches torch's private parts through these rows alone.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ddefuzz.errors import UnsupportedError
from ddefuzz.selfcheck import Check

OLDEST_TORCH = (2, 13)
"""The oldest torch whose door takes `fallback_value`; the repro scripts alone go further back, to 2.6."""


@dataclass(frozen=True, slots=True)
class Api:
    """One private attribute: `module:dotted.path`, what it is for, and parameters that a call relies on.

    With `stage_only` it is one that a single stage needs, and is not imported before that.
    """

    path: str
    purpose: str
    parameters: tuple[str, ...] = ()
    stage_only: bool = False

    @property
    def name(self) -> str:
        """The attribute's own name, as `setattr` on its owner takes it."""
        return self.path.rpartition(":")[2].rpartition(".")[2]

    def owner(self) -> Any:
        """The class or module that has the attribute. Raises UnsupportedError where this torch has not."""
        module, _, attributes = self.path.partition(":")
        return self._walk(module, attributes.split(".")[:-1])

    def get(self) -> Any:
        """The attribute itself. Raises UnsupportedError where this torch has not."""
        module, _, attributes = self.path.partition(":")
        return self._walk(module, attributes.split("."))

    def problem(self) -> str:
        """What is wrong with it in this torch, else an empty string."""
        try:
            value = self.get()
        except UnsupportedError as error:
            return str(error)
        if not self.parameters:
            return ""
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError) as error:
            return f"{self.path} has no signature to check: {error}"
        missing = [name for name in self.parameters if name not in signature.parameters]
        return f"{self.path}{signature} lacks the parameters {missing}" if missing else ""

    def _walk(self, module: str, attributes: list[str]) -> Any:
        try:
            value: Any = importlib.import_module(module)
            for attribute in attributes:
                value = getattr(value, attribute)
        except (ImportError, AttributeError) as error:
            raise UnsupportedError(
                f"torch {torch.__version__} has no {self.path} ({self.purpose}): {error}; expected torch 2.13"
            ) from error
        return value


_SHAPES = "torch.fx.experimental.symbolic_shapes"
_FAKE = "torch._subclasses.fake_tensor"

# Watching (instrument/guards.py, recorder.py).
DOOR = Api(
    f"{_SHAPES}:ShapeEnv.evaluate_expr",
    "the one door through which every guard is decided, above torch's lru_cache",
    ("orig_expr", "hint", "fx_node", "size_oblivious", "fallback_value"),
)
LOG_SUPPRESSED = Api(
    f"{_SHAPES}:ShapeEnv._log_suppressed_dde",
    "runs exactly when an undecided guard takes its fallback",
    ("assumed_value",),
)
EVALUATE_STATIC = Api(
    f"{_SHAPES}:ShapeEnv._maybe_evaluate_static",
    "what the size-oblivious mechanism would have said, without side effects",
)
DATA_DEPENDENT_INIT = Api(
    f"{_SHAPES}:GuardOnDataDependentSymNode.__init__",
    "where an undecided guard becomes a raise, whoever builds the error",
    ("cond",),
)
REFUSED_INIT = Api(
    f"{_FAKE}:DataDependentOutputException.__init__",
    "where an op whose output is data (`equal`) refuses, whoever wanted its answer",
    ("func",),
)
SYM_NODE = Api("torch.fx.experimental.sym_node:SymNode", "what C++ calls, with the file and line that asked")
DOOR_METHODS = tuple(
    Api(f"{SYM_NODE.path}.{method}", "a way to the door that is told who asked", ("file", "line"))
    for method in (
        "guard_bool",
        "guard_int",
        "guard_float",
        "guard_or_false",
        "guard_or_true",
        "guard_size_oblivious",
        "expect_true",
    )
)
SYMBOL_MAKERS = tuple(
    Api(f"{_SHAPES}:ShapeEnv.{method}", "where an unbacked symbol is made")
    for method in ("create_unbacked_symint", "create_unbacked_symfloat", "create_unbacked_symbool")
)
SHAPES_CONFIG = Api(
    "torch.fx.experimental._config:aggressive_guard_free_semantics", "torch's own levels of guarding less"
)
BACKED_SIZE_OBLIVIOUS = Api("torch.fx.experimental._config:backed_size_oblivious", "recorded with observations")
NO_STACK_TRACES = Api("torch.fx.config:do_not_emit_stack_traces", "recorded with observations")

# Stacks (instrument/frames.py).
INTERPRETER_STEP = Api(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step",
    "the real frames in which dynamo interprets an instruction: `self` has f_code and current_instruction",
    ("self",),
)
TRACING_CONTEXT = Api(
    "torch._guards:TracingContext.extract_stack", "tells whether dynamo is interpreting user code now"
)
CAPTURED_TRACEBACK = Api(
    "torch.utils._traceback:CapturedTraceback.extract", "the native backtrace, symbolized only when asked", ("cpp",)
)
FAKE_DISPATCH = Api(f"{_FAKE}:FakeTensorMode.dispatch", "whose local `func` is the op that makes a symbol", ("func",))

# Running (execute/).
DYNAMO_RESET = Api("torch._dynamo:reset", "drops what dynamo remembers of earlier cases")
DYNAMO_PATCHER = Api(
    "torch._dynamo.eval_frame:TorchPatcher.patch",
    "what dynamo wraps at its first use, once a process: done before every run, frames do not tell a first from a last",
)
DYNAMO_CONFIG = Api("torch._dynamo.config:patch", "scalar and dynamic-output capture on, FakeTensor cache off")
FLAT_INPUTS = Api(
    "torch.export:ExportedProgram._graph_module_flat_inputs",
    "the arguments of an exported graph: parameters, buffers and constants, then the flattened arguments",
    ("args", "kwargs"),
)
KEY_GET = Api("torch.utils._pytree:key_get", "the part of a value that a symbol is bound to", ("obj", "kp"))
LOOKUP_BACKEND = Api("torch._dynamo:lookup_backend", "dynamo's backends by name", ("compiler_fn",))
DYNAMO_COUNTERS = Api("torch._dynamo.utils:counters", "how many frames were compiled")
INDUCTOR_LOADING = Api(
    "torch._inductor.graph:GraphLowering._compile_to_module_lines",
    "where generated code is loaded, and with that the C++ compiler starts: the inductor stage ends there",
    ("wrapper_code",),
    stage_only=True,
)
INDUCTOR_CONFIG = Api("torch._inductor.config:patch", "inductor's caches off", stage_only=True)
INDUCTOR_TRIES_VECTORS = Api(
    "torch._inductor.cpu_vec_isa:VecISA.check_build",
    "tries a vector instruction set by compiling a file, also where `vec_isa_ok` is set (AVX-512 with bf16)",
    ("code",),
    stage_only=True,
)
INDUCTOR_FRESH_CACHE = Api(
    "torch._inductor.utils:fresh_cache", "inductor's caches in memory cleared, its files in a folder of their own"
)
MARK_UNBACKED = Api(
    "torch._dynamo.decorators:mark_unbacked", "makes an input dim unbacked in dynamo", ("index", "shape_id")
)
MARK_BACKED = Api(
    "torch._dynamo.decorators:maybe_mark_dynamic", "makes an input dim dynamic and backed, for control runs", ("index",)
)
FAKE_MODE = Api(f"{_FAKE}:FakeTensorMode", "the fake stage", ("shape_env", "allow_non_fake_inputs"))
PYTHON_DISPATCHER = Api(
    "torch._dispatch.python:enable_python_dispatcher",
    "the fake stage runs an op as every capture does: by its decomposition, not by a C++ kernel that takes ints",
)
SHAPE_ENV = Api(f"{_SHAPES}:ShapeEnv", "the fake stage")
SYMBOLIC_CONTEXT = Api(f"{_SHAPES}:StatelessSymbolicContext", "unbacked inputs in the fake stage", ("dynamic_sizes",))
DIM_UNBACKED = Api(f"{_SHAPES}:DimDynamic.UNBACKED", "unbacked inputs in the fake stage")
DIM_DYNAMIC = Api(f"{_SHAPES}:DimDynamic.DYNAMIC", "backed inputs in the fake stage, for control runs")
FREE_UNBACKED = Api(f"{_SHAPES}:free_unbacked_symbols", "which values have sizes that data decides, for control runs")
DIM_STATIC = Api(f"{_SHAPES}:DimDynamic.STATIC", "the other dims of the fake stage")
CONSTANT_SOURCE = Api("torch._dynamo.source:ConstantSource", "names the inputs of the fake stage", ("source_name",))

# Sweeping (generate/opinfo.py, sweep/). Not among `require`: a campaign does without, and importing it takes 3 s.
OP_DB = Api(
    "torch.testing._internal.common_methods_invocations:op_db", "torch's sample calls of 700 ops; needs expecttest"
)
UPSTREAM_XFAIL = Api("torch.testing._internal.common_ops_unbacked:ops_dde_xfail", "upstream's list of ops that fail")
UPSTREAM_SKIP = Api("torch.testing._internal.common_ops_unbacked:ops_unbacked_skip", "what upstream does not try")
NO_TORCH_FUNCTION = Api("torch._C:DisableTorchFunction", "calls a function that a mode watches, unwatched inside")
OVERLOAD_PACKET = Api("torch._ops:OpOverloadPacket", "an aten op, whose text is its name")
OVERLOAD = Api("torch._ops:OpOverload", "one overload of it")
SWEEP_ONLY = frozenset({OP_DB, UPSTREAM_XFAIL, UPSTREAM_SKIP})


def table() -> tuple[Api, ...]:
    """Every row above."""
    rows: list[Api] = []
    for value in globals().values():
        if isinstance(value, Api):
            rows.append(value)
        elif isinstance(value, tuple):
            rows.extend(row for row in value if isinstance(row, Api))
    return tuple(rows)


def check(without: frozenset[Api] = frozenset()) -> list[Check]:
    """Whether this torch has every private API in use, with the parameters that calls rely on."""
    rows = (row for row in table() if row not in without)
    return [Check(row.path, not (problem := row.problem()), problem or row.purpose) for row in rows]


def require() -> None:
    """Raise UnsupportedError, in one line, unless this torch is one that ddefuzz can watch."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise UnsupportedError(
            f"torch {torch.__version__} is older than {'.'.join(map(str, OLDEST_TORCH))}, "
            "the first whose guards ddefuzz can watch; only the repro scripts run under it"
        )
    broken = [row for row in check(SWEEP_ONLY) if not row.ok]
    if broken:
        raise UnsupportedError(f"{broken[0].detail} (and {len(broken) - 1} more; see `ddefuzz doctor`)")


def torch_parent() -> Path:
    """The folder that holds the torch package: Python frames are named relative to it."""
    return Path(torch.__file__).parent.parent


def bound(api: Api) -> Callable[..., Any]:
    """The callable behind a row."""
    value: Callable[..., Any] = api.get()
    return value
