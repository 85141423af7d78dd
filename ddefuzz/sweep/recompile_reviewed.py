"""Where torch makes the guards that compile functions again, as read in its source, and how to avoid each.

Python files were read in torch 2.13, as it is installed. C++ files are not part of an installed torch: they were read
in copies of the repository, whose version can differ. The guard that the tables show is that of the torch that ran.
"""

from __future__ import annotations

from typing import Final

from ddefuzz.instrument.torch_api import SYMBOLIC_SHAPES_FILE

_STRUCTURED: Final = (
    "The C++ meta function of a structured op reads `sizes()` as ints{what}. Only out= comes here: without it, a "
    "Python meta function decides the shape. Avoidable: sym_sizes there, or the Python meta function for out=, too."
)

_INTS: Final = "{what} reads a size as an int, where the form without out= takes `sym_size`. Avoidable: the same here."

_COLUMNS: Final = ", for the strides of a column-major result"

REVIEWED: Final[dict[str, str]] = {
    f"{SYMBOLIC_SHAPES_FILE.path}:create_symbol": (
        "Sizes that are the same in the first call get one symbol (`use_duck_shape`), so a call in which they differ "
        "compiles once more. By design. Avoidable with `use_duck_shape = False`."
    ),
    "torch/_prims_common/__init__.py:same_shape": (
        "`_resize_output_check` compares the shape of out= with that of the result by `guard_or_true(x != y)`. The "
        "guard keeps an equation that holds by chance for the sizes of the first call. Avoidable: an assertion for "
        "backed sizes that are equal now."
    ),
    "torch/_refs/__init__.py:_reshape_view_helper_core_alg": (
        "The search for dims to split or merge compares products of sizes; a clause that is true by chance in the "
        "first call is kept. Hard to avoid: the view depends on it."
    ),
    "at::native::zero_numel_check_dims": (
        "`self.size(dim) != 0`, which refuses to reduce an empty dim, reads the size as an int. Avoidable: "
        "`self.sym_size(dim)` with `TORCH_SYM_CHECK`."
    ),
    "at::meta::structured_linalg_cholesky_ex::meta": _STRUCTURED.format(what=_COLUMNS),
    "at::meta::structured_linalg_inv_ex::meta": _STRUCTURED.format(what=_COLUMNS),
    "at::meta::structured__linalg_det::meta": _STRUCTURED.format(what=""),
    "at::meta::structured__linalg_svd::meta": _STRUCTURED.format(what=""),
    "at::meta::structured_avg_pool2d::meta": _STRUCTURED.format(what=""),
    "at::meta::structured_topk::meta": _STRUCTURED.format(what=", and to check that `k` is at most the size"),
    "at::native::linalg_matrix_rank_out": (
        "`IntArrayRef(input.sizes()…)` is the shape to which out= is resized. Without out=, "
        "`get_matrix_rank_result_tensor` does the same with `sym_sizes()`. Avoidable: `resize_output_symint`."
    ),
    "at::native::inner_out": _INTS.format(what="The check that the last dims are equal"),
    "at::native::outer_out": _INTS.format(what="`self.reshape({self.size(0), 1})`"),
    "at::native::tensordot_out": (
        "`resize_output(result, result_tmp.sizes())` takes the shape of the result as ints, with out= only. Avoidable: "
        "`resize_output_symint`, as the computation before it has SymInts."
    ),
    "at::native::_trilinear": (
        "It collects the shape by `size(i)` as ints, and loops over the size of the dim `unroll_dim`, with and without "
        "out=. Avoidable for the shape: `sym_size`. The loop needs an int."
    ),
    "at::native::(anonymous namespace)::KronImpl::KronImpl": (
        "The constructor copies the sizes of both matrices into vectors of ints, with and without out=. Avoidable: "
        "vectors of SymInt."
    ),
}
"""A sentence or two for the code that makes a guard, by the frame's name in the tables."""

