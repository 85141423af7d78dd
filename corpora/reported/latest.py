"""37 failures that were reported publicly about unbacked sizes, chosen by someone who had not read the generators, the
findings or the other lists. They show on torch 2.13.0; the format is that of newer.py (2026-11-30)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

T = torch.tensor
CASES = []


def case(id, issue, title, category, op, args, unbacked=None, dynamic_shapes=None, repo="pytorch/pytorch", note=""):
    def register(fn):
        CASES.append(dict(id=id, issue=issue, url=f"https://github.com/{repo}/issues/{issue}", title=title,
                          category=category, op=op, fn=fn, args=args, version=None, expr=None, unbacked=unbacked,
                          dynamic_shapes=dynamic_shapes, note=note))
        return fn
    return register


def r(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@case("cond_over_selected", 161198, "cond over a row selected by a number from the data", "higher-order", "cond",
      lambda: (T(0), r(3, 3)), note="non-strict export alone: compares None with an int in create_symbol")
def _(i, x):
    row = x.select(0, i.item())
    return torch.cond(row.sum() > 0, lambda: row.sin(), lambda: row.sin() + 1)


@case("batch_norm_of_masked", 194166, "BatchNorm1d in training over rows of a mask", "ops", "batch_norm",
      lambda: (r(6, 8).requires_grad_(), T([True, False, True, True, False, True])), note="_verify_batch_size")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, h, mask):
        out = h.clone()
        out[mask] = self.norm(h[mask])
        return out


@case("flip_of_repeat_interleave", 187027, "flip of repeat_interleave of rows of a mask", "inductor", "flip",
      lambda: (r(5, 8), T([True, False, True, True, False])), note="inductor alone: wrong values, reads out of bounds")
def _(x, mask):
    return torch.repeat_interleave((x[mask] + 1).flatten(), 2).flip(0)


@case("while_loop_over_masked", 143105, "while_loop with an int carry over a mask's rows", "higher-order", "while_loop",
      lambda: (r(4, 3), T([True, False, True, True])), note="non-strict export and inductor fail")
def _(x, mask):
    rows = x[mask]

    def body(i, out):
        out = out.clone()
        out[i] = rows[i] + 1
        return i + 1, out

    return torch._higher_order_ops.while_loop(lambda i, out: i < rows.shape[0], body, (0, torch.zeros_like(rows)))


@case("while_loop_bound_by_item", 140106, "while_loop whose bound is a number from the data", "higher-order",
      "while_loop", lambda: (r(4, 3), T(3)), note="non-strict export and inductor fail")
def _(x, n):
    n = n.item()
    return torch._higher_order_ops.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x + i), (0, x))


@case("max_seqlen_of_jagged", 183266, "_max_seqlen of a jagged nested tensor", "layouts", "_max_seqlen",
      lambda: (r(20, 12), T([0, 6, 11, 14, 20])))
def _(values, offsets):
    nt = torch.nested.nested_tensor_from_jagged(values, offsets)
    return (nt * nt._max_seqlen).values()


@case("unbind_of_jagged", 132618, "as_nested_tensor of what unbind of a jagged nested tensor returns", "layouts",
      "as_nested_tensor", lambda: (r(5, 4), r(3, 4), T([10.0, 100.0])), note="jagged_from_list compares sizes")
def _(x, y, w):
    n = torch.nested.as_nested_tensor([x, y], layout=torch.jagged)
    n = torch.nested.as_nested_tensor([a * w[i] for i, a in enumerate(n.unbind())], layout=torch.jagged)
    return sum(a.sum() for a in n.unbind())


@case("istft_length_from_data", 135014, "istft with a length from the data", "ops", "istft",
      lambda: (torch.complex(r(1, 9, 6), r(1, 9, 6)), T(30)), note="export alone; restated loosely")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, spec, n):
        return torch.istft(spec, n_fft=16, hop_length=8, window=self.window, length=n.item())


@case("diagonal_offset_from_data", 135099, "diagonal with an offset from the data", "ops", "diagonal",
      lambda: (r(5, 3), r(6, 3), T(0), T(1)))
def _(a, b, i, j):
    dist = torch.cdist(a, b)
    dist.diagonal((i - j).item()).fill_(torch.inf)
    return dist.topk(min(3, b.size(0)), 1, False)


@case("lstm_of_packed", 171978, "LSTM of pack_padded_sequence", "ops", "pack_padded_sequence",
      lambda: (r(3, 5, 10), T([5, 3, 2])), note="the failure of non-strict export")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(10, 20, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


@case("cdist_of_masked", 146990, "nearest rows for missing ones: cdist and topk of rows of a mask", "ops", "cdist",
      lambda: (r(6, 4), T([True, False, True, True, False, True]), T(1)))
def _(x, mask, k):
    value, index = torch.topk(torch.cdist(x[mask], x[~mask]), k.item(), dim=1, largest=False)
    weight = 1 / (value + 1e-3)
    return (torch.take(x[:, 0], index) * weight).sum(1) / weight.sum(1)


@case("cond_closes_over_item", 141524, "a branch of cond closes over a number from the data", "higher-order", "cond",
      lambda: (torch.ones(3, 3), torch.ones(4, 3), T(5)), note="the failure of non-strict export")
def _(x, y, z):
    a, b = y.shape[0], z.item()
    return torch.cond(b > 3, lambda x: x + a, lambda x: x + b * z, (x,))


@case("index_by_int_and_0d_tensor", 122180, "a list comprehension over enumerate(indices)", "Python",
      "Tensor.__getitem__", lambda: (r(3, 4, 2), r(3, 4)), note="strict export and compile fail")
def _(x, selector):
    indices = torch.max(selector, dim=1)[1]
    return torch.stack([x[k, i] for k, i in enumerate(indices)])


@case("nonzero_out", 138269, "nonzero with out=", "ops", "nonzero", lambda: (T([1, 0, 2]),))
def _(x):
    out = torch.empty(0, dtype=torch.long)
    torch.nonzero(x, out=out)
    return out * 2


@case("view_of_split_by_shapes", 34390, "levels of a flat feature map, viewed by shapes from a tensor", "ops", "view",
      lambda: (r(1, 20, 4), T([[4, 2], [2, 2], [2, 4]])), repo="huggingface/transformers")
def _(x, shapes):
    levels = torch.split(x, shapes.prod(1).tolist(), dim=1)
    return [a.transpose(1, 2).view(1, -1, h, w) for a, (h, w) in zip(levels, shapes.tolist())]


@case("legacy_tensor_of_list", 135432, "torch.Tensor of a list of numbers from the data", "Python", "torch.Tensor",
      lambda: (T([1, 2]),))
def _(x):
    return torch.Tensor(x.tolist())


@case("matmul_of_halved", 159184, "matmul of a tensor with n // 2 rows", "inductor", "matmul", lambda: (T(6), r(3, 4)),
      note="fails in inductor alone: is_preferred_layout_as_bmm_input")
def _(n, w):
    return torch.ones(2, n.item() // 2, 3) @ w


@case("as_tensor_of_list", 22998, "as_tensor of a list of numbers from the data", "Python", "torch.as_tensor",
      lambda: (T([1, 2]),), repo="keras-team/keras")
def _(x):
    return torch.as_tensor(x.tolist())


@case("pinv_of_masked", 173393, "pinv of rows of a mask", "ops", "pinv",
      lambda: (r(4, 4), T([True, False, True, True])), note="restated loosely")
def _(x, mask):
    return torch.linalg.pinv(x[mask])


@case("cumsum_of_masked_backward", 116703, "the backward of cumsum over rows of a mask", "autograd", "cumsum",
      lambda: (r(6).requires_grad_(), T([True, False, True, True, False, False])),
      note="fails where AOTAutograd traces the backward: aot_eager and inductor; restated loosely")
def _(x, mask):
    return x[mask].cumsum(0).sum()


@case("lstsq_of_masked", 138269, "lstsq of rows of a mask", "ops", "lstsq",
      lambda: (r(6, 3), r(6, 1), T([True, False, True, True, True, True])))
def _(x, y, mask):
    return torch.linalg.lstsq(x[mask], y[mask]).solution


@case("decoder_layer_causal_mask", 153955, "TransformerDecoderLayer with a causal mask of a length from data", "ops",
      "multi_head_attention_forward", lambda: (r(2, 6, 8), T(4)), note="export and AOTAutograd fail")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval()

    def forward(self, x, n):
        n = n.item()
        x = x[:, :n]
        return self.layer(x, x, tgt_mask=torch.triu(torch.full((n, n), float("-inf")), 1))


@case("encoder_layer_of_masked", 96414, "TransformerEncoderLayer over the positions of a mask", "ops",
      "multi_head_attention_forward", lambda: (r(2, 6, 8), T([True, True, True, False, False, True])))
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()

    def forward(self, x, mask):
        return self.layer(x[:, mask])


@case("block_mask_of_masked", 134560, "create_block_mask of a length that a mask gives", "higher-order",
      "create_block_mask", lambda: (r(1, 2, 16, 16), torch.arange(16) < 10))
def _(x, mask):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    q = x[:, :, mask]
    n = q.shape[2]
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
    return flex_attention(q, q, q, block_mask=causal)


@case("one_hot_classes_from_data", 144211, "one_hot with a number of classes from the data", "ops", "one_hot",
      lambda: (T([0, 2, 1]),), note="restated loosely")
def _(x):
    return F.one_hot(x, x.max().item() + 1)


@case("slice_of_reshaped", 183259, "a slice with bounds from the data of a view that is not strided", "inductor",
      "Tensor.__getitem__", lambda: (r(4, 6), T(2), T(5)), note="inductor alone: View.get_stride is not implemented")
def _(x, a, b):
    y = (x + 1).t()[:, None].expand(-1, 3, -1).reshape(6, 12)
    return y[a.item():b.item()]


@case("assign_to_slice", 183652, "an assignment to a slice with bounds from the data", "inductor", "slice_scatter",
      lambda: (r(4, 6), T(2), T(5)), note="fails in inductor alone: handle_negative_index")
def _(x, a, b):
    y = x.clone()
    y[:, a.item():b.item()] = 1.5
    return y


@case("ctc_loss_of_lengths", 183396, "ctc_loss with tensors of lengths", "ops", "ctc_loss",
      lambda: (r(8, 2, 5).log_softmax(-1), T([[1, 2, 3], [2, 1, 0]]), T([3, 2])))
def _(log_probs, targets, lengths):
    return F.ctc_loss(log_probs, targets[:, :lengths.max().item()], T([8, 8]), lengths)


@case("roll_of_masked", 128324, "roll of rows of a mask", "ops", "roll",
      lambda: (r(4, 4), T([True, False, True, True])))
def _(x, mask):
    return x[mask].roll(1, 0)


@case("diff_of_masked", 116493, "diff along a dim that a mask gives", "ops", "diff",
      lambda: (r(4, 4), T([True, False, True, True])))
def _(x, mask):
    return torch.diff(x[:, mask], dim=-1).sum(-1)


@case("rfft_of_masked", 135087, "rfft of a signal of a length that a mask gives", "ops", "rfft",
      lambda: (r(2, 16), torch.arange(16) < 10))
def _(x, mask):
    return torch.fft.rfft(x[:, mask]).abs()


@case("vmap_of_index_put", 137560, "vmap over an assignment by index, of a size that a mask gives", "transforms",
      "torch.vmap", lambda: (T([[1, 2, 0]]), T([[[0, 1, 2], [1, 0, 2], [2, 1, 0]]]), T([True, False, True])))
def _(counts, columns, keep):
    counts, columns = counts[:, keep], columns[:, keep]
    rows, n = columns.shape[-2:]

    def dense(count, index):
        out = index.new_zeros(rows, n + 1)
        valid = torch.where(torch.arange(n) < count[:, None], index, n)
        out[torch.arange(rows)[:, None], valid] = out.new_ones(())
        return out[:, :n].contiguous()

    return torch.vmap(dense)(counts, columns)


@case("scan_of_masked", 185064, "scan over rows of a mask", "higher-order", "scan",
      lambda: (r(4, 3), T([True, False, True, True])), note="restated loosely")
def _(x, mask):
    from torch._higher_order_ops.scan import scan
    return scan(lambda c, v: (c + v, c * v), torch.zeros(3), x[mask], dim=0)


@case("assign_through_view", 185585, "an assignment through a view of an input of unbacked size", "inductor", "view",
      lambda: (r(5, 4),), unbacked={0: [0]}, note="inductor alone: wrong values, or a guard fails; restated loosely")
def _(x):
    x.view(-1, 2)[0] *= 3
    return x.sum(0)


@case("fill_diagonal_of_masked", 10703, "a graph of nearest neighbours of rows of a mask", "ops", "fill_diagonal_",
      lambda: (r(6, 4), T([True, False, True, True, False, True])), repo="pyg-team/pytorch_geometric",
      note="restated loosely")
def _(x, mask):
    x = x[mask]
    near = ((x[:, None] - x[None]) ** 2).sum(-1).fill_diagonal_(1e9).topk(2, largest=False)[1]
    return torch.stack([near.flatten(), torch.arange(x.shape[0]).repeat_interleave(2)])


@case("instance_norm_of_masked", 3265, "InstanceNorm2d of rows of a mask", "ops", "instance_norm",
      lambda: (r(4, 3, 5, 5), T([True, False, True, True])), repo="pytorch/TensorRT", note="restated loosely")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(3)

    def forward(self, x, mask):
        return self.norm(x[mask])


@case("interpolate_area", 127830, "interpolate to a size from the data", "ops", "interpolate",
      lambda: (r(1, 3, 6, 6), T([4, 9])), note="mode area, adaptive_avg_pool2d; restated loosely")
def _(x, size):
    h, w = size.tolist()
    return F.interpolate(x, size=(h, w), mode="area").flatten(2).transpose(1, 2)
