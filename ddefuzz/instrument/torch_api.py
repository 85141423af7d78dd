"""Table of every private name of torch in use: attributes, settings, exceptions, modules and source files. Each is
looked up by the first of its alternatives that this torch has.

`ddefuzz doctor` runs `check`. All code accesses torch's private parts through these rows, and a test scans the
package for others. Importing this module does not import torch.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import NamedTuple

from ddefuzz.errors import UnsupportedError
from ddefuzz.instrument.api import Api, TorchFile, bound, changed_settings, torch_parent


class Check(NamedTuple):
    """One line of a self-test: its name, whether it holds, and why not (or what was found)."""

    name: str
    ok: bool
    detail: str


__all__ = ["Api", "TorchFile", "bound", "changed_settings", "check", "names_of", "require", "table", "torch_parent"]

OLDEST_TORCH = (2, 13)
"""The oldest torch whose `evaluate_expr` accepts `fallback_value`. Repro scripts support versions from 2.6."""

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_FAKE = "torch._subclasses.fake_tensor"
_DYNAMO_SETTINGS = "torch._dynamo.config"
_INDUCTOR_SETTINGS = "torch._inductor.config"

# Watching (instrument/guards.py, recorder.py).
EVALUATE_EXPR = Api(
    f"{_SHAPES}:ShapeEnv.evaluate_expr",
    "hooked: every guard is evaluated by it, above torch's lru_cache",
    ("orig_expr", "hint", "fx_node", "size_oblivious", "fallback_value"),
)
LOG_SUPPRESSED = Api(
    f"{_SHAPES}:ShapeEnv._log_suppressed_dde",
    "runs exactly when an undecided guard takes its fallback",
    ("assumed_value",),
)
EVALUATE_STATIC = Api(
    f"{_SHAPES}:ShapeEnv._maybe_evaluate_static",
    "the result of size-oblivious semantics, without side effects",
)
DATA_DEPENDENT_INIT = Api(
    f"{_SHAPES}:GuardOnDataDependentSymNode.__init__",
    "where the error of an undecided guard is made",
    ("cond",),
)
REFUSED_INIT = Api(
    f"{_FAKE}:DataDependentOutputException.__init__",
    "where the error of an op whose output is data (`equal`) is made",
    ("func",),
)
SYM_NODE = Api("torch.fx.experimental.sym_node:SymNode", "what C++ calls to guard, with its file and line")
GUARD_METHODS = tuple(
    Api(f"{SYM_NODE.path}.{method}", "hooked: calls evaluate_expr for C++, with its file and line", ("file", "line"))
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
DEFER_ASSERTION = Api(
    f"{_SHAPES}:ShapeEnv.guard_or_defer_runtime_assert", "where a run-time assertion is made", ("orig_expr",)
)
SET_REPLACEMENT = Api(f"{_SHAPES}:ShapeEnv._set_replacement", "where a symbol becomes an expression", ("a", "tgt"))
UPDATE_RANGE = Api(f"{_SHAPES}:ShapeEnv._update_var_to_range", "where the range of a symbol is narrowed", ("symbol",))
CHECK = Api("torch:_check_with", "its frame has the message of the user's `torch._check`", ("cond", "message"))
ASSERT_SCALAR = Api("torch:ops.aten._assert_scalar.default", "a run-time assertion in a captured graph")
SYMBOL_MAKERS = tuple(
    Api(f"{_SHAPES}:ShapeEnv.{method}", "where an unbacked symbol is made")
    for method in ("create_unbacked_symint", "create_unbacked_symfloat", "create_unbacked_symbool")
)
SHAPES_CONFIG = Api(
    "torch.fx.experimental._config:aggressive_guard_free_semantics", "torch's own settings that guard less"
)
DUCK_SHAPE = Api("torch.fx.experimental._config:use_duck_shape", "a setting: equal backed sizes get one symbol")
SHAPES_PATCH = Api("torch.fx.experimental._config:patch", "changes settings of shapes for a while")
COUNTED = (
    EVALUATE_STATIC,
    *(
        Api(f"{_SHAPES}:ShapeEnv.{method}", "counted: the work of shape reasoning")
        for method in ("simplify", "replace", "bound_sympy", "_find")
    ),
)
"""Each is called by those before it."""

# Stacks (instrument/frames.py).
INTERPRETER_STEP = Api(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step",
    "the frame in which dynamo interprets an instruction: `self` has f_code and current_instruction",
    ("self",),
)
MODULE_STACK = "nn_module_stack"
"""The attribute of dynamo's translators with the modules that it is in: their path and class, outermost first."""
EXPORT_ROOT = "_export_root"
"""The name under which strict export puts the user's model into a module of its own
(torch/_dynamo/functional_export.py).
"""
USERS_OWN = "_fx_runtime_assert_preserve"
"""The mark in a node's `meta` of an assertion that user code makes (torch/fx/passes/runtime_assert.py)."""
UNBACKED_BINDINGS = "unbacked_bindings"
"""The entry of a node's `meta` that says which unbacked symbol is what part of its value
(torch/fx/experimental/symbolic_shapes.py, `compute_unbacked_bindings`).
"""
TRACING_CONTEXT = Api("torch._guards:TracingContext.extract_stack", "whether dynamo is interpreting user code now")
CAPTURED_TRACEBACK = Api(
    "torch.utils._traceback:CapturedTraceback.extract", "the native backtrace, symbolized only on request", ("cpp",)
)
FAKE_DISPATCH_IMPL = Api(
    f"{_FAKE}:FakeTensorMode._dispatch_impl",
    "hooked: which op made the tensor that an op fails on",
    ("func", "types", "args", "kwargs"),
)
FAKE_DISPATCH = Api(f"{_FAKE}:FakeTensorMode.dispatch", "whose local `func` is the op that makes a symbol", ("func",))

