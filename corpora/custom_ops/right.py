"""Custom ops that are right (test data for false alarms)."""
import functools
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.library import Library, custom_op, get_ctx, impl, register_autograd, register_fake, register_vmap

LIB = Library("right", "FRAGMENT")

EXAMPLES = {}
HAS_AUTOGRAD = set()
HAS_VMAP = set()


def _dense(t):
    """A fresh contiguous tensor."""
    return t.clone(memory_format=torch.contiguous_format)


def _note(name, examples, autograd=False, vmap=False):
    key = f"right::{name}"
    EXAMPLES[key] = examples
    if autograd:
        HAS_AUTOGRAD.add(key)
    if vmap:
        HAS_VMAP.add(key)


def _same_shape(a, b):
    torch._check(a.dim() == b.dim(), lambda: "the ranks differ")
    for m, n in zip(a.shape, b.shape):
        torch._check(m == n, lambda: "the sizes differ")


# ------------------------------------------------------ dynamic outputs -----


def _check_select(x, mask):
    torch._check(x.dim() == 2 and mask.dim() == 1, lambda: "expected x (N, D) and mask (N,)")
    torch._check(mask.dtype == torch.bool, lambda: "mask must be bool")
    torch._check(x.shape[0] == mask.shape[0], lambda: "x and mask must have the same length")


@custom_op("right::select_masked", mutates_args=())
def select_masked(x: Tensor, mask: Tensor) -> Tensor:
    _check_select(x, mask)
    return _dense(x[mask])


@select_masked.register_fake
def _(x, mask):
    _check_select(x, mask)
    n = get_ctx().new_dynamic_size()
    torch._check(n <= x.shape[0])
    return x.new_empty((n, x.shape[1]))


_note("select_masked", [
    (torch.randn(5, 3), torch.tensor([True, False, True, True, False])),
    (torch.randn(3, 2), torch.tensor([False, False, False])),
    lambda n, d: (torch.randn(n, d), torch.rand(n) > 0.5),
])


LIB.define("unique_counts(Tensor ids) -> (Tensor, Tensor)")


def _check_ids(ids):
    torch._check(ids.dim() == 1, lambda: "ids must be 1-d")
    torch._check(ids.dtype in (torch.int32, torch.int64), lambda: "ids must be int32 or int64")


@impl(LIB, "unique_counts", "CPU")
def _(ids):
    _check_ids(ids)
    v, c = torch.unique(ids, return_counts=True)
    return _dense(v), _dense(c)


@register_fake("right::unique_counts")
def _(ids):
    _check_ids(ids)
    n = get_ctx().new_dynamic_size()
    torch._check(n <= ids.shape[0])
    return ids.new_empty((n,)), ids.new_empty((n,), dtype=torch.int64)


_note("unique_counts", [
    (torch.tensor([1, 5, 1, 2]),),
    (torch.tensor([7, 7, 7], dtype=torch.int32),),
    (torch.zeros(0, dtype=torch.int64),),
])


def _check_nms(boxes, scores):
    torch._check(boxes.dim() == 2 and scores.dim() == 1, lambda: "expected boxes (N, 4) and scores (N,)")
    torch._check(boxes.shape[1] == 4, lambda: "boxes must be (N, 4)")
    torch._check(boxes.shape[0] == scores.shape[0], lambda: "one score a box")
    torch._check(boxes.is_floating_point() and scores.is_floating_point(), lambda: "boxes and scores must be floating")


@custom_op("right::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, iou: float = 0.5) -> Tensor:
    _check_nms(boxes, scores)
    order = scores.argsort(descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]).clamp(min=0) * (boxes[:, 3] - boxes[:, 1]).clamp(min=0)
    keep = []
    while order.numel():
        i = int(order[0])
        keep.append(i)
        rest = order[1:]
        lt = torch.maximum(boxes[i, :2], boxes[rest, :2])
        rb = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[:, 0] * wh[:, 1]
        order = rest[inter <= iou * (area[i] + area[rest] - inter)]
    return torch.tensor(keep, dtype=torch.int64, device=boxes.device)


@nms.register_fake
def _(boxes, scores, iou=0.5):
    _check_nms(boxes, scores)
    n = get_ctx().new_dynamic_size()
    torch._check(n <= boxes.shape[0])
    return boxes.new_empty((n,), dtype=torch.int64)


_BOXES = torch.tensor([[0., 0., 2., 2.], [0., 0., 2.1, 2.], [5., 5., 7., 8.], [1., 5., 3., 6.]])
_note("nms", [
    (_BOXES.clone(), torch.tensor([0.9, 0.8, 0.7, 0.1])),
    (_BOXES[:3].clone(), torch.tensor([0.2, 0.8, 0.7]), 0.3),
    (torch.zeros(0, 4), torch.zeros(0)),
])


