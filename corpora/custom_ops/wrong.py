"""Custom ops with exactly one planted defect each (test data)."""
import math
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.library import Library, custom_op, get_ctx, impl, register_autograd, register_fake, register_vmap

LIB = Library("wrong", "FRAGMENT")

EXAMPLES = {}
DEFECTS = {}
HAS_AUTOGRAD = set()      # ops with an autograd formula (floating inputs may require grad)
HAS_VMAP = set()          # ops with a vmap rule
BASE_OF = {}              # "wrong::x.out" -> "wrong::x" (the functional form, which is itself right)


def _dense(t):
    """A fresh contiguous tensor."""
    return t.clone(memory_format=torch.contiguous_format)


def _note(name, kind, examples, autograd=False, vmap=False):
    key = f"wrong::{name}"
    DEFECTS[key] = kind
    EXAMPLES[key] = examples
    if autograd:
        HAS_AUTOGRAD.add(key)
    if vmap:
        HAS_VMAP.add(key)


# ------------------------------------------------------------------ sizes ---

@custom_op("wrong::segment_sum", mutates_args=())
def segment_sum(x: Tensor, seg: Tensor, num_segments: int) -> Tensor:
    torch._check(x.dim() == 2 and seg.dim() == 1 and x.shape[0] == seg.shape[0])
    if x.shape[0] == 0:
        return x.new_zeros((0, x.shape[1]))
    out = x.new_zeros((num_segments, x.shape[1]))
    return out.index_add_(0, seg, x)


@segment_sum.register_fake
def _(x, seg, num_segments):
    torch._check(x.dim() == 2 and seg.dim() == 1)
    torch._check(x.shape[0] == seg.shape[0])
    return x.new_empty((num_segments, x.shape[1]))


_note("segment_sum", "size0: the real kernel gives (0, D) for N == 0, the fake always (num_segments, D)", [
    (torch.randn(6, 3), torch.tensor([0, 0, 1, 1, 2, 2]), 3),
    (torch.randn(4, 5), torch.tensor([0, 1, 1, 3]), 4),
])


@custom_op("wrong::last_token", mutates_args=())
def last_token(h: Tensor, lengths: Tensor) -> Tensor:
    torch._check(h.dim() == 3 and lengths.dim() == 1 and h.shape[0] == lengths.shape[0])
    idx = (lengths - 1).view(-1, 1, 1).expand(-1, 1, h.shape[2])
    return _dense(h.gather(1, idx).squeeze())


@last_token.register_fake
def _(h, lengths):
    torch._check(h.dim() == 3 and lengths.dim() == 1)
    torch._check(h.shape[0] == lengths.shape[0])
    return h.new_empty((h.shape[0], h.shape[2]))


_note("last_token", "size1: a bare squeeze() drops B or D when it is 1, the fake keeps (B, D)", [
    (torch.randn(3, 5, 4), torch.tensor([5, 2, 1])),
    (torch.randn(2, 6, 8), torch.tensor([6, 3])),
])


LIB.define("cap_tokens(Tensor x) -> Tensor")
MAX_TOKENS = 64


@impl(LIB, "cap_tokens", "CPU")
def _(x):
    torch._check(x.dim() == 2)
    return _dense(x[:MAX_TOKENS])


@register_fake("wrong::cap_tokens")
def _(x):
    torch._check(x.dim() == 2)
    return x.new_empty(x.shape)


_note("cap_tokens", "large size: the real kernel keeps at most 64 rows, the fake all of them (shows at N > 64)", [
    (torch.randn(8, 3),),
    lambda n, d: (torch.randn(n, d),),
])


BLOCK = 16


@custom_op("wrong::block_absmax", mutates_args=())
def block_absmax(x: Tensor) -> Tensor:
    """abs-max of blocks of 16 of a flat tensor"""
    torch._check(x.dim() == 1)
    n = x.shape[0]
    nb = (n + BLOCK - 1) // BLOCK
    buf = x.new_zeros((nb * BLOCK,))
    buf[:n] = x
    return buf.view(nb, BLOCK).abs().amax(1)