TRACE_ANCHOR = Api(
    "torch.fx.proxy:_register_stack_trace_anchor",
    "registers a function whose frames are in the stack traces of a graph, as those of `forward` are",
    ("fn",),
)

# Running (execute/).
DYNAMO_RESET = Api("torch._dynamo:reset", "drops what dynamo remembers of earlier cases")
CLEAR_SHARDING = Api(
    "torch.distributed.tensor.debug:_clear_sharding_prop_cache", "drops what DTensor remembers of earlier cases"
)
DYNAMO_PATCHER = Api(
    "torch._dynamo.eval_frame:TorchPatcher.patch",
    "what dynamo wraps at its first use in a process: done before every run, so that frames do not depend on it",
)
DYNAMO_CONFIG = Api(f"{_DYNAMO_SETTINGS}:patch", "changes dynamo's settings for a while")
CAPTURE_SCALARS = Api(f"{_DYNAMO_SETTINGS}:capture_scalar_outputs", "a setting: .item() is captured")
CAPTURE_DYNAMIC_SHAPES = Api(
    f"{_DYNAMO_SETTINGS}:capture_dynamic_output_shape_ops", "a setting: nonzero and similar ops are captured"
)
AUTOMATIC_DYNAMIC = Api(
    f"{_DYNAMO_SETTINGS}:automatic_dynamic_shapes", "a setting: a static size that changes between calls stays static"
)
PHASE_SECONDS = Api("torch._dynamo.utils:compilation_time_metrics", "the seconds of each phase of compilations")
FAKE_CACHE = Api(
    f"{_DYNAMO_SETTINGS}:fake_tensor_cache_enabled", "a setting: off, because cached results hide guards of later cases"
)
FLAT_INPUTS = Api(
    "torch.export:ExportedProgram._graph_module_flat_inputs",
    "the arguments of an exported graph: parameters, buffers and constants, then the flattened arguments",
    ("args", "kwargs"),
)
CHECK_INPUTS = Api("torch.export:ExportedProgram._check_input_constraints", "refuses arguments before the graph runs")
TREE_LEAVES = Api("torch.utils._pytree:tree_leaves", "the tensors in nested arguments")
TREE_FLATTEN = Api("torch.utils._pytree:tree_flatten", "the leaves of nested arguments and their structure")
TREE_UNFLATTEN = Api("torch.utils._pytree:tree_unflatten", "nested arguments of other leaves", ("leaves", "treespec"))
TREE_MAP = Api("torch.utils._pytree:tree_map", "nested arguments with changed leaves", ("func", "tree"))
TREE_NODES = Api("torch.utils._pytree:SUPPORTED_NODES", "the classes with parts, also those of libraries")
TREE_BUILTINS = Api("torch.utils._pytree:BUILTIN_TYPES", "the classes with parts that are Python's")
TREE_PATHS = Api("torch.utils._pytree:tree_flatten_with_path", "where the leaves of nested arguments are")
KEY_TEXT = Api("torch.utils._pytree:keystr", "such a place as Python writes it: `['mask'][0]`", ("kp",))
COMBINE_ARGS = Api(
    "torch.export.dynamic_shapes:_combine_args", "the arguments by the names of parameters", ("f", "args", "kwargs")
)
CHECK_DYNAMIC_SHAPES = Api(
    "torch.export.dynamic_shapes:_check_dynamic_shapes",
    "what torch.export says of a `dynamic_shapes` that does not fit the arguments",
    ("combined_args", "dynamic_shapes"),
)
EXPORTDB = Api("torch._export.db.examples:all_examples", "the examples of ExportDB by name")
DRAFT_REPORT = "_report"
"""The attribute of a draft-exported program with what draft_export reports."""
UNBACKED_MARKS = ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices")
"""The attributes of a tensor in which `mark_unbacked` keeps the dims."""
SHAPE_ID_MARKS = "_dynamo_shape_ids"
"""The attribute in which it keeps the `shape_id` of dims."""
RAW_EXPRESSION = "_expr"
"""The attribute of a SymNode with the symbol that it was made as. `expr` is what replaces this symbol."""
FAKE_IMPLS = Api("torch._subclasses.fake_impls:op_implementations_dict", "the ops with fake kernels of their own")
FAKE_DECOMPOSITIONS = Api("torch._decomp:decomposition_table", "the decompositions that fake tensors use")
REGISTERED = Api("torch._library.simple_registry:singleton", "the fake kernels that users register for their ops")
META_TABLE = Api("torch._decomp:meta_table", "the meta functions that fake tensors use before decompositions")
KEY_GET = Api("torch.utils._pytree:key_get", "the part of a value that a symbol is bound to", ("obj", "kp"))
LOOKUP_BACKEND = Api("torch._dynamo:lookup_backend", "dynamo's backends by name", ("compiler_fn",))
RUN_AS_IT_IS = Api(
    "torch._dynamo.backends.debugging:boxed_nop",
    "what the backend aot_eager does with the graphs of AOTAutograd",
    ("fx_g", "example_inputs"),
)
DYNAMO_FRAMES = Api("torch._dynamo.utils:curr_frame", "whether a call was captured again, also in vain")
DYNAMO_COUNTERS = Api("torch._dynamo.utils:counters", "how many frames were compiled")
INDUCTOR_LOADING = Api(
    "torch._inductor.graph:GraphLowering._compile_to_module_lines",
    "where generated code is loaded, which starts the C++ compiler: the inductor stage ends there",
    ("wrapper_code",),
)
CPP_BINDING = Api(
    "torch._inductor.async_compile:AsyncCompile.cpp_pybinding",
    "where generated code gets a kernel, by the C++ compiler: kernels of several programs share one run of it",
    ("argtypes", "source_code"),
)
DYNAMO_SIZES = Api("torch._dynamo.pgo:_CODE_STATE", "the sizes that were seen of inputs, by the name of a function")
INDUCTOR_CONFIG = Api(f"{_INDUCTOR_SETTINGS}:patch", "changes inductor's settings for a while")
NO_INDUCTOR_CACHES = Api(
    f"{_INDUCTOR_SETTINGS}:force_disable_caches", "a setting: a graph that was seen before is lowered again"
)
VECTOR_ISA = Api(
    f"{_INDUCTOR_SETTINGS}:cpp.vec_isa_ok", "a setting: vector instructions are not tried by compiling a file"
)
COMPILE_THREADS = Api(f"{_INDUCTOR_SETTINGS}:compile_threads", "a setting: inductor starts no processes")
INDUCTOR_TRIES_VECTORS = Api(
    "torch._inductor.cpu_vec_isa:VecISA.check_build",
    "tries a vector instruction set by compiling a file, even if `vec_isa_ok` is set (AVX-512 with bf16)",
    ("code",),
)
INDUCTOR_FRESH_CACHE = Api(
    "torch._inductor.utils:fresh_cache", "clears inductor's caches in memory, and puts its files in a separate folder"
)
AOTI_PACKAGE = Api(
    "torch._inductor:aoti_compile_and_package", "compiles an exported program into a package", ("package_path",)
)
AOTI_LOAD = Api("torch._inductor:aoti_load_package", "loads such a package")
AOTI_COMPILING = Api(
    "torch._inductor.codecache:AotCodeCompiler.compile", "where AOTInductor compiles C++: a capture ends there"
)
CPP_WRAPPER = Api(f"{_INDUCTOR_SETTINGS}:cpp_wrapper", "a setting: the code around the kernels is C++, too")
MARK_UNBACKED = Api(
    "torch._dynamo.decorators:mark_unbacked", "makes an input dim unbacked in dynamo", ("index", "shape_id")
)
MARK_BACKED = Api(
    "torch._dynamo.decorators:maybe_mark_dynamic", "makes an input dim dynamic and backed, for control runs", ("index",)
)
FAKE_MODE = Api(f"{_FAKE}:FakeTensorMode", "the fake stage", ("shape_env", "allow_non_fake_inputs"))
PYTHON_DISPATCHER = Api(
    "torch._dispatch.python:enable_python_dispatcher",
    "the fake stage runs an op as every capture does: by its decomposition, not by a C++ kernel with int parameters",
)
SHAPE_ENV = Api(f"{_SHAPES}:ShapeEnv", "the fake stage")
SHAPE_ENV_INIT = Api(f"{_SHAPES}:ShapeEnv.__init__", "hooked: which are made in a run")
CACHING = (_SHAPES, "torch.fx.experimental._size_hinting")
"""The modules with functions whose lru_cache keeps a ShapeEnv, or has no limit."""
INSTALL_GLOBAL = Api(
    "torch._dynamo.utils:CleanupHook.create", "hooked: the globals that dynamo adds", ("scope", "name")
)
DISPATCH_MODES = Api("torch.utils._python_dispatch:_get_current_dispatch_mode_stack", "the modes that are on")
DISPATCH_MODE = Api("torch.utils._python_dispatch:TorchDispatchMode", "leaves a mode that user code left on")
FUNCTION_MODES = Api("torch.overrides:_get_current_function_mode_stack", "the modes that are on")
PUSH_FUNCTION_MODE = Api("torch._C:_push_on_torch_function_stack", "puts back the modes that were on")
POP_FUNCTION_MODE = Api("torch._C:_pop_torch_function_stack", "takes off the modes that are on")
DEFAULT_DEVICE = Api("torch:_GLOBAL_DEVICE_CONTEXT", "its attribute `device_context` is the mode of the default device")
CURRENT_DEVICE = Api("torch.utils._device:CURRENT_DEVICE", "the device of that mode")
FUNCTORCH_DEPTH = Api("torch._C._functorch:get_dynamic_layer_stack_depth", "how many transforms of torch.func are on")
FUNCTORCH_UNDO = Api("torch._C._functorch:pop_dynamic_layer_stack_and_undo_to_depth", "leaves transforms of torch.func")
GRAPH_SOURCES = Api("torch.fx.graph_module:_loader.eval_cache", "the source of each graph, by the name of its file")
SYMBOLIC_CONTEXT = Api(f"{_SHAPES}:StatelessSymbolicContext", "unbacked inputs in the fake stage", ("dynamic_sizes",))
DIM_UNBACKED, DIM_DYNAMIC, DIM_STATIC = (
    Api(f"{_SHAPES}:DimDynamic.{kind}", "a dim of an input in the fake stage")
    for kind in ("UNBACKED", "DYNAMIC", "STATIC")
)
FREE_UNBACKED = Api(f"{_SHAPES}:free_unbacked_symbols", "which values have sizes that data decides, for control runs")
CONSTANT_SOURCE = Api("torch._dynamo.source:ConstantSource", "names the inputs of the fake stage", ("source_name",))