@custom_op("right::partition_rows", mutates_args=())
def partition_rows(x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
    _check_select(x, mask)
    return _dense(x[mask]), _dense(x[~mask])


@partition_rows.register_fake
def _(x, mask):
    _check_select(x, mask)
    ctx = get_ctx()
    a, b = ctx.new_dynamic_size(), ctx.new_dynamic_size()
    torch._check(a + b == x.shape[0])
    return x.new_empty((a, x.shape[1])), x.new_empty((b, x.shape[1]))


_note("partition_rows", [
    (torch.randn(4, 3), torch.tensor([True, False, True, False])),
    (torch.randn(5, 2), torch.tensor([True, True, True, True, True])),
])


LIB.define("to_jagged(Tensor x, Tensor keep) -> (Tensor, Tensor)")


def _check_jagged(x, keep):
    torch._check(x.dim() == 2 and keep.dim() == 2, lambda: "expected x (B, T) and keep (B, T)")
    torch._check(keep.dtype == torch.bool, lambda: "keep must be bool")
    _same_shape(x, keep)


@impl(LIB, "to_jagged", "CPU")
def _(x, keep):
    _check_jagged(x, keep)
    off = torch.zeros((x.shape[0] + 1,), dtype=torch.int64, device=x.device)
    off[1:] = keep.sum(1).cumsum(0)
    return _dense(x[keep]), off


@register_fake("right::to_jagged")
def _(x, keep):
    _check_jagged(x, keep)
    n = get_ctx().new_dynamic_size()
    torch._check(n <= x.shape[0] * x.shape[1])
    return x.new_empty((n,)), x.new_empty((x.shape[0] + 1,), dtype=torch.int64)


_note("to_jagged", [
    (torch.randn(3, 4), torch.rand(3, 4) > 0.4),
    (torch.randn(2, 5), torch.ones(2, 5, dtype=torch.bool)),
    lambda b, t: (torch.randn(b, t), torch.rand(b, t) > 0.5),
])


@custom_op("right::local_peaks", mutates_args=())
def local_peaks(x: Tensor) -> Tensor:
    torch._check(x.dim() == 1)
    inner = (x[1:-1] > x[:-2]) & (x[1:-1] >= x[2:])
    return _dense(inner.nonzero().view(-1) + 1)


@local_peaks.register_fake
def _(x):
    torch._check(x.dim() == 1)
    n = get_ctx().new_dynamic_size()
    torch._check(n <= torch.sym_max(x.shape[0] - 2, 0))
    return x.new_empty((n,), dtype=torch.int64)


_note("local_peaks", [
    (torch.tensor([0., 2., 1., 3., 0., 1.]),),
    (torch.tensor([0., 1.]),),
    lambda n: (torch.randn(n),),
])


CAPACITY = 8
LIB.define("first_above(Tensor x, float thr) -> Tensor")


@impl(LIB, "first_above", "CPU")
def _(x, thr):
    """Positions of the first (at most 8) values above thr."""
    torch._check(x.dim() == 1)
    return _dense((x > thr).nonzero().view(-1)[:CAPACITY])


@register_fake("right::first_above")
def _(x, thr):
    torch._check(x.dim() == 1)
    n = get_ctx().new_dynamic_size(min=0, max=CAPACITY)
    torch._check(n <= x.shape[0])
    return x.new_empty((n,), dtype=torch.int64)


_note("first_above", [
    (torch.tensor([0., 2., 1., 3.]), 0.5),
    (torch.rand(20), 0.1),
    (torch.rand(5), 7.0),
])


@custom_op("right::coords", mutates_args=())
def coords(x: Tensor) -> Tensor:
    torch._check(x.dim() >= 1)
    return _dense(torch.nonzero(x))


@coords.register_fake
def _(x):
    torch._check(x.dim() >= 1)
    n = get_ctx().new_dynamic_size()
    return x.new_empty((n, x.dim()), dtype=torch.int64)


_note("coords", [
    (torch.tensor([[1., 0.], [0., 2.]]),),
    (torch.randint(0, 2, (2, 3, 2)),),
    (torch.tensor([True, False, True]),),
])

# ------------------------------------------------------ declared mutation ---


def _check_ema(ema, value):
    torch._check(ema.is_floating_point() and ema.dtype == value.dtype, lambda: "dtypes must be floating and the same")
    _same_shape(ema, value)


@custom_op("right::ema_update", mutates_args=("ema",))
def ema_update(ema: Tensor, value: Tensor, decay: float = 0.9) -> None:
    _check_ema(ema, value)
    ema.mul_(decay).add_(value, alpha=1 - decay)


@ema_update.register_fake
def _(ema, value, decay=0.9):
    _check_ema(ema, value)


_note("ema_update", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5), 0.5),
])


@custom_op("right::cache_write", mutates_args=("cache",))
def cache_write(cache: Tensor, new: Tensor, pos: int) -> None:
    torch._check(cache.dim() == 2 and new.dim() == 2 and cache.dtype == new.dtype)
    torch._check(cache.shape[1] == new.shape[1])
    torch._check(pos >= 0)
    torch._check(pos + new.shape[0] <= cache.shape[0], lambda: "the cache is full")
    cache[pos: pos + new.shape[0]].copy_(new)


@cache_write.register_fake
def _(cache, new, pos):
    torch._check(cache.dim() == 2 and new.dim() == 2 and cache.dtype == new.dtype)
    torch._check(cache.shape[1] == new.shape[1])
    torch._check(pos >= 0)
    torch._check(pos + new.shape[0] <= cache.shape[0], lambda: "the cache is full")


_note("cache_write", [
    (torch.zeros(6, 3), torch.randn(2, 3), 1),
    (torch.zeros(4, 2), torch.randn(4, 2), 0),
])


LIB.define("accumulate(Tensor(a!) total, Tensor idx, Tensor vals) -> Tensor")


def _check_acc(total, idx, vals):
    torch._check(total.dim() == 1 and idx.dim() == 1 and vals.dim() == 1)
    torch._check(idx.dtype == torch.int64 and total.dtype == vals.dtype)
    torch._check(idx.shape[0] == vals.shape[0])


@impl(LIB, "accumulate", "CPU")
def _(total, idx, vals):
    """total[idx] += vals; returns the values as they stood before."""
    _check_acc(total, idx, vals)
    before = _dense(total[idx])
    total.index_add_(0, idx, vals)
    return before


@register_fake("right::accumulate")
def _(total, idx, vals):
    _check_acc(total, idx, vals)
    return total.new_empty((idx.shape[0],))


_note("accumulate", [
    (torch.zeros(5), torch.tensor([0, 1, 1, 4]), torch.randn(4)),
    (torch.ones(3, dtype=torch.int64), torch.tensor([2, 2]), torch.tensor([5, 6])),
])


LIB.define("scale_(Tensor(a!) x, float s) -> Tensor(a!)", tags=(torch.Tag.inplace,))


@impl(LIB, "scale_", "CPU")
def _(x, s):
    torch._check(x.is_floating_point(), lambda: "scale_ needs a floating tensor")
    return x.mul_(s)


@register_fake("right::scale_")
def _(x, s):
    torch._check(x.is_floating_point(), lambda: "scale_ needs a floating tensor")
    return x


_note("scale_", [
    (torch.randn(4, 3), 2.0),
    (torch.randn(5), -0.5),
])

# -------------------------------------------------------------------- out= --

LIB.define("add_scaled(Tensor x, Tensor y, float alpha=1.0) -> Tensor")
LIB.define("add_scaled.out(Tensor x, Tensor y, float alpha=1.0, *, Tensor(a!) out) -> Tensor(a!)", tags=(torch.Tag.out,))


def _check_adds(x, y):
    torch._check(x.is_floating_point() and x.dtype == y.dtype)
    _same_shape(x, y)


@impl(LIB, "add_scaled", "CPU")
def _(x, y, alpha=1.0):
    _check_adds(x, y)
    return _dense(x + alpha * y)


@register_fake("right::add_scaled")
def _(x, y, alpha=1.0):
    _check_adds(x, y)
    return x.new_empty(x.shape)


@impl(LIB, "add_scaled.out", "CPU")
def _(x, y, alpha=1.0, *, out):
    _check_adds(x, y)
    torch._check(out.dtype == x.dtype, lambda: "out has another dtype")
    r = x + alpha * y
    out.resize_(r.shape)
    return out.copy_(r)