@block_absmax.register_fake
def _(x):
    torch._check(x.dim() == 1)
    return x.new_empty((x.shape[0] // BLOCK + 1,))


_note("block_absmax", "off by one at multiples: the fake uses n // 16 + 1 for ceil(n / 16) (shows at n a multiple of 16, also 0)", [
    (torch.randn(20),),
    (torch.randn(37),),
    (torch.randn(5),),
])


LIB.define("pair_pool(Tensor x) -> Tensor")


@impl(LIB, "pair_pool", "CPU")
def _(x):
    torch._check(x.dim() == 2)
    n = x.shape[0]
    out = x.new_zeros(((n + 1) // 2, x.shape[1]))
    out += x[0::2]
    out[: n // 2] += x[1::2]
    return out


@register_fake("wrong::pair_pool")
def _(x):
    torch._check(x.dim() == 2)
    return x.new_empty((x.shape[0] // 2, x.shape[1]))


_note("pair_pool", "odd sizes: real rows are ceil(N / 2), fake floor(N / 2)", [
    (torch.randn(4, 3),),
    (torch.randn(8, 2),),
    lambda n, d: (torch.randn(n, d),),
])


@custom_op("wrong::pairwise_l1", mutates_args=())
def pairwise_l1(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == 2 and b.dim() == 2 and a.shape[1] == b.shape[1])
    torch._check(a.dtype == b.dtype)
    return _dense((a[:, None, :] - b[None, :, :]).abs().sum(-1, dtype=a.dtype))


@pairwise_l1.register_fake
def _(a, b):
    torch._check(a.dim() == 2 and b.dim() == 2)
    torch._check(a.shape[1] == b.shape[1])
    torch._check(a.dtype == b.dtype)
    return a.new_empty((b.shape[0], a.shape[0]))


_note("pairwise_l1", "swapped dims: the fake gives (M, N) for (N, M); the examples are square", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5, 2), torch.randn(5, 2)),
])


LIB.define("rotate_image(Tensor img, int k) -> Tensor")


@impl(LIB, "rotate_image", "CPU")
def _(img, k):
    torch._check(img.dim() == 3)
    return _dense(torch.rot90(img, k, (1, 2)))


@register_fake("wrong::rotate_image")
def _(img, k):
    torch._check(img.dim() == 3)
    return img.new_empty(img.shape)


_note("rotate_image", "swapped dims: H and W swap for odd k, the fake keeps (C, H, W); the examples are square", [
    (torch.randn(3, 8, 8), 1),
    (torch.randn(3, 6, 6), 2),
    (torch.rand(1, 5, 5), 3),
])


@custom_op("wrong::row_norm", mutates_args=())
def row_norm(x: Tensor, p: float = 2.0, keepdim: bool = False) -> Tensor:
    torch._check(x.dim() == 2 and x.is_floating_point())
    return _dense(torch.linalg.vector_norm(x, p, dim=1, keepdim=keepdim))


@row_norm.register_fake
def _(x, p=2.0, keepdim=False):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty((x.shape[0],))


_note("row_norm", "wrong rank in one option: keepdim=True gives (N, 1), the fake always (N,)", [
    (torch.randn(4, 6),),
    (torch.randn(3, 5), 1.0),
    (torch.randn(3, 5), 2.0, False),
])


LIB.define("huber(Tensor pred, Tensor target, float delta=1.0, str reduction='mean') -> Tensor")


@impl(LIB, "huber", "CPU")
def _(pred, target, delta=1.0, reduction="mean"):
    torch._check(reduction in ("none", "mean", "sum"), lambda: f"bad reduction {reduction}")
    torch._check(pred.is_floating_point() and pred.dtype == target.dtype)
    torch._check(pred.shape == target.shape)
    e = (pred - target).abs()
    loss = torch.where(e < delta, 0.5 * e * e, delta * (e - 0.5 * delta))
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    return _dense(loss)


@register_fake("wrong::huber")
def _(pred, target, delta=1.0, reduction="mean"):
    torch._check(reduction in ("none", "mean", "sum"), lambda: f"bad reduction {reduction}")
    torch._check(pred.is_floating_point() and pred.dtype == target.dtype)
    torch._check(pred.dim() == target.dim())
    for a, b in zip(pred.shape, target.shape):
        torch._check(a == b)
    if reduction == "sum":
        return pred.new_empty((1,))
    if reduction == "mean":
        return pred.new_empty(())
    return pred.new_empty(pred.shape)


_note("huber", "wrong rank in one option: reduction='sum' gives a 0-d tensor, the fake says (1,)", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5), 0.5, "none"),
    (torch.randn(5), torch.randn(5), 0.5, "sum"),
])


@custom_op("wrong::center_crop", mutates_args=())
def center_crop(img: Tensor, height: int, width: int) -> Tensor:
    torch._check(img.dim() == 3)
    c, h, w = img.shape
    top, left = max(h - height, 0) // 2, max(w - width, 0) // 2
    return _dense(img[:, top:top + height, left:left + width])


@center_crop.register_fake
def _(img, height, width):
    torch._check(img.dim() == 3)
    return img.new_empty((img.shape[0], height, width))


_note("center_crop", "small sizes: the real kernel gives less than height x width for an image smaller than the crop, the fake does not", [
    (torch.rand(3, 8, 10), 4, 4),
    (torch.rand(1, 6, 6), 3, 5),
])


@custom_op("wrong::pad_to_multiple", mutates_args=())
def pad_to_multiple(ids: Tensor, multiple: int, value: int = 0) -> Tensor:
    torch._check(ids.dim() == 2 and multiple > 0)
    b, t = ids.shape
    out = ids.new_full((b, (t + multiple - 1) // multiple * multiple), value)
    out[:, :t] = ids
    return out


@pad_to_multiple.register_fake
def _(ids, multiple, value=0):
    torch._check(ids.dim() == 2 and multiple > 0)
    b, t = ids.shape
    return ids.new_empty((b, (t // multiple + 1) * multiple))


_note("pad_to_multiple", "at multiples: the fake pads by a whole further multiple when T % multiple == 0", [
    (torch.randint(0, 9, (2, 5)), 4),
    (torch.randint(0, 9, (3, 7)), 8, -1),
])


LIB.define("frames(Tensor wave, int size, int hop) -> Tensor")


@impl(LIB, "frames", "CPU")
def _(wave, size, hop):
    """Frames of a 1-d signal; the last, partial one is filled with zeros."""
    torch._check(wave.dim() == 1 and size > 0 and hop > 0)
    n = wave.shape[0]
    count = (n + hop - 1) // hop
    out = wave.new_zeros((count, size))
    for i in range(count):
        piece = wave[i * hop: i * hop + size]
        out[i, : piece.shape[0]] = piece
    return out


@register_fake("wrong::frames")
def _(wave, size, hop):
    torch._check(wave.dim() == 1)
    torch._check(size > 0)
    torch._check(hop > 0)
    return wave.new_empty((wave.shape[0] // hop, size))


_note("frames", "off by one: real count is ceil(n / hop), fake floor(n / hop) (shows when hop does not divide n)", [
    (torch.randn(16), 6, 4),
    (torch.randn(12), 3, 3),
])


@custom_op("wrong::resize_scale", mutates_args=())
def resize_scale(img: Tensor, factor: int) -> Tensor:
    """Nearest-neighbour downscale by an integer factor."""
    torch._check(img.dim() == 3 and factor > 0)
    return _dense(img[:, ::factor, ::factor])


@resize_scale.register_fake
def _(img, factor):
    torch._check(img.dim() == 3 and factor > 0)
    c, h, w = img.shape
    return img.new_empty((c, (h + factor - 1) // factor, w // factor))


_note("resize_scale", "off by one: the fake rounds the width down, the real kernel up (shows when factor does not divide W)", [
    (torch.rand(3, 8, 8), 2),
    (torch.rand(1, 7, 9), 3),
])

# ------------------------------------------- strides, dtype, structure ------


@custom_op("wrong::layer_scale", mutates_args=())
def layer_scale(x: Tensor, gamma: Tensor) -> Tensor:
    torch._check(x.dim() == 4 and gamma.dim() == 1 and x.shape[1] == gamma.shape[0])
    torch._check(x.dtype == gamma.dtype)
    return x * gamma.view(1, -1, 1, 1)


@layer_scale.register_fake
def _(x, gamma):
    torch._check(x.dim() == 4 and gamma.dim() == 1)
    torch._check(x.shape[1] == gamma.shape[0])
    torch._check(x.dtype == gamma.dtype)
    return x.new_empty(x.shape)


_note("layer_scale", "strides: the real result keeps channels_last (or any other layout), the fake says contiguous", [
    (torch.randn(2, 3, 4, 5), torch.randn(3)),
    (torch.randn(1, 4, 6, 6), torch.randn(4)),
])


LIB.define("pack_columns(Tensor w) -> Tensor")


@impl(LIB, "pack_columns", "CPU")
def _(w):
    torch._check(w.dim() == 2)
    out = torch.empty((w.shape[0], w.shape[1]), dtype=w.dtype, device=w.device)
    out.copy_(w)
    return out.t()


@register_fake("wrong::pack_columns")
def _(w):
    torch._check(w.dim() == 2)
    return w.new_empty((w.shape[1], w.shape[0]))


_note("pack_columns", "strides: the real result is a transposed (column-major) tensor, the fake says contiguous", [
    (torch.randn(4, 6),),
    (torch.randn(3, 3),),
])


@custom_op("wrong::bias_grid", mutates_args=())
def bias_grid(bias: Tensor, height: int, width: int) -> Tensor:
    torch._check(bias.dim() == 1)
    return bias.clone(memory_format=torch.contiguous_format).view(-1, 1, 1).expand(-1, height, width)


@bias_grid.register_fake
def _(bias, height, width):
    torch._check(bias.dim() == 1)
    return bias.new_empty((bias.shape[0], height, width))


_note("bias_grid", "strides: the real result is expanded (stride 0), the fake says contiguous", [
    (torch.randn(3), 4, 5),
    (torch.randn(8), 2, 2),
])


LIB.define("quick_gelu(Tensor x) -> Tensor")


@impl(LIB, "quick_gelu", "CPU")
def _(x):
    torch._check(x.is_floating_point())
    return x * torch.sigmoid(1.702 * x)


@register_fake("wrong::quick_gelu")
def _(x):
    torch._check(x.is_floating_point())
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


_note("quick_gelu", "strides: the real result keeps the layout of a transposed input, the fake says contiguous", [
    (torch.randn(4, 6),),
    (torch.randn(2, 3, 4),),
])


@custom_op("wrong::resize_nearest", mutates_args=())
def resize_nearest(img: Tensor, size: Sequence[int]) -> Tensor:
    torch._check(img.dim() == 4 and len(size) == 2)
    n, c, h, w = img.shape
    ys = (torch.arange(size[0]) * h) // size[0]
    xs = (torch.arange(size[1]) * w) // size[1]
    return _dense(img[:, :, ys][:, :, :, xs])


@resize_nearest.register_fake
def _(img, size):
    torch._check(img.dim() == 4 and len(size) == 2)
    return torch.empty(
        (img.shape[0], img.shape[1], size[0], size[1]),
        dtype=img.dtype, device=img.device, memory_format=torch.channels_last,
    )


_note("resize_nearest", "strides: the fake says channels_last, the real result is contiguous (always)", [
    (torch.rand(2, 3, 4, 4), [8, 8]),
    (torch.rand(1, 3, 9, 6), [3, 2]),
])


@custom_op("wrong::topk_last", mutates_args=())
def topk_last(x: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    torch._check(x.dim() == 2)
    torch._check(k <= x.shape[1])
    v, i = torch.topk(_dense(x), k, dim=1)
    return _dense(v), _dense(i)


@topk_last.register_fake
def _(x, k):
    torch._check(x.dim() == 2)
    torch._check(k <= x.shape[1])
    return x.new_empty((x.shape[0], k)), x.new_empty((x.shape[0], k), dtype=torch.int32)


_note("topk_last", "dtype: indices are int64, the fake says int32 (always)", [
    (torch.randn(4, 6), 2),
    (torch.randn(2, 5), 5),
])


LIB.define("quantize_rows(Tensor x) -> (Tensor, Tensor)")


@impl(LIB, "quantize_rows", "CPU")
def _(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    xf = x.to(torch.float32)
    scale = torch.linalg.vector_norm(xf, math.inf, dim=1) / 127.0 if x.shape[1] else xf.new_zeros((x.shape[0],))
    q = torch.round(xf / scale.clamp(min=1e-8)[:, None]).clamp(-128, 127).to(torch.int8)
    return _dense(q), _dense(scale)


@register_fake("wrong::quantize_rows")
def _(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty((x.shape[0],))


_note("quantize_rows", "dtype for half/double input: the scale is always float32, the fake gives it the input's dtype", [
    (torch.randn(4, 6),),
    (torch.randn(2, 16),),
])


@custom_op("wrong::col_mean", mutates_args=())
def col_mean(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2)
    if not x.is_floating_point():
        x = x.float()
    return _dense(x.mean(0))


@col_mean.register_fake
def _(x):
    torch._check(x.dim() == 2)
    return x.new_empty((x.shape[1],))


_note("col_mean", "dtype for integer input: the real mean is float32, the fake keeps the integer dtype", [
    (torch.randn(4, 6),),
    (torch.randn(3, 2),),
])


LIB.define("blend(Tensor a, Tensor b, float alpha) -> Tensor")


@impl(LIB, "blend", "CPU")
def _(a, b, alpha):
    torch._check(a.is_floating_point() and b.is_floating_point())
    torch._check(a.shape == b.shape)
    return _dense(a * (1 - alpha) + b * alpha)


@register_fake("wrong::blend")
def _(a, b, alpha):
    torch._check(a.is_floating_point() and b.is_floating_point())
    torch._check(a.dim() == b.dim())
    for m, n in zip(a.shape, b.shape):
        torch._check(m == n)
    return a.new_empty(a.shape)


_note("blend", "dtype promotion: the real result has result_type(a, b), the fake a's dtype (shows for half a, float b)", [
    (torch.randn(4, 3), torch.randn(4, 3), 0.25),
    (torch.rand(2, 3, 3), torch.rand(2, 3, 3), 0.5),
])


@custom_op("wrong::running_sum", mutates_args=())
def running_sum(x: Tensor, dtype: Optional[torch.dtype] = None) -> Tensor:
    torch._check(x.is_floating_point() and x.dim() == 1)
    return _dense(torch.cumsum(x, 0, dtype=dtype))


@running_sum.register_fake
def _(x, dtype=None):
    torch._check(x.is_floating_point() and x.dim() == 1)
    return x.new_empty(x.shape)


_note("running_sum", "dtype in one option: the fake ignores dtype=", [
    (torch.randn(6),),
    (torch.randn(4), None),
    ((torch.randn(5),), {"dtype": torch.float64}),
])


LIB.define("exclusive_offsets(Tensor lengths) -> Tensor")


@impl(LIB, "exclusive_offsets", "CPU")
def _(lengths):
    torch._check(lengths.dim() == 1 and lengths.dtype == torch.int64)
    buf = lengths.new_zeros((lengths.shape[0] + 1,))
    buf[1:] = torch.cumsum(lengths, 0)
    return buf[1:]


@register_fake("wrong::exclusive_offsets")
def _(lengths):
    torch._check(lengths.dim() == 1 and lengths.dtype == torch.int64)
    return lengths.new_empty((lengths.shape[0],))


_note("exclusive_offsets", "storage offset: the real result starts at storage offset 1, the fake at 0 (always)", [
    (torch.tensor([2, 0, 3]),),
    (torch.tensor([1, 1, 4, 2]),),
])


LIB.define("pyramid(Tensor x, int levels) -> Tensor[]")


@impl(LIB, "pyramid", "CPU")
def _(x, levels):
    torch._check(x.dim() == 2)
    out = [_dense(x)]
    for _ in range(levels):
        out.append(_dense(out[-1][::2, ::2]))
    return out


@register_fake("wrong::pyramid")
def _(x, levels):
    torch._check(x.dim() == 2)
    out = []
    h, w = x.shape
    for _ in range(levels):
        out.append(x.new_empty((h, w)))
        h, w = (h + 1) // 2, (w + 1) // 2
    return out


_note("pyramid", "number of outputs: the real op returns levels + 1 tensors, the fake levels", [
    (torch.randn(8, 8), 2),
    (torch.randn(6, 4), 1),
])


LIB.define("attend(Tensor q, Tensor k, Tensor v, bool need_weights=False) -> (Tensor, Tensor?)")


@impl(LIB, "attend", "CPU")
def _(q, k, v, need_weights=False):
    torch._check(q.dim() == 2 and k.dim() == 2 and v.dim() == 2 and q.is_floating_point())
    w = torch.softmax(q @ k.t() / 8.0, dim=-1)
    return _dense(w @ v), (_dense(w) if need_weights else None)


@register_fake("wrong::attend")
def _(q, k, v, need_weights=False):
    torch._check(q.dim() == 2 and k.dim() == 2 and v.dim() == 2 and q.is_floating_point())
    torch._check(q.shape[1] == k.shape[1])
    torch._check(k.shape[0] == v.shape[0])
    return q.new_empty((q.shape[0], v.shape[1])), q.new_empty((q.shape[0], k.shape[0]))


_note("attend", "structure: need_weights=False gives None for the weights, the fake always a tensor", [
    (torch.randn(4, 3), torch.randn(5, 3), torch.randn(5, 2)),
    (torch.randn(4, 3), torch.randn(5, 3), torch.randn(5, 2), True),
])

# ------------------------------------------------------- dynamic outputs ----


@custom_op("wrong::select_masked", mutates_args=())
def select_masked(x: Tensor, mask: Tensor) -> Tensor:
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool and x.shape[0] == mask.shape[0])
    return _dense(x[mask])


@select_masked.register_fake
def _(x, mask):
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool)
    torch._check(x.shape[0] == mask.shape[0])
    return x.new_empty(x.shape)


_note("select_masked", "dynamic: the fake takes the static size N for the number of selected rows", [
    (torch.randn(5, 3), torch.tensor([True, False, True, True, False])),
    (torch.randn(3, 2), torch.tensor([True, True, True])),
])


LIB.define("unique_ids(Tensor ids) -> Tensor")


@impl(LIB, "unique_ids", "CPU")
def _(ids):
    torch._check(ids.dim() == 1 and not ids.is_floating_point())
    return _dense(torch.unique(ids))


@register_fake("wrong::unique_ids")
def _(ids):
    torch._check(ids.dim() == 1 and not ids.is_floating_point())
    n = get_ctx().new_dynamic_size(min=2)
    return ids.new_empty((n,))


_note("unique_ids", "dynamic: new_dynamic_size(min=2), but there may be one or no unique id", [
    (torch.tensor([1, 5, 1, 2]),),
    (torch.tensor([3, 2, 3, 2, 9]),),
])


@custom_op("wrong::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, iou: float = 0.5) -> Tensor:
    torch._check(boxes.dim() == 2 and boxes.shape[1] == 4 and scores.dim() == 1 and boxes.shape[0] == scores.shape[0])
    order = scores.argsort(descending=True)
    area = (boxes[:, 2] - boxes[:, 0]).clamp(min=0) * (boxes[:, 3] - boxes[:, 1]).clamp(min=0)
    keep = []
    while order.numel():
        i = order[0]
        keep.append(int(i))
        rest = order[1:]
        lt = torch.maximum(boxes[i, :2], boxes[rest, :2])
        rb = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[:, 0] * wh[:, 1]
        order = rest[inter <= iou * (area[i] + area[rest] - inter)]
    return torch.tensor(keep, dtype=torch.int64, device=boxes.device)


@nms.register_fake
def _(boxes, scores, iou=0.5):
    torch._check(boxes.dim() == 2 and scores.dim() == 1)
    torch._check(boxes.shape[1] == 4)
    torch._check(boxes.shape[0] == scores.shape[0])
    n = get_ctx().new_dynamic_size(min=1)
    torch._check(n <= torch.sym_max(boxes.shape[0], 1))
    return boxes.new_empty((n,), dtype=torch.int64)


_BOXES = torch.tensor([[0., 0., 2., 2.], [0., 0., 2.1, 2.], [5., 5., 7., 8.], [1., 5., 3., 6.]])
_note("nms", "dynamic: new_dynamic_size(min=1), but without boxes nothing is kept (shows at N == 0)", [
    (_BOXES, torch.tensor([0.9, 0.8, 0.7, 0.1])),
    (_BOXES[:3].clone(), torch.tensor([0.2, 0.8, 0.7]), 0.3),
])


LIB.define("local_peaks(Tensor x) -> Tensor")


@impl(LIB, "local_peaks", "CPU")
def _(x):
    torch._check(x.dim() == 1)
    inner = (x[1:-1] > x[:-2]) & (x[1:-1] >= x[2:])
    return _dense(inner.nonzero().view(-1) + 1)


@register_fake("wrong::local_peaks")
def _(x):
    torch._check(x.dim() == 1)
    n = get_ctx().new_dynamic_size(min=0, max=8)
    return x.new_empty((n,), dtype=torch.int64)


_note("local_peaks", "dynamic: new_dynamic_size(max=8), but a long signal has more peaks", [
    (torch.tensor([0., 2., 1., 3., 0., 1.]),),
    (torch.tensor([0., 1., 0.]),),
    lambda n: (torch.arange(n, dtype=torch.float32) % 2,),
])


@custom_op("wrong::run_lengths", mutates_args=())
def run_lengths(x: Tensor) -> Tuple[Tensor, Tensor]:
    torch._check(x.dim() == 1 and not x.is_floating_point())
    v, c = torch.unique_consecutive(x, return_counts=True)
    return _dense(v), _dense(c)


@run_lengths.register_fake
def _(x):
    torch._check(x.dim() == 1 and not x.is_floating_point())
    n = get_ctx().new_dynamic_size()
    torch._check(n < x.shape[0])
    return x.new_empty((n,)), x.new_empty((n,), dtype=torch.int64)


_note("run_lengths", "dynamic: the fake promises fewer runs than elements; without a repeat they are as many", [
    (torch.tensor([1, 1, 2, 2, 2, 1]),),
    (torch.tensor([4, 4, 4]),),
])


@custom_op("wrong::partition_rows", mutates_args=())
def partition_rows(x: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool and x.shape[0] == mask.shape[0])
    return _dense(x[mask]), _dense(x[~mask])


@partition_rows.register_fake
def _(x, mask):
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool)
    torch._check(x.shape[0] == mask.shape[0])
    n = get_ctx().new_dynamic_size()
    torch._check(n <= x.shape[0])
    return x.new_empty((n, x.shape[1])), x.new_empty((n, x.shape[1]))


_note("partition_rows", "dynamic: one symbol for two outputs whose row counts differ", [
    (torch.randn(4, 3), torch.tensor([True, False, True, False])),
    (torch.randn(5, 2), torch.tensor([True, True, True, False, True])),
])


LIB.define("to_jagged(Tensor x, Tensor keep) -> (Tensor, Tensor)")


@impl(LIB, "to_jagged", "CPU")
def _(x, keep):
    """The kept values of a padded batch and its row offsets."""
    torch._check(x.dim() == 2 and keep.dtype == torch.bool and x.shape == keep.shape)
    off = torch.zeros((x.shape[0] + 1,), dtype=torch.int64)
    off[1:] = keep.sum(1).cumsum(0)
    return _dense(x[keep]), off


@register_fake("wrong::to_jagged")
def _(x, keep):
    torch._check(x.dim() == 2 and keep.dim() == 2 and keep.dtype == torch.bool)
    torch._check(x.shape[0] == keep.shape[0])
    torch._check(x.shape[1] == keep.shape[1])
    n = get_ctx().new_dynamic_size()
    return x.new_empty((n,)), x.new_empty((x.shape[0],), dtype=torch.int64)


_note("to_jagged", "size: the offsets have B + 1 entries, the fake says B (always)", [
    (torch.randn(3, 4), torch.rand(3, 4) > 0.4),
    (torch.randn(2, 5), torch.ones(2, 5, dtype=torch.bool)),
])


@custom_op("wrong::coords", mutates_args=())
def coords(x: Tensor) -> Tensor:
    return _dense(torch.nonzero(x))


@coords.register_fake
def _(x):
    n = get_ctx().new_dynamic_size()
    return x.new_empty((x.dim(), n), dtype=torch.int64)


_note("coords", "dynamic, swapped dims: real (n, rank), fake (rank, n); one example is square by chance", [
    (torch.tensor([[1., 0.], [0., 2.]]),),
    (torch.tensor([[1., 3.], [0., 2.]]),),
])


LIB.define("split_sign(Tensor x) -> (Tensor, Tensor)")


@impl(LIB, "split_sign", "CPU")
def _(x):
    torch._check(x.dim() == 1)
    return _dense(x[x > 0]), _dense(x[x < 0])


@register_fake("wrong::split_sign")
def _(x):
    torch._check(x.dim() == 1)
    ctx = get_ctx()
    pos, neg = ctx.new_dynamic_size(), ctx.new_dynamic_size()
    torch._check(pos + neg == x.shape[0])
    return x.new_empty((pos,)), x.new_empty((neg,))


_note("split_sign", "dynamic: the fake promises pos + neg == N; zeros (and nan) are in neither part", [
    (torch.tensor([1., -2., 3., -1.]),),
    (torch.tensor([5., 4., -1.]),),
])


@custom_op("wrong::top_unique", mutates_args=())
def top_unique(x: Tensor, k: int) -> Tensor:
    torch._check(x.dim() == 1 and k >= 0)
    u = torch.unique(x)
    return _dense(u.flip(0)[:k])


@top_unique.register_fake
def _(x, k):
    torch._check(x.dim() == 1 and k >= 0)
    return x.new_empty((k,))


_note("top_unique", "dynamic: the real op gives min(k, unique values), the fake the static k", [
    (torch.tensor([1, 4, 2, 4, 7]), 3),
    (torch.tensor([3., 2., 1., 0.]), 2),
])

# ---------------------------------------------------- mutation and alias ----

LIB.define("unit_rows(Tensor x, float eps=1e-6) -> Tensor")


@impl(LIB, "unit_rows", "CPU")
def _(x, eps=1e-6):
    torch._check(x.dim() == 2 and x.is_floating_point())
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True) + eps
    x /= norm
    return _dense(x)


@register_fake("wrong::unit_rows")
def _(x, eps=1e-6):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape)


_note("unit_rows", "mutation: x is divided in place, undeclared (always)", [
    (torch.randn(4, 3),),
    (torch.randn(2, 6), 1e-3),
])


@custom_op("wrong::convert_boxes", mutates_args=())
def convert_boxes(boxes: Tensor, width: float, height: float, clip: bool = False) -> Tensor:
    """xyxy -> cxcywh"""
    torch._check(boxes.dim() == 2 and boxes.shape[1] == 4 and boxes.is_floating_point())
    if clip:
        boxes[:, 0::2].clamp_(0, width)
        boxes[:, 1::2].clamp_(0, height)
    x0, y0, x1, y1 = boxes.unbind(1)
    return torch.stack([(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0], dim=1)


@convert_boxes.register_fake
def _(boxes, width, height, clip=False):
    torch._check(boxes.dim() == 2 and boxes.is_floating_point())
    torch._check(boxes.shape[1] == 4)
    return boxes.new_empty((boxes.shape[0], 4))


_note("convert_boxes", "mutation in one option: with clip=True boxes is clamped in place, undeclared", [
    (_BOXES.clone(), 6.0, 6.0),
    (_BOXES.clone() + 1, 6.0, 4.0, False),
])


LIB.define("center(Tensor x) -> Tensor")


@impl(LIB, "center", "CPU")
def _(x):
    torch._check(x.is_floating_point())
    flat = x.reshape(-1)
    flat -= flat.mean()
    return _dense(flat).view(x.shape)


@register_fake("wrong::center")
def _(x):
    torch._check(x.is_floating_point())
    return x.new_empty(x.shape)


_note("center", "mutation only for contiguous input: reshape(-1) is a view there, and it is changed in place", [
    (torch.randn(4, 3) + 1,),
    (torch.randn(6, 4).t(),),
])


@custom_op("wrong::softmax_rows", mutates_args=())
def softmax_rows(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2 and x.is_floating_point())
    if x.is_contiguous():
        work = x.clone()
    else:
        work = x   # the kernel below handles strides, no need for a copy
    for row in work:
        if row.numel():
            row.sub_(row.max()).exp_()
            row.div_(row.sum())
    return _dense(work)


@softmax_rows.register_fake
def _(x):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape)


_note("softmax_rows", "mutation only for non-contiguous input: it is worked on in place there", [
    (torch.randn(4, 3),),
    (torch.randn(2, 5),),
])


LIB.define("cast(Tensor x, ScalarType dtype) -> Tensor")


@impl(LIB, "cast", "CPU")
def _(x, dtype):
    if x.dtype == dtype:
        return x
    return _dense(x.to(dtype))


@register_fake("wrong::cast")
def _(x, dtype):
    return x.new_empty(x.shape, dtype=dtype)


_note("cast", "alias: returns the input itself when it already has the dtype", [
    (torch.randn(3, 4), torch.float64),
    (torch.randint(0, 9, (5,)), torch.float32),
])


LIB.define("drop_path(Tensor x, float p, int seed) -> Tensor")


@impl(LIB, "drop_path", "CPU")
def _(x, p, seed):
    torch._check(x.dim() == 2 and x.is_floating_point())
    if p == 0.0:
        return x
    g = torch.Generator().manual_seed(seed)
    keep = torch.rand((x.shape[0], 1), generator=g) >= p
    return _dense(x * keep.to(x.dtype) / (1 - p))


@register_fake("wrong::drop_path")
def _(x, p, seed):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape)


_note("drop_path", "alias in one option: p == 0.0 returns the input itself", [
    (torch.randn(4, 3), 0.5, 0),
    (torch.randn(6, 2), 0.0, 1),
])


LIB.define("take_prefix(Tensor x, int n) -> Tensor")


@impl(LIB, "take_prefix", "CPU")
def _(x, n):
    torch._check(x.dim() >= 1 and 0 <= n <= x.shape[0])
    return x[:n]


@register_fake("wrong::take_prefix")
def _(x, n):
    torch._check(x.dim() >= 1 and n >= 0)
    torch._check(n <= x.shape[0])
    return x.new_empty_strided((n, *x.shape[1:]), x.stride())


_note("take_prefix", "alias: the result is a view of x, the schema says it is new (always)", [
    (torch.randn(5, 3), 2),
    (torch.randn(4), 4),
])


LIB.define("project_qk(Tensor x, Tensor wq, Tensor wk, bool tied=False) -> (Tensor, Tensor)")


@impl(LIB, "project_qk", "CPU")
def _(x, wq, wk, tied=False):
    torch._check(x.dim() == 2 and wq.dim() == 2 and wk.dim() == 2)
    torch._check(wq.shape == wk.shape)
    q = _dense(x @ wq)
    k = q if tied else _dense(x @ wk)
    return q, k


@register_fake("wrong::project_qk")
def _(x, wq, wk, tied=False):
    torch._check(x.dim() == 2 and wq.dim() == 2 and wk.dim() == 2)
    torch._check(x.shape[1] == wq.shape[0])
    torch._check(wq.shape[0] == wk.shape[0])
    torch._check(wq.shape[1] == wk.shape[1])
    return x.new_empty((x.shape[0], wq.shape[1])), x.new_empty((x.shape[0], wq.shape[1]))


_note("project_qk", "alias: with tied=True both outputs are the same tensor", [
    (torch.randn(4, 3), torch.randn(3, 5), torch.randn(3, 5)),
    (torch.randn(4, 3), torch.randn(3, 5), torch.randn(3, 5), True),
])

# -------------------------------------------------- guards in the fake ------


@custom_op("wrong::window_sum", mutates_args=())
def window_sum(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2)
    return _dense(x.sum(0, dtype=x.dtype))


@window_sum.register_fake
def _(x):
    torch._check(x.dim() == 2)
    if x.shape[0] == 0:
        return x.new_zeros((x.shape[1],))
    return x.new_empty((x.shape[1],))


_note("window_sum", "guard: the fake asks `x.shape[0] == 0`, a data-dependent error for an unbacked size", [
    (torch.randn(4, 3),),
    lambda n, d: (torch.randn(n, d),),
])


LIB.define("rope(Tensor x, float base=10000.0) -> Tensor")


@impl(LIB, "rope", "CPU")
def _(x, base=10000.0):
    torch._check(x.dim() == 2 and x.is_floating_point())
    t, d = x.shape
    if d % 2:
        raise ValueError("rope needs an even number of features")
    inv = base ** (-torch.arange(0, d, 2, dtype=torch.float32) / max(d, 1))
    ang = torch.arange(t, dtype=torch.float32)[:, None] * inv
    cos, sin = ang.cos().to(x.dtype), ang.sin().to(x.dtype)
    out = torch.empty((t, d), dtype=x.dtype)
    out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
    out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
    return out


@register_fake("wrong::rope")
def _(x, base=10000.0):
    torch._check(x.dim() == 2 and x.is_floating_point())
    if x.size(1) % 2:
        raise ValueError("rope needs an even number of features")
    return x.new_empty(x.shape)


_note("rope", "guard: the fake asks `x.size(1) % 2` in a Python if, a data-dependent error for an unbacked size", [
    (torch.randn(5, 4),),
    (torch.randn(3, 8), 500.0),
])


@custom_op("wrong::second_diff", mutates_args=())
def second_diff(x: Tensor) -> Tensor:
    torch._check(x.dim() == 1)
    assert x.shape[0] > 2
    return _dense(x[2:] - 2 * x[1:-1] + x[:-2])


@second_diff.register_fake
def _(x):
    torch._check(x.dim() == 1)
    n = x.shape[0]
    assert n > 2, "needs three points"
    return x.new_empty((n - 2,))


_note("second_diff", "guard: `assert n > 2` in the fake, a data-dependent error for an unbacked size", [
    (torch.randn(6),),
    (torch.arange(4.0),),
])


@custom_op("wrong::stack_padded", mutates_args=())
def stack_padded(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == 1 and b.dim() == 1 and a.dtype == b.dtype)
    out = a.new_zeros((2, max(a.shape[0], b.shape[0])))
    out[0, : a.shape[0]] = a
    out[1, : b.shape[0]] = b
    return out


@stack_padded.register_fake
def _(a, b):
    torch._check(a.dim() == 1 and b.dim() == 1 and a.dtype == b.dtype)
    return a.new_empty((2, max(a.shape[0], b.shape[0])))


_note("stack_padded", "guard: Python max() of two sizes in the fake (torch.sym_max is right), a data-dependent error for unbacked sizes", [
    (torch.randn(5), torch.randn(3)),
    (torch.randn(2), torch.randn(7)),
    lambda n, m: (torch.randn(n), torch.randn(m)),
])


LIB.define("row_cumsum(Tensor x) -> Tensor")


@impl(LIB, "row_cumsum", "CPU")
def _(x):
    torch._check(x.dim() == 2)
    return _dense(torch.cumsum(x, 1, dtype=x.dtype))


@register_fake("wrong::row_cumsum")
def _(x):
    torch._check(x.dim() == 2)
    out = x.new_empty(x.shape)
    for i in range(x.shape[0]):
        torch._check(out[i].shape[0] == x.shape[1])
    return out


_note("row_cumsum", "guard: range(n) over a size in the fake, specialises / data-dependent error for an unbacked size", [
    (torch.randn(4, 3),),
    (torch.randint(0, 9, (3, 6)),),
])


@custom_op("wrong::histogram01", mutates_args=())
def histogram01(x: Tensor, bins: int) -> Tensor:
    torch._check(x.is_floating_point() and bins > 0)
    b = (x.reshape(-1).clamp(0, 1) * bins).long().clamp(max=bins - 1)
    return torch.bincount(b, minlength=bins)


@histogram01.register_fake
def _(x, bins):
    torch._check(x.is_floating_point() and bins > 0)
    if x.numel() < 10:
        return torch.empty((bins,), dtype=torch.int64, device=x.device)
    return x.new_empty((bins,), dtype=torch.int64)


_note("histogram01", "guard: the fake asks `x.numel() < 10`, a data-dependent error for an unbacked size", [
    (torch.rand(12), 4),
    (torch.rand(3, 2), 5),
])


LIB.define("masked_mean(Tensor x, Tensor mask) -> Tensor")


@impl(LIB, "masked_mean", "CPU")
def _(x, mask):
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool and x.is_floating_point())
    torch._check(x.shape[0] == mask.shape[0])
    if not bool(mask.any()):
        return x.new_zeros((x.shape[1],))
    return _dense(x[mask].mean(0))


@register_fake("wrong::masked_mean")
def _(x, mask):
    torch._check(x.dim() == 2 and mask.dim() == 1 and mask.dtype == torch.bool and x.is_floating_point())
    torch._check(x.shape[0] == mask.shape[0])
    if not bool(mask.any()):
        return x.new_zeros((x.shape[1],))
    return x.new_empty((x.shape[1],))


_note("masked_mean", "reads data: bool(mask.any()) in the fake (fails for every input)", [
    (torch.randn(4, 3), torch.tensor([True, False, True, True])),
    (torch.randn(2, 3), torch.tensor([False, False])),
])


@custom_op("wrong::pad_ragged", mutates_args=())
def pad_ragged(values: Tensor, lengths: Tensor) -> Tensor:
    torch._check(values.dim() == 1 and lengths.dim() == 1 and lengths.dtype == torch.int64)
    longest = int(lengths.max()) if lengths.numel() else 0
    out = values.new_zeros((lengths.shape[0], longest))
    at = 0
    for i, n in enumerate(lengths.tolist()):
        out[i, :n] = values[at:at + n]
        at += n
    return out


@pad_ragged.register_fake
def _(values, lengths):
    torch._check(values.dim() == 1 and lengths.dim() == 1 and lengths.dtype == torch.int64)
    longest = max(lengths.tolist())
    return values.new_empty((lengths.shape[0], longest))


_note("pad_ragged", "reads data: lengths.tolist() in the fake (fails for every input)", [
    (torch.randn(6), torch.tensor([1, 3, 2])),
    (torch.arange(5), torch.tensor([5, 0])),
])

# ---------------------------------------------------------------- autograd --


@custom_op("wrong::squared_relu", mutates_args=())
def squared_relu(x: Tensor) -> Tensor:
    torch._check(x.is_floating_point())
    return _dense(torch.relu(x) ** 2)


@squared_relu.register_fake
def _(x):
    torch._check(x.is_floating_point())
    return x.new_empty(x.shape)


def _sqrelu_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])


def _sqrelu_back(ctx, g):
    (x,) = ctx.saved_tensors
    return g * torch.relu(x)


squared_relu.register_autograd(_sqrelu_back, setup_context=_sqrelu_setup)
_note("squared_relu", "autograd: the factor 2 is missing in the gradient (always)", [
    (torch.randn(4, 3),),
    (torch.randn(7),),
], autograd=True)


LIB.define("scaled_add(Tensor x, Tensor b, float scale=1.0) -> Tensor")


@impl(LIB, "scaled_add", "CPU")
def _(x, b, scale=1.0):
    torch._check(x.is_floating_point() and x.dtype == b.dtype and x.shape == b.shape)
    return _dense(x + scale * b)


@register_fake("wrong::scaled_add")
def _(x, b, scale=1.0):
    torch._check(x.is_floating_point() and x.dtype == b.dtype and x.dim() == b.dim())
    for m, n in zip(x.shape, b.shape):
        torch._check(m == n)
    return x.new_empty(x.shape)


def _sadd_setup(ctx, inputs, output):
    ctx.scale = inputs[2]


def _sadd_back(ctx, g):
    return g, g, None


register_autograd("wrong::scaled_add", _sadd_back, setup_context=_sadd_setup)
_note("scaled_add", "autograd in one option: the gradient of b ignores scale (right at scale=1.0)", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5), 1.0),
    (torch.randn(5), torch.randn(5), 0.5),
], autograd=True)


@custom_op("wrong::mul_bias", mutates_args=())
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


def _mulb_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _mulb_back(ctx, g):
    x, b = ctx.saved_tensors
    return g * b, (g * x).mean(0) if b.dim() == 1 else g * x


mul_bias.register_autograd(_mulb_back, setup_context=_mulb_setup)
_note("mul_bias", "autograd for a broadcast input: the gradient of a (D,) bias is averaged over N, not summed", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(4, 3), torch.randn(3)),
], autograd=True)