REFUSED: Final[dict[str, str]] = {
    "at::native::resize__symint": (
        "`maybe_resize_storage_meta` returns early by `if (self->sym_numel() == 0)`, and then asks "
        "`new_size_bytes > storage.sym_nbytes()`. Both are evaluated. Avoidable: `TORCH_GUARD_OR_FALSE` for the first, "
        "and the larger of the two sizes, as a SymInt, for the second."
    ),
    "at::meta::index_func_meta_impl": (
        "`index.numel()` and `self.sizes().vec()` are read as ints, only to check that shapes agree. Avoidable: the "
        "`sym_` forms with `TORCH_SYM_CHECK`."
    ),
    "at::meta::structured_fractional_max_pool3d::meta": (
        "The sizes of the batch, the planes and the three pooled dims are read by `size()` as ints, to check them "
        "against the kernel and for the shape of the result. Avoidable: `sym_size` with `TORCH_SYM_CHECK`."
    ),
    "torch/_prims_common/__init__.py:is_contiguous": (
        "With `false_if_dde=False` it evaluates `bool(a.numel() < 2)`. Avoidable: callers that pass "
        "`false_if_dde=True`, if a copy that is not needed does no harm."
    ),
    "torch/_prims_common/wrappers.py:_resize_output_check": (
        "`if out.numel() != 0` only decides whether to warn that out= is resized, after `same_shape` could not tell "
        "that the shapes are equal. Avoidable: `guard_or_false`, without the warning."
    ),
    "torch/nn/functional.py:_verify_batch_size": (
        "`if size_prods == 1` refuses a batch with one value a channel. Avoidable: `torch._check(size_prods != 1)`."
    ),
    "torch/nn/functional.py:_verify_spatial_size": (
        "`if size_prods == 1` refuses an input with one spatial element. Avoidable: `torch._check(size_prods != 1)`."
    ),
    "torch/_meta_registrations.py:cholesky": (
        "`if self.numel() == 0` returns an empty tensor before the check that the matrices are square. Avoidable: "
        "`guard_or_false`, as the other path gives an empty tensor, too."
    ),
    "torch/_meta_registrations.py:meta_take": (
        "`_check_index(not (self.numel() == 0 and index.numel() != 0))` decides `and` and `not` in Python. Avoidable: "
        "`sym_or(self.numel() != 0, index.numel() == 0)`, which stays symbolic."
    ),
    "torch/_refs/__init__.py:logsumexp": (
        "`if self.numel() == 0` avoids `amax` over an empty dim. Avoidable: `guard_or_false`, if an assertion that the "
        "dim is not empty is accepted."
    ),
    "at::native::(anonymous namespace)::matrix_rank_impl": (
        "`if (input.sym_numel() == 0)` gives rank 0 to an empty matrix, because `max` over no singular values raises. "
        "Hard to avoid: the other path cannot take an empty matrix."
    ),
    "at::native::linalg_pinv": (
        "`if (input.sym_numel() == 0)` returns an empty result, because `max` over no singular values raises. Hard to "
        "avoid: the other path cannot take an empty matrix."
    ),
    "at::native::cross": (
        "Without `dim`, `_default_cross_dim` looks for the first size that is 3. Avoidable by the caller: pass `dim`, "
        "or use `torch.linalg.cross`."
    ),
    "at::native::cross_out": ("As `at::native::cross`: without `dim`, the first size that is 3 is looked for."),
    "at::native::tensordot": (
        "For each pair of contracted dims, `if (s2 == 1)` and `else if (s1 == 1)` sum over the dim of the other one at "
        "once. Avoidable: `TORCH_GUARD_OR_FALSE`, and `TORCH_SYM_CHECK` that the sizes are equal, if that is accepted."
    ),
    "torch/_meta_registrations.py:linalg_lu_solve_meta": (
        "`if result.numel() != 0 and not left` comes before `if result.is_complex()`, and only decides whether a "
        "result is conjugated. Avoidable: without the question, as the conjugate of an empty tensor is empty, too."
    ),
    "torch/_meta_registrations.py:cummaxmin": (
        "`if self.numel() != 0` only guards a check of `dim`, which does not depend on sizes. Avoidable: check it in "
        "every case."
    ),
}
"""The same for code that refuses unbacked sizes and does not make functions compile again."""