@register_fake("right::add_scaled.out")
def _(x, y, alpha=1.0, *, out):
    _check_adds(x, y)
    torch._check(out.dtype == x.dtype, lambda: "out has another dtype")
    out.resize_(x.shape)
    return out


_note("add_scaled", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5), 0.5),
])
_note("add_scaled.out", [
    ((torch.randn(4, 3), torch.randn(4, 3)), {"out": torch.empty(4, 3)}),
    ((torch.randn(5), torch.randn(5), 0.5), {"out": torch.empty(5)}),
])


LIB.define("row_range(Tensor x) -> (Tensor, Tensor)")
LIB.define("row_range.out(Tensor x, *, Tensor(a!) lo, Tensor(b!) hi) -> (Tensor(a!), Tensor(b!))", tags=(torch.Tag.out,))


def _check_rr(x):
    torch._check(x.dim() == 2, lambda: "x must be (N, D)")
    torch._check(x.shape[1] >= 1, lambda: "no column to take the range of")


@impl(LIB, "row_range", "CPU")
def _(x):
    _check_rr(x)
    return _dense(x.amin(1)), _dense(x.amax(1))


@register_fake("right::row_range")
def _(x):
    _check_rr(x)
    return x.new_empty((x.shape[0],)), x.new_empty((x.shape[0],))


@impl(LIB, "row_range.out", "CPU")
def _(x, *, lo, hi):
    _check_rr(x)
    torch._check(lo.dtype == x.dtype and hi.dtype == x.dtype)
    a, b = x.amin(1), x.amax(1)
    lo.resize_(a.shape)
    hi.resize_(b.shape)
    return lo.copy_(a), hi.copy_(b)


@register_fake("right::row_range.out")
def _(x, *, lo, hi):
    _check_rr(x)
    torch._check(lo.dtype == x.dtype and hi.dtype == x.dtype)
    lo.resize_((x.shape[0],))
    hi.resize_((x.shape[0],))
    return lo, hi


_note("row_range", [
    (torch.randn(4, 3),),
    (torch.randint(0, 9, (3, 5)),),
])
_note("row_range.out", [
    ((torch.randn(4, 3),), {"lo": torch.empty(4), "hi": torch.empty(4)}),
])

# ------------------------------------------------------------------- views --

LIB.define("swap_last(Tensor(a) x) -> Tensor(a)")


@impl(LIB, "swap_last", "CompositeImplicitAutograd")
def _(x):
    torch._check(x.dim() >= 2)
    return x.transpose(-1, -2)


_note("swap_last", [
    (torch.randn(4, 3),),
    (torch.randn(2, 3, 5),),
])


LIB.define("add_axis(Tensor(a) x, int where) -> Tensor(a)")


@impl(LIB, "add_axis", "CompositeImplicitAutograd")
def _(x, where):
    return x.unsqueeze(where)


_note("add_axis", [
    (torch.randn(4, 3), 1),
    (torch.randn(5), -1),
])

# ------------------------------------------- strides, dtype, structure ------


@custom_op("right::layer_scale", mutates_args=())
def layer_scale(x: Tensor, gamma: Tensor) -> Tensor:
    """x * gamma[c], in the layout of x"""
    torch._check(x.dim() == 4 and gamma.dim() == 1 and x.dtype == gamma.dtype)
    torch._check(x.shape[1] == gamma.shape[0])
    out = torch.empty_like(x)
    return out.copy_(x * gamma.view(1, gamma.shape[0], 1, 1))


@layer_scale.register_fake
def _(x, gamma):
    torch._check(x.dim() == 4 and gamma.dim() == 1 and x.dtype == gamma.dtype)
    torch._check(x.shape[1] == gamma.shape[0])
    return torch.empty_like(x)


_note("layer_scale", [
    (torch.randn(2, 3, 4, 5), torch.randn(3)),
    (torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last), torch.randn(4)),
])


LIB.define("resize_nearest(Tensor img, SymInt[] size) -> Tensor")


@impl(LIB, "resize_nearest", "CPU")
def _(img, size):
    torch._check(img.dim() == 4 and len(size) == 2)
    n, c, h, w = img.shape
    oh, ow = size
    out = torch.empty((n, c, oh, ow), dtype=img.dtype, device=img.device, memory_format=torch.channels_last)
    torch._check(h >= 1 and w >= 1, lambda: "an empty image")
    torch._check(oh >= 1 and ow >= 1, lambda: "an empty result")
    ys = (torch.arange(oh) * h) // oh
    xs = (torch.arange(ow) * w) // ow
    return out.copy_(img[:, :, ys][:, :, :, xs])


@register_fake("right::resize_nearest")
def _(img, size):
    torch._check(img.dim() == 4 and len(size) == 2)
    n, c, h, w = img.shape
    oh, ow = size
    for s in (h, w):
        torch._check(s >= 1, lambda: "an empty image")
    for s in (oh, ow):
        torch._check(s >= 1, lambda: "an empty result")
    return torch.empty((n, c, oh, ow), dtype=img.dtype, device=img.device, memory_format=torch.channels_last)


_note("resize_nearest", [
    (torch.rand(2, 3, 4, 4), [8, 8]),
    (torch.rand(1, 3, 9, 6), [3, 2]),
])


LIB.define("pack_columns(Tensor w) -> Tensor")


@impl(LIB, "pack_columns", "CPU")
def _(w):
    torch._check(w.dim() == 2)
    return _dense(w).t()


@register_fake("right::pack_columns")
def _(w):
    torch._check(w.dim() == 2)
    return w.new_empty(w.shape).t()


_note("pack_columns", [
    (torch.randn(4, 6),),
    (torch.randint(0, 9, (3, 2)),),
])


@custom_op("right::bias_grid", mutates_args=())
def bias_grid(bias: Tensor, height: int, width: int) -> Tensor:
    torch._check(bias.dim() == 1)
    torch._check(height >= 0)
    torch._check(width >= 0)
    return _dense(bias)[:, None, None].expand(bias.shape[0], height, width)


@bias_grid.register_fake
def _(bias, height, width):
    torch._check(bias.dim() == 1)
    torch._check(height >= 0)
    torch._check(width >= 0)
    return bias.new_empty((bias.shape[0],))[:, None, None].expand(bias.shape[0], height, width)


_note("bias_grid", [
    (torch.randn(3), 4, 5),
    (torch.randn(8), 2, 2),
])


LIB.define("shifted_sum(Tensor lengths) -> Tensor")