PRELOADED = (
    "torch._dynamo.convert_frame",
    "torch._dynamo.backends.debugging",
    "torch._dynamo.backends.common",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.functional_export",
    "torch._dynamo.repro.after_aot",
    "torch._dynamo.repro.after_dynamo",
    "torch.export._trace",
    "torch._export.non_strict_utils",
    "torch._export.passes._node_metadata_hook",
    "torch._export.passes.replace_autocast_with_hop_pass",
    "torch._export.passes.replace_set_grad_with_hop_pass",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes.inline_invoke_subgraph",
    "torch._inductor.compiler_bisector",
    "torch._subclasses.schema_check_mode",
    "torch.distributed.tensor.experimental",
    "torch.fx.experimental.validator",
)
"""What the first captures import (the difference of `sys.modules`), without what others of the list import."""

# Specialization keys (keys/).
HAS_SYMBOLIC_SIZES = Api(
    "torch:Tensor._has_symbolic_sizes_strides", "whether some size is a SymInt, without making one"
)
NO_SUBCLASS_FUNCTION = Api("torch._C:DisableTorchFunctionSubclass", "reads a subclass's sizes as torch itself does")
NESTED_SIZES = Api("torch:Tensor._nested_tensor_size", "the sizes of a nested tensor")
DISPATCH_KEYS = Api("torch._C:_dispatch_keys", "what a tensor without memory is: a wrapper, or zeros")
TENSOR_GUARDS = Api("torch._C._dynamo.guards:TensorGuards", "compares tensors with those of the last call, in C++", ())
NEGATED_VIEW = Api("torch:_neg_view", "makes a tensor with the neg bit, to try keys with")
LAZY_ZEROS = Api("torch:_efficientzerotensor", "makes a tensor that is zero without memory, to try keys with")

