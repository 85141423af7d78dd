"""What a maintainer's patch of each Python branch that a committed finding blames would be, and what it leaves.

A row gives the file, function and expression that the finding names, the value of that expression under the patch, and
what the finding's script meets then. The value is that of `guard_or_false` or `guard_or_true` on the general path: a
check of arguments holds, sizes are not 0 or 1. `min(a, b)` becomes one of its operands, a number its symbolic form.
Stated for torch 2.13.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PASSES: Final = "passes"


class Fix(NamedTuple):
    """`then` is `PASSES`, or how the description of the next failure begins."""

    file: str
    function: str
    expression: str
    answer: str
    then: str


UNPATCHED: Final = {
    "adaptive_avg_pool1d(input, output_size)": "C++ reads output_size as ints",
    "torch._C._nn.adaptive_max_pool2d(input, output_size)": "C++ reads output_size as ints",
    "torch._C._nn.adaptive_max_pool3d(input, output_size)": "C++ reads output_size as ints",
    "range(full_chunks)": "the number of outputs",
    "guard_int(chunks)": "the number of outputs",
    "complex(x)": "Python has no symbolic complex number",
    "_guarding_hint_or_throw_base(self.shape_env, expr, self.inv_precomputed_replacements)": "inductor needs an int",
}
"""Expressions that decide no branch and have no symbolic form, with what they are."""

FIXES: Final = (
    Fix("torch/_decomp/decompositions.py", "_addmv_impl", "out.numel() == 0", "False", PASSES),
    Fix("torch/_decomp/decompositions.py", "_compute_scale", "out_size > 1", "False", PASSES),
    Fix("torch/_decomp/decompositions.py", "_grid_sampler_2d", "two != 2", "False", PASSES),
    Fix("torch/_decomp/decompositions.py", "_pad_chunk", "pad_along_dim != tensor_size[dim]", "False", PASSES),
    Fix("torch/_decomp/decompositions.py", "_unsafe_masked_index_put_accumulate", "x.numel() == 0", "False", PASSES),
    Fix("torch/_decomp/decompositions.py", "clamp_wrap", "min(max(val, lower), upper)", "max(val, lower)", PASSES),
    Fix("torch/_decomp/decompositions.py", "col2im", "all((d != 0 for d in shape[-2:]))", "True", PASSES),
    Fix("torch/_decomp/decompositions.py", "im2col", "all((c > 0 for c in output_size))", "True", PASSES),
    Fix(
        "torch/_decomp/decompositions.py",
        "im2col",
        "all((d != 0 for d in shape[-3:]))",
        "True",
        "torch/_decomp/decompositions.py:im2col: all(c > 0 for c in output_size),",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "leading_dimension_matches",
        "tensor.size()[:dim] == leading_dim_sizes",
        "True",
        PASSES,
    ),
    Fix("torch/_decomp/decompositions.py", "log_sigmoid_backward", "buffer.numel() > 0", "True", PASSES),
    Fix(
        "torch/_decomp/decompositions.py",
        "max_unpool2d",
        "self.shape == indices.shape",
        "True",
        "torch/_decomp/decompositions.py:_max_unpoolnd: if any(s == 0 for s in output_shape):",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "max_unpool3d",
        "input.shape == indices.shape",
        "True",
        "torch/_decomp/decompositions.py:_max_unpoolnd: if any(s == 0 for s in output_shape):",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "multilabel_margin_loss_forward",
        "orig_target_shape == orig_input_shape",
        "True",
        PASSES,
    ),
    Fix("torch/_decomp/decompositions.py", "nll_loss_forward", "weight.numel() == n_classes", "True", PASSES),
    Fix(
        "torch/_decomp/decompositions.py",
        "one_hot",
        "int(self.max().item())",
        "torch.sym_int(self.max().item())",
        "PendingUnbackedSymbolNotFound: Pending unbacked symbols {u0} not in returned outputs FakeTensor(...,",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "slice_forward",
        "end_val < 0",
        "False",
        "torch/_decomp/decompositions.py:slice_forward: elif end_val < start_val:",
    ),
    Fix("torch/_decomp/decompositions.py", "slice_forward", "end_val > sizes[dim]", "False", PASSES),
    Fix(
        "torch/_decomp/decompositions.py",
        "slice_scatter",
        "end == dim_size",
        "False",
        "torch/_decomp/decompositions.py:slice_scatter: if end != dim_size:",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "split",
        "dim_size == 0",
        "False",
        "torch/_decomp/decompositions.py:split: chunks = guard_int(chunks)",
    ),
    Fix(
        "torch/_decomp/decompositions.py",
        "unsafe_chunk_py_impl",
        "split_size == 0",
        "False",
        "torch/_decomp/decompositions.py:split: if dim_size == 0:",
    ),
    Fix(
        "torch/_functorch/vmap.py",
        "_validate_and_get_batch_size",
        "any((size != batch_sizes[0] for size in batch_sizes))",
        "False",
        PASSES,
    ),
    Fix(
        "torch/_inductor/fx_passes/joint_graph.py",
        "constant_fold_uniform_value",
        "fake_tensor.is_contiguous(memory_format=torch.contiguous_format)",
        "False",
        PASSES,
    ),
    Fix("torch/_inductor/kernel/bmm.py", "is_preferred_layout_as_bmm_input", "sizes[-2] == 1", "True", PASSES),
    Fix(
        "torch/_inductor/kernel/bmm.py",
        "is_preferred_layout_as_bmm_input",
        "strides[-2] >= sizes[-1]",
        "True",
        PASSES,
    ),
    Fix("torch/_lowrank.py", "_svd_lowrank", "m < n", "False", PASSES),
    Fix("torch/_lowrank.py", "pca_lowrank", "min(m, n)", "m", "torch/_lowrank.py:_svd_lowrank: if m < n:"),
    Fix(
        "torch/_meta_registrations.py",
        "_exec_fft",
        "tmp.sort(key=lambda x: self_strides[x], reverse=True)",
        "None",
        "torch/_meta_registrations.py:_exec_fft: out.resize_(batched_out_sizes, memory_format=torch.contiguou",
    ),
    Fix("torch/_meta_registrations.py", "_pad2d_common", "output_w >= 1", "True", PASSES),
    Fix("torch/_meta_registrations.py", "cholesky", "self.numel() == 0", "False", PASSES),
    Fix("torch/_meta_registrations.py", "cummaxmin", "self.numel() != 0", "True", PASSES),
    Fix("torch/_meta_registrations.py", "is_fast_path_index_select", "src.stride(1) == 1", "False", PASSES),
    Fix("torch/_meta_registrations.py", "linalg_cross", "self.size(dim) == 3", "True", PASSES),
    Fix(
        "torch/_meta_registrations.py",
        "linalg_householder_product",
        "actual_batch_tau_shape == expected_batch_tau_shape",
        "True",
        PASSES,
    ),
    Fix(
        "torch/_meta_registrations.py", "linalg_ldl_solve_meta", "expected_pivots_shape == pivots.shape", "True", PASSES
    ),
    Fix(
        "torch/_meta_registrations.py",
        "linalg_lu_solve_meta",
        "LU.shape[:-1] == pivots.shape",
        "True",
        "torch/_meta_registrations.py:linalg_lu_solve_meta: if result.numel() != 0 and not left:",
    ),
    Fix("torch/_meta_registrations.py", "linalg_lu_solve_meta", "result.numel() != 0", "True", PASSES),
    Fix(
        "torch/_meta_registrations.py",
        "linalg_solve_is_vector_rhs",
        "other.shape == expected_batched_rhs_shape",
        "False",
        PASSES,
    ),
    Fix(
        "torch/_meta_registrations.py",
        "linalg_solve_triangular_meta",
        "A_.transpose(-2, -1).is_contiguous()",
        "True",
        "torch/_meta_registrations.py:linalg_solve_triangular_meta: out.resize_(B_.transpose(-2, -1).shape)",
    ),
    Fix("torch/_meta_registrations.py", "meta_baddbmm", "batch2_sizes[0] == bs", "True", PASSES),
    Fix("torch/_meta_registrations.py", "meta_searchsorted", "sorted_sequence.shape == sorter.shape", "True", PASSES),
    Fix("torch/_meta_registrations.py", "meta_take", "self.numel() == 0", "False", PASSES),
    Fix("torch/_meta_registrations.py", "meta_upsample_bimode2d_aa", "input.numel() != 0", "True", PASSES),
    Fix(
        "torch/_meta_registrations.py",
        "pooling_output_shape_pad_lr",
        "(outputSize - 1) * stride >= inputSize + pad_l",
        "False",
        PASSES,
    ),
    Fix(
        "torch/_meta_registrations.py",
        "upsample_common_check",
        "all((s > 0 for s in input_size[2:]))",
        "True",
        "torch/_meta_registrations.py:meta_upsample_bimode2d_aa: input.numel() != 0 or all(size > 0 for size",
    ),
    Fix(
        "torch/_prims/__init__.py",
        "_collapse_view_helper",
        "min(stride, strides[idx])",
        "stride",
        "RuntimeError: Found a custom (non-ATen) operator whose output has alias annotations: prims::collapse",
    ),
    Fix("torch/_prims/__init__.py", "_copy_to_meta", "a.numel() != b.numel()", "False", PASSES),
    Fix(
        "torch/_prims_common/__init__.py",
        "are_strides_like_channels_last_or_false",
        "min == strides[1]",
        "False",
        "torch/_meta_registrations.py:meta_adaptive_max_pool2d: out = input.new_empty(out_shape).to(memory_fo",
    ),
    Fix(
        "torch/_prims_common/__init__.py",
        "check_contiguous_sizes_strides",
        "maybe_guard_or_true(y != expected_stride)",
        "False",
        PASSES,
    ),
    Fix("torch/_prims_common/__init__.py", "is_contiguous", "maybe_guard_or_false(a.numel() < 2)", "True", PASSES),
    Fix(
        "torch/_refs/__init__.py",
        "<genexpr>",
        "size == 1",
        "False",
        "RuntimeError: Found a custom (non-ATen) operator whose output has alias annotations: prims::view_of(",
    ),
    Fix("torch/_refs/__init__.py", "_broadcast_shapes", "shape[idx] < 0", "False", PASSES),
    Fix("torch/_refs/__init__.py", "_index_fill", "out.stride() != x.stride()", "False", PASSES),
    Fix("torch/_refs/__init__.py", "_reshape_view_helper", "a.numel() == 0", "False", PASSES),
    Fix(
        "torch/_refs/__init__.py",
        "_reshape_view_helper_core_alg",
        "accum % length != 0",
        "False",
        "torch/_prims/__init__.py:_split_dim_meta: if (a.shape[dim] % outer_length) != 0:",
    ),
    Fix("torch/_refs/__init__.py", "_reshape_view_helper_core_alg", "length == a_.shape[idx]", "True", PASSES),
    Fix(
        "torch/_refs/__init__.py",
        "arange",
        "step > 0",
        "True",
        "torch/_refs/__init__.py:arange: sgn = bool(xstep > 0) - bool(xstep < 0) # type: ignore[possibly-unde",
    ),
    Fix("torch/_refs/__init__.py", "istft", "onesided_", "False", PASSES),
    Fix("torch/_refs/__init__.py", "logsumexp", "self.numel() == 0", "False", PASSES),
    Fix("torch/_refs/__init__.py", "roll", "a.numel() == 0", "False", PASSES),
    Fix("torch/_refs/__init__.py", "softmax", "a.numel() == 0", "False", PASSES),
    Fix("torch/_refs/__init__.py", "stft", "window.shape == (win_length_,)", "True", PASSES),
    Fix(
        "torch/_refs/__init__.py",
        "tensor_split",
        "math.floor(dim_size / sections)",
        "dim_size // sections",
        "torch/_refs/__init__.py:tensor_split: if (split_idx < num_splits_one_extra)",
    ),
    Fix(
        "torch/_refs/__init__.py",
        "tensor_split",
        "split_idx < num_splits_one_extra",
        "True",
        "TraceError: symbolically traced variables cannot be used as inputs to control flow",
    ),
    Fix(
        "torch/_refs/__init__.py",
        "unbind",
        "t.shape[dim] == 0",
        "False",
        "torch/_refs/__init__.py:unbind: torch.squeeze(s, dim) for s in torch.tensor_split(t, t.shape[dim], d",
    ),
    Fix("torch/_refs/nn/functional/__init__.py", "channel_shuffle", "input.numel() == 0", "False", PASSES),
    Fix("torch/_subclasses/fake_impls.py", "_compute_stride", "tensor_d == 0", "True", PASSES),
    Fix("torch/masked/_ops.py", "_input_mask", "mask.shape != input.shape", "False", PASSES),
    Fix("torch/nn/functional.py", "_unpool_output_size", "min_size < output_size[d] < max_size", "True", PASSES),
    Fix("torch/nn/functional.py", "_verify_batch_size", "size_prods == 1", "False", PASSES),
    Fix(
        "torch/nn/functional.py",
        "_verify_spatial_size",
        "size_prods == 1",
        "False",
        "torch/nn/functional.py:instance_norm: return torch.instance_norm( input, weight, bias, running_mean,",
    ),
    Fix("torch/nn/functional.py", "affine_grid", "min(size)", "1", PASSES),
    Fix("torch/nn/functional.py", "affine_grid", "theta.shape[-1] != 3", "False", PASSES),
    Fix(
        "torch/nn/functional.py",
        "affine_grid",
        "theta.shape[-2] != 2",
        "False",
        "torch/nn/functional.py:affine_grid: elif min(size) <= 0:",
    ),
    Fix("torch/nn/functional.py", "binary_cross_entropy", "target.size() != input.size()", "False", PASSES),
    Fix("torch/nn/functional.py", "binary_cross_entropy_with_logits", "target.size() == input.size()", "True", PASSES),
    Fix("torch/nn/functional.py", "embedding", "padding_idx < -weight.size(0)", "False", PASSES),
    Fix("torch/nn/functional.py", "embedding", "padding_idx >= weight.size(0)", "False", PASSES),
    Fix("torch/nn/functional.py", "embedding_bag", "input.size() != per_sample_weights.size()", "False", PASSES),
    Fix(
        "torch/nn/functional.py",
        "fractional_max_pool2d_with_indices",
        "int(input.size(-2) * _output_ratio[0])",
        "torch.sym_int(input.size(-2) * _output_ratio[0])",
        "torch/nn/functional.py:fractional_max_pool2d_with_indices: return torch._C._nn.fractional_max_pool2d",
    ),
    Fix(
        "torch/nn/functional.py",
        "fractional_max_pool3d_with_indices",
        "int(input.size(-3) * _output_ratio[0])",
        "torch.sym_int(input.size(-3) * _output_ratio[0])",
        "torch/nn/functional.py:fractional_max_pool3d_with_indices: return torch._C._nn.fractional_max_pool3d",
    ),
    Fix(
        "torch/nn/functional.py",
        "fractional_max_pool3d_with_indices",
        "int(input.size(-2) * _output_ratio[1])",
        "torch.sym_int(input.size(-2) * _output_ratio[1])",
        "torch/nn/functional.py:fractional_max_pool3d_with_indices: return torch._C._nn.fractional_max_pool3d",
    ),
    Fix("torch/nn/functional.py", "gaussian_nll_loss", "torch.any(var < 0)", "False", PASSES),
    Fix("torch/nn/functional.py", "huber_loss", "target.size() != input.size()", "False", PASSES),
    Fix("torch/nn/functional.py", "l1_loss", "target.size() != input.size()", "False", PASSES),
    Fix("torch/nn/functional.py", "linear_cross_entropy", "in_features != linear_weight.shape[-1]", "False", PASSES),
    Fix("torch/nn/functional.py", "linear_cross_entropy", "target.shape == logits_shape", "True", PASSES),
    Fix(
        "torch/nn/functional.py",
        "linear_cross_entropy",
        "target_contains_probabilities",
        "False",
        "torch/nn/functional.py:cross_entropy: return torch._C._nn.cross_entropy_loss(",
    ),
    Fix("torch/nn/functional.py", "local_response_norm", "input.numel() == 0", "False", PASSES),
    Fix("torch/nn/functional.py", "mse_loss", "target.size() != input.size()", "False", PASSES),
    Fix("torch/nn/functional.py", "multi_head_attention_forward", "embed_dim != embed_dim_to_check", "False", PASSES),
    Fix("torch/nn/functional.py", "multi_head_attention_forward", "key.shape != value.shape", "False", PASSES),
    Fix("torch/nn/functional.py", "smooth_l1_loss", "target.size() != input.size()", "False", PASSES),
)