@impl(LIB, "shifted_sum", "CPU")
def _(lengths):
    """Running sum, the tail of a buffer that starts with 0."""
    torch._check(lengths.dim() == 1 and lengths.dtype == torch.int64)
    buf = lengths.new_zeros((lengths.shape[0] + 1,))
    buf[1:] = torch.cumsum(lengths, 0)
    return buf.narrow(0, 1, lengths.shape[0])


@register_fake("right::shifted_sum")
def _(lengths):
    torch._check(lengths.dim() == 1 and lengths.dtype == torch.int64)
    n = lengths.shape[0]
    return torch.as_strided(lengths.new_empty((n + 1,)), (n,), (1,), 1)


_note("shifted_sum", [
    (torch.tensor([2, 0, 3]),),
    (torch.tensor([1, 1, 4, 2]),),
])


LIB.define("quantize_rows(Tensor x) -> (Tensor, Tensor)")


@impl(LIB, "quantize_rows", "CPU")
def _(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    xf = x.to(torch.float32)
    if x.shape[1]:
        scale = xf.abs().amax(1) / 127.0
    else:
        scale = xf.new_zeros((x.shape[0],))
    q = torch.round(xf / scale.clamp(min=1e-8)[:, None]).clamp(-128, 127).to(torch.int8)
    return _dense(q), _dense(scale)


@register_fake("right::quantize_rows")
def _(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty((x.shape[0],), dtype=torch.float32)


_note("quantize_rows", [
    (torch.randn(4, 6),),
    (torch.randn(2, 16).half(),),
])


@custom_op("right::dequantize", mutates_args=())
def dequantize(q: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    torch._check(q.dim() == 2 and q.dtype == torch.int8 and scale.dim() == 1)
    torch._check(dtype.is_floating_point, lambda: "dequantize to a floating dtype")
    torch._check(q.shape[0] == scale.shape[0])
    return _dense((q.to(torch.float32) * scale.to(torch.float32)[:, None]).to(dtype))


@dequantize.register_fake
def _(q, scale, dtype=torch.float32):
    torch._check(q.dim() == 2 and q.dtype == torch.int8 and scale.dim() == 1)
    torch._check(dtype.is_floating_point, lambda: "dequantize to a floating dtype")
    torch._check(q.shape[0] == scale.shape[0])
    return q.new_empty(q.shape, dtype=dtype)


_note("dequantize", [
    (torch.randint(-9, 9, (4, 3), dtype=torch.int8), torch.rand(4)),
    (torch.randint(-9, 9, (2, 5), dtype=torch.int8), torch.rand(2), torch.float16),
])


@custom_op("right::col_mean", mutates_args=())
def col_mean(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2)
    torch._check(not x.is_complex())
    if not x.is_floating_point():
        x = x.to(torch.float32)
    return _dense(x.mean(0))


@col_mean.register_fake
def _(x):
    torch._check(x.dim() == 2)
    torch._check(not x.is_complex())
    return x.new_empty((x.shape[1],), dtype=x.dtype if x.is_floating_point() else torch.float32)


_note("col_mean", [
    (torch.randn(4, 6),),
    (torch.randint(0, 9, (3, 2)),),
    (torch.randn(4, 3).half(),),
])


LIB.define("blend(Tensor a, Tensor b, float alpha) -> Tensor")


@impl(LIB, "blend", "CPU")
def _(a, b, alpha):
    torch._check(a.is_floating_point() and b.is_floating_point())
    _same_shape(a, b)
    return _dense(a * (1 - alpha) + b * alpha)


@register_fake("right::blend")
def _(a, b, alpha):
    torch._check(a.is_floating_point() and b.is_floating_point())
    _same_shape(a, b)
    return a.new_empty(a.shape, dtype=torch.result_type(a, b))


_note("blend", [
    (torch.randn(4, 3), torch.randn(4, 3), 0.25),
    (torch.rand(2, 3, 3).half(), torch.rand(2, 3, 3), 0.5),
])


@custom_op("right::running_sum", mutates_args=())
def running_sum(x: Tensor, dtype: Optional[torch.dtype] = None) -> Tensor:
    torch._check(x.is_floating_point() and x.dim() == 1)
    return _dense(torch.cumsum(x, 0, dtype=dtype))


@running_sum.register_fake
def _(x, dtype=None):
    torch._check(x.is_floating_point() and x.dim() == 1)
    return x.new_empty(x.shape, dtype=dtype)


_note("running_sum", [
    (torch.randn(6),),
    ((torch.randn(5),), {"dtype": torch.float64}),
    (torch.randn(4), torch.int64),
])


LIB.define("cast_copy(Tensor x, ScalarType dtype) -> Tensor")


@impl(LIB, "cast_copy", "CPU")
def _(x, dtype):
    return x.to(dtype, copy=True, memory_format=torch.contiguous_format)


@register_fake("right::cast_copy")
def _(x, dtype):
    return x.new_empty(x.shape, dtype=dtype)


_note("cast_copy", [
    (torch.randn(3, 4), torch.float64),
    (torch.randint(0, 9, (5,)), torch.int64),
])


LIB.define("attend(Tensor q, Tensor k, Tensor v, bool need_weights=False) -> (Tensor, Tensor?)")


def _check_attend(q, k, v):
    torch._check(q.dim() == 2 and k.dim() == 2 and v.dim() == 2)
    torch._check(q.is_floating_point() and q.dtype == k.dtype and q.dtype == v.dtype)
    torch._check(q.shape[1] == k.shape[1])
    torch._check(k.shape[0] == v.shape[0])


@impl(LIB, "attend", "CPU")
def _(q, k, v, need_weights=False):
    _check_attend(q, k, v)
    w = torch.softmax(q @ k.t() / 8.0, dim=-1)
    return _dense(w @ v), (_dense(w) if need_weights else None)


@register_fake("right::attend")
def _(q, k, v, need_weights=False):
    _check_attend(q, k, v)
    out = q.new_empty((q.shape[0], v.shape[1]))
    return out, (q.new_empty((q.shape[0], k.shape[0])) if need_weights else None)


_note("attend", [
    (torch.randn(4, 3), torch.randn(5, 3), torch.randn(5, 2)),
    (torch.randn(4, 3), torch.randn(5, 3), torch.randn(5, 2), True),
])


LIB.define("split_cols(Tensor x, SymInt[] sizes) -> Tensor[]")


@impl(LIB, "split_cols", "CPU")
def _(x, sizes):
    torch._check(x.dim() == 2)
    torch._check(all(s >= 0 for s in sizes))
    torch._check(sum(sizes) == x.shape[1], lambda: "sizes must add up to the number of columns")
    return [_dense(p) for p in x.split(sizes, dim=1)]


@register_fake("right::split_cols")
def _(x, sizes):
    torch._check(x.dim() == 2)
    for s in sizes:
        torch._check(s >= 0)
    torch._check(sum(sizes) == x.shape[1], lambda: "sizes must add up to the number of columns")
    return [x.new_empty((x.shape[0], s)) for s in sizes]


_note("split_cols", [
    (torch.randn(4, 6), [1, 2, 3]),
    (torch.randn(3, 4), [4]),
])

# ------------------------------------------------------------ tensor lists --


@custom_op("right::cat_padded", mutates_args=())
def cat_padded(xs: Sequence[Tensor], value: float = 0.0) -> Tensor:
    torch._check(len(xs) >= 1, lambda: "at least one tensor")
    for x in xs:
        torch._check(x.dim() == 1 and x.dtype == xs[0].dtype)
    out = xs[0].new_full((len(xs), max(x.shape[0] for x in xs)), value)
    for i, x in enumerate(xs):
        out[i, : x.shape[0]] = x
    return out


@cat_padded.register_fake
def _(xs, value=0.0):
    torch._check(len(xs) >= 1, lambda: "at least one tensor")
    for x in xs:
        torch._check(x.dim() == 1 and x.dtype == xs[0].dtype)
    longest = functools.reduce(torch.sym_max, [x.shape[0] for x in xs])
    return xs[0].new_empty((len(xs), longest))


_note("cat_padded", [
    ([torch.randn(3), torch.randn(5)],),
    ([torch.randn(2), torch.randn(1), torch.randn(4)], -1.0),
])


LIB.define("weighted_sum(Tensor[] xs, float[] weights) -> Tensor")


def _check_ws(xs, weights):
    torch._check(len(xs) >= 1 and len(xs) == len(weights), lambda: "one weight a tensor")
    torch._check(xs[0].is_floating_point())
    for x in xs[1:]:
        torch._check(x.dtype == xs[0].dtype)
        _same_shape(x, xs[0])


@impl(LIB, "weighted_sum", "CPU")
def _(xs, weights):
    _check_ws(xs, weights)
    out = torch.zeros(xs[0].shape, dtype=xs[0].dtype)
    for x, w in zip(xs, weights):
        out.add_(x, alpha=w)
    return out


@register_fake("right::weighted_sum")
def _(xs, weights):
    _check_ws(xs, weights)
    return xs[0].new_empty(xs[0].shape)


_note("weighted_sum", [
    ([torch.randn(3, 2), torch.randn(3, 2)], [0.5, 2.0]),
    ([torch.randn(4)], [1.0]),
])

# ---------------------------------------------------------------- autograd --


LIB.define("squared_relu(Tensor x) -> Tensor")


@impl(LIB, "squared_relu", "CPU")
def _(x):
    torch._check(x.is_floating_point())
    return _dense(torch.relu(x) ** 2)


@register_fake("right::squared_relu")
def _(x):
    torch._check(x.is_floating_point())
    return x.new_empty(x.shape)


def _save_first(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _save_two(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1])


def _sqrelu_back(ctx, g):
    (x,) = ctx.saved_tensors
    return g * 2 * torch.relu(x)


register_autograd("right::squared_relu", _sqrelu_back, setup_context=_save_first)
_note("squared_relu", [
    (torch.randn(4, 3),),
    (torch.randn(2, 3, 2, 2),),
], autograd=True)


def _check_linear(x, w, bias):
    torch._check(x.dim() == 2 and w.dim() == 2 and x.is_floating_point() and x.dtype == w.dtype)
    torch._check(x.shape[1] == w.shape[1], lambda: "x and w have different numbers of features")
    if bias is not None:
        torch._check(bias.dim() == 1 and bias.dtype == x.dtype)
        torch._check(bias.shape[0] == w.shape[0])


@custom_op("right::linear_relu", mutates_args=())
def linear_relu(x: Tensor, w: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    _check_linear(x, w, bias)
    y = x @ w.t()
    if bias is not None:
        y = y + bias
    return _dense(torch.relu(y))


@linear_relu.register_fake
def _(x, w, bias=None):
    _check_linear(x, w, bias)
    return x.new_empty((x.shape[0], w.shape[0]))


def _lr_setup(ctx, inputs, output):
    x, w, bias = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(x, w, output)


def _lr_back(ctx, g):
    x, w, y = ctx.saved_tensors
    g = g * (y > 0)
    gb = g.sum(0) if ctx.has_bias and ctx.needs_input_grad[2] else None
    return g @ w, g.t() @ x, gb


linear_relu.register_autograd(_lr_back, setup_context=_lr_setup)
_note("linear_relu", [
    (torch.randn(4, 3), torch.randn(2, 3)),
    (torch.randn(4, 3), torch.randn(2, 3), torch.randn(2)),
], autograd=True)


def _check_rms(x, weight):
    torch._check(x.dim() >= 1 and weight.dim() == 1 and x.is_floating_point() and x.dtype == weight.dtype)
    torch._check(x.shape[-1] == weight.shape[0])


@custom_op("right::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    _check_rms(x, weight)
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return _dense(x * r * weight)


@rms_norm.register_fake
def _(x, weight, eps=1e-6):
    _check_rms(x, weight)
    return x.new_empty(x.shape)


def _rms_setup(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_back(ctx, g):
    x, weight = ctx.saved_tensors
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
    xn = x * r
    gw = g * xn
    gx = g * weight
    gx = r * (gx - xn * (gx * xn).mean(-1, keepdim=True))
    lead = list(range(x.dim() - 1))
    return gx, gw.sum(lead) if lead else gw, None


rms_norm.register_autograd(_rms_back, setup_context=_rms_setup)
_note("rms_norm", [
    (torch.randn(4, 6), torch.randn(6)),
    (torch.randn(2, 3, 4), torch.ones(4), 1e-3),
    (torch.randn(5), torch.randn(5)),
], autograd=True)


@custom_op("right::mul_bias", mutates_args=())
def mul_bias(x: Tensor, b: Tensor) -> Tensor:
    """x * b, b of shape (D,) or (N, D)"""
    torch._check(x.dim() == 2 and b.dim() in (1, 2) and x.is_floating_point() and x.dtype == b.dtype)
    torch._check(x.shape[1] == b.shape[-1])
    torch._check(b.dim() == 1 or b.shape[0] == x.shape[0])
    return _dense(x * b)


@mul_bias.register_fake
def _(x, b):
    torch._check(x.dim() == 2 and b.dim() in (1, 2) and x.is_floating_point() and x.dtype == b.dtype)
    torch._check(x.shape[1] == b.shape[-1])
    if b.dim() == 2:
        torch._check(b.shape[0] == x.shape[0])
    return x.new_empty(x.shape)


def _mulb_back(ctx, g):
    x, b = ctx.saved_tensors
    return g * b, (g * x).sum(0) if b.dim() == 1 else g * x


mul_bias.register_autograd(_mulb_back, setup_context=_save_two)
_note("mul_bias", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(4, 3), torch.randn(3)),
], autograd=True)


LIB.define("gather_rows(Tensor table, Tensor idx) -> Tensor")


@impl(LIB, "gather_rows", "CPU")
def _(table, idx):
    torch._check(table.dim() == 2 and idx.dim() == 1 and idx.dtype == torch.int64)
    if idx.numel() and int(idx.min()) < 0:
        raise IndexError("gather_rows takes no negative index")
    return _dense(table[idx])


@register_fake("right::gather_rows")
def _(table, idx):
    torch._check(table.dim() == 2 and idx.dim() == 1 and idx.dtype == torch.int64)
    return table.new_empty((idx.shape[0], table.shape[1]))


def _gr_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.rows = inputs[0].shape[0]


def _gr_back(ctx, g):
    (idx,) = ctx.saved_tensors
    return g.new_zeros((ctx.rows, g.shape[1])).index_add(0, idx, g), None


register_autograd("right::gather_rows", _gr_back, setup_context=_gr_setup)
_note("gather_rows", [
    (torch.randn(5, 3), torch.tensor([4, 0, 2])),
    (torch.randn(3, 2), torch.tensor([1, 1])),
], autograd=True)


@custom_op("right::segment_mean", mutates_args=())
def segment_mean(x: Tensor, seg: Tensor, num_segments: int) -> Tensor:
    torch._check(x.dim() == 2 and seg.dim() == 1 and seg.dtype == torch.int64 and x.is_floating_point())
    torch._check(x.shape[0] == seg.shape[0])
    torch._check(num_segments >= 0)
    count = x.new_zeros((num_segments,)).index_add_(0, seg, x.new_ones((x.shape[0],)))
    out = x.new_zeros((num_segments, x.shape[1])).index_add_(0, seg, x)
    return out / count.clamp(min=1)[:, None]


@segment_mean.register_fake
def _(x, seg, num_segments):
    torch._check(x.dim() == 2 and seg.dim() == 1 and seg.dtype == torch.int64 and x.is_floating_point())
    torch._check(x.shape[0] == seg.shape[0])
    torch._check(num_segments >= 0)
    return x.new_empty((num_segments, x.shape[1]))


def _sm_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.n = inputs[2]


def _sm_back(ctx, g):
    (seg,) = ctx.saved_tensors
    count = g.new_zeros((ctx.n,)).index_add(0, seg, g.new_ones((seg.shape[0],)))
    return (g / count.clamp(min=1)[:, None])[seg], None, None


segment_mean.register_autograd(_sm_back, setup_context=_sm_setup)
_note("segment_mean", [
    (torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 2, 2]), 3),
    (torch.randn(4, 5), torch.tensor([0, 1, 1, 3]), 5),
], autograd=True)


@custom_op("right::row_norm", mutates_args=())
def row_norm(x: Tensor, keepdim: bool = False) -> Tensor:
    torch._check(x.dim() == 2 and x.is_floating_point())
    return _dense(torch.linalg.vector_norm(x, 2.0, dim=1, keepdim=keepdim))


@row_norm.register_fake
def _(x, keepdim=False):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty((x.shape[0], 1) if keepdim else (x.shape[0],))


def _rn_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)
    ctx.keepdim = inputs[1]


def _rn_back(ctx, g):
    x, y = ctx.saved_tensors
    if not ctx.keepdim:
        g, y = g[:, None], y[:, None]
    return torch.where(y > 0, g * x / y, torch.zeros_like(x)), None


row_norm.register_autograd(_rn_back, setup_context=_rn_setup)
_note("row_norm", [
    (torch.randn(4, 6),),
    (torch.randn(3, 5), True),
], autograd=True)

# -------------------------------------------------------------------- vmap --


def _to_front(x, dim, n):
    return x.expand(n, *x.shape) if dim is None else x.movedim(dim, 0)


@custom_op("right::cross_dot", mutates_args=())
def cross_dot(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() >= 1 and a.dtype == b.dtype)
    _same_shape(a, b)
    return _dense((a * b).sum(-1, dtype=a.dtype))


@cross_dot.register_fake
def _(a, b):
    torch._check(a.dim() >= 1 and a.dtype == b.dtype)
    _same_shape(a, b)
    return a.new_empty(a.shape[:-1])


@cross_dot.register_vmap
def _(info, in_dims, a, b):
    a = _to_front(a, in_dims[0], info.batch_size)
    b = _to_front(b, in_dims[1], info.batch_size)
    return cross_dot(a, b), 0


_note("cross_dot", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5)),
], vmap=True)


