"""Tables of plumbing: internal C++ and Python frames of torch that only pass a decision on, each with its reason.

Plumbing lies between the function that makes a decision and the guard. Rows are prefixes: of C++ names as
`cxx.function_name` returns them, and of Python files relative to the folder that holds torch. C++ rows name
namespaces and classes rather than functions, because a new torch adds functions. Example: 2.15 reads sizes through
`c10::SymbolicShapeMeta::set_materialized_sizes` and dispatches through `c10::OperatorHandle`, which 2.13 did not.
"""

from __future__ import annotations

from typing import NamedTuple

from ddefuzz.classify.signature import Site
from ddefuzz.instrument.events import PROGRAM_FILE, TYPED_FILES, Frame


class Prefix(NamedTuple):
    """A prefix of a C++ function's name or of a Python file."""

    prefix: str
    reason: str


CXX_SYMBOLS: tuple[Prefix, ...] = (
    Prefix("torch::impl::PythonSymNodeImpl", "calls from a C++ symbol to Python"),
    Prefix("pybind11::detail::", "the call from C++ to Python"),
    Prefix("c10::Sym", "a symbolic value's own operators"),
    Prefix("c10::Scalar", "conversion of a value that holds a symbol"),
    Prefix("c10::operator", "comparison of a symbol with a number"),
)
"""The C++ operators that guard. The frame outside of them is the code that used them."""

OPERATOR_FILES: tuple[Prefix, ...] = (
    Prefix(
        "c10/core/Sym", "the operators of SymInt.h, SymBool.h and SymFloat.h, and the sizes of SymbolicShapeMeta.cpp"
    ),
    Prefix("c10/core/Scalar", "the conversions of Scalar.h"),
    Prefix("torch/csrc/", "the parsing of Python arguments"),
    Prefix("aten/src/ATen/core/", "the conversion of boxed arguments"),
)
"""C++ files whose inline operators pass their own file and line to the guard. Any other file passed is that of the
code that guards.
"""

FUNCTIONAL_TENSOR = "at::FunctionalTensorWrapper::"
"""The wrapper of a functional tensor. It reads the sizes of the tensor that it wraps by a second native call,
inside of the one that guards.
"""

CXX: tuple[Prefix, ...] = (
    Prefix("c10::", "symbols, tensors' metadata, boxing and dispatch"),
    Prefix("torch::", "bindings to Python, parsing of arguments, calls by schema, the autograd engine"),
    Prefix("pybind11::", "binding"),
    Prefix("std::", "the standard library"),
    Prefix("at::_ops::", "dispatch: the op as the dispatcher calls it"),
    Prefix("at::Tensor", "a tensor's sizes, strides or value as plain numbers: the code that reads them decides"),
    Prefix("at::FunctionalTensorWrapper::", "calls from a functional tensor to the tensor that it wraps"),
    Prefix("at::functorch::", "calls from a batched tensor to the tensor that it wraps, and vmap's dispatch"),
    Prefix("at::native::is_nonzero", "a tensor's value as a bool: the code that branches decides"),
    Prefix("at::is_scalar_tensor_true", "a tensor's value as a bool: the code that branches decides"),
    Prefix("(anonymous namespace)::", "dispatch: a boxed fallback, not an op, registered in an unnamed namespace"),
)
"""Namespaces and classes of C++ plumbing. Anything in no row is code of an op: `at::native::`, `at::meta::`,
`sdp::`, and the namespaces of users' own ops.
"""

CXX_SITES: tuple[Prefix, ...] = (
    Prefix("c10::SymbolicShapeMeta::compute_", "decides a tensor's memory format"),
    Prefix("torch::autograd::VariableType::", "autograd kernels of ops"),
    Prefix("torch::autograd::generated::", "backward formulas of ops"),
    Prefix("torch::autograd::utils::", "decides the layout of a gradient"),
    Prefix("at::functorch::(anonymous namespace)::", "batching rules of ops"),
)
"""Exceptions from `CXX`: code under one of its rows that makes decisions."""

GUARDS: tuple[Prefix, ...] = (
    Prefix("torch/fx/experimental/", "guards, symbols and proxies"),
    Prefix("torch/utils/_sympy/", "symbolic arithmetic"),
    Prefix("torch/__init__.py", "SymInt, SymBool and SymFloat"),
    Prefix("sympy/", "symbolic arithmetic"),
)
"""Files that every guard passes through. They are never a site, not even if no other frame is left."""

