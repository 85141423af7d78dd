"""Whose fault it is: a table of rules, the first that applies decides. Every rule has a golden file that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ddefuzz.classify.anchor import bound_op
from ddefuzz.classify.chain import DATA_DEPENDENT_BRANCHING, title_of
from ddefuzz.classify.cxx import asking, caller
from ddefuzz.classify.signature import Cause, Site
from ddefuzz.classify.site import USER_SITE
from ddefuzz.oracles.capture import decisive
from ddefuzz.oracles.failure import Failure

NUMBER_METHODS = frozenset({"guard_int", "guard_float", "int_", "float_", "guard_scalar"})
"""The ways to the door that want a number, not a truth."""

NUMBER_OF_A_TENSOR = ("at::Tensor::item", "at::native::item", "at::native::_local_scalar_dense", "c10::Scalar")
"""C++ through which a tensor's value becomes a Python number: it was asked for, by `int(t)` or `t.item()`."""

CONVERSIONS = ("THPVariable_integral_scalar", "THPVariable_float_scalar")
"""What `int(t)` and `float(t)` call, and the parser of arguments for a tensor where an op takes a number."""

PYTHON_NUMBERS = ("int(", "float(", "complex(", "range(", "round(", "math.")
"""How a program itself makes a number of a tensor."""

STRUCTURAL = frozenset(
    {"chunk", "unsafe_chunk", "unsafe_chunk_py_impl", "split", "unsafe_split", "unbind", "unbind_int"}
)
"""Ops that return as many tensors as a size says: no answer to their question avoids it. `tensor_split` and `hsplit`
are none: they return as many as they are told to."""

SECTIONS = frozenset({"tensor_split_sections"})
"""Ops that return as many tensors as a number says that they are given: inherent where that one depends on the data."""


KERNELS = ("at::", "sdp::", "c10::", "torch::autograd::VariableType::", "torch::autograd::generated::")
"""Namespaces of C++ that computes, unlike those of the bindings to Python."""


class Evidence(NamedTuple):
    """What a rule may look at."""

    failure: Failure
    site: Site
    anchor: str


class Rule(NamedTuple):
    """One row: `example` is a program that it decides, in a line."""

    name: str
    cause: Cause
    example: str
    applies: Callable[[Evidence], bool]


def _no_kernel(evidence: Evidence) -> bool:
    return evidence.failure.kind == "data-dependent-output" and _exception(evidence) == "UnsupportedOperatorException"


def _asked_in_cxx(evidence: Evidence) -> bool:
    """C++ of torch branches on an op's answer, which the user did not ask for."""
    if evidence.failure.kind != "data-dependent-output":
        return False
    return caller(decisive(evidence.failure.observation)[1].native) is not None


def _output_by_data(evidence: Evidence) -> bool:
    return evidence.failure.kind == "data-dependent-output"


def _branch_on_a_tensor(evidence: Evidence) -> bool:
    if evidence.failure.kind != "unsupported" or evidence.site != USER_SITE:
        return False
    return title_of(decisive(evidence.failure.observation)[1]) == DATA_DEPENDENT_BRANCHING


def _graph_break(evidence: Evidence) -> bool:
    """Dynamo has no way to trace the op or function, whatever its sizes are."""
    return evidence.failure.kind == "unsupported"


def _int_in_schema(evidence: Evidence) -> bool:
    """C++ wanted a number and no C++ but the binding of an op is there: the op's signature says int, not SymInt."""
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or raised is None or evidence.site.language == "C++":
        return False
    if raised.place.language != "C++" or raised.method not in NUMBER_METHODS or not bound_op(raised.native):
        return False
    names = [frame.function for frame in asking(raised.native)]
    return not any(part in name for part in NUMBER_OF_A_TENSOR for name in names)


def _tensor_as_number(evidence: Evidence) -> bool:
    """A tensor was handed to an op that takes a number: `x.normal_(t)`. Not so `float(t)`, which the user wrote."""
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or raised is None or evidence.site != USER_SITE:
        return False
    converted = any(part in frame.function for part in CONVERSIONS for frame in asking(raised.native))
    return converted and not evidence.anchor.startswith(PYTHON_NUMBERS)


