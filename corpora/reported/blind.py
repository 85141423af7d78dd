"""Failures that were reported publicly about unbacked sizes and data-dependent values, chosen by someone who had not read
the generators, the findings or the other lists. They show on torch 2.13.0 (CPU); the format is that of newer.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Replicate, Shard

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


def mesh2():
    import torch.distributed as dist
    from torch.distributed.tensor import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return init_device_mesh("cpu", (2,))


def dtensor(*pairs):
    mesh = mesh2()
    return tuple(DTensor.from_local(t, mesh, [p], run_check=False) for t, p in pairs)


@case("masked_median_int", 194766, "masked.median of integers", "ops", "masked.median",
      lambda: (T([1, 9, 3]), T([True, False, True])),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: UserError (masked/_ops.py:1483 in median); compile aot_eager and inductor: UserError (masked/_ops.py:1483 in median)")
def _(x, mask):
    return torch.masked.median(x, dim=0, mask=mask)


@case("trunc_normal", 194768, "trunc_normal_ of a new weight", "dynamo", "trunc_normal_", lambda: (r(8),),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported")
def _(x):
    w = torch.empty_like(x)
    return nn.init.trunc_normal_(w, mean=0.0, std=1.0, a=-2.0, b=2.0)


@case("njt_param_expand", 172991, "a jagged nested tensor made of an expanded parameter", "subclasses", "as_nested_tensor",
      lambda: (r(2, 4, 8),),
      note="export non-strict: RuntimeError (nested/_internal/nested_tensor.py:460 __torch_function__); export strict: RuntimeError (nested/_internal/nested_tensor.py:460 __torch_function__); compile aot_eager and inductor: IndexError (_dynamo/guards.py:3259 _get_code_parts)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.i = nn.Parameter(torch.randn(1, 4, 8))

    def forward(self, x):
        expanded_i = self.i.expand(x.shape[0], -1, -1)
        nested_i = torch.nested.as_nested_tensor(expanded_i, layout=torch.jagged)
        return (nested_i - nested_i.mean(-1, keepdim=True)).values() + x.reshape(-1, 8)


@case("njt_sum_guard", 185016, "a nested tensor compared with its mean over a kept dimension", "subclasses", "mean",
      lambda: (r(15, 8).requires_grad_(), T([0, 5, 10, 15])),
      note="export non-strict: RuntimeError (nested/__init__.py:439 nested_tensor_from_jagged); export strict: RuntimeError (nested/_internal/nested_tensor.py:460 __torch_function__); compile aot_eager and inductor: IndexError (_dynamo/guards.py:3259 _get_code_parts)")
def _(values, offsets):
    nt = torch.nested.nested_tensor_from_jagged(values, offsets)
    return (nt * torch.rsqrt(nt.pow(2).mean(-1, keepdim=True) + 1e-5)).values()


@case("reduce_item_bool", 164725, "item of a bool that masked_select left alone", "inductor", "masked_select",
      lambda: (T(1.0, requires_grad=True),),
      note="compile inductor: NameError (_inductor/output_code.py:763 __call__)")
def _(sentinel):
    x = torch.arange(1).to(torch.bool)
    mask = torch.zeros_like(x, dtype=torch.bool)
    mask[:1] = True
    v = torch.squeeze(torch.masked_select(x, mask)).item()
    return v * sentinel


@case("padded_dense", 3939, "a jagged tensor to a padded one whose length is read from the lengths", "modules", "int",
      lambda: (r(9, 4), T([2, 4, 3])), repo="meta-pytorch/torchrec",
      note="export non-strict: GuardOnDataDependentSymNode (the line of the case)")
class _(nn.Module):
    def forward(self, values, lengths):
        n = int(torch.max(lengths).item())
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [n], 0.0)


@case("new_tensor_of_tensors", 216, "new_tensor of two tensors", "dynamo", "new_tensor",
      lambda: (r(10, 1, 4), T([0.5]), T([0.25])), repo="tenstorrent/tt-forge-models",
      note="export non-strict: RuntimeError (_export/non_strict_utils.py:1205 __torch_function__)")
def _(x, a, b):
    return x * x.new_tensor([a, b]).sum()


@case("image_list_pad", 5347, "images padded to the size of the largest", "ops", "pad",
      lambda: (r(3, 24, 24), T([[24, 24]])), repo="facebookresearch/detectron2",
      note="export strict: PendingUnbackedSymbolNotFound (_dynamo/utils.py:3215 set_example_value); compile aot_eager and inductor: InternalTorchDynamoError (_dynamo/utils.py:3215 set_example_value)")
def _(image, sizes):
    max_size = torch.stack([s for s in sizes]).max(0).values
    max_size = (max_size + 31).div(32, rounding_mode="floor") * 32
    h, w = image.shape[-2:]
    u0, u1 = max_size[-1] - w, max_size[-2] - h
    return F.pad(image, [0, u0, 0, u1], value=0.0).unsqueeze_(0)


@case("conv_reshape_shape_tensor", 182652, "reshape of a convolution to a shape kept in a tensor", "dynamo", "any",
      lambda: (r(1, 3, 64, 64), T([1, 8, -1])),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported (nn/modules/module.py:1789 _call_impl)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)

    def forward(self, x, shape):
        c = self.conv(x)
        if torch.any(shape == 0):
            shape = [c.shape[i] if dim == 0 else dim for i, dim in enumerate(shape)]
        return torch.reshape(c, torch.Size(shape))


@case("reshape_torch_size", 182649, "reshape to torch.Size of a tensor", "dynamo", "reshape",
      lambda: (r(4, 64), T([4, 64])),
      note="export non-strict: TypeError (nn/modules/module.py:1789 _call_impl); export strict: TypeError (_dynamo/variables/lists.py:1792 as_proxy); compile aot_eager and inductor: InternalTorchDynamoError (_dynamo/variables/lists.py:1792 as_proxy)")
def _(x, s):
    return torch.reshape((x + x) - (x + x), torch.Size(s))


@case("cond_branch_check", 165893, "a check in a branch of cond on the number of nonzeros", "higher-order", "cond",
      lambda: (T([1, 1, 0, 1]),),
      note="compile aot_eager: lost error: eager raises, this returns; compile inductor: lost error: eager raises, this returns")
def _(x):
    def true_fn(x):
        u = torch.nonzero(x).shape[0]
        torch._check(u == 4)
        return x + u

    def false_fn(x):
        u = torch.nonzero(x + 1).shape[0]
        torch._check(u == 4)
        return x - u

    return torch.cond(x.sum() > 0, true_fn, false_fn, (x,))


@case("mixtral_expert_hit", 38518, "Mixtral: a loop over the experts that were hit", "modules", "nonzero",
      lambda: (r(6, 8), T([[0, 1], [1, 2], [0, 2], [1, 0], [2, 1], [0, 1]]), r(6, 2).softmax(-1)),
      repo="huggingface/transformers",
      note="export non-strict: GuardOnDataDependentSymNode (_refs/__init__.py:4264 in unbind); export strict: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr); compile aot_eager and inductor: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts = 4
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])

    def forward(self, hidden_states, selected_experts, routing_weights):
        final = torch.zeros_like(hidden_states)
        expert_mask = F.one_hot(selected_experts, num_classes=self.num_experts).permute(2, 1, 0)
        expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert_idx in expert_hit:
            expert_layer = self.experts[expert_idx]
            idx, top_x = torch.where(expert_mask[expert_idx].squeeze(0))
            current = expert_layer(hidden_states[None, top_x].reshape(-1, 8)) * routing_weights[top_x, idx, None]
            final.index_add_(0, top_x, current)
        return final


@case("pyg_scatter_num_nodes", 94640, "scatter whose size is the largest index plus one", "modules", "scatter_add",
      lambda: (r(6, 4).requires_grad_(), T([0, 1, 1, 3, 2, 0])),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__)")
def _(src, index):
    dim_size = int(index.max()) + 1 if index.numel() > 0 else 0
    size = list(src.size())
    size[0] = dim_size
    count = src.new_zeros(dim_size)
    count.scatter_add_(0, index, src.new_ones(src.size(0)))
    count = count.clamp_(min=1)
    idx = index.view(-1, 1).expand_as(src)
    out = src.new_zeros(size).scatter_add_(0, idx, src)
    return out / count.view(-1, 1).expand_as(out)


@case("piper_lengths", 148, "VITS: a decoder over as many frames as the durations sum to", "inductor", "conv1d",
      lambda: (r(1, 4, 6), torch.ones(1, 1, 6) * 0.8), repo="OHF-Voice/piper1-gpl",
      note="compile inductor: InductorError (fx/experimental/_size_hinting.py:166 in _guarding_hint_or_throw_base)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = nn.Conv1d(4, 8, 5, padding=2)
        self.ups = nn.ConvTranspose1d(8, 4, 4, stride=2, padding=1)

    def forward(self, m_p, w):
        w_ceil = torch.ceil(w)
        y_lengths = torch.clamp_min(torch.sum(w_ceil, [1, 2]), 1).long()
        max_length = y_lengths.max()
        y_mask = (torch.arange(max_length).unsqueeze(0) < y_lengths.unsqueeze(1)).unsqueeze(1).to(m_p.dtype)
        cum = torch.cumsum(w_ceil, -1).view(-1)
        path = (torch.arange(max_length).unsqueeze(0) < cum.unsqueeze(1)).to(m_p.dtype)
        path = path - F.pad(path, (0, 0, 1, 0))[:-1]
        z_p = torch.matmul(m_p, path.unsqueeze(0))
        z = self.flow(z_p) * y_mask
        return self.ups((z * y_mask)[:, :, :1000])


@case("mse_observer_patience", 2384, "a search for quantization parameters that stops without progress", "dynamo", "any",
      lambda: (r(4, 16),), repo="vllm-project/llm-compressor",
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported")
def _(observed):
    min_val, max_val = observed.amin(-1), observed.amax(-1)
    best = torch.full_like(min_val, torch.finfo(min_val.dtype).max)
    best_min, best_max = min_val.clone(), max_val.clone()
    no_improve = 0
    for i in range(4):
        p = 1 - i / 8
        lo, hi = (p * min_val).unsqueeze(-1), (p * max_val).unsqueeze(-1)
        q = torch.clamp(observed, lo, hi)
        err = (q - observed).abs().pow(2.4).sum(-1)
        tmp = err < best
        if torch.any(tmp):
            best = torch.where(tmp, err, best)
            best_min, best_max = torch.where(tmp, lo.squeeze(-1), best_min), torch.where(tmp, hi.squeeze(-1), best_max)
            no_improve = 0
        else:
            no_improve += 1
            if no_improve >= 2:
                break
    return best_min, best_max


@case("kornia_distance", 3794, "a distance transform that stops when no pixel remains", "dynamo", "any",
      lambda: ((r(1, 1, 6, 6) > 1).float(),), repo="kornia/kornia",
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported")
def _(image):
    out = torch.zeros_like(image)
    boundary = image.clone()
    signal_ones = torch.ones_like(boundary)
    kernel = torch.exp(torch.tensor([[-1.4, -1.0, -1.4], [-1.0, 0.0, -1.0], [-1.4, -1.0, -1.4]]) / 0.35)
    for i in range(2):
        cdt = F.conv2d(F.pad(boundary, (1, 1, 1, 1), mode="replicate"), kernel[None, None])
        cdt = -0.35 * torch.log(cdt)
        cdt = torch.nan_to_num(cdt, posinf=0.0)
        mask = torch.where(cdt > 0, 1.0, 0.0)
        if mask.sum() == 0:
            break
        out += (i * 2 + cdt) * mask
        boundary = torch.where(mask == 1, signal_ones, boundary)
    return out


@case("flash_is_packed", 41803, "attention that asks whether the positions are packed", "dynamo", "bool",
      lambda: (r(1, 5, 4), T([[0, 1, 2, 0, 1]])), repo="huggingface/transformers",
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported")
def _(q, position_ids):
    increasing = torch.arange(position_ids.shape[1]) + position_ids.min()
    is_packed = (increasing - position_ids).abs().sum().bool()
    if position_ids.shape[0] == 1 and is_packed:
        starts = (position_ids.view(-1) == 0).nonzero().view(-1)
        cu = torch.cat((starts.to(torch.int32), torch.tensor([position_ids.numel()], dtype=torch.int32)))
        return q * (cu[1:] - cu[:-1]).max()
    return q


@case("maskrcnn_paste", 9321, "masks pasted at boxes into an image", "inductor", "slice",
      lambda: (r(2, 1, 4, 4), T([[1.0, 1, 5, 6], [0, 2, 3, 7]])), repo="pytorch/vision",
      note="compile inductor: InductorError (_inductor/lowering.py:1597 slice_)")
def _(masks, boxes):
    res = []
    for m, b in zip(masks, boxes.to(torch.int64)):
        x0, y0, x1, y1 = b.tolist()
        w, h = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
        mask = F.interpolate(m.unsqueeze(0), size=(h, w), mode="bilinear", align_corners=False)[0][0]
        im = torch.zeros((8, 8))
        im[max(y0, 0): min(y1 + 1, 8), max(x0, 0): min(x1 + 1, 8)] = mask
        res.append(im)
    return torch.stack(res)


@case("packed_lstm", 112044, "an LSTM over a packed sequence", "modules", "pack_padded_sequence",
      lambda: (r(3, 5, 4), T([5, 3, 2])),
      note="export non-strict: TypeError (_export/non_strict_utils.py:1205 __torch_function__); export strict: Unsupported (_dynamo/functional_export.py:965 inner); compile aot_eager and inductor: Unsupported (nn/modules/module.py:1789 _call_impl)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, _ = self.lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0]


@case("batch_from_ragged", 127154, "ragged texts in a padded batch", "inductor", "slice",
      lambda: (torch.arange(1, 11), T([0, 3, 7, 10])),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); compile inductor: InductorError (_inductor/ir.py:800 get_stride)")
def _(text, batch_lengths):
    lens = batch_lengths[1:] - batch_lengths[:-1]
    max_len = torch.max(lens)
    num_batches = batch_lengths.shape[0] - 1
    texts = torch.zeros(num_batches, max_len, dtype=torch.int64)
    index = 1
    last = 0
    while index < batch_lengths.shape[0]:
        seq_start, seq_end = batch_lengths[last], batch_lengths[index]
        cur = seq_end - seq_start
        texts[last, :cur] = text[seq_start:seq_end]
        last = index
        index += 1
    return texts, lens


@case("keypoint_heatmaps", 138026, "heatmaps resized to the size of each box", "modules", "int",
      lambda: (r(2, 3, 4, 4), T([[0.0, 0, 6.2, 5.1], [1, 1, 4.4, 7.0]])),
      note="export non-strict: GuardOnDataDependentSymNode (the line of the case)")
def _(maps, rois):
    widths = (rois[:, 2] - rois[:, 0]).clamp(min=1).ceil()
    heights = (rois[:, 3] - rois[:, 1]).clamp(min=1).ceil()
    xy = []
    for i in range(2):
        w, h = int(widths[i].item()), int(heights[i].item())
        m = F.interpolate(maps[i][None], size=(h, w), mode="bicubic", align_corners=False)[0]
        xy.append(m.reshape(3, -1).argmax(dim=1) % w)
    return torch.stack(xy)


@case("masked_grad_product", 111950, "the gradient of a product of values that a mask selects", "backward", "prod",
      lambda: (r(3, 4).requires_grad_(),),
      note="compile aot_eager and inductor: BackendCompilerFailed (autograd/graph.py:979 in _engine_run_backward)")
def _(x):
    y = torch.masked_select(x, x > 0)
    z = torch.masked_select(x, x <= 0)
    return torch.outer(y, z).cumsum(0).prod(1)


@case("fused_tp_sizes", 243, "batch sizes that are compared before segments are multiplied", "modules", "nonzero",
      lambda: (r(6, 4), r(6, 4), T([True, False, True, True, False, True])), repo="NVIDIA/cuEquivariance",
      note="export non-strict: GuardOnDataDependentSymNode (the line of the case); export strict: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr); compile aot_eager and inductor: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr)")
def _(a, b, mask):
    inputs = [a[mask], b[mask][:, :2].repeat(1, 2)]
    batch_size = 1
    for t in inputs:
        size = t.shape[0]
        if size != 1:
            if batch_size != 1 and size != batch_size:
                raise ValueError("batch sizes")
            batch_size = size
    return torch.einsum("bi,bi->b", *[t.expand(batch_size, 4) for t in inputs])


@case("e3nn_item_index", 131911, "an irreps table that is indexed by an item", "dynamo", "getitem",
      lambda: (r(4, 9), T([0, 1, 2, 1])),
      note="export non-strict: GuardOnDataDependentSymNode (the line of the case); export strict: UserError (_dynamo/variables/lists.py:174 in getitem_const); compile aot_eager and inductor: GuardOnDataDependentSymNode (_dynamo/variables/lists.py:174 in getitem_const)")
def _(x, ls):
    table = [0, 1, 4]
    out = []
    for i in range(4):
        l = ls[i].item()
        start = table[l]
        out.append(x[i, start: start + 1])
    return torch.cat(out)


@case("kjt_total_int", 3270, "values reshaped by an int of the sum of the lengths", "modules", "int",
      lambda: (r(9), T([2, 4, 3])), repo="meta-pytorch/torchrec",
      note="export non-strict: GuardOnDataDependentSymNode (the line of the case)")
def _(values, lengths):
    total = int(lengths.sum().item())
    stride = int(lengths.numel())
    seg = torch.repeat_interleave(torch.arange(stride), lengths, output_size=total)
    return torch.zeros(stride).index_add(0, seg, values[:total])


@case("phi3_vision_positions", 31622, "Phi-3-vision: features placed where the ids are negative", "dynamo", "nonzero",
      lambda: (T([[1, -1, -1, 2]]), r(1, 4, 8), r(2, 8)), repo="huggingface/transformers",
      note="export non-strict: GuardOnDataDependentSymNode (_refs/__init__.py:4264 in unbind); export strict: UserError (_refs/__init__.py:4264 in unbind); compile aot_eager and inductor: GuardOnDataDependentSymNode (_refs/__init__.py:4264 in unbind)")
def _(input_ids, hidden, img):
    positions = torch.nonzero((input_ids < 0) & (input_ids > -1000000000), as_tuple=False)
    select = False
    if len(positions.tolist()) > 0:
        select = True
    hidden = hidden.clone()
    if select:
        idx = 0
        for cnt in [2]:
            hidden[positions[idx, 0], positions[idx, 1]: positions[idx, 1] + cnt] = img[:cnt]
            idx += cnt
    return hidden


@case("logit_eps_tensor", 145596, "logit with eps from a tensor", "ops", "logit", lambda: (torch.rand(4), T(1e-6)),
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__); export strict: UserError (_dynamo/utils.py:4231 in run_node); compile aot_eager and inductor: UserError (_dynamo/utils.py:4231 in run_node)")
def _(x, eps):
    return torch.special.logit(x, eps)


@case("detector_boxes_clip", 5361, "boxes scaled and clipped to an image of a size from data", "ops", "clamp",
      lambda: (torch.rand(5, 4) * 9, T([8, 6])), repo="facebookresearch/detectron2",
      note="export non-strict: GuardOnDataDependentSymNode (_export/non_strict_utils.py:1205 in __torch_function__)")
def _(boxes, size):
    h, w = size.tolist()
    assert torch.isfinite(boxes).all(), "Box tensor contains infinite or NaN!"
    x1 = boxes[:, 0].clamp(min=0, max=w)
    y1 = boxes[:, 1].clamp(min=0, max=h)
    x2 = boxes[:, 2].clamp(min=0, max=w)
    y2 = boxes[:, 3].clamp(min=0, max=h)
    boxes = torch.stack((x1, y1, x2, y2), dim=-1)
    keep = ((boxes[:, 2] - boxes[:, 0]) > 0) & ((boxes[:, 3] - boxes[:, 1]) > 0)
    return boxes[keep]


@case("keras_slice", 23190, "a slice whose starts come from a tensor", "ops", "slice", lambda: (r(6, 5), T([1, 2]), T([3, 2])),
      repo="keras-team/keras",
      note="export strict: PendingUnbackedSymbolNotFound (_dynamo/utils.py:3215 set_example_value); compile aot_eager and inductor: InternalTorchDynamoError (_dynamo/utils.py:3215 set_example_value)")
def _(inputs, start_indices, shape):
    slices = [slice(start, start + length) for start, length in zip(start_indices, shape)]
    return inputs[slices[0], slices[1]]


@case("sum_by_group_dtensor", 150582, "DTensor experts over splits of tokens", "dtensor", "split",
      lambda: dtensor((r(3, 8, 4), Replicate()), (r(9, 8), Replicate())) + (T([3, 2, 4]),),
      note="compile aot_eager and inductor: BackendCompilerFailed (distributed/tensor/_dispatch.py:768 wrap)")
def _(w, x, counts):
    outs = []
    for i, c in enumerate(torch.split(x, counts.tolist())):
        outs.append(c @ w[i])
    return torch.cat(outs).to_local()


@case("dt_recompile_slice", 152954, "a slice of a DTensor whose end is data", "dtensor", "slice",
      lambda: dtensor((r(6, 4), Replicate())) + (T(3),),
      note="export non-strict: RuntimeError (distributed/tensor/_ops/utils.py:155 in normalize_dim); export strict: TorchRuntimeError (distributed/tensor/_ops/utils.py:155 in normalize_dim); compile aot_eager and inductor: BackendCompilerFailed (distributed/tensor/_ops/utils.py:155 in normalize_dim)")
def _(x, n):
    u = n.item()
    return x[:u].to_local()


@case("dt_matmul_reduced", 167671, "matmul of DTensors split along the reduced dimension", "dtensor", "mm",
      lambda: dtensor((r(4, 4), Shard(1)), (r(8, 6), Replicate())), unbacked={"x": (0, 1), "y": (0, 1)},
      note="compile inductor: InductorError (_inductor/graph.py:1373 call_function)")
def _(x, y):
    return x @ y


@case("dtensor_linear", 172583, "linear of DTensors of unbacked sizes", "dtensor", "linear",
      lambda: dtensor((r(8, 4), Shard(0)), (r(6, 4), Replicate())), unbacked={'x': (0, 1), 'y': (0, 1)},
      note="export strict: TorchRuntimeError (distributed/tensor/_ops/_matrix_ops.py:295 in gen_single_dim_einsum_strategies); compile aot_eager and inductor: TorchRuntimeError (distributed/tensor/_ops/_matrix_ops.py:295 in gen_single_dim_einsum_strategies)")
def _(x, y):
    return F.linear(x, y, y[:, 0])


@case("dtensor_sort", 172583, "sort of DTensors of unbacked sizes", "dtensor", "sort",
      lambda: dtensor((r(8, 4), Shard(0)), (r(4), Replicate())), unbacked={'x': (0, 1)},
      note="export strict: TorchRuntimeError (distributed/tensor/_ops/utils.py:247 in is_tensor_shardable); compile aot_eager and inductor: TorchRuntimeError (distributed/tensor/_ops/utils.py:247 in is_tensor_shardable)")
def _(x, y):
    return torch.sort(x, 1).values * 1


@case("dtensor_gather", 172583, "gather of DTensors of unbacked sizes", "dtensor", "gather",
      lambda: dtensor((r(8, 4), Replicate()), (torch.ones(8, 2, dtype=torch.int64), Replicate())), unbacked={'x': (0, 1), 'y': (0, 1)},
      note="export strict: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:846 in gather_strategy); compile aot_eager and inductor: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:846 in gather_strategy)")
def _(x, y):
    return torch.gather(x, 1, y)


@case("dtensor_index_put", 172583, "index_put of DTensors of unbacked sizes", "dtensor", "index_put",
      lambda: dtensor((r(8, 4), Replicate()), (T([0, 2]), Replicate())), unbacked={'x': (0, 1)},
      note="export strict: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:1308 in index_put_single_dim_strategy); compile aot_eager and inductor: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:1308 in index_put_single_dim_strategy)")
def _(x, y):
    return torch.index_put(x, (y,), torch.zeros_like(x[:2]))


@case("dtensor_conv", 172583, "conv1d of DTensors of unbacked sizes", "dtensor", "conv1d",
      lambda: dtensor((r(8, 3, 10), Shard(0)), (r(4, 3, 2), Replicate())), unbacked={'x': (0, 2)},
      note="export strict: UserError (distributed/tensor/_ops/utils.py:247 in is_tensor_shardable); compile aot_eager and inductor: UserError (distributed/tensor/_ops/utils.py:247 in is_tensor_shardable)")
def _(x, y):
    return F.conv1d(x, y)


@case("dtensor_scatter_add", 172583, "scatter_add of DTensors of unbacked sizes", "dtensor", "scatter_add",
      lambda: dtensor((r(8, 4), Replicate()), (torch.ones(8, 2, dtype=torch.int64), Replicate())), unbacked={'x': (0, 1), 'y': (0, 1)},
      note="export strict: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:816 in scatter_add_strategy); compile aot_eager and inductor: TorchRuntimeError (distributed/tensor/_ops/_tensor_ops.py:816 in scatter_add_strategy)")
def _(x, y):
    return torch.scatter_add(x, 1, y, x[:, :2])


@case("custom_mutates_masked", 125869, "a custom operator that mutates the rows of a mask", "custom-ops", "auto_functionalize",
      lambda: (r(6, 4), T([True, False, True, True, False, True])),
      note="compile inductor: InductorError (_inductor/scheduler.py:4566 compute_dependencies)")
def _(x, mask):
    rows = x[mask]
    image = torch.ops.freshblind.mk_rows(rows)
    rows += image.shape[0]
    return rows.sum(0), image.flatten(1).mean(1)


@torch.library.custom_op("freshblind::mk_rows", mutates_args=("decoder",))
def mk_rows(decoder: torch.Tensor) -> torch.Tensor:
    decoder.add_(1)
    return torch.ones(2, 3, 4)


@mk_rows.register_fake
def _(decoder):
    return torch.empty([torch.library.get_ctx().new_dynamic_size() for _ in range(3)])


@case("llama_cond_arange", 8873, "cond whose branch loops over an arange of a number from data", "higher-order", "cond",
      lambda: (T([2, 1, 0, 1]), T(3)), repo="pytorch/executorch",
      note="export non-strict: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr); export strict: UserError (_dynamo/variables/tensor.py:2606 in evaluate_expr); compile aot_eager and inductor: UserError (_dynamo/utils.py:4231 in run_node)")
def _(parents, depth):
    def true_fn(p):
        out = p.clone()
        for j in torch.arange(depth):
            out = out + p[j]
        return out

    def false_fn(p):
        return p.clone()

    return torch.cond(parents.sum() > 0, true_fn, false_fn, (parents,))
