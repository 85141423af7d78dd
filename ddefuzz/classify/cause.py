"""The causes of failures: why a capture fails and who can fix it, with the rules that lead to each cause, and the
record of a failure that they have been applied to.

The first rule that applies decides. Every rule has a golden file from a real failure. `tests/classify/causes_page.py`
generates `docs/causes.md` from the tables in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from ddefuzz.classify import evidence
from ddefuzz.classify.anchor import bound_op, callee
from ddefuzz.classify.chain import Location
from ddefuzz.classify.evidence import CONVERSIONS, Evidence
from ddefuzz.classify.failure import Failure
from ddefuzz.classify.signature import Cause, Signature, Site, Verdict
from ddefuzz.instrument.events import Frame, RaisedError


class Meaning(NamedTuple):
    """One cause. `fix` says who has to change what. `counts` says whether failures of this cause are findings
    about PyTorch.

    Causes that PyTorch can fix count, and so does `unclassified`. Only causes that count make a campaign fail
    and appear in its headline.
    """

    cause: Cause
    meaning: str
    fix: str
    counts: bool
    example: str


CAUSES: tuple[Meaning, ...] = (
    Meaning(
        "avoidable",
        "PyTorch branches on a size or value where a fallback, torch._check or a symbolic form would do",
        "PyTorch: that branch",
        True,
        "torch.diff(x[mask], dim=0)",
    ),
    Meaning(
        "symbolic-form",
        "PyTorch branches on a size or value, and an experiment shows that either answer is wrong at some size",
        "PyTorch: code there that is right for both answers (torch.where, torch.sym_max), without a branch",
        True,
        "torch.nn.functional.upsample_bilinear(x[..., mask], scale_factor=2)",
    ),
    Meaning(
        "int-required",
        "PyTorch requires a plain number (in a schema, a binding, a C++ kernel or its Python) where a symbol would do",
        "PyTorch: SymInt instead of int there",
        True,
        "torch.kron(x[mask], x)",
    ),
    Meaning(
        "no-kernel",
        "the op has no fake kernel, or none that gives its output an unbacked size",
        "PyTorch, or the author of the op: a fake kernel for it",
        True,
        "torch.geqrf(x)",
    ),
    Meaning(
        "result-depends-on-data",
        "the rank, the structure or the meaning of the result depends on data",
        "the program: pass the argument or the size that decides it",
        False,
        "torch.chunk(x[mask], 2)",
    ),
    Meaning(
        "python-value",
        "the program needs a Python bool or number that depends on data",
        "the program: keep it a tensor or a symbol",
        False,
        "torch.equal(x, y)",
    ),
    Meaning(
        "refused",
        "capture rejects it by design or by a default option, whatever its sizes are",
        "the program: follow the hint of the error, use another function, or set the option",
        False,
        "x.is_same_size(y), compiled",
    ),
    Meaning(
        "user",
        "the program itself branches on data",
        "the program: torch._check, torch.cond or torch.where",
        False,
        "y if x.nonzero().shape[0] > 3 else z",
    ),
    Meaning(
        "wrong-capture",
        "the captured program has other values or strides than eager, rejects other inputs, fixes a size or asserts "
        "wrongly",
        "PyTorch: the fallback, assertion, replacement or op that is blamed",
        True,
        "torch.stack((x[mask], x[mask])), if it computed something else",
    ),
    Meaning(
        "wrong-key",
        "the key that a function makes of a tensor has too little, too much, or a guard in it",
        "PyTorch, or the author of the cache: the key function",
        True,
        "a key of dtype and sizes, for a kernel that reads strides",
    ),
    Meaning("unclassified", "no rule applies", "a person has to read it", True, "torch.arange(n, n + 2), compiled"),
)
"""All causes, in the order in which they are shown."""

MEANINGS: dict[Cause, Meaning] = {row.cause: row for row in CAUSES}

FRAMEWORK_CAUSES: frozenset[Cause] = frozenset(row.cause for row in CAUSES if row.counts)
"""The causes that count as findings about PyTorch."""


class Rule(NamedTuple):
    """One rule: `when` states its condition in words, and `example` is a one-line program that it classifies."""

    name: str
    cause: Cause
    when: str
    example: str
    applies: Callable[[Evidence], bool]


RULES: tuple[Rule, ...] = (
    Rule("no-fake-kernel", "no-kernel", "the op has no fake kernel", "torch.geqrf(x)", evidence.no_kernel),
    Rule(
        "no-unbacked-output",
        "no-kernel",
        "a size of the output is data, and the op's fake kernel makes no symbol for it",
        "torch.nonzero(x, out=y)",
        evidence.no_unbacked_output,
    ),
    Rule(
        "data-read-in-cxx",
        "avoidable",
        "C++ of PyTorch calls an op that returns a Python value of data",
        "torch.cov(x, fweights=w)",
        evidence.data_read_in_cxx,
    ),
    Rule(
        "op-returns-data",
        "python-value",
        "the program calls an op that returns a Python value of data",
        "torch.equal(x, y)",
        evidence.op_returns_data,
    ),
    Rule(
        "branch-on-a-tensor",
        "user",
        "dynamo's graph break at a branch on a tensor, in the program",
        "y if x.sum() > 0 else z, compiled",
        evidence.branch_on_a_tensor,
    ),
    Rule(
        "graph-break", "refused", "any other graph break of dynamo", "x.is_same_size(y), compiled", evidence.graph_break
    ),
    Rule(
        "reviewed-result",
        "result-depends-on-data",
        "a reviewed function of this cause",
        "torch.chunk(x[mask], 2)",
        evidence.reviewed_as("result-depends-on-data"),
    ),
    Rule(
        "outputs-by-argument",
        "result-depends-on-data",
        "an int argument from data says how many tensors the op returns",
        "torch.chunk(x, n.item())",
        evidence.outputs_by_argument,
    ),
    Rule(
        "reviewed-policy",
        "refused",
        "a reviewed function of this cause",
        "torch.cat([x[mask][:, 0], x])",
        evidence.reviewed_as("refused"),
    ),
    Rule(
        "reviewed-avoidable",
        "avoidable",
        "a reviewed function of this cause",
        "x[mask].squeeze_()",
        evidence.reviewed_as("avoidable"),
    ),
    Rule(
        "untraced-op",
        "refused",
        "capture says that it cannot trace through what the program calls",
        "torch.autograd.grad(y, x), exported",
        evidence.cannot_trace,
    ),
    Rule(
        "tensor-as-number",
        "int-required",
        "a tensor is passed to an op whose schema has a plain number there",
        "x.normal_(t)",
        evidence.tensor_as_number,
    ),
    Rule(
        "int-in-schema",
        "int-required",
        "the binding of an op makes a plain number of a symbol: the schema says int, not SymInt",
        "torch.linspace(0, 1, n.item())",
        evidence.int_in_schema,
    ),
    Rule(
        "symint-refused",
        "int-required",
        "an op's schema does not accept a symbol",
        "torch.ops.aten.unfold(x, 0, n.item(), 1)",
        evidence.symint_refused,
    ),
    Rule(
        "number-of-data",
        "python-value",
        "the program makes a Python number: int(t), float(t), range(n), a loop over a tensor",
        "float(t)",
        evidence.number_of_data,
    ),
    Rule(
        "bool-of-a-tensor",
        "python-value",
        "the program calls a method that returns a Python bool",
        "x[mask].t().is_contiguous()",
        evidence.bool_of_a_tensor,
    ),
    Rule(
        "own-branch",
        "user",
        "the program evaluates the truth of a relation",
        "y if x.nonzero().shape[0] > 3 else z",
        evidence.own_branch,
    ),
    Rule(
        "int-in-kernel",
        "int-required",
        "C++ of PyTorch reads a size or a value as a plain number",
        "torch.kron(x[mask], x)",
        evidence.int_in_kernel,
    ),
    Rule(
        "int-in-python",
        "int-required",
        "PyTorch's own Python makes a plain number of a symbol: int(size * ratio), inductor's size hints",
        "torch.nn.functional.one_hot(t), exported",
        evidence.int_in_python,
    ),
    Rule(
        "sizes-as-ints",
        "int-required",
        "C++ of PyTorch reads sizes as ints, and raises for a tensor whose sizes are symbols",
        "torch.argmax(x[mask], out=y)",
        evidence.sizes_as_ints,
    ),
    Rule(
        "undecided-minimum",
        "avoidable",
        "inductor raises an error of its own, because it cannot decide which of two sizes is smaller",
        "torch.trace(torch.stack((x[mask][:, 0],) * 2)), by inductor",
        evidence.undecided,
    ),
    Rule(
        "argument-check",
        "refused",
        "a `torch._check` in PyTorch's Python is about an argument that is no size; eager's kernel does not check it",
        "torch.grid_sampler_2d(x, y, 3, 0, False)",
        evidence.argument_check,
    ),
    Rule(
        "avoidable-branch",
        "avoidable",
        "PyTorch's own Python or C++ evaluates the truth of a relation, in no reviewed function",
        "torch.diff(x[mask], dim=0)",
        evidence.avoidable_branch,
    ),
    Rule("no-rule", "unclassified", "no rule above applies", "torch.arange(n, n + 2), compiled", evidence.anything),
)
"""All rules, in the order in which they are tried."""


def cause(failure: Failure, site: Site, anchor: str) -> Rule:
    """The first rule that applies."""
    shown = Evidence(failure, site, anchor)
    return next(rule for rule in RULES if rule.applies(shown))


class Proof(NamedTuple):
    """How the verdict of an experiment (`ddefuzz answers`) changes the cause that a rule gave.

    A cause in `overrules` becomes `cause`. Other causes stay, and so does a cause that a person set.
    """

    verdict: Verdict
    overrules: frozenset[Cause]
    cause: Cause
    why: str


_UNPROVEN: frozenset[Cause] = frozenset({"avoidable", "unclassified"})

PROOFS: tuple[Proof, ...] = (
    Proof("guard_or_false here", _UNPROVEN, "avoidable", "the fallback False was not refuted"),
    Proof("guard_or_true here", _UNPROVEN, "avoidable", "the fallback True was not refuted"),
    Proof("either answer here", _UNPROVEN, "avoidable", "neither fallback was refuted: the branch may not matter"),
    Proof("torch._check here", _UNPROVEN, "avoidable", "a run-time assertion was not refuted"),
    Proof(
        "no answer is right for all sizes",
        _UNPROVEN,
        "symbolic-form",
        "no fallback and no assertion would do: with each, what was captured was wrong at some size, or the op failed",
    ),
)
"""The verdicts that decide a cause. The others leave it as the rules, or a person, gave it."""


def by_experiment(cause: Cause, verdict: Verdict | None) -> Cause:
    """The cause, if an experiment on the guard ended with this verdict (None without an experiment)."""
    proof = next((one for one in PROOFS if one.verdict == verdict and cause in one.overrules), None)
    return cause if proof is None else proof.cause


OP_DECIDES = frozenset({"int-in-schema", "outputs-by-argument", "bool-of-a-tensor", "tensor-as-number"})
"""Rules for which the op that Python called is the site, because the op itself requires a plain number or bool."""


PROTOCOL: Mapping[str, str] = {
    "getitem": "Tensor.__getitem__",
    "index_scalar": "Tensor.__index__",
    "setitem": "Tensor.__setitem__",
}
"""Methods of Python protocols, which are no ops (tools/autograd/templates/python_variable_methods.cpp)."""


class Classification(msgspec.Struct, frozen=True):
    """A classified failure. `frame` is the frame that shows the site, `rule` the row of `cause.RULES` that applied."""

    failure: Failure
    signature: Signature
    cause: Cause
    rule: str
    frame: Frame | None = None


def ruled(failure: Failure, located: Location) -> Classification:
    """A failed capture with its signature and cause: the first row of `cause.RULES` that applies decides."""
    raised = failure.observation.raised
    rule = cause(failure, located.site, located.anchor)
    place, anchor = located.site, located.anchor
    if rule.name in OP_DECIDES and raised is not None:
        op = _op(raised, located.frame)
        place, anchor = Site("op", None, PROTOCOL.get(op, f"aten::{op}")), raised.method
    return Classification(failure, Signature(failure.kind, place, anchor), rule.cause, rule.name, located.frame)


def _op(raised: RaisedError, frame: Frame | None) -> str:
    """The op whose binding guards. If the conversion of a tensor guards, the op that the frame calls."""
    op = bound_op(raised.native)
    if frame is None or f"torch::autograd::THPVariable_{op}" not in CONVERSIONS:
        return op
    where, _, called = callee(frame).rpartition(".")
    return f"{where.rpartition('.')[2]}_{called}" if where in {"torch.fft", "torch.linalg"} else called
