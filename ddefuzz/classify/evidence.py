"""The evidence in a raw failure: the conditions of the rules in `cause.RULES`, and the op of the program that failed.

The op is the call on the program's own line that was running. A backward graph or inductor has no frame of the program.
Then the line that torch quotes in its message is used, else the call whose backward formula runs, else the only call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import NamedTuple

from ddefuzz import syntax
from ddefuzz.classify.anchor import bound_op
from ddefuzz.classify.chain import DATA_DEPENDENT_BRANCHING, title_of
from ddefuzz.classify.failure import Failure, decisive
from ddefuzz.classify.reviews import reviewed
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.classify.site import caller, function_name, innermost_site, native_call
from ddefuzz.execute.protocol import Observation
from ddefuzz.instrument.events import PROGRAM_FILE, Frame, RaisedError
from ddefuzz.program.expressions import METHOD_PREFIX, OTHER_METHODS, ROOTS, is_mapped
from ddefuzz.program.modules import MODULE_METHODS

OUTPUTS_BY_ARGUMENT = frozenset({"chunk", "unsafe_chunk"})
"""Ops whose number of outputs is an int argument, which cannot be a symbol."""

NUMBER_METHODS = frozenset({"guard_int", "guard_float", "int_", "float_", "guard_scalar"})
"""The SymNode methods that return a plain number, not a truth value."""

CONVERSIONS = ("torch::autograd::THPVariable_integral_scalar", "torch::autograd::THPVariable_float_scalar")
"""What `int(t)` and `float(t)` call, and the argument parser when it gets a tensor for a number."""

TRUTH_OF_A_TENSOR = ("torch::autograd::THPVariable_bool_scalar", "torch::autograd::THPVariable_is_nonzero")
"""What `if t:` calls."""

ARGUMENT_PARSER = "torch::PythonArgs::"

_TRUTH = re.compile(r"\b(?:Eq|Ne)\(| [<>]=? |^~|[&|]|^(?:True|False)$")

_SIZES_AS_INTS = re.compile(
    r"Cannot call \w+\(\) on tensor with symbolic sizes/strides"
    r"|SymIntArrayRef expected to contain only concrete integers"
    r"|tried to directly modify (?:sizes|strides) for customized tensor"
)
"""Messages of C++ code that reads sizes as ints: c10/core/TensorImpl.{h,cpp}, c10/core/SymIntArrayRef.h."""

_UNTRACED = re.compile(
    r"our tracing system encountered an op that we can't trace through"
    r"|\.numpy\(\) is not supported for tensor subclasses"
    r"|Cannot access data pointer of Tensor \(e\.g\. FakeTensor"
    r"|Found a custom \(non-ATen\) operator whose output has alias annotations"
)
"""Messages of torch/export/_trace.py (`_export_for_training`), torch/csrc/utils/tensor_numpy.cpp,
c10/core/StorageImpl.cpp and aten/src/ATen/FunctionalizeFallbackKernel.cpp.
"""

_UNDECIDED = re.compile(r"\bwith unbacked symints\b")
"""A message of torch/_inductor/sizevars.py (`evaluate_min`)."""

_ARGUMENT_CHECK = re.compile(r"\w+: torch\._check\w*\((?!.*(?:shape|size|numel|stride|dim\b|len\())")
"""The anchor of an error that `torch._check` raises, if its condition is not about sizes."""

_NO_FAKE_IMPL = re.compile(r"There was no fake impl registered for")
"""A message of torch/_library/custom_ops.py, `CustomOpDef`."""


class Evidence(NamedTuple):
    """The input of a rule's condition."""

    failure: Failure
    site: Site
    anchor: str


def reviewed_as(cause: Cause) -> Callable[[Evidence], bool]:
    def applies(evidence: Evidence) -> bool:
        row = reviewed(evidence.site, evidence.anchor)
        return row is not None and row.cause == cause

    return applies