LIB.define("normalize_last(Tensor x, float eps=1e-05) -> Tensor")


@impl(LIB, "normalize_last", "CPU")
def _(x, eps=1e-5):
    torch._check(x.dim() >= 1 and x.is_floating_point())
    f = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    mu = f.mean(-1, keepdim=True)
    var = ((f - mu) ** 2).mean(-1, keepdim=True)
    return _dense(((f - mu) * torch.rsqrt(var + eps)).to(x.dtype))


@register_fake("right::normalize_last")
def _(x, eps=1e-5):
    torch._check(x.dim() >= 1 and x.is_floating_point())
    return x.new_empty(x.shape)


def _nl_vmap(info, in_dims, x, eps=1e-5):
    return torch.ops.right.normalize_last(x.movedim(in_dims[0], 0), eps), 0


register_vmap("right::normalize_last", _nl_vmap)
_note("normalize_last", [
    (torch.randn(4, 3),),
    (torch.randn(6), 1e-3),
    (torch.randn(2, 4).half(),),
], vmap=True)


@custom_op("right::clip_pair", mutates_args=())
def clip_pair(x: Tensor, limit: float) -> Tuple[Tensor, Tensor]:
    """clipped values and what was cut off"""
    torch._check(x.is_floating_point() and limit >= 0)
    c = x.clamp(-limit, limit)
    return _dense(c), _dense(x - c)


