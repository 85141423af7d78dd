"""Reviewed aliases: functions that the compiler inlined into their callers, and decisions that go by two names.

A stack names the caller of an inlined function, and the guard hands over only the header of the operator that it used.
A row is written after reading torch's source, which it names. It replaces the caller only where the question is the
one that the inlined function asks; where a build does not inline the function, its own frame is the site already.
"""

from __future__ import annotations

from typing import NamedTuple


class Inlined(NamedTuple):
    """`caller` asks `question` (an anchor, or what a raised message begins with) in `function`, in torch's `source`."""

    caller: str
    question: str
    function: str
    source: str


INLINED: tuple[Inlined, ...] = (
    Inlined(
        "at::native::feature_dropout",
        "guard_bool operator==",
        "at::native::(anonymous namespace)::_dropout_impl",
        "aten/src/ATen/native/Dropout.cpp: `input.sym_numel() == 0`, the only comparison of a size there",
    ),
    Inlined(
        "at::native::cosine_similarity",
        "guard_bool operator==",
        "at::expand_outplace",
        "aten/src/ATen/ExpandUtils.h: `s1.equals(s2)`; Distance.cpp compares no sizes itself",
    ),
    Inlined(
        "at::native::cross",
        "guard_bool operator==",
        "at::native::_default_cross_dim",
        "aten/src/ATen/native/Cross.cpp: `sizes[i] == 3`",
    ),
    Inlined(
        "at::native::sum_to_size_symint",
        "guard_bool operator!=",
        "at::is_expandable_to",
        "aten/src/ATen/ExpandUtils.h: `size != target && size != 1`, checked before `sum_to`",
    ),
    Inlined(
        "at::native::group_norm",
        "guard_bool operator==",
        "at::native::check_group_norm_inputs",
        "aten/src/ATen/native/group_norm.cpp: `C % num_groups == 0` and `numel(weight) == C`, before all else",
    ),
    Inlined(
        "at::meta::structured_argmax::meta",
        "RuntimeError: Cannot call numel()",
        "at::meta::check_argmax_argmin",
        "aten/src/ATen/native/ReduceOps.cpp: `self.numel() != 0` where no dim is given",
    ),
    Inlined(
        "at::meta::structured_argmin::meta",
        "RuntimeError: Cannot call numel()",
        "at::meta::check_argmax_argmin",
        "aten/src/ATen/native/ReduceOps.cpp: `self.numel() != 0` where no dim is given",
    ),
    Inlined(
        "at::meta::structured_scatter_src::meta",
        "RuntimeError: Cannot call numel()",
        "at::native::scatter_gather_dtype_check",
        "aten/src/ATen/native/ScatterGatherChecks.h: `index.numel() != 0`, the first check of `scatter_meta_impl`",
    ),
    Inlined(
        "at::meta::structured_scatter_add::meta",
        "RuntimeError: Cannot call numel()",
        "at::native::scatter_gather_dtype_check",
        "aten/src/ATen/native/ScatterGatherChecks.h: `index.numel() != 0`, the first check of `scatter_meta_impl`",
    ),
)


class SameDecision(NamedTuple):
    """At `function` of `file` the anchor `other` is the same decision as `anchor`."""

    file: str
    function: str
    other: str
    anchor: str
    reason: str


SAME_DECISIONS: tuple[SameDecision, ...] = (
    SameDecision(
        "torch/_prims/__init__.py",
        "_collapse_view_helper",
        "min(stride, strides[idx])",
        "shape[idx] != 1",
        "one loop, `if shape[idx] != 1: stride = min(stride, strides[idx])`: the program says which has a symbol",
    ),
)


def outlined(caller: str, question: str) -> str:
    """The C++ function that asks, where the compiler inlined it into `caller`; else the caller."""
    found = (row.function for row in INLINED if row.caller == caller and question.startswith(row.question))
    return next(found, caller)


def decision(file: str, function: str | None, anchor: str) -> str:
    """The anchor under which a Python decision is known."""
    same = (row.anchor for row in SAME_DECISIONS if (row.file, row.function, row.other) == (file, function, anchor))
    return next(same, anchor)