# Checking custom ops (custom_ops/).
ALL_OPS = Api("torch._C:_dispatch_get_all_op_names", "the names of all ops, also of libraries", ())
HAS_KERNEL = Api(
    "torch._C:_dispatch_has_computed_kernel_for_dispatch_key", "whether an op has a kernel for a device", ()
)
CUSTOM_OP = Api("torch._library.custom_ops:CustomOpDef", "what `torch.library.custom_op` returns")
AUTOGRAD_FALLBACK, OLD_AUTOGRAD_FALLBACK = (
    Api(f"torch._C:_{name}_autograd_fallback_mode", "what autograd does with an op that has no formula")
    for name in ("set", "get")
)
DISPATCH_KEY = Api("torch._C:DispatchKey", "names the kinds of kernels that an op can have")
CUSTOM_OPS = Api("torch._library.custom_ops:OPDEFS", "those ops by name")
CUSTOM_FAKE = "_abstract_fn"
"""The attribute of a custom op with the function of its fake kernel."""
CUSTOM_OVERLOAD = "_opoverload"
"""The attribute of a custom op with its overload."""

# Counting recompilations (recompile/).
RECOMPILE_LIMITS = tuple(
    Api(f"{_DYNAMO_SETTINGS}:{name}", "a setting: how many graphs dynamo makes before it gives a function up")
    for name in ("recompile_limit", "accumulated_recompile_limit")
)

