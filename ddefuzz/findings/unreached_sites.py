"""Why a guard site of torch's source is not reached with an undecided guard, where reading the source gave the
reason.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from ddefuzz.findings.inventory import GuardCall


class Reason(NamedTuple):
    """A reason for the calls in `file` (a glob) whose function is `where` or whose text contains `where`.

    If another call of the function has the same text, `line` says which is meant.
    """

    file: str
    where: str
    reason: str
    line: int | None = None


KEPT = "a case in corpora/sites reaches it"

UNREACHED: tuple[Reason, ...] = (
    Reason(
        "torch/_decomp/decompositions.py", "_grid_sampler_2d", f"another device: evaluated for cuda and xpu; {KEPT}"
    ),
    Reason(
        "torch/_dynamo/variables/torch.py",
        "torch.fx.experimental.symbolic_shapes.guard_or_",
        "dynamo evaluates it for the code that it interprets, and it counts at the line of that code",
    ),
    Reason("torch/_functorch/_aot_autograd/functional_utils.py", "t1.layout", "dead code: layouts are constants"),
    Reason(
        "torch/_functorch/_aot_autograd/functional_utils.py",
        "has_same_metadata",
        f"evaluated for inputs that alias when one is mutated, and inputs of programs never alias; {KEPT}",
    ),
    Reason(
        "torch/_functorch/_aot_autograd/graph_capture_wrappers.py",
        "inner_fn",
        f"on dynamo's graphs both shapes have the same symbols; {KEPT}",
    ),
    Reason(
        "torch/_functorch/_aot_autograd/graph_compile.py",
        "_aot_stage2b_bw_compile",
        "evaluated where the strides of a saved tensor have an unbacked symbol here and none in inductor; "
        "corpora/inductor/sum_of_transposed.py reaches it",
    ),
    Reason("torch/_prims/__init__.py", "valid_op is False", "dead code: `is` gives a bool, which needs no guard"),
    Reason(
        "torch/_prims_common/__init__.py",
        "numel == 0",
        f"part of an error that eager raises too, and generated programs pass in eager; {KEPT}",
        line=1114,
    ),
    Reason(
        "torch/_refs/__init__.py",
        "_broadcast_shapes",
        "needs a subclass: nested ints, whose equality can be decided",
        line=423,
    ),
    Reason(
        "torch/_subclasses/meta_utils.py",
        "r.stride()",
        "can be decided: compared with what torch.empty_strided was just given; for a subclass, empty_create_subclass "
        "compared them before",
    ),
    Reason(
        "torch/_subclasses/meta_utils.py",
        "r.storage_offset()",
        f"the offset of an input is never unbacked; {KEPT}, by pickling a fake tensor",
    ),
    Reason(
        "torch/_subclasses/meta_utils.py",
        "t.storage.size == 0",
        f"the storage of a real tensor has a known size; {KEPT}, by pickling a fake tensor",
    ),
    Reason("torch/distributed/*", "", "needs a subclass: DTensor, and a process group"),
    Reason("torch/_inductor/codegen/halide.py", "", "another device: code for halide"),
    Reason("torch/_inductor/kernel/flex/flex_decoding.py", "", "another device: on CPU flex attention goes elsewhere"),
    Reason("torch/_inductor/*template*/triton.py", "", "another device: templates of triton"),
    Reason("torch/_inductor/utils.py", "_descriptor_shape_fits_in_int32", "another device: descriptors of triton"),
    Reason(
        "torch/_inductor/fx_passes/replace_random.py",
        "_shape_to_offset",
        "another device: evaluated only for cuda, with align_random_eager of inductor",
    ),
    Reason(
        "torch/_inductor/fx_passes/split_cat.py",
        "is_empty_tensor",
        "a pass that is off by default; an unbacked 1-D tensor next to tensors of another rank is refused before",
    ),
    Reason(
        "torch/_inductor/ir.py",
        "is_aligned_realized_tensor",
        "another device: evaluated for fused attention on cuda and xpu; it returns before for a size with an unbacked "
        "symbol",
    ),
    Reason(
        "torch/_inductor/lowering.py", "is_aligned", "another device: evaluated for fused attention on cuda and xpu"
    ),
)
"""Read in the source of torch 2.13.0; the first row that fits is taken. Of a site that is reached it says nothing."""


def reason_for(call: GuardCall) -> str:
    """The reason, empty where none is known."""
    return next((row.reason for row in UNREACHED if _fits(row, call)), "")


def _fits(row: Reason, call: GuardCall) -> bool:
    return (
        fnmatchcase(call.file, row.file)
        and (row.where == call.function or row.where in call.text)
        and row.line in (None, call.line)
    )