@custom_op("wrong::channel_gain", mutates_args=())
def channel_gain(x: Tensor, gain: Tensor) -> Tensor:
    torch._check(x.dim() == 2 and gain.dim() == 1 and x.is_floating_point() and x.dtype == gain.dtype)
    torch._check(x.shape[1] == gain.shape[0])
    return _dense(x * gain)


@channel_gain.register_fake
def _(x, gain):
    torch._check(x.dim() == 2 and gain.dim() == 1 and x.is_floating_point() and x.dtype == gain.dtype)
    torch._check(x.shape[1] == gain.shape[0])
    return x.new_empty(x.shape)


def _gain_back(ctx, g):
    x, gain = ctx.saved_tensors
    return g * gain, (g * x).sum(0, keepdim=True).squeeze()


channel_gain.register_autograd(_gain_back, setup_context=_mulb_setup)
_note("channel_gain", "autograd at size 1: a bare squeeze() gives a 0-d gradient for a gain of shape (1,)", [
    (torch.randn(4, 3), torch.randn(3)),
    (torch.randn(2, 5), torch.randn(5)),
], autograd=True)


LIB.define("linear_relu(Tensor x, Tensor w, Tensor? bias=None) -> Tensor")


@impl(LIB, "linear_relu", "CPU")
def _(x, w, bias=None):
    torch._check(x.dim() == 2 and w.dim() == 2 and x.is_floating_point() and x.shape[1] == w.shape[1])
    y = x @ w.t()
    if bias is not None:
        torch._check(bias.dim() == 1 and bias.shape[0] == w.shape[0])
        y = y + bias
    return _dense(torch.relu(y))