@clip_pair.register_fake
def _(x, limit):
    torch._check(x.is_floating_point() and limit >= 0)
    return x.new_empty(x.shape), x.new_empty(x.shape)


@clip_pair.register_vmap
def _(info, in_dims, x, limit):
    return clip_pair(x, limit), (in_dims[0], in_dims[0])


def _cp_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.limit = inputs[1]


def _cp_back(ctx, gc, gr):
    (x,) = ctx.saved_tensors
    inside = x.abs() <= ctx.limit
    return torch.where(inside, gc, gr), None


clip_pair.register_autograd(_cp_back, setup_context=_cp_setup)
_note("clip_pair", [
    (torch.randn(4, 3), 0.5),
    (torch.randn(6), 1.0),
], autograd=True, vmap=True)

# ------------------------------------------------------------------- sizes --


@custom_op("right::pairwise_l1", mutates_args=())
def pairwise_l1(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == 2 and b.dim() == 2 and a.dtype == b.dtype and a.is_floating_point())
    torch._check(a.shape[1] == b.shape[1])
    return _dense((a[:, None, :] - b[None, :, :]).abs().sum(-1))


@pairwise_l1.register_fake
def _(a, b):
    torch._check(a.dim() == 2 and b.dim() == 2 and a.dtype == b.dtype and a.is_floating_point())
    torch._check(a.shape[1] == b.shape[1])
    return a.new_empty((a.shape[0], b.shape[0]))