# What each stage makes (artifacts/).
TRACE_LOG = Api(
    "torch._logging._internal:trace_log", "the log of what dynamo, AOTAutograd and inductor make (TORCH_TRACE)"
)
IR_BEFORE_FUSION, IR_AFTER_FUSION = (
    Api(f"torch._inductor.debug:{name}", "hooked: the nodes of inductor's scheduler", ("nodes",))
    for name in ("log_ir_pre_fusion", "log_ir_post_fusion")
)
IR_TEXT = Api("torch._inductor.debug:DebugFormatter._write_ir", "the text of the scheduler's nodes")
PROVENANCE = Api(
    f"{_INDUCTOR_SETTINGS}:trace.provenance_tracking_level",
    "a setting: inductor logs which node became which kernel",
)
BACKWARD_AT_ONCE = Api(
    "torch._functorch.config:force_non_lazy_backward_lowering", "a setting: the backward graph is lowered, too"
)
AOT_CONFIG = Api("torch._functorch.config:patch", "changes AOTAutograd's settings for a while")
LOG_GRAPH_BREAK = Api(
    "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break",
    "hooked: which exception ends a graph, if dynamo may break it",
    ("reason", "exc"),
)

PRELOADED_SAMPLES = ("torch.testing._internal.common_methods_invocations",)
"""What is imported beforehand, too, where samples of ops are drawn. It takes 2 CPU seconds."""

# Sweeping (generate/opinfo.py, sweep/). `require` leaves it out: campaigns do not need it, and importing takes 3 s.
OP_DB = Api(
    "torch.testing._internal.common_methods_invocations:op_db", "torch's sample calls of 700 ops; needs expecttest"
)
UPSTREAM_XFAIL = Api("torch.testing._internal.common_ops_unbacked:ops_dde_xfail", "upstream's list of ops that fail")
UPSTREAM_SKIP = Api(
    "torch.testing._internal.common_ops_unbacked:ops_unbacked_skip", "upstream's list of ops that are skipped"
)
LOCAL_TENSOR_MODE = Api(
    "torch.distributed._local_tensor:LocalTensorMode", "runs DTensors for all processes at once, with their values"
)
RANK_MAP = Api("torch.distributed._local_tensor:rank_map", "makes a tensor of each process in that mode")
NO_TORCH_FUNCTION = Api("torch._C:DisableTorchFunction", "calls a function without its torch function modes")
OVERLOAD_PACKET = Api("torch._ops:OpOverloadPacket", "an aten op, whose text is its name")
OVERLOAD = Api("torch._ops:OpOverload", "one overload of it")
MODULE_DB = Api("torch.testing._internal.common_modules:module_db", "torch's samples of its modules; needs expecttest")
SWEEP_ONLY = frozenset({OP_DB, MODULE_DB, UPSTREAM_XFAIL, UPSTREAM_SKIP})