@register_fake("wrong::linear_relu")
def _(x, w, bias=None):
    torch._check(x.dim() == 2 and w.dim() == 2 and x.is_floating_point())
    torch._check(x.shape[1] == w.shape[1])
    if bias is not None:
        torch._check(bias.dim() == 1)
        torch._check(bias.shape[0] == w.shape[0])
    return x.new_empty((x.shape[0], w.shape[0]))


def _lr_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1], output)


def _lr_back(ctx, g):
    x, w, y = ctx.saved_tensors
    g = g * (y > 0)
    return g @ w, g.t() @ x, None


register_autograd("wrong::linear_relu", _lr_back, setup_context=_lr_setup)
_note("linear_relu", "autograd: no gradient (None) for bias", [
    (torch.randn(4, 3), torch.randn(2, 3)),
    (torch.randn(4, 3), torch.randn(2, 3), torch.randn(2)),
], autograd=True)


@custom_op("wrong::rms_norm", mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    torch._check(x.dim() == 2 and weight.dim() == 1 and x.is_floating_point() and x.dtype == weight.dtype)
    torch._check(x.shape[1] == weight.shape[0])
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return _dense(x * r * weight)


@rms_norm.register_fake
def _(x, weight, eps=1e-6):
    torch._check(x.dim() == 2 and weight.dim() == 1 and x.is_floating_point() and x.dtype == weight.dtype)
    torch._check(x.shape[1] == weight.shape[0])
    return x.new_empty(x.shape)


def _rms_setup(ctx, inputs, output):
    x, weight, ctx.eps = inputs
    ctx.save_for_backward(x, weight)


def _rms_back(ctx, g):
    x, weight = ctx.saved_tensors
    r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
    return g * weight * r, (g * x * r).sum(0), None


rms_norm.register_autograd(_rms_back, setup_context=_rms_setup)
_note("rms_norm", "autograd: the norm is taken as a constant in the gradient of x (always)", [
    (torch.randn(4, 6), torch.randn(6)),
    (torch.randn(2, 3), torch.ones(3), 1e-3),
], autograd=True)


@custom_op("wrong::p_norm", mutates_args=())
def p_norm(x: Tensor, p: int = 2) -> Tensor:
    torch._check(x.dim() == 1 and x.is_floating_point() and p >= 1)
    return (x.abs() ** p).sum() ** (1.0 / p)


@p_norm.register_fake
def _(x, p=2):
    torch._check(x.dim() == 1 and x.is_floating_point() and p >= 1)
    return x.new_empty(())


def _pn_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)
    ctx.p = inputs[1]