PYTHON: tuple[Prefix, ...] = (
    *GUARDS,
    Prefix("torch/_subclasses/", "fake and functional tensors"),
    Prefix("torch/_ops.py", "dispatch"),
    Prefix("torch/_dispatch/", "dispatch"),
    Prefix("torch/_library/", "dispatch of custom ops"),
    Prefix("torch/library.py", "dispatch of custom ops"),
    Prefix("torch/_tensor.py", "methods of a tensor that go on to an op"),
    Prefix("torch/_jit_internal.py", "boolean dispatch"),
    Prefix("torch/overrides.py", "overrides of torch functions"),
    Prefix("torch/_decomp/__init__.py", "registration of decompositions"),
    Prefix("torch/_compile.py", "dynamo on and off"),
    Prefix("torch/_dynamo/", "dynamo: the caller is in the stack that it interprets"),
    Prefix("torch/_utils_internal.py", "decorators of dynamo"),
    Prefix("torch/_logging/", "logging"),
    Prefix("torch/_guards.py", "the context of a trace"),
    Prefix("torch/_higher_order_ops/utils.py", "tracing of a branch"),
    Prefix("torch/_functorch/", "tracing for autograd"),
    Prefix("torch/_inductor/compile_fx.py", "entry of a backend"),
    Prefix("torch/_inductor/debug.py", "entry of a backend"),
    Prefix("torch/_inductor/graph.py", "running of a graph"),
    Prefix("torch/_export/non_strict_utils.py", "overrides of torch functions"),
    Prefix("torch/_export/wrappers.py", "wrapping of a module"),
    Prefix("torch/_export/utils.py", "wrapping of a module"),
    Prefix("torch/export/", "export itself"),
    Prefix("torch/fx/_symbolic_trace.py", "tracing"),
    Prefix("torch/fx/_lazy_graph_module.py", "running of a graph"),
    Prefix("torch/fx/graph_module.py", "running of a graph"),
    Prefix("torch/fx/interpreter.py", "running of a graph"),
    Prefix("torch/fx/traceback.py", "tracing"),
    Prefix("torch/nn/modules/module.py", "calling of a module"),
    Prefix("torch/utils/_contextlib.py", "decorators"),
    Prefix("torch/utils/_python_dispatch.py", "dispatch"),
    Prefix("torch/utils/_pytree.py", "mapping over arguments"),
    Prefix("torch/utils/_stats.py", "decorators"),
    Prefix("torch/utils/_traceback.py", "stacks"),
    Prefix("contextlib.py", "the standard library"),
    Prefix("functools.py", "the standard library"),
    Prefix("pebble/", "the worker that runs the case"),
    Prefix("concurrent/", "the worker that runs the case"),
    Prefix("multiprocessing/", "the worker that runs the case"),
    Prefix("threading.py", "the worker that runs the case"),
    Prefix("runpy.py", "the worker that runs the case"),
)

PYTHON_SITES: tuple[Prefix, ...] = (
    Prefix("torch/_subclasses/fake_impls.py", "how an op computes on fake tensors: code of the op"),
    Prefix("torch/_functorch/partitioners.py", "decides what is saved for backward"),
    Prefix("torch/_functorch/_aot_autograd/functional_utils.py", "regenerates views"),
    Prefix("torch/_functorch/vmap.py", "compares the sizes that are mapped over"),
)
"""Exceptions from `PYTHON`: code under one of its rows that makes decisions."""

