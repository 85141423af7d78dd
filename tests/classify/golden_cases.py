"""The programs whose raw failures are the golden files: one for each rule, plumbing row or shape of frames.

`collect.py` runs them. The `rule` of an entry says why it is there. `CASES` has the form that `ddefuzz check`
reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.decorators import mark_unbacked
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

from ddefuzz.program.evaluate import join_fake

CASES: list[dict[str, Any]] = []


STAGES = ("export", "export-strict", "compile")

OTHER_TORCHES = (
    "autograd-kernel",
    "cat-batched",
    "channels-last",
    "contiguity",
    "cov",
    "cov-weights",
    "cumsum-backward",
    "diff",
    "equal",
    "feature-dropout",
    "functional",
    "int-in-schema",
    "is-nonzero",
    "kron",
    "no-tensor",
    "refs-skipped",
    "resize-function",
    "sizes-as-ints",
    "strides",
    "vmap-strides",
)
"""The cases that have golden files for other versions of torch too: one for each kind of plumbing."""


def case(
    name: str,
    why: str,
    *args: Tensor,
    semantics: str = "explicit",
    stages: tuple[str, ...] = STAGES,
    made: Callable[[], tuple[Tensor, ...]] | None = None,
) -> Callable[[Any], Any]:
    def register(fn: Any) -> Any:
        given = made or (lambda: args)
        CASES.append({"id": name, "fn": fn, "args": given, "why": why, "semantics": semantics, "stages": stages})
        return fn

    return register


def shards(*shape: int, dim: int) -> tuple[Tensor, ...]:
    """A DTensor on four processes that need not exist, with unbacked sizes."""
    join_fake()
    made = distribute_tensor(torch.zeros(shape), init_device_mesh("cpu", (4,)), [Shard(dim)])
    for place in range(len(shape)):
        mark_unbacked(made, place)
    return (made,)


@torch.library.custom_op("golden::no_fake", mutates_args=())
def _no_fake(x: Tensor) -> Tensor:
    return x.clone()


X = torch.arange(24, dtype=torch.float32).reshape(8, 3) - 9.5
GRAD = X.clone().requires_grad_()
KEEP = torch.tensor([True, False, True, True, False, True, True, False])
N = torch.tensor([3])


@case("chunk", "output structure; the operator is a frame of its own", X, KEEP)
def _chunk(x: Tensor, keep: Tensor) -> Any:
    return torch.chunk(x[keep], 2)


@case("split-int", "output structure", X, KEEP)
def _split(x: Tensor, keep: Tensor) -> Any:
    return torch.split(x[keep], 2)


@case("tensor-split", "no output structure, for it returns two: an avoidable branch", X, KEEP)
def _tensor_split(x: Tensor, keep: Tensor) -> Any:
    return torch.tensor_split(x[keep], 2)


@case("tensor-split-sections", "as many outputs as the data says", X, KEEP)
def _tensor_split_sections(x: Tensor, keep: Tensor) -> Any:
    return torch.tensor_split(x, x[keep].shape[0])


@case("unbind", "output structure needed by a Python decomposition", X, KEEP)
def _unbind(x: Tensor, keep: Tensor) -> Any:
    return torch.unbind(x[keep])


@case("iterate", "dynamo reads the length itself, export goes through unbind", X, KEEP)
def _iterate(x: Tensor, keep: Tensor) -> Any:
    return [row + 1 for row in x[keep]]


@case("diff", "an avoidable branch in C++; the innermost of two native functions", X, KEEP)
def _diff(x: Tensor, keep: Tensor) -> Any:
    return torch.diff(x[keep], dim=0)


@case("diff-grad", "the same below an autograd kernel", GRAD, KEEP)
def _diff_grad(x: Tensor, keep: Tensor) -> Any:
    return torch.diff(x[keep], dim=0)


@case("fft", "a function of an anonymous namespace, its operator inlined", X, KEEP)
def _fft(x: Tensor, keep: Tensor) -> Any:
    return torch.fft.rfft(x[keep], n=4, dim=0)


@case("cosine", "an inlined operator, known from the line of the header", X, KEEP)
def _cosine(x: Tensor, keep: Tensor) -> Any:
    return functional.cosine_similarity(x[keep], x[~keep], dim=0)


@case("cdist", "C++ called through a Python function of torch", X, KEEP)
def _cdist(x: Tensor, keep: Tensor) -> Any:
    return torch.cdist(x[keep], x[:, : x[keep].shape[0]])


@case("sdpa", "a site outside of at::", X, KEEP)
def _sdpa(x: Tensor, keep: Tensor) -> Any:
    key = x[keep][None, None]
    return functional.scaled_dot_product_attention(x[None, None], key, key)


@case("alpha-dropout", "a template whose return type is one as well", X, KEEP)
def _alpha_dropout(x: Tensor, keep: Tensor) -> Any:
    return functional.alpha_dropout(x[keep], 0.5, training=True)


@case("contiguity", "a Python bool of a tensor that depends on data, needed by the program", X, KEEP)
def _contiguity(x: Tensor, keep: Tensor) -> Any:
    return x[keep].t().is_contiguous()


@case("max-pool-channels-last", "memory format of a fake kernel's result, through two native functions", X, KEEP)
def _max_pool(x: Tensor, keep: Tensor) -> Any:
    return functional.adaptive_max_pool2d(x[keep][None, :, None, :].expand(2, -1, 2, -1), (2, 2))


@case("roll", "an avoidable branch in a Python decomposition", X, KEEP)
def _roll(x: Tensor, keep: Tensor) -> Any:
    return torch.roll(x[keep], 1, 0)


@case("batch-norm", "an avoidable branch in a library function, which dynamo inlines", X, KEEP)
def _batch_norm(x: Tensor, keep: Tensor) -> Any:
    return functional.batch_norm(x[keep], torch.zeros(3), torch.ones(3), training=True)


@case("is-nonzero", "Python branches on a tensor through a native op that is plumbing", X, torch.ones(8, 3))
def _is_nonzero(x: Tensor, var: Tensor) -> Any:
    return functional.gaussian_nll_loss(x, x, var)


@case("addmv", "a decomposition under decorators", X, KEEP)
def _addmv(x: Tensor, keep: Tensor) -> Any:
    return torch.addmv(x[keep][:, 0], x[keep], x[0])


@case("int-in-schema", "the program passes a data-dependent int to an op that does not accept SymInt", X, N)
def _int_in_schema(x: Tensor, n: Tensor) -> Any:
    return x[0, 0] * torch.linspace(0.0, 1.0, n[0].item())  # type: ignore[arg-type]


@case("unsafe-chunk-count", "the same of an op that is no composite", X, N)
def _unsafe_chunk_count(x: Tensor, n: Tensor) -> Any:
    return torch.unsafe_chunk(x, n[0].item())  # type: ignore[arg-type]


@case("tensor-as-an-index", "Python's protocol asks the tensor for an int", N)
def _tensor_as_an_index(n: Tensor) -> Any:
    return torch.tril_indices(n[0], 1)  # type: ignore[arg-type]


@case("slice-under-vmap", "a batching rule that is inlined into vmap's plumbing reads the size", X, KEEP)
def _slice_under_vmap(x: Tensor, keep: Tensor) -> Any:
    return torch.vmap(torch.func.grad(lambda row: row[:1].sum()))(x[keep])


@case("chunk-count", "the same, but the int is the number of returned tensors", X, N)
def _chunk_count(x: Tensor, n: Tensor) -> Any:
    return torch.chunk(x, n[0].item())  # type: ignore[arg-type]


@case("int-list-in-schema", "torch itself does", X, N)
def _int_list_in_schema(x: Tensor, n: Tensor) -> Any:
    return functional.adaptive_max_pool1d(x[None], n[0].item())  # type: ignore[arg-type]


@case("kron", "C++ reads sizes as ints, which Python computes for it", X, KEEP)
def _kron(x: Tensor, keep: Tensor) -> Any:
    return torch.kron(x[keep], x)


@case("cov", "the same through another reading function", X, KEEP)
def _cov(x: Tensor, keep: Tensor) -> Any:
    return torch.cov(x[keep])


@case("one-hot", "a framework function that needs a Python int; dynamo does not trace the op", torch.tensor([3, 0, 1]))
def _one_hot(t: Tensor) -> Any:
    return functional.one_hot(t)


@case("list-index", "an index that becomes a tensor's data: C++ needs a number", X, N)
def _list_index(x: Tensor, n: Tensor) -> Any:
    return x[[n[0].item()]]


@case("own-float", "the user's own float of a tensor", X, torch.tensor([0.5]))
def _own_float(x: Tensor, p: Tensor) -> Any:
    return x * float(p[0])


@case("own-bool", "the user's own bool of a tensor", X, N)
def _own_bool(x: Tensor, n: Tensor) -> Any:
    return x + bool(n[0])


@case("own-branch", "the user's own branch on a size", X, KEEP)
def _own_branch(x: Tensor, keep: Tensor) -> Any:
    kept = x[keep]
    if kept.shape[0] > 2 and keep.dim() == 1:
        return kept + 1
    return kept


@case("own-int", "the user's own int of a tensor", X, N)
def _own_int(x: Tensor, n: Tensor) -> Any:
    return x[: int(n[0])]


@case("own-range", "the user's own loop", X, N)
def _own_range(x: Tensor, n: Tensor) -> Any:
    return [x + step for step in range(n[0].item())]  # type: ignore[arg-type]


@case("branch-on-a-tensor", "a branch on a tensor: a guard in export, a graph break in dynamo", X)
def _branch_on_a_tensor(x: Tensor) -> Any:
    return x + 1 if x.sum() > 0 else x


@case("cov-weights", "C++ branches on the result of such an op", X, torch.arange(1, 4))
def _cov_weights(x: Tensor, weights: Tensor) -> Any:
    return torch.cov(x, fweights=weights)


@case("cov-degrees", "the same C++ function branches on another tensor", X)
def _cov_degrees(x: Tensor) -> Any:
    return torch.cov(x)


@case("equal-by-name", "the same called by Python as an op, not as a function", X)
def _equal_by_name(x: Tensor) -> Any:
    return x + 1 if torch.ops.aten.equal(x, x.flip(0)) else x


@case("equal", "an op whose output depends on data", X)
def _equal(x: Tensor) -> Any:
    return x + 1 if torch.equal(x, x.flip(0)) else x


@case("no-fake-kernel", "an op without a fake kernel", X, KEEP)
def _no_fake_kernel(x: Tensor, keep: Tensor) -> Any:
    return torch.geqrf(x[keep])


@case("pending", "an unbacked symbol that no output has", N)
def _pending(n: Tensor) -> Any:
    return torch.arange(n[0], n[0] + 2)  # type: ignore[call-overload]


@case("skipped-function", "dynamo does not trace a function of torch", X)
def _skipped(x: Tensor) -> Any:
    return torch.ao.quantization.FakeQuantize()(x)  # type: ignore[no-untyped-call]


@case("no-symint-in-schema", "an op that does not accept a SymInt: neither guard nor graph break", X, N)
def _no_symint(x: Tensor, n: Tensor) -> Any:
    return torch.ops.aten.unfold(x, 0, n[0].item(), 1)


@case("chunk-count-of-an-op", "the same, but the int is the number of returned tensors", X, N)
def _chunk_count_of_an_op(x: Tensor, n: Tensor) -> Any:
    return torch.ops.aten.chunk(x, n[0].item())


@case("old-narrow", "a C++ fallback that size-oblivious semantics could not decide", X, N, semantics="size-oblivious")
def _old_narrow(x: Tensor, n: Tensor) -> Any:
    return x.narrow(0, n[0].item(), 2)  # type: ignore[arg-type]


@case("old-slice", "a Python fallback that size-oblivious semantics could not decide", X, N, semantics="size-oblivious")
def _old_slice(x: Tensor, n: Tensor) -> Any:
    return x[n[0].item() :]


@case("contiguity-in-torch", "the same, needed by a meta function of torch", torch.ones(2, 3, 3), N)
def _contiguity_in_torch(x: Tensor, n: Tensor) -> Any:
    many = x[0].expand(n.tolist()[0], 3, 3)
    return torch.linalg.solve_triangular(many, many[..., :2], upper=True)


@case("view-copy", "a bool evaluated by a helper for its caller", X, N)
def _view_copy(x: Tensor, n: Tensor) -> Any:
    rows = n.tolist()[0]
    made = torch.full((rows, 2, 3), 0.5).transpose(0, 2)
    return torch.view_copy(made, (3, 2 * rows))


@case("unflatten", "C++ catches the error and quotes it in another", X, KEEP)
def _unflatten(x: Tensor, keep: Tensor) -> Any:
    kept = x[keep]
    return torch.unflatten(kept, 0, (kept.shape[0], -1))


@case("broadcast-check", "a fallback whose check then fails: no guard raises", X, N)
def _broadcast_check(x: Tensor, n: Tensor) -> Any:
    rows = n.tolist()[0]
    return torch.addcdiv(torch.ones(3, 2), torch.ones(3, 2), torch.ones(torch.sym_min(rows, 1)))  # type: ignore[no-untyped-call]


@case("autograd-kernel", "sizes as ints, read by a kernel of autograd that could go on with the symbols", GRAD, KEEP)
def _autograd_kernel(x: Tensor, keep: Tensor) -> Any:
    return torch.block_diag(x[keep], x)  # type: ignore[no-untyped-call]


@case("truncation", "torch's own int of a size times a ratio", X, KEEP)
def _truncation(x: Tensor, keep: Tensor) -> Any:
    return functional.fractional_max_pool2d(x[keep].view(1, 1, -1, 3), 1, output_ratio=(0.5, 0.5))


@case("out-check", "a guard in the wrapper that adds out= to a decomposition", X, KEEP)
def _out_check(x: Tensor, keep: Tensor) -> Any:
    kept = x[keep]
    return torch.clamp(kept, 0, 1, out=torch.empty_like(x[~keep]))


@case("if-else", "a branch with an else, whose line begins the frame's code", torch.ones(10, 3), torch.ones(10) > 0)
def _if_else(x: Tensor, keep: Tensor) -> Any:
    return torch.complex(x[keep], x[keep]).istft(n_fft=10)


@case("strides", "strides as ints, read by a C++ kernel that dynamo and export replace", X, KEEP, stages=("export",))
def _strides(x: Tensor, keep: Tensor) -> Any:
    column = x[keep].t().contiguous()[:, 0]
    with torch._C._DisablePythonDispatcher():
        return torch.expand_copy(column, (2, 3))


@case("int-kernel", "an op called with a symbol, whose C++ kernel has int parameters", X, KEEP, stages=("export",))
def _int_kernel(x: Tensor, keep: Tensor) -> Any:
    kept = x[keep]
    with torch._C._DisablePythonDispatcher():
        return torch.slice_copy(kept, 0, 0, kept.shape[0] // 2)


@case(
    "functional", "sizes as ints, read through a functional tensor in the backward graph", GRAD, KEEP, stages=("aot",)
)
def _functional(x: Tensor, keep: Tensor) -> Any:
    return torch.masked_select(x[keep], x[keep] > 0)


@case("tensor-as-number", "a tensor passed to an op that accepts a number", X, torch.tensor([0.5]))
def _tensor_as_number(x: Tensor, mean: Tensor) -> Any:
    return x.clone().normal_(mean[0])  # type: ignore[arg-type]


@case("vmap-sizes", "a guard in vmap itself, whose folder is plumbing", X, KEEP)
def _vmap_sizes(x: Tensor, keep: Tensor) -> Any:
    return torch.vmap(torch.add)(x[keep], x[:5])


@case("vmap-strides", "a guard on a batched tensor, in the C++ that is mapped", X, KEEP)
def _vmap_strides(x: Tensor, keep: Tensor) -> Any:
    return torch.vmap(torch.reshape)(x[keep].t(), shape=(-1, 1))


@case("unsafe-chunk", "as many outputs as the size allows, in a Python decomposition", X, KEEP)
def _unsafe_chunk(x: Tensor, keep: Tensor) -> Any:
    return x[keep].unsafe_chunk(2)


@case("refs-chunk", "the same in a reference, which dynamo does not enter", X, KEEP, stages=("export",))
def _refs_chunk(x: Tensor, keep: Tensor) -> Any:
    return torch._refs.chunk(x[keep], 2)


@case("cross-dim", "the chosen dim depends on the sizes", torch.ones(3, 3), torch.ones(3) > 0)
def _cross_dim(x: Tensor, keep: Tensor) -> Any:
    return torch.cross(x[keep], x[keep])


@case("solve-vector", "a batch of vectors or a matrix, depending on the sizes", torch.ones(2, 3, 3), torch.ones(2) > 0)
def _solve_vector(x: Tensor, keep: Tensor) -> Any:
    right = x[0][torch.ones(3) > 0][:2]
    return torch.linalg.solve(x[keep] + torch.eye(3), right)


@case(
    "refs-squeeze",
    "the rank depends on the sizes, where a fallback would do as in torch.squeeze; a reference",
    X,
    KEEP,
    stages=("export",),
)
def _refs_squeeze(x: Tensor, keep: Tensor) -> Any:
    return torch._refs.squeeze(x[keep])


@case("squeeze-in-place", "the same in C++", X, KEEP)
def _squeeze_in_place(x: Tensor, keep: Tensor) -> Any:
    return x[keep].squeeze_()


@case("gather-empty", "an index of another dtype, which is right where it is empty", X[:, 0], KEEP & False)
def _gather_empty(x: Tensor, keep: Tensor) -> Any:
    return torch.gather(x, 0, x[keep])


@case("cat-empty", "a tensor of one dim is skipped only where it is known to be empty", X, KEEP & False)
def _cat_empty(x: Tensor, keep: Tensor) -> Any:
    return torch.cat([x[:, 0][keep], x])


@case("nonzero-out", "a size of the output is data, and no fake kernel makes a symbol for it", X)
def _nonzero_out(x: Tensor) -> Any:
    return torch.nonzero(x, out=torch.empty(0, dtype=torch.int64))


@case("sizes-as-ints", "C++ raises for a tensor whose sizes are symbols", X[:, 0], KEEP)
def _sizes_as_ints(x: Tensor, keep: Tensor) -> Any:
    return torch.argmax(x[keep], out=torch.empty((), dtype=torch.int64))


@case("grad-exported", "an op that export does not trace", GRAD, stages=("export",))
def _grad_exported(x: Tensor) -> Any:
    return torch.autograd.grad(x.tan().sum(), x)


@case("cross-entropy", "probabilities or classes, known from the sizes and from the dtype", X[:, 0].sigmoid(), KEEP)
def _cross_entropy(x: Tensor, keep: Tensor) -> Any:
    return functional.cross_entropy(x[keep], x[~keep][:4])


@case("linear-cross-entropy", "the same in Python", X, torch.ones(2, 3), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1]))
def _linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor) -> Any:
    return functional.linear_cross_entropy(x[target >= 0], weight, target)


@case("diff-many", "more differences than there are elements: the result is empty", X, N)
def _diff_many(x: Tensor, n: Tensor) -> Any:
    rows = torch.sym_min(n[0].item(), 3)  # type: ignore[no-untyped-call]
    return torch.diff(torch.ones(rows), 4)


@case("custom-op", "an op of the program's own without a fake kernel", X)
def _custom_op(x: Tensor) -> Any:
    return _no_fake(x)


@case("numpy", "data that exists only at run time", X, stages=("export",))
def _numpy(x: Tensor) -> Any:
    return torch.from_numpy(x.numpy())


@case("data-pointer", "the same", X, stages=("export",))
def _data_pointer(x: Tensor) -> Any:
    return x + x.data_ptr() % 2


@case("feature-dropout", "a template inlined into its caller, which is in the table of aliases", X, KEEP)
def _feature_dropout(x: Tensor, keep: Tensor) -> Any:
    return functional.dropout2d(x[keep][None])


@case("sum-to-size", "a function of a header inlined into its caller", X, KEEP)
def _sum_to_size(x: Tensor, keep: Tensor) -> Any:
    return x[keep].sum_to_size(1, 3)


@case("group-norm", "a static template inlined into its caller", torch.ones(1, 8, 3), torch.ones(8), KEEP)
def _group_norm(x: Tensor, weight: Tensor, keep: Tensor) -> Any:
    return functional.group_norm(x, 2, weight=weight[keep].repeat(2)[:8])


@case("argmin-out", "the same, in the same C++ function", X, KEEP)
def _argmin_out(x: Tensor, keep: Tensor) -> Any:
    return torch.argmin(x[keep], out=torch.empty((), dtype=torch.int64))


@case("scatter-out", "the same, in a function that two ops share", X, KEEP)
def _scatter_out(x: Tensor, keep: Tensor) -> Any:
    index = torch.nonzero(keep)[:, 0]
    return torch.scatter(x[:, 0], 0, index, x[:, 0], out=torch.empty(8))


@case("scatter-add-out", "the other op", X, KEEP)
def _scatter_add_out(x: Tensor, keep: Tensor) -> Any:
    index = torch.nonzero(keep)[:, 0]
    return torch.scatter_add(x[:, 0], 0, index, x[:, 0], out=torch.empty(8))


@case("index-reduce-out", "a static C++ function, which a quoted stack does not name", X, KEEP)
def _index_reduce_out(x: Tensor, keep: Tensor) -> Any:
    index = torch.nonzero(keep)[:, 0]
    return torch.index_reduce(x[:, 0], 0, index, x[:, 0], "amin", out=torch.empty(8))


@case("collapse-sizes", "one of two guards of one loop", X, KEEP, stages=("compile", "aot"))
def _collapse_sizes(x: Tensor, keep: Tensor) -> Any:
    return torch._refs.flatten(x[keep])


@case("extremum", "export replaces `min`, so that the guard is inside or outside of it", X, KEEP)
def _extremum(x: Tensor, keep: Tensor) -> Any:
    theta = torch.ones(2, 3).expand(x[keep].shape[0], 2, 3)
    return functional.affine_grid(theta, (theta.shape[0], 1, 1, 1))  # type: ignore[arg-type]


@case("refs-skipped", "dynamo skips what torch/_compile.py wraps: one signature for a module", X, stages=("compile",))
def _refs_skipped(x: Tensor) -> Any:
    return torch._refs.add(x, x)


@case("refs-made", "the same for a function that another one made", X, stages=("compile",))
def _refs_made(x: Tensor) -> Any:
    return torch._refs.sin(x)


@case("resize-method", "dynamo does not trace a method", X, stages=("export-strict", "compile"))
def _resize_method(x: Tensor) -> Any:
    return x.clone().resize_as_(x)


@case("resize-function", "the same as a function", X, stages=("export-strict", "compile"))
def _resize_function(x: Tensor) -> Any:
    return torch.resize_as_(x.clone(), x)


@case("no-tensor", "dynamo does not trace an op that returns no tensor", X, stages=("export-strict", "compile"))
def _no_tensor(x: Tensor) -> Any:
    return x.is_same_size(x)


@case("inplace-view", "dynamo fails later than at the call", X, stages=("export-strict", "compile"))
def _inplace_view(x: Tensor) -> Any:
    return x.squeeze_()


@case("interpolate", "an op that does not accept SymInt, called by torch's own Python", X, KEEP)
def _interpolate(x: Tensor, keep: Tensor) -> Any:
    return functional.interpolate(x.T[None], torch.nonzero(keep).shape[0], mode="area")


@case("channels-last", "C++ of a tensor's metadata that decides", X, KEEP)
def _channels_last(x: Tensor, keep: Tensor) -> Any:
    return x[keep].T[None, :, None].to(memory_format=torch.channels_last) + x[keep][:, :1]


@case("channels-last-3d", "the same for five dims", X, KEEP)
def _channels_last_3d(x: Tensor, keep: Tensor) -> Any:
    return x[keep].T[None, :, None, None].to(memory_format=torch.channels_last_3d) + x[keep][:, :1]


@case("cat-batched", "a batching rule", X, KEEP)
def _cat_batched(x: Tensor, keep: Tensor) -> Any:
    return torch.vmap(torch.cat)((torch.zeros(3, torch.nonzero(keep).shape[0] + 1), x[:3]))


@case("cumsum-backward", "a backward formula, in the backward graph", GRAD, KEEP, stages=("aot",))
def _cumsum_backward(x: Tensor, keep: Tensor) -> Any:
    return torch.cumsum(x[keep], 0)


@case(
    "alias-annotations",
    "an operator that functionalization refuses, named in the message alone",
    X,
    KEEP,
    stages=("aot",),
)
def _alias_annotations(x: Tensor, keep: Tensor) -> Any:
    return torch._refs.flatten(x[keep][:, 0][None])


@case("static-heads", "a size that PyTorch's Python marks static", X, KEEP, stages=("compile",))
def _static_heads(x: Tensor, keep: Tensor) -> Any:
    query = x[keep][None, :, None]
    return flex_attention(query, query, query)


@case("trace", "inductor raises an error of its own at a relation that it cannot decide", X, KEEP, stages=("inductor",))
def _trace(x: Tensor, keep: Tensor) -> Any:
    return torch.trace(x[keep])


@case("grid-sampler", "a decomposition checks an argument that the kernel does not check", X)
def _grid_sampler(x: Tensor) -> Any:
    return torch.grid_sampler_2d(x[None, None], torch.zeros(1, 2, 2, 2), 3, 0, False)


@case("saved-sum-of-sizes", "after an export: its serializer lacks an operator of sizes", X, KEEP, stages=("saved",))
def _saved_sum_of_sizes(x: Tensor, keep: Tensor) -> Any:
    return torch.sym_sum([x[keep].shape[0], 1])  # type: ignore[no-untyped-call]


@case("unflattened-strides", "after an export: a node without a stack of modules", X, KEEP, stages=("unflatten",))
def _unflattened_strides(x: Tensor, keep: Tensor) -> Any:
    return x.T[:, keep].stride()


@case("flat-shards", "a policy of DTensor", stages=("compile",), made=lambda: shards(8, 8, dim=0))
def _flat_shards(x: Tensor) -> Any:
    return x.view(-1)


@case("strided-shards", "a policy of DTensor", stages=("compile",), made=lambda: shards(8, 8, dim=1))
def _strided_shards(x: Tensor) -> Any:
    return x.view(-1)


@case("divided-shards", "a policy of DTensor", stages=("compile",), made=lambda: shards(16, dim=0))
def _divided_shards(x: Tensor) -> Any:
    return x.view(-1, 2)


@case("shape-of-shards", "a C++ function without a namespace", stages=("compile",), made=lambda: shards(8, 8, dim=1))
def _shape_of_shards(x: Tensor) -> Any:
    local = x.to_local()  # type: ignore[attr-defined]
    return DTensor.from_local(local.t(), x.device_mesh, [Shard(0)])  # type: ignore[attr-defined]