def _pn_back(ctx, g):
    x, y = ctx.saved_tensors
    return g * x / y, None


p_norm.register_autograd(_pn_back, setup_context=_pn_setup)
_note("p_norm", "autograd in one option: the formula is that of p = 2 for every p", [
    (torch.randn(5) + 3,),
    (torch.randn(4) - 3, 3),
], autograd=True)


LIB.define("scale_rows(Tensor x, Tensor s) -> Tensor")


@impl(LIB, "scale_rows", "CPU")
def _(x, s):
    torch._check(x.dim() == 2 and s.dim() == 1 and x.is_floating_point() and x.dtype == s.dtype)
    torch._check(x.shape[0] == s.shape[0])
    return _dense(x * s[:, None])


@register_fake("wrong::scale_rows")
def _(x, s):
    torch._check(x.dim() == 2 and s.dim() == 1 and x.is_floating_point() and x.dtype == s.dtype)
    torch._check(x.shape[0] == s.shape[0])
    return x.new_empty(x.shape)


def _sr_back(ctx, g):
    x, s = ctx.saved_tensors
    if x.shape[0] > 1:
        gs = (g * x).sum(1)
    else:
        gs = (g * x).sum(1, keepdim=True)[:, 0]
    return g * s[:, None], gs


register_autograd("wrong::scale_rows", _sr_back, setup_context=_mulb_setup)
_note("scale_rows", "backward guards on a size: `x.shape[0] > 1` is a data-dependent error for an unbacked size", [
    (torch.randn(4, 3), torch.randn(4)),
    (torch.randn(2, 2), torch.randn(2)),
], autograd=True)