_note("pairwise_l1", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5, 2), torch.randn(3, 2)),
])


LIB.define("frames(Tensor wave, SymInt size, SymInt hop) -> Tensor")


@impl(LIB, "frames", "CPU")
def _(wave, size, hop):
    torch._check(wave.dim() == 1)
    torch._check(size > 0)
    torch._check(hop > 0)
    n = wave.shape[0]
    count = (n + hop - 1) // hop
    out = wave.new_zeros((count, size))
    for i in range(count):
        piece = wave[i * hop: i * hop + size]
        out[i, : piece.shape[0]] = piece
    return out


@register_fake("right::frames")
def _(wave, size, hop):
    torch._check(wave.dim() == 1)
    torch._check(size > 0)
    torch._check(hop > 0)
    return wave.new_empty(((wave.shape[0] + hop - 1) // hop, size))


_note("frames", [
    (torch.randn(16), 6, 4),
    (torch.randn(13), 3, 3),
])


@custom_op("right::pad_to_multiple", mutates_args=())
def pad_to_multiple(ids: Tensor, multiple: int, value: int = 0) -> Tensor:
    torch._check(ids.dim() == 2)
    torch._check(multiple > 0)
    b, t = ids.shape
    out = ids.new_full((b, (t + multiple - 1) // multiple * multiple), value)
    out[:, :t] = ids
    return out


@pad_to_multiple.register_fake
def _(ids, multiple, value=0):
    torch._check(ids.dim() == 2)
    torch._check(multiple > 0)
    b, t = ids.shape
    return ids.new_empty((b, (t + multiple - 1) // multiple * multiple))


_note("pad_to_multiple", [
    (torch.randint(0, 9, (2, 5)), 4),
    (torch.randint(0, 9, (3, 8)), 8, -1),
])


@custom_op("right::center_crop", mutates_args=())
def center_crop(img: Tensor, height: int, width: int) -> Tensor:
    torch._check(img.dim() == 3)
    torch._check(height >= 0)
    torch._check(width >= 0)
    c, h, w = img.shape
    top, left = max(h - height, 0) // 2, max(w - width, 0) // 2
    return _dense(img[:, top:top + height, left:left + width])


@center_crop.register_fake
def _(img, height, width):
    torch._check(img.dim() == 3)
    torch._check(height >= 0)
    torch._check(width >= 0)
    c, h, w = img.shape
    return img.new_empty((c, torch.sym_min(h, height), torch.sym_min(w, width)))


_note("center_crop", [
    (torch.rand(3, 8, 10), 4, 4),
    (torch.rand(1, 3, 6), 4, 5),
])


LIB.define("rotate_image(Tensor img, int k) -> Tensor")


@impl(LIB, "rotate_image", "CPU")
def _(img, k):
    torch._check(img.dim() == 3)
    return _dense(torch.rot90(img, k, (1, 2)))


@register_fake("right::rotate_image")
def _(img, k):
    torch._check(img.dim() == 3)
    c, h, w = img.shape
    return img.new_empty((c, w, h) if k % 2 else (c, h, w))


_note("rotate_image", [
    (torch.randn(3, 8, 6), 1),
    (torch.randn(3, 6, 6), 2),
    (torch.rand(1, 5, 4), -1),
])


@custom_op("right::stack_padded", mutates_args=())
def stack_padded(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == 1 and b.dim() == 1 and a.dtype == b.dtype)
    out = a.new_zeros((2, max(a.shape[0], b.shape[0])))
    out[0, : a.shape[0]] = a
    out[1, : b.shape[0]] = b
    return out


@stack_padded.register_fake
def _(a, b):
    torch._check(a.dim() == 1 and b.dim() == 1 and a.dtype == b.dtype)
    return a.new_empty((2, torch.sym_max(a.shape[0], b.shape[0])))


_note("stack_padded", [
    (torch.randn(5), torch.randn(3)),
    (torch.randn(2), torch.randn(7)),
    lambda n, m: (torch.randn(n), torch.randn(m)),
])


LIB.define("space_to_depth(Tensor x, int r) -> Tensor")


def _check_s2d(x, r):
    torch._check(x.dim() == 5, lambda: "x must be (B, C, D, H, W)")
    torch._check(r > 0)
    for s in x.shape[2:]:
        torch._check(s % r == 0, lambda: "r must divide D, H and W")


@impl(LIB, "space_to_depth", "CPU")
def _(x, r):
    _check_s2d(x, r)
    b, c, d, h, w = x.shape
    y = x.reshape(b, c, d // r, r, h // r, r, w // r, r).permute(0, 1, 3, 5, 7, 2, 4, 6)
    return _dense(_dense(y).view(b, c * r ** 3, d // r, h // r, w // r))


@register_fake("right::space_to_depth")
def _(x, r):
    _check_s2d(x, r)
    b, c, d, h, w = x.shape
    return x.new_empty((b, c * r ** 3, d // r, h // r, w // r))


_note("space_to_depth", [
    (torch.randn(2, 3, 2, 4, 6), 2),
    (torch.randn(1, 1, 3, 3, 3), 3),
    (torch.randn(1, 2, 3, 4, 5), 1),
])


LIB.define("rope(Tensor x, float base=10000.0) -> Tensor")


def _check_rope(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    torch._check(x.shape[1] % 2 == 0, lambda: "rope needs an even number of features")


@impl(LIB, "rope", "CPU")
def _(x, base=10000.0):
    _check_rope(x)
    t, d = x.shape
    inv = base ** (-torch.arange(0, d, 2, dtype=torch.float32) / max(d, 1))
    ang = torch.arange(t, dtype=torch.float32)[:, None] * inv
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    out = torch.empty((t, d), dtype=x.dtype)
    out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
    out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
    return out


@register_fake("right::rope")
def _(x, base=10000.0):
    _check_rope(x)
    return x.new_empty(x.shape)


_note("rope", [
    (torch.randn(5, 4),),
    (torch.randn(3, 8), 500.0),
])


@custom_op("right::power_spectrum", mutates_args=())
def power_spectrum(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2)
    torch._check(x.dtype in (torch.float32, torch.float64), lambda: "power_spectrum needs float32 or float64")
    torch._check(x.shape[1] >= 1, lambda: "an empty signal has no spectrum")
    if x.shape[0] == 0:
        return x.new_empty((0, x.shape[1] // 2 + 1))
    return _dense(torch.fft.rfft(x).abs() ** 2)


@power_spectrum.register_fake
def _(x):
    torch._check(x.dim() == 2)
    torch._check(x.dtype in (torch.float32, torch.float64), lambda: "power_spectrum needs float32 or float64")
    torch._check(x.shape[1] >= 1, lambda: "an empty signal has no spectrum")
    return x.new_empty((x.shape[0], x.shape[1] // 2 + 1))


_note("power_spectrum", [
    (torch.randn(2, 8),),
    (torch.randn(3, 5),),
])


LIB.define("huber(Tensor pred, Tensor target, float delta=1.0, str reduction='mean') -> Tensor")


def _check_huber(pred, target, reduction):
    torch._check(reduction in ("none", "mean", "sum"), lambda: f"bad reduction {reduction}")
    torch._check(pred.is_floating_point() and pred.dtype == target.dtype)
    _same_shape(pred, target)


@impl(LIB, "huber", "CPU")
def _(pred, target, delta=1.0, reduction="mean"):
    _check_huber(pred, target, reduction)
    e = (pred - target).abs()
    loss = torch.where(e < delta, 0.5 * e * e, delta * (e - 0.5 * delta))
    if reduction == "mean":
        return _dense(loss.mean())
    if reduction == "sum":
        return _dense(loss.sum())
    return _dense(loss)


@register_fake("right::huber")
def _(pred, target, delta=1.0, reduction="mean"):
    _check_huber(pred, target, reduction)
    return pred.new_empty(pred.shape if reduction == "none" else ())


_note("huber", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5), 0.5, "none"),
    (torch.randn(5), torch.randn(5), 0.5, "sum"),
])


@custom_op("right::topk_last", mutates_args=())
def topk_last(x: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    torch._check(x.dim() == 2)
    torch._check(k >= 0)
    torch._check(k <= x.shape[1], lambda: "k is more than the number of columns")
    v, i = torch.topk(_dense(x), k, dim=1)
    return _dense(v), _dense(i)


@topk_last.register_fake
def _(x, k):
    torch._check(x.dim() == 2)
    torch._check(k >= 0)
    torch._check(k <= x.shape[1], lambda: "k is more than the number of columns")
    return x.new_empty((x.shape[0], k)), x.new_empty((x.shape[0], k), dtype=torch.int64)


_note("topk_last", [
    (torch.randn(4, 6), 2),
    (torch.randn(2, 5), 5),
])


LIB.define("to_complex(Tensor re, Tensor im) -> Tensor")


def _check_cplx(re, im):
    torch._check(re.dtype in (torch.float32, torch.float64) and re.dtype == im.dtype, lambda: "float32 or float64 parts")
    _same_shape(re, im)


@impl(LIB, "to_complex", "CPU")
def _(re, im):
    _check_cplx(re, im)
    return _dense(torch.complex(re, im))


@register_fake("right::to_complex")
def _(re, im):
    _check_cplx(re, im)
    return re.new_empty(re.shape, dtype=torch.complex64 if re.dtype == torch.float32 else torch.complex128)


_note("to_complex", [
    (torch.randn(3, 2), torch.randn(3, 2)),
    (torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)),
])


@custom_op("right::repeat_rows", mutates_args=())
def repeat_rows(x: Tensor, times: int) -> Tensor:
    torch._check(x.dim() == 2)
    torch._check(times >= 0)
    return _dense(x[:, None, :].expand(x.shape[0], times, x.shape[1])).view(x.shape[0] * times, x.shape[1]).clone()


@repeat_rows.register_fake
def _(x, times):
    torch._check(x.dim() == 2)
    torch._check(times >= 0)
    return x.new_empty((x.shape[0] * times, x.shape[1]))


_note("repeat_rows", [
    (torch.randn(4, 3), 2),
    (torch.randint(0, 9, (2, 2)), 1),
])


LIB.define("pad_ragged(Tensor values, Tensor lengths, SymInt longest) -> Tensor")


def _check_pr(values, lengths, longest):
    torch._check(values.dim() == 1 and lengths.dim() == 1 and lengths.dtype == torch.int64)
    torch._check(longest >= 0)


@impl(LIB, "pad_ragged", "CPU")
def _(values, lengths, longest):
    _check_pr(values, lengths, longest)
    sizes = lengths.tolist()
    if sum(sizes) != values.shape[0] or any(n < 0 or n > longest for n in sizes):
        raise ValueError("lengths do not fit the values")
    out = values.new_zeros((len(sizes), longest))
    at = 0
    for i, n in enumerate(sizes):
        out[i, :n] = values[at:at + n]
        at += n
    return out


@register_fake("right::pad_ragged")
def _(values, lengths, longest):
    _check_pr(values, lengths, longest)
    return values.new_empty((lengths.shape[0], longest))


_note("pad_ragged", [
    (torch.randn(6), torch.tensor([1, 3, 2]), 4),
    (torch.arange(5), torch.tensor([5, 0]), 5),
])


LIB.define("clamp_between(Tensor x, Scalar lo, Scalar hi) -> Tensor")


@impl(LIB, "clamp_between", "CPU")
def _(x, lo, hi):
    torch._check(x.is_floating_point(), lambda: "clamp_between needs a floating tensor")
    return _dense(x.clamp(lo, hi))


@register_fake("right::clamp_between")
def _(x, lo, hi):
    torch._check(x.is_floating_point(), lambda: "clamp_between needs a floating tensor")
    return x.new_empty(x.shape)


_note("clamp_between", [
    (torch.randn(4, 3), 0, 1),
    (torch.randn(()), -0.5, 0.5),
])