def outputs_by_argument(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    op = bound_op(raised.native) if raised is not None and int_in_schema(evidence) else _rejecting_op(evidence)
    return op in OUTPUTS_BY_ARGUMENT


def no_kernel(evidence: Evidence) -> bool:
    return _raised_for_output(evidence, "UnsupportedOperatorException") or _says(evidence, _NO_FAKE_IMPL)


def no_unbacked_output(evidence: Evidence) -> bool:
    return _raised_for_output(evidence, "DynamicOutputShapeException")


def data_read_in_cxx(evidence: Evidence) -> bool:
    if not _raised_for_output(evidence, "DataDependentOutputException"):
        return False
    return caller(decisive(evidence.failure.observation)[1].native) is not None


def op_returns_data(evidence: Evidence) -> bool:
    return _raised_for_output(evidence, "DataDependentOutputException")


def branch_on_a_tensor(evidence: Evidence) -> bool:
    return _graph_break_title(evidence) == DATA_DEPENDENT_BRANCHING and not _in_torch(evidence)


def graph_break(evidence: Evidence) -> bool:
    return _graph_break_title(evidence) not in (None, DATA_DEPENDENT_BRANCHING)


def cannot_trace(evidence: Evidence) -> bool:
    return _says(evidence, _UNTRACED)


def tensor_as_number(evidence: Evidence) -> bool:
    """A tensor was passed to an op whose schema has a plain number there. The program's own `float(t)` does not
    count.
    """
    raised = _guard(evidence)
    if raised is None or evidence.site.language == "C++":
        return False
    names = [function_name(frame.function) for frame in raised.native]
    at = [index for index, name in enumerate(names) if name.startswith(CONVERSIONS)]
    return bool(at) and at[-1] > 0 and names[at[-1] - 1].startswith(ARGUMENT_PARSER)


def reads_a_tensor(raised: RaisedError) -> bool:
    """Whether Python made a plain number of a tensor (`int(t)`), not of a size."""
    return _converts(raised, CONVERSIONS)


def int_in_schema(evidence: Evidence) -> bool:
    """C++ requires a number, and the only C++ frames are those of an op's binding: the op's signature has int,
    not SymInt.
    """
    raised = _guard(evidence)
    if raised is None or raised.place.language != "C++" or raised.method not in NUMBER_METHODS:
        return False
    return bool(bound_op(raised.native)) and innermost_site(raised) is None and not _converts(raised, CONVERSIONS)


def symint_refused(evidence: Evidence) -> bool:
    """The same, detected when the call was matched with the op's schema (torch/csrc/jit,
    `FunctionSchema::checkArg`).
    """
    return _rejecting_op(evidence) is not None


def number_of_data(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    return raised is not None and raised.method in NUMBER_METHODS and not _in_torch(evidence)


def bool_of_a_tensor(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    if raised is None or raised.place.language != "C++" or raised.method != "guard_bool" or _in_torch(evidence):
        return False
    return bool(bound_op(raised.native)) and not _converts(raised, TRUTH_OF_A_TENSOR)


def own_branch(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    return raised is not None and _is_truth(raised) and not _in_torch(evidence)


def int_in_kernel(evidence: Evidence) -> bool:
    return _needs_a_number(evidence) and evidence.site.language == "C++"


def int_in_python(evidence: Evidence) -> bool:
    return _needs_a_number(evidence) and _in_torch(evidence)


def sizes_as_ints(evidence: Evidence) -> bool:
    return _says(evidence, _SIZES_AS_INTS)


def undecided(evidence: Evidence) -> bool:
    return _says(evidence, _UNDECIDED)


def argument_check(evidence: Evidence) -> bool:
    return evidence.failure.kind == "internal-error" and bool(_ARGUMENT_CHECK.match(evidence.anchor))


def avoidable_branch(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    return raised is not None and _is_truth(raised) and _in_torch(evidence)


def anything(evidence: Evidence) -> bool:
    return True


def _guard(evidence: Evidence) -> RaisedError | None:
    """The data-dependent error, if the failure is one."""
    return evidence.failure.observation.raised if evidence.failure.kind == "dde" else None


def _is_truth(raised: RaisedError) -> bool:
    """Whether the truth of a relation was needed, not a number. Some methods do both, such as `unary_magic_impl`."""
    return raised.method not in NUMBER_METHODS and bool(_TRUTH.search(raised.expression))


def _needs_a_number(evidence: Evidence) -> bool:
    raised = _guard(evidence)
    return raised is not None and not _is_truth(raised)


def _in_torch(evidence: Evidence) -> bool:
    """Whether PyTorch's own code guards: a C++ function or a file of torch, not a line of the program and not an op."""
    site = evidence.site
    return site.language == "C++" or (site.language == "Python" and (site.module or "").startswith("torch/"))


def _converts(raised: RaisedError, bindings: tuple[str, ...]) -> bool:
    return any(function_name(frame.function).startswith(bindings) for frame in native_call(raised.native))


def _raised_for_output(evidence: Evidence, name: str) -> bool:
    if evidence.failure.kind != "data-dependent-output":
        return False
    return decisive(evidence.failure.observation)[1].name == name


def _graph_break_title(evidence: Evidence) -> str | None:
    if evidence.failure.kind != "unsupported":
        return None
    return title_of(decisive(evidence.failure.observation)[1])


def _says(evidence: Evidence, message: re.Pattern[str]) -> bool:
    return evidence.failure.kind == "internal-error" and bool(message.search(_root_message(evidence)))


def _root_message(evidence: Evidence) -> str:
    exceptions = evidence.failure.observation.exceptions
    return exceptions[-1].message if exceptions else ""


def _rejecting_op(evidence: Evidence) -> str | None:
    """The op whose schema does not accept a symbol."""
    if evidence.failure.kind != "internal-error":
        return None
    message = _root_message(evidence)
    match = re.match(r"\w+::(\w+)\(\)", message)
    return match[1] if match and "but instead found type 'SymInt'" in message else None


GRADIENTS = frozenset({"torch.autograd.grad", "Tensor.backward"})
"""The calls that run the backward formulas of other calls."""

_QUOTED_LINE = re.compile(rf'File "{re.escape(PROGRAM_FILE)}", line \d+, in \w+[^\S\n]*\n\s*(?P<code>[^\s~^].*)')
_BACKWARD = re.compile(r"^torch::autograd::generated::(?P<op>\w+)Backward\w*::apply$")


def failing_ops(observation: Observation, program: str = "") -> tuple[str, ...]:
    """The catalogue function that the program called at the failing line; empty if it is not known.

    Of several calls on the line, the outermost is taken, because the others make its arguments. `program` is
    the program's text, for failures without a line of it.
    """
    frame = _program_frame(observation)
    calls = called(frame.code, exact=frame.exact) if frame is not None else _quoted(observation)
    if calls and calls[0] in GRADIENTS:
        # The backward formula of another call fails, if it is known which.
        others = tuple(call for call in called(program) if call not in GRADIENTS)
        return _of_backward(observation, others) or calls[:1]
    return calls[:1] or _of_backward(observation, called(program))


def _program_frame(observation: Observation) -> Frame | None:
    raised = observation.raised
    stacks = [] if raised is None else [raised.traced, raised.python]
    for error in observation.exceptions:
        stacks += [error.traced, error.frames]
    innermost_first = (frame for stack in stacks for frame in reversed(stack))
    return next((frame for frame in innermost_first if frame.file == PROGRAM_FILE), None)


def _quoted(observation: Observation) -> tuple[str, ...]:
    lines = (match["code"] for error in observation.exceptions for match in _QUOTED_LINE.finditer(error.message))
    return next(filter(None, map(called, lines)), ())


def _of_backward(observation: Observation, calls: tuple[str, ...]) -> tuple[str, ...]:
    """The call whose name is that of the running backward formula, or an alias of it; else the only call."""
    native = observation.raised.native if observation.raised is not None else ()
    formulas = (_BACKWARD.match(function_name(frame.function)) for frame in reversed(native))
    formula = next((match["op"].lower() for match in formulas if match), "")
    names = {call: call.rpartition(".")[2].replace("_", "") for call in calls}
    # `LinalgPinvBackward0` is the formula of torch.linalg.pinv, and of torch.pinverse.
    short = re.sub("^(linalg|special|fft)", "", formula)
    for call, name in names.items():
        if formula and name in (formula, short):
            return (call,)
    for call, name in names.items():
        if short != formula and name.startswith(short):
            return (call,)
    return calls if len(calls) == 1 else ()


def called(code: str, *, exact: bool = False) -> tuple[str, ...]:
    """The functions that the code calls, the outermost first. `exact` says that the outermost is the one that runs."""
    tree = syntax.parsed_statements(code.strip()) or []
    # The body of a function only: types of its parameters are subscripts too. `ast.walk` is breadth first.
    statements = [body for one in tree for body in (one.body if isinstance(one, ast.FunctionDef) else [one])]
    nodes = (node for statement in statements for node in ast.walk(statement))
    return tuple(name for node in nodes if (name := _function(node, exact=exact)) is not None)


def _function(node: ast.AST, *, exact: bool) -> str | None:
    match node:
        case ast.Call(ast.Call() as inner) if not is_mapped(inner):
            return None  # `torch.func.grad(lambda …)(x)`, `torch.nn.Linear(4, 3)(x)`: the inner call is a node, too
        case ast.Call(ast.Attribute(ast.Call(), attribute)) if attribute in MODULE_METHODS:
            return None  # `torch.nn.Linear(4, 3).eval()`
        case ast.Call(func):
            dotted = ast.unparse(func)
            if isinstance(func, ast.Attribute) and not (dotted.partition(".")[0] in ROOTS and _is_path(func)):
                return f"{OTHER_METHODS.get(func.attr, METHOD_PREFIX)}{func.attr}"
            return dotted
        case ast.Subscript(ast.Tuple() | ast.List()) | ast.Subscript(ast.Attribute(attr="shape")):
            return None  # not a tensor's
        case ast.Subscript(ast.Call(), ast.Constant(int())) if not exact:
            return None
        case ast.Subscript():
            return "Tensor.__getitem__"
        case ast.BinOp(op=op):
            return f"operator.{_OPERATORS.get(type(op), type(op).__name__.lower())}"
        case _:
            return None


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