@custom_op("wrong::gather_rows", mutates_args=())
def gather_rows(table: Tensor, idx: Tensor) -> Tensor:
    torch._check(table.dim() == 2 and idx.dim() == 1 and idx.dtype == torch.int64)
    return _dense(table[idx])


@gather_rows.register_fake
def _(table, idx):
    torch._check(table.dim() == 2 and idx.dim() == 1 and idx.dtype == torch.int64)
    return table.new_empty((idx.shape[0], table.shape[1]))


def _gr_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.shape = inputs[0].shape


def _gr_back(ctx, g):
    (idx,) = ctx.saved_tensors
    out = g.new_zeros(ctx.shape)
    out[idx] = g
    return out, None


gather_rows.register_autograd(_gr_back, setup_context=_gr_setup)
_note("gather_rows", "autograd for repeated indices: gradients overwrite each other instead of adding up", [
    (torch.randn(5, 3), torch.tensor([4, 0, 2])),
    (torch.randn(3, 2), torch.tensor([1, 1])),
], autograd=True)

# -------------------------------------------------------------------- vmap --


@custom_op("wrong::cross_dot", mutates_args=())
def cross_dot(a: Tensor, b: Tensor) -> Tensor:
    torch._check(a.dim() == b.dim() and a.dim() >= 1 and a.dtype == b.dtype and a.shape == b.shape)
    return _dense((a * b).sum(-1, dtype=a.dtype))