# Judging (oracles/capture.py, execute/observe.py): exceptions are recorded, and compared, by the name of their class.
GUARD_ERROR = Api(f"{_SHAPES}:GuardOnDataDependentSymNode", "the data-dependent error")
PENDING_ERROR = Api(f"{_SHAPES}:PendingUnbackedSymbolNotFound", "an unbacked symbol that is in no output")
OUTPUT_ERRORS = tuple(
    Api(f"{_FAKE}:{name}", "an op whose output is data, or that has no kernel for fake tensors")
    for name in ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedOperatorException")
)
CONSTRAINT_ERROR = Api(f"{_SHAPES}:ConstraintViolationError", "a size that the user wants dynamic became a number")
DYNAMO_INTERNAL_ERROR = Api("torch._dynamo.exc:TorchRuntimeError", "an op failed on fake tensors under dynamo")
DYNAMO_REFUSALS = tuple(
    Api(f"torch._dynamo.exc:{name}", "dynamo does not trace this")
    for name in ("Unsupported", "UncapturedHigherOrderOpError", "UserError")
)
NO_COMPILER = Api("torch._inductor.exc:InvalidCxxCompiler", "the machine has no C++ compiler: not judged")

# Suggesting rewrites (checking/candidates.py), and counting guard sites (findings/inventory.py).
GUARD_OR_FALSE = Api(f"{_SHAPES}:guard_or_false", "what a user may write in place of a branch", ("a",))
GUARD_OR_TRUE = Api(f"{_SHAPES}:guard_or_true", "its other form", ("a",))

# Blaming (oracles/assertions.py): what puts run-time assertions into each form of a captured program.
TRACED_ASSERTIONS = Api("torch.fx.passes.runtime_assert:insert_deferred_runtime_asserts", "into a captured graph")
LOWERED_ASSERTIONS = Api(
    "torch._functorch._aot_autograd.graph_capture:aot_dispatch_base_graph", "into a graph of AOTAutograd, by tracing"
)
GENERATED_ASSERTIONS = Api(
    "torch._inductor.graph:GraphLowering.create_deferred_runtime_asserts", "into the code of inductor"
)

