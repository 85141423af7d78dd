"""Functions of PyTorch whose cause was determined by reading their source, because the rules would give another."""

from __future__ import annotations

from typing import NamedTuple

from ddefuzz.classify.signature import Cause, Site


class ReviewedFunction(NamedTuple):
    """One reviewed function of PyTorch. `anchor` is the beginning of its anchor."""

    site: str
    anchor: str
    cause: Cause
    why: str
    source: str


REVIEWED: tuple[ReviewedFunction, ...] = (
    ReviewedFunction(
        "at::native::chunk",
        "",
        "result-depends-on-data",
        "returns as many tensors as the size allows",
        "aten/src/ATen/native/TensorShape.cpp, chunk",
    ),
    ReviewedFunction(
        "torch/_decomp/decompositions.py:unsafe_chunk_py_impl",
        "",
        "result-depends-on-data",
        "returns as many tensors as the size allows",
        "torch/_decomp/decompositions.py, unsafe_chunk_py_impl",
    ),
    ReviewedFunction(
        "torch/_refs/__init__.py:chunk",
        "",
        "result-depends-on-data",
        "returns as many tensors as the size allows",
        "torch/_refs/__init__.py, chunk",
    ),
    ReviewedFunction(
        "torch/_decomp/decompositions.py:split",
        "",
        "result-depends-on-data",
        "returns size / split_size tensors",
        "torch/_decomp/decompositions.py, split",
    ),
    ReviewedFunction(
        "torch/_refs/__init__.py:unbind",
        "",
        "result-depends-on-data",
        "returns as many tensors as the size",
        "torch/_refs/__init__.py, unbind",
    ),
    ReviewedFunction(
        "at::native::tensor_split_sections_symint",
        "guard_int",
        "result-depends-on-data",
        "returns as many tensors as the argument says; its other guards are about their sizes",
        "aten/src/ATen/native/TensorShape.cpp, tensor_split_sections_symint",
    ),
    ReviewedFunction(
        "at::native::_default_cross_dim",
        "guard_bool operator==",
        "result-depends-on-data",
        "without dim= it uses the first dim of size 3",
        "aten/src/ATen/native/Cross.cpp, _default_cross_dim",
    ),
    ReviewedFunction(
        "torch/_meta_registrations.py:linalg_solve_is_vector_rhs",
        "",
        "result-depends-on-data",
        "the sizes of the right side decide whether it is a batch of vectors or a matrix",
        "torch/_meta_registrations.py, linalg_solve_is_vector_rhs",
    ),
    ReviewedFunction(
        "torch/_refs/__init__.py:squeeze",
        "size == 1",
        "avoidable",
        "the rank depends on data, but torch.squeeze keeps such a dim by a fallback, and this could do the same",
        "torch/_refs/__init__.py, squeeze (with and without dim=)",
    ),
    ReviewedFunction(
        "at::native::inferSqueezeGeometry",
        "guard_bool operator!=",
        "avoidable",
        "the rank depends on data, but torch.squeeze keeps such a dim by a fallback, and squeeze_ could do the same",
        "aten/src/ATen/native/TensorShape.cpp, inferSqueezeGeometry; torch/_refs/__init__.py, squeeze",
    ),
    ReviewedFunction(
        "at::native::cross_entropy_loss_symint",
        "guard_bool operator==",
        "avoidable",
        "equal sizes mean that the target has probabilities, but its dtype shows that as well",
        "aten/src/ATen/native/LossNLL.cpp, cross_entropy_loss_symint",
    ),
    ReviewedFunction(
        "torch/nn/functional.py:linear_cross_entropy",
        "target.shape == logits_shape",
        "avoidable",
        "equal sizes mean that the target has probabilities, but its dtype shows that as well",
        "torch/nn/functional.py, linear_cross_entropy",
    ),
    ReviewedFunction(
        "at::native::diff_helper",
        "guard_int",
        "avoidable",
        "limits n to the size; if n is larger, the result is empty for every size",
        "aten/src/ATen/native/ReduceOps.cpp, diff_helper",
    ),
    ReviewedFunction(
        "torch/_meta_registrations.py:meta_gather",
        "RuntimeError: torch._check(index.dtype",
        "avoidable",
        "an empty index may have any dtype; the check of its size could be a run-time assertion",
        "torch/_meta_registrations.py, meta_gather",
    ),
    ReviewedFunction(
        "torch/_refs/__init__.py:cat",
        "RuntimeError: torch._check(guard_or_false(tensor.shape[0] == 0)",
        "refused",
        "a 1-d tensor among others is skipped only if it is known to be empty; the comment there calls this a policy",
        "torch/_refs/__init__.py, cat",
    ),
    ReviewedFunction(
        "torch/nn/attention/flex_attention.py:flex_attention",
        "torch._dynamo.mark_static(",
        "refused",
        "the number of heads and the size of a head are static; the comment there says so",
        "torch/nn/attention/flex_attention.py, flex_attention",
    ),
    ReviewedFunction(
        "torch/_refs/__init__.py:_broadcast_shapes",
        "RuntimeError: torch._check(common_shape[idx] == shape[idx]",
        "refused",
        "a size that is 1 only at run time is never broadcast; the comment there says so",
        "torch/_refs/__init__.py, _broadcast_shapes",
    ),
    ReviewedFunction(
        "torch/distributed/tensor/_ops/_view_ops.py:_analyze_flatten",
        "RuntimeError: raise RuntimeError(f'Cannot flatten unevenly",
        "refused",
        "a dim that may be sharded unevenly is not flattened; the error says to redistribute",
        "torch/distributed/tensor/_ops/_view_ops.py, _analyze_flatten",
    ),
    ReviewedFunction(
        "torch/distributed/tensor/_ops/_view_ops.py:_analyze_split",
        "RuntimeError: raise RuntimeError(f'Cannot unflatten unevenly",
        "refused",
        "a dim that may be sharded unevenly is not divided; the comment there says why",
        "torch/distributed/tensor/_ops/_view_ops.py, _analyze_split",
    ),
    ReviewedFunction(
        "torch/distributed/tensor/_ops/_view_ops.py:_rewrite_plain_shard",
        "RuntimeError: raise RuntimeError(f'Cannot propagate strict view",
        "refused",
        "the number of interleaved shards may not be a symbol; the error asks for `hint_override`",
        "torch/distributed/tensor/_ops/_view_ops.py, _rewrite_plain_shard",
    ),
)
"""All reviewed functions. Each row is tested by a golden file."""


def reviewed(site: Site, anchor: str) -> ReviewedFunction | None:
    """The row of a function and its decision, None if it has none."""
    return next((row for row in REVIEWED if row.site == str(site) and anchor.startswith(row.anchor)), None)