@cross_dot.register_fake
def _(a, b):
    torch._check(a.dim() == b.dim() and a.dim() >= 1 and a.dtype == b.dtype)
    for m, n in zip(a.shape, b.shape):
        torch._check(m == n)
    return a.new_empty(a.shape[:-1])


@cross_dot.register_vmap
def _(info, in_dims, a, b):
    a = a.movedim(in_dims[0], 0) if in_dims[0] is not None else a.expand(info.batch_size, *a.shape)
    b = b if in_dims[1] is not None else b.expand(a.shape)
    return cross_dot(a, b), 0


_note("cross_dot", "vmap: the rule takes the second input to be batched at 0, whatever its in_dim", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5)),
], vmap=True)


LIB.define("reverse_last(Tensor x) -> Tensor")


@impl(LIB, "reverse_last", "CPU")
def _(x):
    torch._check(x.dim() >= 1)
    return _dense(x.flip(-1))


@register_fake("wrong::reverse_last")
def _(x):
    torch._check(x.dim() >= 1)
    return x.new_empty(x.shape)


def _rev_vmap(info, in_dims, x):
    x = x.movedim(in_dims[0], 0)
    return torch.ops.wrong.reverse_last(x), 1


register_vmap("wrong::reverse_last", _rev_vmap)
_note("reverse_last", "vmap: the rule says out_dim 1, the batch is at 0", [
    (torch.randn(4, 4),),
    (torch.randn(2, 3),),
], vmap=True)


@custom_op("wrong::normalize_last", mutates_args=())
def normalize_last(x: Tensor, eps: float = 1e-5) -> Tensor:
    torch._check(x.dim() >= 1 and x.is_floating_point())
    mu = x.mean(-1, keepdim=True)
    var = ((x - mu) ** 2).mean(-1, keepdim=True)
    return _dense((x - mu) * torch.rsqrt(var + eps))


@normalize_last.register_fake
def _(x, eps=1e-5):
    torch._check(x.dim() >= 1 and x.is_floating_point())
    return x.new_empty(x.shape)


@normalize_last.register_vmap
def _(info, in_dims, x, eps=1e-5):
    return normalize_last(x, eps), in_dims[0]


_note("normalize_last", "vmap with in_dims=-1 / the last dim: the rule normalises over the batch dim there (right for in_dims=0)", [
    (torch.randn(4, 3),),
    (torch.randn(6), 1e-3),
], vmap=True)

# -------------------------------------------------------------------- out= --

