"""Changes of C++ as text: what becomes of a guard in a function of torch. They are not compiled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ddefuzz.classify.signature import Site, Verdict

NUMBER: Final = "a number"
"""What a site needs that takes a SymInt as an int."""

SYMBOLIC: Final = {"==": "sym_eq", "!=": "sym_ne", "<": "sym_lt", "<=": "sym_le", ">": "sym_gt", ">=": "sym_ge"}
"""The methods of c10::SymInt (c10/core/SymInt.h) that compare and give a SymBool."""

_MACROS: Final[dict[Verdict, str]] = {
    "guard_or_false here": "TORCH_GUARD_OR_FALSE({})",
    "guard_or_true here": "TORCH_GUARD_OR_TRUE({})",
    "either answer here": "TORCH_GUARD_OR_FALSE({})",
    "torch._check here": "TORCH_SYM_CHECK({}, …)",
}
"""The macros of c10/core/SymBool.h that ask a SymBool."""


METHODS: Final = "tools/autograd/templates/python_variable_methods.cpp"
_NATIVE: Final = "aten/src/ATen/native"

FILES: Final[dict[str, str]] = {
    "torch::autograd::generated::details::": "torch/csrc/autograd/FunctionsManual.cpp",
    "c10::SymbolicShapeMeta::": "c10/core/SymbolicShapeMeta.cpp",
    "c10::is_channels_last_strides_2d_s4": "c10/core/MemoryFormat.h",
    "c10::is_channels_last_strides_3d_s5": "c10/core/MemoryFormat.h",
    "at::detail::check_size_nonnegative": "aten/src/ATen/EmptyTensor.h",
    "at::native::checkInBoundsForStorage": "aten/src/ATen/native/Resize.h",
    "sdp::check_": f"{_NATIVE}/transformers/sdp_utils_cpp.h",
    "aten::": f"{_NATIVE}/native_functions.yaml",
    "Tensor.__getitem__": "torch/csrc/autograd/python_variable_indexing.cpp",
    "Tensor.__setitem__": "torch/csrc/autograd/python_variable_indexing.cpp",
    "at::is_expandable_to": "aten/src/ATen/ExpandUtils.h",
    "at::expand_outplace": "aten/src/ATen/ExpandUtils.h",
    "at::infer_size_impl": "aten/src/ATen/ExpandUtils.cpp",
    "at::detail::computeStride_impl": "aten/src/ATen/TensorUtils.cpp",
    **{
        f"at::native::{function}": f"{_NATIVE}/{file}"
        for file, functions in {
            "AdaptiveAveragePooling.cpp": "adaptive_avg_pool2d_symint",
            "AdaptiveAveragePooling3d.cpp": "adaptive_avg_pool3d_symint",
            "Distance.cpp": "cdist",
            "Integration.cpp": "trapezoid cumulative_trapezoid",
            "Linear.cpp": "_trilinear bilinear tensordot",
            "LinearAlgebra.cpp": "linalg_pinv linalg_cond linalg_tensorinv linalg_tensorsolve",
            "LinearAlgebraUtils.h": "squareCheckInputs",
            "LossNLL.cpp": "nll_loss_nd_symint cross_entropy_loss_symint cross_entropy_loss_prob_target",
            "MaxPooling.h": "check_max_pool1d",
            "PadNd.cpp": "_pad_circular_symint",
            "Pooling.cpp": "adaptive_max_pool1d",
            "ReduceOpsUtils.h": "zero_numel_check_dims",
            "Resize.cpp": "resize__symint resize_as_",
            "ScatterGatherChecks.h": "scatter_gather_dtype_check",
            "TensorShape.cpp": "dsplit hsplit vsplit inferSqueezeGeometry squeeze_ select_symint",
            "TensorShape.h": "cat_should_skip_tensor",
            "group_norm.cpp": "check_group_norm_inputs",
        }.items()
        for function in functions.split()
    },
    **{
        f"at::native::(anonymous namespace)::{function}": f"{_NATIVE}/{file}"
        for file, functions in {
            "Dropout.cpp": "_dropout_impl",
            "Normalization.cpp": "check_dims_match_num_input_features",
            "SpectralOps.cpp": "canonicalize_fft_shape_and_dim_args fft_c2r fft_r2c resize_fft_input",
        }.items()
        for function in functions.split()
    },
}
"""The file of a C++ function in PyTorch's repository, by its name or the beginning of it. Frames have no file."""