# Blaming (execute/parts.py): the parts of inductor that a run can leave out.
_INDUCTOR_LOWERING = "torch._inductor.lowering"
_INDUCTOR_CPP = "torch._inductor.codegen.cpp"
_OBSERVER = "torch.fx.passes.graph_transform_observer:GraphTransformObserver"
GRAPH_HANDLERS = Api("torch._inductor.virtualized:V", "its attribute `graph` is the graph that inductor lowers")
LOWERINGS = Api(f"{_INDUCTOR_LOWERING}:lowerings", "inductor's code for each op")
IS_FALLBACK = "_is_fallback_handler"
"""The attribute of a lowering that calls the op."""
HAS_NO_CODE = Api(
    "torch._inductor.graph:fallback_node_due_to_unsupported_type",
    "hooked: whether inductor calls an op in place of its code for it",
    ("node",),
)
FALLBACK = Api("torch._inductor.graph:fallback_handler", "hooked: calls an op", ("kernel", "add_to_fallback_set"))
DECOMPOSE = Api(
    "torch.fx.experimental.proxy_tensor:maybe_handle_decomp", "hooked: decomposes an op", ("proxy_mode", "op")
)
APPLY_PASS = tuple(
    Api(f"{_OBSERVER}.{name}", "hooked: runs a pass over a graph", ("pass_fn",))
    for name in ("apply_graph_pass", "apply_gm_pass")
)
APPLY_PATTERN = tuple(
    Api(f"torch._inductor.pattern_matcher:{kind}PatternEntry.apply", "hooked: replaces a pattern", ("match", "node"))
    for kind in ("Lowering", "Graph", "Replacement")
)
KNOWN_TRUE = Api(
    "torch._inductor.sizevars:SizeVarAllocator.statically_known_true",
    "hooked: what inductor knows of sizes, False if it does not",
    ("expr",),
)
SIMPLIFY_INDEX = Api(
    "torch._inductor.sizevars:SizeVarAllocator._simplify_with_ranges", "hooked", ("expr", "var_ranges")
)
MERGE_LOOPS = Api(
    "torch._inductor.sizevars:SizeVarAllocator._simplify_loops_impl", "hooked", ("sizes", "index_formulas")
)
CAN_FUSE = Api("torch._inductor.scheduler:Scheduler.can_fuse", "hooked: whether two kernels are fused", ("node1",))
CAN_FUSE_OUTER_LOOP = Api(
    f"{_INDUCTOR_CPP}:CppScheduling.can_fuse_vertical_outer_loop", "hooked: or their outer loops", ("node1", "node2")
)
DEFINE_KERNEL = Api(f"{_INDUCTOR_CPP}:CppScheduling.define_kernel", "hooked: the source of a kernel", ("src_code",))
VECTOR_OPS = Api(f"{_INDUCTOR_CPP}:CppVecOverrides", "the C++ of each op of vectors")
SCALAR_OPS = Api(f"{_INDUCTOR_CPP}:CppOverrides", "the C++ of each op of numbers")
SCALARIZED = Api(f"{_INDUCTOR_CPP}:CppVecOverrides._scalarize", "an op of vectors by that of numbers", ("scalar_func",))
CPP_KERNEL, VECTOR_KERNEL = (Api(f"{_INDUCTOR_CPP}:{name}", "is blamed") for name in ("CppKernel", "CppVecKernel"))
DECIDE_IN_PLACE = Api("torch._inductor.scheduler:BaseSchedulerNode.decide_inplace_update", "is blamed")
PLAN_ALLOCATION = Api("torch._inductor.codegen.wrapper:AllocateLine.plan", "is blamed")
FUSE_NODES = Api("torch._inductor.scheduler:Scheduler.fuse_nodes", "is blamed")
SIZE_ALLOCATOR = Api("torch._inductor.sizevars:SizeVarAllocator", "is blamed")
DECOMPOSITIONS = Api("torch._inductor.decomposition:decompositions", "is blamed")
INDUCTOR_PASSES = TorchFile("torch/_inductor/fx_passes/", "is blamed")
CPP_THREADS, VECTOR_BITS, IN_PLACE, REUSE = (
    Api(f"{_INDUCTOR_SETTINGS}:{name}", "a setting that a run changes")
    for name in ("cpp.threads", "cpp.simdlen", "inplace_buffers", "allow_buffer_reuse")
)

OUTPUT_STRIDES = Api("torch._inductor.graph:GraphLowering.run_node", "requires the strides of outputs")