PYTHON_FUNCTIONS: tuple[tuple[str, str, str], ...] = (
    ("torch/autograd/graph.py", "_engine_run_backward", "the entry of the autograd engine"),
    ("torch/nested/_internal/nested_tensor.py", "__torch_function__", "passes each op of a jagged tensor on"),
    ("torch/_prims_common/__init__.py", "eval_eager", "evaluates the bool for its caller"),
    ("torch/_prims_common/__init__.py", "is_contiguous", "its caller says what to do without an answer (false_if_dde)"),
    ("torch/_prims_common/__init__.py", "check_contiguous_sizes_strides", "the same"),
    ("torch/_prims_common/wrappers.py", "_fn", "a decomposition in its decorator"),
    ("torch/_prims_common/wrappers.py", "_autograd_impl", "a prim in its decorator"),
    ("torch/_prims_common/wrappers.py", "redispatch_prim", "a prim in its decorator"),
    ("torch/_prims_common/wrappers.py", "_maybe_convert_to_dtype", "conversion of a decomposition's arguments"),
    ("torch/_prims/__init__.py", "_prim_impl", "a prim as an op"),
    ("torch/_prims/__init__.py", "_autograd_impl", "a prim as an op"),
    ("torch/_prims/__init__.py", "_backend_select_impl", "a prim as an op"),
    ("torch/_inductor/sizevars.py", "evaluate_expr", "passes inductor's guards to evaluate_expr"),
    ("torch/_inductor/sizevars.py", "guard_or_false", "passes inductor's guards to evaluate_expr"),
    ("torch/_inductor/sizevars.py", "guard_or_true", "passes inductor's guards to evaluate_expr"),
    ("torch/_inductor/sizevars.py", "expect_true", "passes inductor's assertions to the ShapeEnv"),
    ("torch/_inductor/sizevars.py", "check", "passes inductor's assertions to the ShapeEnv"),
    ("torch/_inductor/sizevars.py", "check_equals", "passes inductor's assertions to the ShapeEnv"),
    ("torch/_inductor/sizevars.py", "check_equals_and_simplify", "passes inductor's assertions to the ShapeEnv"),
    ("torch/_inductor/sizevars.py", "check_leq", "passes inductor's assertions to the ShapeEnv"),
    ("torch/_inductor/sizevars.py", "check_lt", "passes inductor's assertions to the ShapeEnv"),
)
"""File, function and reason: single functions of other files that are plumbing."""

DECOMPOSING = ("torch/_decomp/", "torch/_prims", "torch/_refs/")
"""Files with decompositions of ops. Before one runs, its code is often asked what the result looks like."""

BELOW_OPS = (
    *(*DECOMPOSING, "torch/_meta_registrations.py", "torch/_subclasses/"),
    *("torch/_inductor/", "torch/distributed/"),
)
"""Files whose code runs below an op. An export has the op, whose kernel decides by itself."""


def is_traced(site: Site | None) -> bool:
    """Whether an exported graph has what code does: Python above the ops, such as torch/nn/functional.py."""
    return site is not None and site.language == "Python" and not str(site.module).startswith(BELOW_OPS)


INDUCTOR = "torch/_inductor/"
TRACED_IN_INDUCTOR = ("torch/_inductor/decomposition.py", "torch/_inductor/fx_passes/")
"""Files of inductor whose code is traced: a graph has its assertions."""

TRACER = Prefix("torch/_dynamo/symbolic_convert.py", "dynamo's interpreter: frames outside of it are not the program's")


def is_cxx_plumbing(name: str) -> bool:
    """Whether a C++ function, named as by `cxx.function_name`, is plumbing."""
    if any(name.startswith(row.prefix) for row in CXX_SITES):
        return False
    return name in {"", "??"} or any(name.startswith(row.prefix) for row in CXX)


def is_cxx_symbol(name: str) -> bool:
    """Whether a C++ function, named as by `cxx.function_name`, is an operator of a symbolic value."""
    return name in {"", "??"} or any(name.startswith(row.prefix) for row in CXX_SYMBOLS)


def is_operator_file(file: str) -> bool:
    """Whether a C++ file is an operator's own, not that of the function that guards."""
    return any(file.startswith(row.prefix) for row in OPERATOR_FILES)


def is_python_plumbing(frame: Frame) -> bool:
    """Whether a Python frame is plumbing. Generated code (`<string>`, `<eval_with_key>.3`) is."""
    if frame.file.startswith("<"):
        return not frame.file.startswith((PROGRAM_FILE, *TYPED_FILES))
    if any(frame.file.startswith(row.prefix) for row in PYTHON_SITES):
        return False
    if any((frame.file, frame.function) == (file, function) for file, function, _ in PYTHON_FUNCTIONS):
        return True
    return any(frame.file.startswith(row.prefix) for row in PYTHON)


def is_guard_plumbing(frame: Frame) -> bool:
    """Whether every guard passes through this frame's file."""
    return any(frame.file.startswith(row.prefix) for row in GUARDS)


def is_framework(frame: Frame) -> bool:
    """Whether a Python frame is torch's own code."""
    return frame.file.startswith("torch/")