BY_HAND: Final[dict[str, str]] = {
    "new_tensor": f"Tensor.new_tensor ({METHODS})",
    **{
        op: f"torch.{op} (torch/csrc/autograd/python_torch_functions_manual.cpp)"
        for op in (
            *("as_tensor", "asarray", "frombuffer", "range", "tensor"),
            *(f"sparse_{layout}_tensor" for layout in ("bsc", "bsr", "compressed", "coo", "csc", "csr")),
        )
    },
}
"""Functions whose Python binding has a signature of its own, beside that of native_functions.yaml, and its file."""

STRUCTURED: Final = re.compile(r"\bat::meta::structured_(\w+)::meta\b")
"""The name of a structured kernel's meta function: the op, or the op and its overload."""

OVERLOADS: Final = {"scatter_reduce": "scatter.reduce"}
"""Structured kernels whose name is an op and its overload, and the name of another op, too (native_functions.yaml)."""


def file_of(site: Site) -> str:
    """The file of a site; empty if it is not known."""
    if site.module is not None:
        return site.module
    name = site.function or ""
    starts = (start for start in FILES if start.endswith(("::", "sdp::check_")) and name.startswith(start))
    return FILES.get(name) or FILES.get(next(starts, ""), "")


def is_of_torch(file: str) -> bool:
    """Whether a file may be one of PyTorch: a stored site may have any."""
    return not Path(file).is_absolute() and ".." not in Path(file).parts


def native_change(site: Site, anchor: str, verdict: Verdict, usual: bool | None = None) -> str:
    """What becomes of the guard of a C++ function, or of an op's schema, in a sentence. Empty if no answer is known.

    If both answers are right, it gets that of `usual` sizes.
    """
    if anchor.startswith("guard_float"):
        return f"{site} takes a Scalar or a tensor for float: a schema has no type for symbolic floats"
    if anchor.startswith("guard_int") or verdict == "needs SymInt":
        if structured := STRUCTURED.fullmatch(site.function or ""):
            # A structured kernel's meta function gives its sizes as IntArrayRef (ATen/TensorMeta.h).
            op = OVERLOADS.get(structured[1], structured[1])
            registered = "torch/_meta_registrations.py, register_meta"
            return f"aten::{op}, also with out=, gets a meta function in Python ({registered}) with symbolic sizes"
        if site.language == "op" and (op := (site.function or "").removeprefix("aten::")) in BY_HAND:
            return f"the signature of {BY_HAND[op]} and what it calls take SymInt for int"
        if site.language == "op" and (site.function or "").startswith("Tensor.__"):
            return f"what calls {site} takes SymInt for int"
        if site.language == "op":
            return f"the schema of {site} takes SymInt for int (native_functions.yaml), and its kernels c10::SymInt"
        if site.language == "Python":
            return f"in {site}, `{anchor.partition(': ')[2] or anchor}` takes SymInt for int"
        reads = f"{site} reads sizes as c10::SymInt (sym_size, sym_sizes) in place of int64_t"
        return f"{reads}; a TORCH_CHECK of them becomes TORCH_SYM_CHECK"
    operator = re.search(r"operator(==|!=|<=|>=|<|>)", anchor)
    asked = f"a.{SYMBOLIC[operator[1]]}(b)" if operator else "the SymBool"
    spelled = f"`a {operator[1]} b` of a SymInt" if operator else "the truth of a SymBool"
    macro = _MACROS.get("guard_or_true here" if verdict == "either answer here" and usual else verdict)
    if macro is None:
        is_refuted = verdict == "no answer is right for all sizes"
        return f"in {site}, {spelled} is not evaluated: a symbolic form" if is_refuted else ""
    return f"in {site}, {spelled} becomes `{macro.format(asked)}`"


def python_number(anchor: str, *, of_tensor: bool) -> str:
    """What becomes of code in torch's Python that makes a plain number of a size, or of a tensor, in a sentence."""
    called, _, argument = anchor.partition("(")
    if of_tensor and called in {"int", "float", "bool"}:
        return f"`{anchor}` becomes `{argument.removesuffix(')')}.item()`, and what takes it a symbolic number"
    match called.rpartition(".")[2]:
        case "sqrt":
            return f"`{anchor}` becomes `torch.sym_sqrt({argument}`"
        case "int":
            return f"`{anchor}` becomes `torch.sym_int({argument}`"
        case "float":
            return f"`{anchor}` becomes `torch.sym_float({argument}`, and what takes it a Scalar or a tensor for float"
        case "numel" if anchor.endswith(".shape.numel()"):
            return f"`{anchor}` becomes `{anchor.removesuffix('.shape.numel()')}.numel()`"
        case _:
            return f"`{anchor}` keeps a symbolic number"