# Files of torch's source, with which the files of frames and places are compared.
SYMBOLIC_SHAPES_FILE = TorchFile("torch/fx/experimental/symbolic_shapes.py", "ShapeEnv, guard_or_false")
SYM_NODE_FILE = TorchFile("torch/fx/experimental/sym_node.py", "SymNode")
WRAPPER_FILES = (
    TorchFile("torch/fx/experimental/recording.py", "the wrapper that can record calls of ShapeEnv"),
    TorchFile("torch/utils/_stats.py", "the counting wrapper of SymNode methods"),
    TorchFile("torch/utils/_config_module.py", "settings that are patched in the calls between"),
)
"""Files that only call another function."""
GUARD_FILES = (
    SYMBOLIC_SHAPES_FILE,
    SYM_NODE_FILE,
    TorchFile("torch/__init__.py", "SymBool.__bool__, SymInt.__index__ and others, torch._check"),
    TorchFile("torch/fx/experimental/_size_hinting.py", "hints of sizes"),
    *WRAPPER_FILES,
)
"""Files between a caller and `evaluate_expr`. The first frame outside of them evaluated the guard."""
SHARDING_BY_DECOMPOSITION = TorchFile(
    "torch/distributed/tensor/_decompositions.py", "catches data-dependent errors of each way to shard an op"
)
INDUCTOR_SIZES_FILE = TorchFile("torch/_inductor/sizevars.py", "inductor's own calls of evaluate_expr")
INDUCTOR_GUARDS = tuple(
    Api(f"torch._inductor.sizevars:SizeVarAllocator.{method}", "calls evaluate_expr for its caller")
    for method in ("evaluate_expr", "guard_or_false", "guard_or_true")
)
"""The functions of that file that pass a guard on for their caller. Its others evaluate guards of their own."""
KNOWN_QUESTIONS = (
    KNOWN_TRUE,
    Api("torch._inductor.sizevars:SizeVarAllocator.statically_known_multiple_of", "hooked: the same of a division"),
)
HINT_QUESTIONS = tuple(
    Api(f"torch._inductor.sizevars:SizeVarAllocator.{method}", "hooked: a number to estimate with", ("expr",))
    for method in ("optimization_hint", "optimization_hint_with_override")
)
HINT_OR_ERROR = Api(
    "torch._inductor.sizevars:SizeVarAllocator.guarding_hint_or_throw", "hooked: raises for unbacked sizes", ("expr",)
)
UNBACKED_QUESTIONS = (
    FREE_UNBACKED,
    Api(f"{_SHAPES}:has_free_unbacked_symbols", "hooked: whether an expression has unbacked symbols", ("x",)),
)
SIZES_FOR_CXX = TorchFile(
    "torch/_subclasses/fake_tensor.py",
    "gives C++ a tensor's sizes as plain ints (`_DISPATCH_META_HANDLERS`): a guard here belongs to C++",
)
PUBLIC_CODE = (
    TorchFile("torch/_refs/", "references in Python, by the names of the ops"),
    TorchFile("torch/nn/functional.py", "torch.nn.functional"),
    TorchFile("torch/functional.py", "functions of torch in Python"),
)
"""Where functions have the names of ops."""
SHAPE_CODE = (
    *PUBLIC_CODE,
    TorchFile("torch/_decomp/", "decompositions"),
    TorchFile("torch/_higher_order_ops/", "higher-order ops"),
    TorchFile("torch/_lowrank.py", "low-rank decompositions"),
    TorchFile("torch/_meta_registrations.py", "meta kernels"),
    TorchFile("torch/_prims/", "prims"),
    TorchFile("torch/_prims_common/", "what references and prims share"),
    TorchFile("torch/_subclasses/fake_impls.py", "kernels of fake tensors"),
    TorchFile("torch/distributed/tensor/", "DTensor"),
    TorchFile("torch/masked/", "masked tensors"),
    TorchFile("torch/nn/modules/", "modules"),
)
"""Where torch computes shapes in Python, and compares them."""
DYNAMO_FILES = TorchFile("torch/_dynamo/", "dynamo, which guards for the code that it interprets")
INDUCTOR_FILES = TorchFile("torch/_inductor/", "inductor")
DISABLE_DYNAMO_FILE = TorchFile("torch/_compile.py", "the wrapper of functions that dynamo does not enter")
VARIABLE_FUNCTIONS = Api("torch._C:_VariableFunctionsClass", "the class of the built-in functions of torch")


def table() -> tuple[Api | TorchFile, ...]:
    """All rows above."""
    rows: dict[Api | TorchFile, None] = {}
    for value in globals().values():
        for row in value if isinstance(value, tuple) else (value,):
            if isinstance(row, Api | TorchFile):
                rows[row] = None
    return tuple(rows)


def check(without: frozenset[Api] = frozenset()) -> list[Check]:
    """Check that this torch has every private name in use, with the parameters that calls rely on."""
    rows = (row for row in table() if row not in without)
    checks = [Check(row.path, not (problem := row.problem()), problem or row.purpose) for row in rows]
    absent = [name for name in PRELOADED if not _is_there(name)]
    detail = (
        f"{len(PRELOADED) - len(absent)} of {len(PRELOADED)}; this torch has no {', '.join(absent)}: it starts slower"
    )
    detail = detail if absent else f"all {len(PRELOADED)}"
    return [*checks, Check("modules imported before a first capture", True, detail)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that contains it is missing
        return False


def require() -> None:
    """Raise UnsupportedError, with a one-line message, unless ddefuzz supports this torch."""
    torch = str(importlib.import_module("torch").__version__)
    version = tuple(int(part) for part in torch.split("+", maxsplit=1)[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise UnsupportedError(
            f"torch {torch} is older than {'.'.join(map(str, OLDEST_TORCH))}, "
            "the first whose guards ddefuzz can watch; only the repro scripts run under it"
        )
    broken = [row for row in check(SWEEP_ONLY) if not row.ok]
    if broken:
        raise UnsupportedError(f"{broken[0].detail} (and {len(broken) - 1} more; see `ddefuzz doctor`)")


def names_of(rows: Iterable[Api]) -> frozenset[str]:
    """The own names of rows."""
    return frozenset(row.name for row in rows)
