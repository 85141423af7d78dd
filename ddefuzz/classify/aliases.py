"""Reviewed aliases: functions that the compiler inlined into their callers, and decisions that have two anchors.

For an inlined function, or a static one that a quoted stack cannot name, the stack names the caller only, and the
guard's C++ file and line are those of the operator's header. Each row was written after reading torch's source, which
the row names. A row replaces the caller only if the guard is one that the inlined function evaluates. Where a build of
torch does not inline the function, its own frame is the site and no row is needed.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class InlinedFunction(NamedTuple):
    """In `caller`, the guard `guard` is evaluated by the inlined `function`, defined in torch's `source`.

    `guard` is the beginning of an anchor, or of the message of an exception.
    """

    caller: str
    guard: str
    function: str
    source: str


INLINED: tuple[InlinedFunction, ...] = (
    InlinedFunction(
        "at::native::feature_dropout",
        "guard_bool operator==",
        "at::native::(anonymous namespace)::_dropout_impl",
        "aten/src/ATen/native/Dropout.cpp: `input.sym_numel() == 0`, the only comparison of a size there",
    ),
    InlinedFunction(
        "at::native::cosine_similarity",
        "guard_bool operator==",
        "at::expand_outplace",
        "aten/src/ATen/ExpandUtils.h: `s1.equals(s2)`; Distance.cpp compares no sizes itself",
    ),
    InlinedFunction(
        "at::native::cross",
        "guard_bool operator==",
        "at::native::_default_cross_dim",
        "aten/src/ATen/native/Cross.cpp: `sizes[i] == 3`",
    ),
    InlinedFunction(
        "at::native::sum_to_size_symint",
        "guard_bool operator!=",
        "at::is_expandable_to",
        "aten/src/ATen/ExpandUtils.h: `size != target && size != 1`, checked before `sum_to`",
    ),
    *(
        InlinedFunction(
            f"c10::SymbolicShapeMeta::compute_strides_like_channels_last_{dims}",
            "guard_bool operator",
            f"c10::is_channels_last_strides_{dims}_{rank}",
            "c10/core/MemoryFormat.h: `sizes[d] == 0`, `strides[d] < min`, `sizes[d] > 1`; the caller compares nothing",
        )
        for dims, rank in (("2d", "s4"), ("3d", "s5"))
    ),
    InlinedFunction(
        "at::native::group_norm",
        "guard_bool operator==",
        "at::native::check_group_norm_inputs",
        "aten/src/ATen/native/group_norm.cpp: `C % num_groups == 0` and `numel(weight) == C`, the first checks",
    ),
    InlinedFunction(
        "at::meta::structured_argmax::meta",
        "RuntimeError: Cannot call numel()",
        "at::meta::check_argmax_argmin",
        "aten/src/ATen/native/ReduceOps.cpp: `self.numel() != 0` where no dim is given",
    ),
    InlinedFunction(
        "at::meta::structured_argmin::meta",
        "RuntimeError: Cannot call numel()",
        "at::meta::check_argmax_argmin",
        "aten/src/ATen/native/ReduceOps.cpp: `self.numel() != 0` where no dim is given",
    ),
    InlinedFunction(
        "at::meta::structured_scatter_src::meta",
        "RuntimeError: Cannot call numel()",
        "at::native::scatter_gather_dtype_check",
        "aten/src/ATen/native/ScatterGatherChecks.h: `index.numel() != 0`, the first check of `scatter_meta_impl`",
    ),
    InlinedFunction(
        "at::meta::structured_scatter_add::meta",
        "RuntimeError: Cannot call numel()",
        "at::native::scatter_gather_dtype_check",
        "aten/src/ATen/native/ScatterGatherChecks.h: `index.numel() != 0`, the first check of `scatter_meta_impl`",
    ),
    InlinedFunction(
        "at::meta::structured_index_reduce::meta",
        "RuntimeError: Cannot call numel()",
        "at::meta::index_func_meta_impl",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp: `index.numel()`, its first line; stacks do not name it",
    ),
)


ASSERTING: Final[dict[str, str]] = {
    "aten/src/ATen/EmptyTensor.h": "at::detail::check_size_nonnegative",
    "aten/src/ATen/native/Resize.h": "at::native::checkInBoundsForStorage",
}
"""The only function of a header that asserts something of sizes. An assertion has a file and a line, and no stack."""


class SameDecision(NamedTuple):
    """At `function` of `file`, the anchor `other` names the same decision as `anchor`."""

    file: str
    function: str
    other: str
    anchor: str
    reason: str


_COLLAPSED: Final = "if shape[idx] != 1: stride = min(stride, strides[idx])"

SAME_DECISIONS: tuple[SameDecision, ...] = tuple(
    SameDecision(
        "torch/_prims/__init__.py", "_collapse_view_helper", other, _COLLAPSED, "one loop: the program decides"
    )
    for other in ("shape[idx] != 1", "min(stride, strides[idx])")
)


def outlined(caller: str, guard: str) -> str:
    """The C++ function that evaluates the guard: an inlined function of the table, else `caller`."""
    callees = (row.function for row in INLINED if row.caller == caller and guard.startswith(row.guard))
    return next(callees, caller)


def decision(file: str, function: str | None, anchor: str) -> str:
    """The anchor that names a Python decision: that of the table, else the given one."""
    same = (row.anchor for row in SAME_DECISIONS if (row.file, row.function, row.other) == (file, function, anchor))
    return next(same, anchor)