def _symint_refused(evidence: Evidence) -> bool:
    """The same, found out by matching the call with the op's schema (torch/csrc/jit, `FunctionSchema::checkArg`)."""
    exceptions = evidence.failure.observation.exceptions
    return evidence.failure.kind == "internal-error" and any(
        "but instead found type 'SymInt'" in exception.message for exception in exceptions[-1:]
    )


def _bool_of_a_tensor(evidence: Evidence) -> bool:
    """The binding of a method that returns a Python bool asked for it: `x.is_contiguous()`, in the user's own line."""
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or raised is None or evidence.site != USER_SITE:
        return False
    return raised.place.language == "C++" and raised.method == "guard_bool" and bool(bound_op(raised.native))


def _own_branch(evidence: Evidence) -> bool:
    return evidence.failure.kind == "dde" and evidence.site == USER_SITE


def _output_structure(evidence: Evidence) -> bool:
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or evidence.site.function is None or raised is None:
        return False
    name = evidence.site.function.rpartition("::")[2].removesuffix("_symint")
    return name in STRUCTURAL or (name in SECTIONS and raised.method in NUMBER_METHODS)


def _truncation(evidence: Evidence) -> bool:
    """`int(size * ratio)` in torch's own Python: `torch.sym_int` gives a symbol."""
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or raised is None or evidence.site.language == "C++":
        return False
    return raised.method in NUMBER_METHODS and raised.place.language == "Python" and "TruncToInt" in raised.expression


def _wants_a_number(evidence: Evidence) -> bool:
    """A Python number is made of it. Not so in a C++ kernel (`self.sizes()`): it could go on with the symbol."""
    raised = evidence.failure.observation.raised
    if evidence.failure.kind != "dde" or raised is None or raised.method not in NUMBER_METHODS:
        return False
    return not (evidence.site.function or "").startswith(KERNELS)


def _otherwise(evidence: Evidence) -> bool:
    return True


RULES: tuple[Rule, ...] = (
    Rule("no-fake-kernel", "unsupported-op", "torch.geqrf(x)", _no_kernel),
    Rule("answer-wanted-in-cxx", "framework", "torch.cov(x, fweights=w)", _asked_in_cxx),
    Rule("output-by-data", "unsupported-op", "torch.equal(x, y)", _output_by_data),
    Rule("branch-on-a-tensor", "user", "y if x.sum() > 0 else z", _branch_on_a_tensor),
    Rule("int-in-schema", "inherent", "torch.chunk(x, n.item())", _int_in_schema),
    Rule("tensor-as-number", "inherent", "x.normal_(t)", _tensor_as_number),
    Rule("symint-refused", "inherent", "torch.ops.aten.chunk(x, n.item())", _symint_refused),
    Rule("bool-of-a-tensor", "inherent", "x[mask].t().is_contiguous()", _bool_of_a_tensor),
    Rule("own-branch", "user", "y if x.nonzero().shape[0] > 3 else z", _own_branch),
    Rule("output-structure", "inherent", "torch.chunk(x[mask], 2)", _output_structure),
    Rule("graph-break", "unsupported-op", "x[mask].is_same_size(x)", _graph_break),
    Rule("truncation", "framework", "fractional_max_pool2d(x[mask], 2, output_ratio=(0.5, 0.5))", _truncation),
    Rule("wants-a-number", "inherent", "torch.nn.functional.one_hot(t)", _wants_a_number),
    Rule("avoidable", "framework", "torch.diff(x[mask], dim=0)", _otherwise),
)


def cause(failure: Failure, site: Site, anchor: str) -> Rule:
    """The rule that decides."""
    evidence = Evidence(failure, site, anchor)
    return next(rule for rule in RULES if rule.applies(evidence))


def _exception(evidence: Evidence) -> str:
    return decisive(evidence.failure.observation)[1].name
