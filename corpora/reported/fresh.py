"""37 failures that were reported publicly about unbacked sizes and data-dependent errors, chosen by someone who had not
read the generators, the findings or the other lists. They show on torch 2.13.0 (CPU); the format is that of newer.py
(2026-12-01). Runs have capture_scalar_outputs and capture_dynamic_output_shape_ops on. A case whose input requires a
gradient is differentiated in the compiled stages."""
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


@case("avg_pool1d_of_rows", 183774, "one-dimensional average pooling of a sequence of unknown length", "ops", "avg_pool1d",
      lambda: (r(1, 2, 8), T([True, True, True, False, True, True, True, True])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in pooling_output_shape_pad_lr (ceil_mode); the thread's pools without ceil_mode trace")
def _(x, mask):
    return F.avg_pool1d(x[:, :, mask], 3, stride=2, ceil_mode=True)


@case("arange_float_step", 185568, "SmolVLM's fractional coordinates: arange with the step one over a sum", "ops", "arange",
      lambda: (T([True, True, True, False]), torch.tensor([0.0, 0.25, 0.5, 0.75])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in _refs.arange, on the sign of the step")
def _(mask, boundaries):
    step = 1 / mask.sum().item()
    frac = torch.arange(0, 1 - 1e-6, step)
    return torch.bucketize(frac, boundaries, right=True)


@case("lu_factor_of_kept", 173399, "LU factors of kept rows and columns, and a solution with them", "ops", "linalg.lu_solve",
      lambda: (r(5, 5), T([True, False, True, True, False])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in linalg_lu_solve_meta; the thread's decompositions trace, the solution with them does not")
def _(x, mask):
    a = x[mask][:, mask] + 3 * torch.eye(5)[mask][:, mask]
    LU, p = torch.linalg.lu_factor(a)
    return torch.linalg.lu_solve(LU, p, a), torch.linalg.det(a)


@case("solve_of_kept", 173399, "solution with kept rows and columns, and its Cholesky inverse", "ops", "linalg.solve",
      lambda: (r(5, 5), T([True, False, True, True, False])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error from C++ below _ops.__call__; the thread's decompositions trace, solve, pinv and their like are expected failures of PyTorch's own tests")
def _(x, mask):
    a = x[mask][:, mask]
    s = a @ a.mT + torch.eye(a.shape[0])
    return torch.linalg.solve(s, a), torch.cholesky_inverse(torch.linalg.cholesky(s)), torch.linalg.pinv(s)


@case("nuclear_norm_of_kept", 179881, "nuclear norm of kept rows, skipped in PyTorch's own tests of unbacked sizes", "ops", "norm",
      lambda: (r(6, 4), T([True, False, True, True, False, True])),
      note="export non-strict, export strict, aot_eager and inductor: an integer is extracted from Min(4, u0) below fake_tensor.dispatch; skipped in PyTorch's own tests, for flakiness, which is not shown here")
def _(x, mask):
    return torch.norm(x[mask], p="nuc") + torch.linalg.matrix_norm(x[mask], ord=2)


@case("cond_of_different_sizes", 137615, "cond whose branches return as many rows as a mask and all", "higher-order", "cond",
      lambda: (r(4, 5), T([True, False, True, True])),
      note="inductor alone: NameError in the generated code, the unbacked size of cond's result is not bound")
def _(x, mask):
    n = mask.sum().item()
    out = torch.cond(n > 2, lambda x: x[:3].clone(), lambda x: x.clone(), (x,))
    return out.sum(0), out.shape[0]


@case("cond_pads_or_cuts", 145734, "cond that pads or cuts token lists and returns two tensors", "higher-order", "cond",
      lambda: (r(2, 6), T([True, True, False, True, False, True])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error when the branches' results are merged")
def _(x, keep):
    kept = x[:, keep]

    def few(k):
        return k[:, :2].clone(), k.sum(1)

    def many(k):
        return k * 2, k.mean(1)

    return torch.cond(keep.sum() < 3, few, many, (kept,))


@case("arange_in_scan", 153247, "arange with a step from a mask's sum, in a scan over masks", "higher-order", "scan",
      lambda: (T([[True, True, True, False], [True, True, True, True]]), r(2, 4)),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in arange, in the body; eager too, for scan compiles its body")
def _(masks, pos):
    from torch._higher_order_ops.scan import scan

    def body(init, xs):
        mask, row = xs
        frac = torch.arange(0, 1 - 1e-6, 1 / mask.sum().item())
        return init + frac.sum(), (row * mask).clone()

    return scan(body, torch.zeros(()), (masks, pos), dim=0)


@torch.compiler.nested_compile_region
def _moe_block(x, counts):
    a, b = counts.tolist()
    p, q = torch.split(x, [a, b])
    return torch.cat([p * 2, q * 3])


@case("two_moe_blocks", 161276, "two MoE blocks that share a compiled region", "higher-order", "nested_compile_region",
      lambda: (r(6, 4).requires_grad_(), T([2, 4]), T([5, 1])),
      note="aot_eager and inductor: wrong gradient of x, no error; the reporter's reuse of a graph ended in a wrong run-time assertion")
def _(x, counts1, counts2):
    return _moe_block(_moe_block(x, counts1), counts2)


@case("hyperspherical_uniform", 116336, "sample of the uniform distribution on a sphere whose dimension is a buffer", "modules", "Size",
      lambda: (r(32, 1),),
      note="export non-strict, export strict, aot_eager and inductor: TypeError, torch.Size of a FakeTensor")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("dim", torch.tensor(7))

    def forward(self, z):
        shape = torch.Size([32]) + torch.Size([self.dim + 1])
        v = torch.empty(shape).normal_()
        v = v / v.norm(dim=-1, keepdim=True)
        return torch.cat([z, torch.sqrt(1 - z ** 2) * v], dim=-1) * 0


@case("llama4_vision_scatter", 150891, "Llama 4 checks that there are as many image tokens as features", "modules", "item",
      lambda: (T([[1, 7, 7, 2]]), r(1, 4, 8), r(2, 8)),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error at the user's branch")
def _(input_ids, inputs_embeds, image_features):
    special_image_mask = (input_ids == 7).unsqueeze(-1)
    final_mask = special_image_mask
    inputs_embeds = inputs_embeds.view(-1, inputs_embeds.size(-1))
    final_mask_1d = final_mask[..., 0].reshape(-1)
    num_tokens_to_fill = final_mask_1d.sum().item()
    if num_tokens_to_fill != image_features.size(0):
        raise ValueError("Mismatch")
    expanded_mask = final_mask_1d.unsqueeze(-1).expand(-1, inputs_embeds.size(-1))
    return inputs_embeds.masked_scatter(expanded_mask, image_features)


@case("repeat_interleave_head_dim", 3964, "repeat_interleave of K and V by a quotient of tensors, then attention", "modules", "scaled_dot_product_attention",
      lambda: (r(1, 5, 16), r(1, 5, 8), r(1, 5, 8)), repo="pytorch/TensorRT",
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error from C++, on the head sizes' equality")
def _(query, key, value):
    query = query.unflatten(2, (2, -1)).transpose(1, 2)
    key = key.unflatten(2, (2, -1)).transpose(1, 2)
    value = value.unflatten(2, (2, -1)).transpose(1, 2)
    query_idx = torch.tensor(query.size(3))
    key_idx = torch.tensor(key.size(3))
    value_idx = torch.tensor(value.size(3))
    key = key.repeat_interleave(query_idx // key_idx, dim=3)
    value = value.repeat_interleave(query_idx // value_idx, dim=3)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


@case("packed_gru", 162375, "GRU over packed embeddings", "modules", "pack_padded_sequence",
      lambda: (torch.arange(10).view(10, 1) % 7, T([10])),
      note="export non-strict: TypeError in zeros, whose size is a FakeTensor; export strict, aot_eager and inductor: Unsupported, a skipped function")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(16, 6)
        self.rnn = nn.GRU(6, 8, batch_first=False)

    def forward(self, ids, lengths):
        x = self.emb(ids)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
        packed_out, _ = self.rnn(packed)
        padded_out, _ = nn.utils.rnn.pad_packed_sequence(packed_out)
        return padded_out


@case("packed_lstm_total_length", 186527, "packed LSTM padded to the greatest length", "modules", "pack_padded_sequence",
      lambda: (r(3, 5, 4), T([5, 3, 2])),
      note="export non-strict: TypeError in zeros, whose size is a FakeTensor; export strict, aot_eager and inductor: Unsupported, a skipped function")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        output, (h, _) = self.rnn(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=lengths.max().item())
        return output, h


@case("qwen3_vl_rope_index", 173915, "Qwen3-VL's get_rope_index", "modules", "tolist",
      lambda: (T([[1, 8, 9, 9, 9, 9, 3, 4]]), T([[1, 4, 4]])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in _refs.unbind, of tolist of the kept ids")
def _(input_ids, image_grid_thw):
    attention_mask = torch.ones_like(input_ids)
    position_ids = torch.ones(3, input_ids.shape[0], input_ids.shape[1], dtype=input_ids.dtype)
    image_index = 0
    for i, ids in enumerate(input_ids):
        ids = ids[attention_mask[i] == 1]
        vision_start_indices = torch.argwhere(ids == 8).squeeze(1)
        vision_tokens = ids[vision_start_indices + 1]
        image_nums = (vision_tokens == 9).sum()
        tokens = ids.tolist()
        pos_list = []
        st = 0
        for _ in range(image_nums):
            ed = tokens.index(9, st)
            t, h, w = image_grid_thw[image_index]
            image_index += 1
            gt, gh, gw = t.item(), h.item() // 2, w.item() // 2
            text_len = ed - st
            st_idx = pos_list[-1].max() + 1 if len(pos_list) > 0 else 0
            pos_list.append(torch.arange(text_len).view(1, -1).expand(3, -1) + st_idx)
            ti = torch.arange(gt).view(-1, 1).expand(-1, gh * gw).flatten()
            hi = torch.arange(gh).view(1, -1, 1).expand(gt, -1, gw).flatten()
            wi = torch.arange(gw).view(1, 1, -1).expand(gt, gh, -1).flatten()
            pos_list.append(torch.stack([ti, hi, wi]) + text_len + st_idx)
            st = ed + gt * gh * gw
        if st < len(tokens):
            st_idx = pos_list[-1].max() + 1 if len(pos_list) > 0 else 0
            text_len = len(tokens) - st
            pos_list.append(torch.arange(text_len).view(1, -1).expand(3, -1) + st_idx)
        positions = torch.cat(pos_list, dim=1).reshape(3, -1)
        position_ids[..., i, attention_mask[i] == 1] = positions
    return position_ids


@torch.library.custom_op("fresh::grouped_mm_fallback2", mutates_args=())
def grouped_mm_fallback2(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    output = torch.zeros(input.size(0), weight.size(2), dtype=input.dtype)
    start = 0
    for i, end in enumerate(offs.tolist()):
        torch.mm(input[start:end], weight[i], out=output[start:end])
        start = end
    return output


@grouped_mm_fallback2.register_fake
def _(input, weight, offs):
    return input.new_empty(input.size(0), weight.size(2))


def _gmm2_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.offs = inputs[2]


def _gmm2_backward(ctx, grad_output):
    input, weight = ctx.saved_tensors
    grad_input = torch.zeros_like(input)
    grad_weight = torch.zeros_like(weight)
    start = 0
    for i, end in enumerate(ctx.offs.tolist()):
        torch.mm(grad_output[start:end], weight[i].T, out=grad_input[start:end])
        torch.mm(input[start:end].T, grad_output[start:end], out=grad_weight[i])
        start = end
    return grad_input, grad_weight, None


grouped_mm_fallback2.register_autograd(_gmm2_backward, setup_context=_gmm2_setup)


@case("grouped_mm_fallback_no_guard", 47991, "the same backward without the test for empty groups", "backward", "mm",
      lambda: (r(6, 4).requires_grad_(), r(2, 4, 8).requires_grad_(), T([2, 6])), repo="huggingface/transformers",
      note="inductor's backward alone: data-dependent error in handle_negative_index (ir.py), of a slice by read offsets")
def _(x, weight, offs):
    return torch.ops.fresh.grouped_mm_fallback2(x, weight, offs)


@case("grad_of_masked_select", 196221, "torch.func.grad of a loss over selected elements", "backward", "masked_select",
      lambda: (r(4, 3),),
      note="run_decompositions of either export: RuntimeError, data pointer of a tensor without storage; torch.compile, which was reported, passes")
def _(x):
    def loss(x):
        return torch.masked_select(x, x > 0).pow(2).sum()

    return torch.func.grad(loss)(x)


@case("unique_times_input", 164703, "product of unique values, which are one, and five numbers", "inductor", "unique",
      lambda: (r(5), r(5, 1), r(5, 1), T(1.0, requires_grad=True)),
      note="inductor: AssertionError at run time, size 1 for 5; both exports: a false run-time assertion u0 >= 5")
def _(arg_0, arg_1, arg_2, sentinel):
    v4 = torch.full((2, 3), 3.0)
    v3 = torch.unique(v4)
    v5 = arg_0.contiguous().view([5])
    v2 = torch.mul(v3, v5)
    v1 = torch.unsqueeze(v2, dim=1)
    v9 = torch.sub(arg_1, arg_2)
    return torch.add(v1, v9) * sentinel


@case("item_of_int16_quotient", 164704, "item of the quotient of two int16", "inductor", "item",
      lambda: (T(7, dtype=torch.int16), T(2, dtype=torch.int16), T(1.0, requires_grad=True)),
      note="inductor alone: IndexError when the backward is compiled; the reporter had a TypeError at run time")
def _(arg_0, arg_1, sentinel):
    v3 = torch.unique(torch.full((2, 3), 3, dtype=torch.int16))
    v2 = torch.squeeze(v3)
    v6 = torch.sub(arg_0, arg_1)
    v9 = torch.squeeze(torch.full((1,), 3, dtype=torch.int16))
    v5 = torch.add(v6, v9)
    v0 = torch.div(v2, v5).item()
    return v0 * sentinel


@case("longformer_global_attention", 130008, "Longformer's attention to global tokens", "inductor", "bmm",
      lambda: (r(2, 6, 2, 4), r(2, 6, 2, 4), T([[True, False, False, True, False, False], [True, False, False, False, False, False]])),
      note="inductor alone: data-dependent error in is_preferred_layout_as_bmm_input; the reported error of export, in constant_pad_nd, is gone")
def _(key, query, is_index_global_attn):
    num = is_index_global_attn.long().sum(dim=1)
    max_num = num.max()
    is_index_global_attn_nonzero = is_index_global_attn.nonzero(as_tuple=True)
    is_local_index_global_attn = torch.arange(max_num) < num.unsqueeze(dim=-1)
    is_local_index_global_attn_nonzero = is_local_index_global_attn.nonzero(as_tuple=True)
    is_local_index_no_global_attn_nonzero = (is_local_index_global_attn == 0).nonzero(as_tuple=True)
    key_only_global = key.new_zeros(key.shape[0], max_num, 2, 4)
    key_only_global[is_local_index_global_attn_nonzero] = key[is_index_global_attn_nonzero]
    attn = torch.einsum("blhd,bshd->blhs", (query, key_only_global))
    attn = attn.transpose(1, 3)
    attn[is_local_index_no_global_attn_nonzero[0], is_local_index_no_global_attn_nonzero[1], :, :] = -1e4
    return attn.transpose(1, 3)


@case("conv1d_of_cut", 154089, "convolutional position embedding of F5-TTS over the frames that are there", "inductor", "conv1d",
      lambda: (r(1, 12, 8), T(9)),
      note="inductor alone: an integer is extracted from 8*Max(1, u3) in guarding_hint_or_throw; the reported error of export is gone")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, 8, 3, groups=2, padding=1), nn.Mish(), nn.Conv1d(8, 8, 3, groups=2, padding=1), nn.Mish())

    def forward(self, x, duration):
        x = x[:, : duration.item()]
        return self.conv(x.permute(0, 2, 1)).permute(0, 2, 1) + x


@case("skip_mask_of_ones", 12987, "QwenImage drops a mask that is all ones", "dynamo", "all",
      lambda: (r(2, 5, 8), torch.ones(2, 5)), repo="huggingface/diffusers",
      note="export non-strict: data-dependent error at the branch; export strict, aot_eager and inductor: Unsupported, data-dependent branching")
def _(hidden, encoder_hidden_states_mask):
    if encoder_hidden_states_mask.all():
        return hidden.mean(1)
    m = encoder_hidden_states_mask.unsqueeze(-1)
    return (hidden * m).sum(1) / m.sum(1)


@case("right_padding_check", 37944, "Qwen3 checks for padding on the right side", "dynamo", "item",
      lambda: (r(2, 5, 8), T([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])), repo="huggingface/transformers",
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error at the user's branch")
def _(hidden, attention_mask):
    is_padding_right = attention_mask[:, -1].sum().item() != hidden.size(0)
    if is_padding_right:
        raise ValueError("padding on the right")
    return hidden * attention_mask.unsqueeze(-1)


@case("sqrt_of_items", 180845, "square roots by math of the items of a tensor", "dynamo", "math.sqrt",
      lambda: (r(2, 3),),
      note="export non-strict alone: data-dependent error, math.sqrt asks for an unbacked float; torch.compile, which was reported without capture_scalar_outputs, passes with it")
def _(x):
    import math
    result_list = [math.sqrt(abs(val.item()) + 1e-8) for val in x.flatten()]
    return torch.tensor(result_list).view(x.shape)


@case("two_masked_by_one_buffer", 154647, "two slices by one mask that is an attribute, then run_decompositions", "options", "index",
      lambda: (r(1, 40, 2), r(1, 40, 2)),
      note="run_decompositions of the non-strict export alone: AssertionError u2 -> u0 when the symbol is renamed")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.mm_mask_with_vsites = torch.zeros([40], dtype=torch.bool)
        self.mm_mask_with_vsites[0:21] = True

    def forward(self, slice_109, slice_114):
        index_46 = slice_109[:, self.mm_mask_with_vsites]
        index_47 = slice_114[:, self.mm_mask_with_vsites]
        return index_46, index_47


@case("nonzero_static_columns", 152634, "columns of nonzero_static beside those of nonzero", "layouts", "nonzero_static",
      lambda: (torch.eye(5), T(5)),
      note="inductor alone: NameError in the generated code; the reporter's size was a constant and gave wrong strides")
def _(eye, n):
    s = eye.nonzero_static(size=n.item())
    nz = eye.nonzero()
    return s, s[:, 0], s[:, 1], (s == nz).all()


@case("autotuned_gemm_of_nonzero", 163660, "batched product whose strides are of an unknown size", "layouts", "bmm",
      lambda: (r(16), r(3, 8, 8)),
      note="inductor alone: data-dependent error in is_preferred_layout_as_bmm_input, over strides of an unbacked size; the reporter had wrong example strides in autotuning")
def _(x, w):
    nz = torch.nonzero(x > 0)
    a = x.new_ones([3, nz.size(0), 8])
    return (a @ w).transpose(0, 1).flatten(1).sum(0), torch.bmm(w, a.transpose(1, 2)).contiguous()


@case("njt_sdpa_in_graph", 126472, "nested tensors made in the graph with lengths known, then attention", "subclasses", "scaled_dot_product_attention",
      lambda: (r(9, 8), T([0, 2, 5, 9])),
      note="export strict, aot_eager and inductor: Unsupported, operator does not run with fake tensors; export non-strict: RuntimeError, NotImplemented is no tensor")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_linear = nn.Linear(8, 8)
        self.k_linear = nn.Linear(8, 8)
        self.v_linear = nn.Linear(8, 8)

    def forward(self, values, offsets):
        from torch.nested._internal.nested_tensor import nested_view_from_values_offsets
        n = lambda t: nested_view_from_values_offsets(t, offsets, min_seqlen=1, max_seqlen=4)
        q, k, v = n(self.q_linear(values)), n(self.k_linear(values)), n(self.v_linear(values))
        q, k, v = (t.unflatten(-1, [2, 4]).transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2).values()


@case("njt_layer_norm", 183369, "layer_norm of a nested tensor made in the graph, differentiated", "subclasses", "layer_norm",
      lambda: (r(20, 12).requires_grad_(), T([0, 6, 11, 14, 20])),
      note="export strict, aot_eager and inductor: IndexError in Dynamo; export non-strict: RuntimeError, the constructor refuses to be traced")
def _(v, o):
    nt = torch.nested.nested_tensor_from_jagged(v, o)
    return F.layer_norm(nt, [12]).values().sum()


@torch.library.custom_op("fresh::grouped_mm_fallback", mutates_args=())
def grouped_mm_fallback(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    output = torch.zeros(input.size(0), weight.size(2), dtype=input.dtype)
    start = 0
    for i, end in enumerate(offs.tolist()):
        if start == end:
            continue
        torch.mm(input[start:end], weight[i], out=output[start:end])
        start = end
    return output


@grouped_mm_fallback.register_fake
def _(input, weight, offs):
    return input.new_empty(input.size(0), weight.size(2))


def _gmm_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], inputs[1])
    ctx.offs = inputs[2]


def _gmm_backward(ctx, grad_output):
    input, weight = ctx.saved_tensors
    grad_input = torch.zeros_like(input)
    grad_weight = torch.zeros_like(weight)
    start = 0
    for i, end in enumerate(ctx.offs.tolist()):
        if start == end:
            continue
        torch.mm(grad_output[start:end], weight[i].T, out=grad_input[start:end])
        torch.mm(input[start:end].T, grad_output[start:end], out=grad_weight[i])
        start = end
    return grad_input, grad_weight, None


grouped_mm_fallback.register_autograd(_gmm_backward, setup_context=_gmm_setup)


@case("grouped_mm_fallback_backward", 47991, "DeepSeek-V2's experts: backward of the custom op for grouped_mm", "custom-ops", "tolist",
      lambda: (r(6, 4).requires_grad_(), r(2, 4, 8).requires_grad_(), T([2, 6])), repo="huggingface/transformers",
      note="aot_eager and inductor: data-dependent error at the branch in the backward of the custom op")
def _(x, weight, offs):
    return torch.ops.fresh.grouped_mm_fallback(x, weight, offs)


@torch.library.custom_op("fresh::nms", mutates_args=())
def fresh_nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    order = scores.argsort(descending=True)
    keep = []
    for i in order.tolist():
        box = boxes[i]
        ok = True
        for j in keep:
            lt, rb = torch.maximum(box[:2], boxes[j][:2]), torch.minimum(box[2:], boxes[j][2:])
            wh = (rb - lt).clamp(min=0)
            inter = wh[0] * wh[1]
            union = (box[2] - box[0]) * (box[3] - box[1]) + (boxes[j][2] - boxes[j][0]) * (boxes[j][3] - boxes[j][1]) - inter
            ok = ok and not bool(inter / union > iou_threshold)
        if ok:
            keep.append(i)
    return torch.tensor(keep, dtype=torch.int64)


@fresh_nms.register_fake
def _(boxes, scores, iou_threshold):
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _boxes(n):
    b = torch.rand(n, 4, generator=torch.Generator().manual_seed(1))
    return torch.cat([b[:, :2], b[:, :2] + b[:, 2:] + 0.1], 1)


@case("batched_nms_vanilla", 121036, "torchvision's batched_nms goes over the classes that occur", "custom-ops", "unique",
      lambda: (_boxes(6), torch.arange(6) / 6.0, T([0, 1, 0, 1, 2, 2])),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error of iteration over unique (non-strict: _refs.unbind; strict and compile: an integer is extracted)")
def _(boxes, scores, idxs):
    keep_mask = torch.zeros_like(scores, dtype=torch.bool)
    for class_id in torch.unique(idxs):
        curr_indices = torch.where(idxs == class_id)[0]
        curr_keep_indices = torch.ops.fresh.nms(boxes[curr_indices], scores[curr_indices], 0.5)
        keep_mask[curr_indices[curr_keep_indices]] = True
    keep_indices = torch.where(keep_mask)[0]
    return keep_indices[scores[keep_indices].sort(descending=True)[1]]


@case("nms_threshold_tensor", 156722, "nms with a tensor of one element as threshold", "custom-ops", "nms",
      lambda: (_boxes(6), torch.arange(6) / 6.0),
      note="export non-strict, export strict, aot_eager and inductor: RuntimeError, a FakeTensor is no float")
def _(boxes, scores):
    return torch.ops.fresh.nms(boxes, scores, torch.tensor([0.5]))


@torch.library.custom_op("fresh::dense_to_jagged", mutates_args=())
def dense_to_jagged(dense: torch.Tensor, offsets: torch.Tensor, total_L: int | None = None) -> torch.Tensor:
    lengths = offsets.diff()
    return dense[torch.arange(dense.shape[1])[None, :] < lengths[:, None]]


@dense_to_jagged.register_fake
def _(dense, offsets, total_L=None):
    if not total_L:
        total_L = torch.library.get_ctx().new_dynamic_size()
    return dense.new_empty([total_L, dense.size()[-1]])


@case("dense_to_jagged_total", 2599, "dense_to_jagged with a total that is read: its fake kernel asks for the total's truth", "custom-ops", "dense_to_jagged",
      lambda: (r(3, 5, 4), r(4, 4), T([0, 2, 5, 6])), repo="pytorch/FBGEMM",
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error at the branch in the fake kernel")
def _(dense, w, offsets):
    total = offsets[-1].item()
    return torch.ops.fresh.dense_to_jagged(dense @ w, offsets, total)


@torch.library.custom_op("fresh::tbe_input_combine", mutates_args=())
def tbe_input_combine(indices: list[torch.Tensor], weights: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    w = torch.cat([a if a.numel() else torch.ones(i.numel()) for i, a in zip(indices, weights)])
    return torch.cat(indices).int(), w


@tbe_input_combine.register_fake
def _(indices, weights):
    total = 0
    need_weights = False
    for index, weight in zip(indices, weights):
        total += index.numel()
        if weight.numel() > 0:
            need_weights = True
    return indices[0].new_empty([total], dtype=torch.int), weights[0].new_empty([total if need_weights else 0])


@case("tbe_input_combine_kept", 2923, "tables' indices and weights combined: the fake kernel asks whether there are weights", "custom-ops", "tbe_input_combine",
      lambda: (T([3, 1, 4, 1]), r(4), T([5, 9]), r(2), T([True, False, True, True])), repo="pytorch/FBGEMM",
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error at the branch in the fake kernel")
def _(i1, w1, i2, w2, keep):
    return torch.ops.fresh.tbe_input_combine([i1[keep], i2], [w1[keep], w2])


def _mesh():
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    return torch.distributed.device_mesh.init_device_mesh("cpu", (2,))


def _dt(t, *placements):
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(t, _mesh(), list(placements), run_check=False)


def _S(d):
    from torch.distributed.tensor import Shard
    return Shard(d)


def _R():
    from torch.distributed.tensor import Replicate
    return Replicate()


@case("dtensor_add_dynamic", 159709, "sum of two DTensors of three dimensions with a size that is unbacked", "dtensor", "add",
      lambda: (_dt(r(5, 10, 5).requires_grad_(), _R()), _dt(r(5, 10, 5).requires_grad_(), _R())), unbacked={"x": (1,), "y": (1,)},
      note="aot_eager: data-dependent error at run time of the backward, in maybe_coerce (runtime_wrappers.py); inductor: AssertionError, _nary_sym_max is no OpOverload; run_decompositions of either export: IndexError")
def _(x, y):
    return torch.add(x, y)


@case("dtensor_split_counts", 152963, "DTensor of tokens split by read counts", "dtensor", "split",
      lambda: (_dt(r(6, 4), _R()), T([2, 4])),
      note="aot_eager and inductor, and run_decompositions of either export: RuntimeError, u0 + u1 is not tracked with proxy")
def _(x, counts):
    p, q = torch.split(x, counts.tolist())
    return torch.cat([p * 2, q]).to_local()


@case("dtensor_slice_read", 157953, "DTensor sliced to a read length", "dtensor", "slice",
      lambda: (_dt(r(6, 2), _R()), T(4)),
      note="export non-strict, export strict, aot_eager and inductor: data-dependent error in normalize_dim (distributed/tensor/_ops/utils.py)")
def _(x, n):
    return (x[: n.item()] * 2).to_local()