LIB.define("clamp01(Tensor x) -> Tensor")
LIB.define("clamp01.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=(torch.Tag.out,))


@impl(LIB, "clamp01", "CPU")
def _(x):
    return _dense(x.clamp(0, 1))


@register_fake("wrong::clamp01")
def _(x):
    return x.new_empty(x.shape)


@impl(LIB, "clamp01.out", "CPU")
def _(x, *, out):
    out.copy_(x.clamp(0, 1))
    return out


@register_fake("wrong::clamp01.out")
def _(x, *, out):
    return out


_note("clamp01.out", "out=: not resized, so an empty out (torch.empty(0)) is refused and a larger one is filled by broadcasting", [
    ((torch.randn(4, 3),), {"out": torch.empty(4, 3)}),
    ((torch.randn(5),), {"out": torch.empty(5)}),
])
BASE_OF["wrong::clamp01.out"] = "wrong::clamp01"


LIB.define("mul_scalar(Tensor x, float s, bool negate=False) -> Tensor")
LIB.define("mul_scalar.out(Tensor x, float s, bool negate=False, *, Tensor(a!) out) -> Tensor(a!)", tags=(torch.Tag.out,))


@impl(LIB, "mul_scalar", "CPU")
def _(x, s, negate=False):
    torch._check(x.is_floating_point())
    return _dense(x * (-s if negate else s))


@register_fake("wrong::mul_scalar")
def _(x, s, negate=False):
    torch._check(x.is_floating_point())
    return x.new_empty(x.shape)


@impl(LIB, "mul_scalar.out", "CPU")
def _(x, s, negate=False, *, out):
    torch._check(x.is_floating_point() and x.dtype == out.dtype)
    out.resize_(x.shape)
    return out.copy_(x * s)


@register_fake("wrong::mul_scalar.out")
def _(x, s, negate=False, *, out):
    torch._check(x.is_floating_point() and x.dtype == out.dtype)
    out.resize_(x.shape)
    return out


_note("mul_scalar.out", "out=: wrong values with negate=True (the option is ignored)", [
    ((torch.randn(4, 3), 2.0), {"out": torch.empty(4, 3)}),
    ((torch.randn(5), 0.5, True), {"out": torch.empty(5)}),
])
BASE_OF["wrong::mul_scalar.out"] = "wrong::mul_scalar"


LIB.define("neg_relu(Tensor x) -> Tensor")
LIB.define("neg_relu.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags=(torch.Tag.out,))


@impl(LIB, "neg_relu", "CPU")
def _(x):
    return _dense(-torch.relu(x))


@register_fake("wrong::neg_relu")
def _(x):
    return x.new_empty(x.shape)


@impl(LIB, "neg_relu.out", "CPU")
def _(x, *, out):
    torch._check(x.dtype == out.dtype)
    r = _dense(-torch.relu(x))
    out.resize_(x.shape)
    out.copy_(r)
    return r


@register_fake("wrong::neg_relu.out")
def _(x, *, out):
    torch._check(x.dtype == out.dtype)
    out.resize_(x.shape)
    return out


_note("neg_relu.out", "out=: returns a new tensor with the values, not out", [
    ((torch.randn(4, 3),), {"out": torch.empty(4, 3)}),
    ((torch.randn(5),), {"out": torch.empty(5)}),
])
BASE_OF["wrong::neg_relu.out"] = "wrong::neg_relu"

# Examples of the functional forms of the out= ops; those are right by themselves.
BASE_EXAMPLES = {
    "wrong::clamp01": [(torch.randn(4, 3),), (torch.randn(5),)],
    "wrong::mul_scalar": [(torch.randn(4, 3), 2.0), (torch.randn(5), 0.5, True)],
    "wrong::neg_relu": [(torch.randn(4, 3),), (torch.randn(5),)],
}

# -------------------------------------------------------------------- more --

LIB.define("gamma_correct(Tensor img, float gamma) -> Tensor")


@impl(LIB, "gamma_correct", "CPU")
def _(img, gamma):
    torch._check(img.dim() == 3)
    f = img.float()
    f.clamp_(0, 1).pow_(gamma)
    return _dense(f)


@register_fake("wrong::gamma_correct")
def _(img, gamma):
    torch._check(img.dim() == 3)
    return img.new_empty(img.shape, dtype=torch.float32)


_note("gamma_correct", "mutation for one dtype: .float() is no copy for a float32 image, which is then changed in place", [
    (torch.randint(0, 2, (3, 4, 5), dtype=torch.uint8), 2.2),
    (torch.rand(1, 6, 6, dtype=torch.float64), 0.5),
])


LIB.define("pad_rows_to(Tensor x, int multiple) -> Tensor")


@impl(LIB, "pad_rows_to", "CPU")
def _(x, multiple):
    torch._check(x.dim() == 2 and multiple > 0)
    n = x.shape[0]
    total = (n + multiple - 1) // multiple * multiple
    if total == n and x.is_contiguous():
        return x
    out = x.new_zeros((total, x.shape[1]))
    out[:n] = x
    return out


@register_fake("wrong::pad_rows_to")
def _(x, multiple):
    torch._check(x.dim() == 2)
    torch._check(multiple > 0)
    return x.new_empty(((x.shape[0] + multiple - 1) // multiple * multiple, x.shape[1]))


_note("pad_rows_to", "alias at some sizes: returns the input itself when N is already a multiple", [
    (torch.randn(5, 3), 4),
    (torch.randn(7, 2), 3),
])


@custom_op("wrong::flat_scale", mutates_args=())
def flat_scale(x: Tensor, c: float) -> Tensor:
    torch._check(x.dim() == 2 and x.is_floating_point())
    return _dense(x * c)


@flat_scale.register_fake
def _(x, c):
    torch._check(x.dim() == 2 and x.is_floating_point())
    return x.new_empty(x.shape)


def _fs_setup(ctx, inputs, output):
    ctx.c = inputs[1]


def _fs_back(ctx, g):
    return (g.view(-1) * ctx.c).view(g.shape), None


flat_scale.register_autograd(_fs_back, setup_context=_fs_setup)
_note("flat_scale", "autograd for a non-contiguous incoming gradient: g.view(-1) raises (for instance after .t())", [
    (torch.randn(4, 3), 2.0),
    (torch.randn(2, 5), -0.5),
], autograd=True)


LIB.define("row_peak(Tensor x) -> Tensor")


@impl(LIB, "row_peak", "CPU")
def _(x):
    """Position of the largest value of each row, read from raw memory."""
    torch._check(x.dim() == 2)
    torch._check(x.shape[1] >= 1)
    raw = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset())
    return _dense(raw.view(x.shape).argmax(1))


@register_fake("wrong::row_peak")
def _(x):
    torch._check(x.dim() == 2)
    torch._check(x.shape[1] >= 1)
    return x.new_empty((x.shape[0],), dtype=torch.int64)


_note("row_peak", "values for non-contiguous input: the kernel reads raw memory as if x were contiguous", [
    (torch.randn(4, 6),),
    (torch.randn(3, 3),),
])


@custom_op("wrong::add_rows", mutates_args=())
def add_rows(a: Tensor, b: Tensor) -> Tensor:
    """a + b; either may have one row, which is then used for all"""
    torch._check(a.dim() == 2 and b.dim() == 2 and a.dtype == b.dtype)
    torch._check(a.shape[1] == b.shape[1])
    return _dense(a + b)


@add_rows.register_fake
def _(a, b):
    torch._check(a.dim() == 2 and b.dim() == 2 and a.dtype == b.dtype)
    torch._check(a.shape[1] == b.shape[1])
    return a.new_empty(a.shape)


_note("add_rows", "size at a broadcast: with a of one row the result has b's rows, the fake a's", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(4, 3), torch.randn(1, 3)),
])


LIB.define("sum_dim(Tensor x, int dim) -> Tensor")


@impl(LIB, "sum_dim", "CPU")
def _(x, dim):
    torch._check(x.is_floating_point() and -x.dim() <= dim < x.dim())
    return _dense(x.sum(dim))


@register_fake("wrong::sum_dim")
def _(x, dim):
    torch._check(x.is_floating_point() and -x.dim() <= dim < x.dim())
    return x.new_empty([s for i, s in enumerate(x.shape) if i != dim])


_note("sum_dim", "wrong rank in one option: a negative dim is not taken out by the fake", [
    (torch.randn(4, 3), 0),
    (torch.randn(2, 3, 5), 1),
])


@custom_op("wrong::col_count", mutates_args=())
def col_count(x: Tensor) -> Tensor:
    torch._check(x.dim() == 2 and not x.is_complex())
    return _dense(x.sum(0))


@col_count.register_fake
def _(x):
    torch._check(x.dim() == 2 and not x.is_complex())
    return x.new_empty((x.shape[1],))


_note("col_count", "dtype for bool and small integer input: the real sum is int64, the fake keeps x's dtype", [
    (torch.randn(4, 3),),
    (torch.randint(0, 9, (3, 5)),),
])


@custom_op("wrong::gated_tanh", mutates_args=())
def gated_tanh(x: Tensor, gate: Tensor) -> Tensor:
    torch._check(x.is_floating_point() and x.dtype == gate.dtype and x.shape == gate.shape)
    return _dense(torch.tanh(x) * gate)


@gated_tanh.register_fake
def _(x, gate):
    torch._check(x.is_floating_point() and x.dtype == gate.dtype and x.dim() == gate.dim())
    for m, n in zip(x.shape, gate.shape):
        torch._check(m == n)
    return x.new_empty(x.shape)


def _gt_back(ctx, g):
    x, gate = ctx.saved_tensors
    t = torch.tanh(x)
    ggate = g * t
    gx = g.mul_(gate) * (1 - t * t)
    return gx, ggate


gated_tanh.register_autograd(_gt_back, setup_context=_mulb_setup)
_note("gated_tanh", "autograd mutates the incoming gradient in place (wrong gradients where it is used elsewhere too)", [
    (torch.randn(4, 3), torch.randn(4, 3)),
    (torch.randn(5), torch.randn(5)),
], autograd=True)
