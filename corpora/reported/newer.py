"""Failures reported publicly about unbacked, dynamic and data-dependent sizes, mostly of late 2025 and 2026, as small programs in the format of corpora/reported/cases.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._dynamo.decorators import mark_unbacked
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.export import Dim
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

T = torch.tensor
CASES = []


def case(id, issue, title, category, op, args, version=None, expr=None, source="user", modes=(), unbacked=None,
         dynamic_shapes=None, alt=None, repo="pytorch/pytorch", kind="issues", note="", url=None, setup=None):
    def register(fn):
        CASES.append(dict(id=id, issue=issue, url=url or f"https://github.com/{repo}/{kind}/{issue}", title=title,
                          category=category, op=op, fn=fn, args=args, version=version, expr=expr, unbacked=unbacked,
                          dynamic_shapes=dynamic_shapes, note=note))
        return fn
    return register


def r(*shape):
    """float32 normal tensor of `shape`, always the same values."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def MASK(*bits):
    return T([bool(b) for b in bits])


def g(*shape):
    """Like r, but requires grad."""
    return r(*shape).requires_grad_()


def dyn(x, *dims):
    """`x` with `dims` dynamic in torch.compile, as with dynamic=True."""
    for d in dims:
        torch._dynamo.maybe_mark_dynamic(x, d)
    return x


def marked(x, *dims, **options):
    """`x` with `dims` marked unbacked with options of mark_unbacked."""
    for d in dims:
        mark_unbacked(x, d, **options)
    return x


# ---- higher-order

@case("cond_empty_expert", 154559, "[cond] support for unbacked symbols in compiled region", "higher-order",
      "cond(u0 > 0, linear, zeros_like)", lambda: (T([4]),), "2.8 dev", source="maintainer",
      note="the issue's minimal program (DeepSeek VL2 experts); empty_like is zeros_like here")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(10, 10)

    def forward(self, x):
        u0 = x.item()
        y = torch.ones(u0, 10)
        return torch.cond(u0 > 0, self.lin, lambda a: torch.zeros_like(a), [y])


@case("cond_captured_symint_size", 185504, "Support unbacked SymInt closures in cond export", "higher-order",
      "cond whose branches return ones(u0, 3)", lambda: (T(4), r(3)), "2.13 dev", source="maintainer", kind="pull",
      note="the regression test that the description names: a captured item() is the size in both branches")
def _(n, x):
    u0 = n.item()
    return torch.cond(x.shape[0] > 2, lambda a: torch.ones(u0, 3) + a, lambda a: torch.zeros(u0, 3) - a, (x,))


@case("cond_tensor_pred_sizes_captured", 188151, "torch.cond fails in torch.compile with simpliest symbolic shapes (torch "
      "2.12+)", "higher-order", "cond(pred, ones(rows, cols), zeros(rows, cols))", lambda: (r(5, 7),), "2.12",
      unbacked={0: [0, 1]}, note="the issue's program, with sizes of a tensor instead of int arguments")
def _(x):
    rows, cols = x.shape[0], x.shape[1]
    return torch.cond(T(True), lambda: torch.ones(rows, cols), lambda: torch.zeros(rows, cols))


@case("cond_inner_dim_differs", 189528, "[cond] Inductor NameError on inner-dim branch output mismatch", "higher-order",
      "cond, branches (n, a) and (n, b)", lambda: (dyn(r(5, 7), 0, 1), dyn(r(5, 8), 0, 1)), "2.14 dev", "NameError: name 'u0'",
      dynamic_shapes=lambda D: ({0: D, 1: D}, {0: D, 1: D}),
      note="the issue's program; it is run with dynamic=True there, so both inputs have dynamic dims here")
def _(x, y):
    return torch.cond(x.sum() < 1e9, lambda a, b: torch.ones(a.shape[0], a.shape[1]) + 0 * a.sum(),
                      lambda a, b: torch.zeros(a.shape[0], b.shape[1]) + 0 * b.sum(), (x, y))


@case("cond_symint_arithmetic", 140842, "torch.cond with unbacked symint failed to compile in AOTI", "higher-order",
      "cond, branches x + a and x + b * z", lambda: (torch.ones(3, 3), torch.ones(3, 3), T(5)), "2.6 dev",
      source="maintainer", dynamic_shapes=lambda D: ({0: D}, {0: D}, None), note="the issue's program (2024, still open)")
def _(x, y, z):
    a, b = y.shape[0], z.item()
    return torch.cond(x.shape[0] > 5, lambda x: x + a, lambda x: x + b * z, (x,))


@case("cond_item_in_branch", 135047, "torch.cond export succeeds with strict, fails in non-strict with 'Could not extract "
      "specialized integer'", "higher-order", "cond(nz.size(0) > 3, x * b.item(), x + 1)", lambda: (r(7), T([4])),
      "2.5 dev", source="maintainer", note="the issue's program (2024, still open)")
def _(a, b):
    az = a.nonzero()
    return torch.cond(az.size(0) > 3, lambda x: x * b.item(), lambda x: x + 1, (az,)) * 2


@case("cond_nonzero_in_branch", 156724, "torch.cond fails with dynamic shape ops like nonzero under torch.compile",
      "higher-order", "cond(True, nonzero(x)..., ...)", lambda: (r(10),), "2.8 dev",
      note="the pattern (nonzero in one branch); both branches return a 0-d tensor here, and the predicate is a bool")
def _(x):
    return torch.cond(x.shape[0] > 3, lambda a: a[torch.nonzero(a > 0)[:, 0]].sum(), lambda a: a.mean(), (x,))


@case("while_loop_backward_expanded_grad", 183017, "torch.compile + torch.while_loop: stride mismatch crash during "
      "backward pass", "higher-order", "while_loop, then sum().backward()", lambda: (g(4, 64),), "2.13 dev",
      "pair[1] differ in stride: (0, 0) vs (64, 1)", unbacked={0: [0]},
      note="the issue's loop, with an unbacked batch; the gradient of sum() is expanded")
def _(x):
    _, y = torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 0.9 + 0.1), (torch.zeros((), dtype=torch.long), x))
    return y.sum()


@case("while_loop_int_carry", 166525, "Inductor Fails with AttributeError: 'int' object has no attribute 'meta' for "
      "torch.while_loop Containing Scalar Values", "higher-order", "while_loop((0, zeros, zeros))",
      lambda: (r(2, 2), r(2, 2)), "2.10 dev", "AttributeError: 'int' object has no attribute 'meta'",
      note="the issue's program")
def _(a, b):
    return torch.while_loop(lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x + a, y + b),
                            (0, torch.zeros_like(a), torch.zeros_like(b)))


@case("while_loop_over_masked_rows", 174905, "Handle unbacked SymInts in cross-ShapeEnv FakeTensor wrapping",
      "higher-order", "while_loop over x[mask]", lambda: (r(6, 3), MASK(1, 0, 1, 1, 0, 1)), "2.12 dev", source="maintainer",
      kind="pull", note="the situation of the description: boolean indexing outside, then while_loop over its result")
def _(x, m):
    y = x[m]
    return torch.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (torch.zeros((), dtype=torch.long), y))[1]


@case("while_loop_bound_is_size", 158366, "[export] while_loop issues for loop rewrite", "higher-order",
      "while_loop writing rows until x.shape[0]", lambda: (r(6, 4), r(4)), "2.9 dev", source="maintainer",
      unbacked={0: [0]}, note="the rewritten loop of the issue: a 0-d counter runs to the size of a dim, one row a step")
def _(x, y0):
    n = x.shape[0]

    def body(i, out, prev):
        row = x.index_select(0, i.reshape(1)).squeeze(0) + prev
        return i + 1, out.index_copy(0, i.reshape(1), row.unsqueeze(0)), row

    return torch.while_loop(lambda i, out, prev: i < n, body, (torch.zeros((), dtype=torch.long), torch.zeros_like(x), y0))[1]


@case("associative_scan_2d", 181584, "[inductor] associative_scan crashes with dynamic=True for ndim >= 2", "higher-order",
      "associative_scan(add, x, 0)", lambda: (r(4, 8),), "2.12 dev", "there are lifted arguments", unbacked={0: [0, 1]},
      note="the issue's program, with combine_mode generic for the CPU, and unbacked dims instead of dynamic=True")
def _(x):
    return torch._higher_order_ops.associative_scan(lambda a, b: a + b, x, dim=0, combine_mode="generic")


@case("flex_attention_batch_halves", 183833, "[Inductor][HOP] FlexAttention should bind derived unbacked tensor input "
      "extents from runtime metadata", "higher-order", "flex_attention of x[:n // 2] and x[n // 2:]",
      lambda: (r(4, 2, 16, 16),), "2.13 dev", unbacked={0: [0]}, note="the issue's program without its backward, smaller")
def _(x):
    mid = x.shape[0] // 2
    a, b = x[:mid], x[mid:]
    return flex_attention(a, a, a).sum() + flex_attention(b, b, b).sum()


@case("flex_block_mask_symbolic_length", 187547, "Dynamo graph-breaks on raw unbacked SymInt BlockMask lengths in "
      "FlexAttention", "higher-order", "flex_attention with BlockMask of length u0", lambda: (r(1, 2, 128, 16),),
      "2.13 dev", source="maintainer", unbacked={0: [2]},
      note="the pattern: the lengths of the BlockMask are the unbacked sequence length of q, k and v; here inside the graph")
def _(q):
    n = q.shape[2]
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, n, n, device="cpu")
    return flex_attention(q, q, q, block_mask=mask)


@torch.compiler.nested_compile_region
def add_one(x):
    return x + 1


@torch.compiler.nested_compile_region
def times_item(x):
    return x * x[0].item()


@torch.compiler.nested_compile_region
def sin_plus_size(x):
    return x.sin() + x.shape[0]


@case("nested_region_of_cat", 167012, "regional inductor error out when input has unbacked symint expressions",
      "higher-order", "nested_compile_region(cat([c, c]))", lambda: (r(6, 4),), "2.10 dev", source="maintainer",
      unbacked={0: [0]}, note="the program of the comment of 2025-12-02")
def _(c):
    return add_one(torch.cat([c, c], dim=0))


@case("nested_region_item", 149297, "[invoke_subgraph] Support pending unbacked symint", "higher-order",
      "nested_compile_region(x * x[0].item())", lambda: (r(8),), "2.8 dev", source="maintainer", kind="pull",
      note="the program of the description (2025)")
def _(x):
    for _ in range(3):
        x = times_item(x)
    return x


# ---- transforms

@case("vmap_vmap_indexing", 172364, "Data dependent error in torch.compile (vmap over integer indexing)", "transforms",
      "vmap(vmap(data[b, n]))", lambda: (torch.arange(20).reshape(2, 10), torch.arange(2), torch.arange(10)), "2.11 dev",
      "vmap: It looks like you're calling .item()", source="maintainer", unbacked={1: [0], 2: [0]},
      note="the issue's program; its trace shows two levels, so vmap is applied twice here")
def _(data, b, n):
    f = torch.vmap(torch.vmap(lambda b, n: data[b, n], in_dims=(None, 0)), in_dims=(0, None))
    return f(b, n)


@case("func_grad_conv_transpose", 181175, "[aot_autograd] Cannot call numel() on tensor with symbolic sizes in "
      "_convolution_double_backward (torch.func.grad over ConvTranspose2d)", "transforms", "grad(conv_transpose2d)",
      lambda: (g(2, 3, 6, 6),), "2.12 dev", unbacked={0: [0]},
      note="the pattern of the title; the issue compiles with dynamic=True and then runs backward")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.ConvTranspose2d(3, 4, 3, stride=2)

    def forward(self, x):
        return torch.func.grad(lambda t: self.m(t).sin().sum())(x)


@case("func_grad_group_norm", 181384, "[aot_autograd] SymIntArrayRef expected to contain only concrete integers when using "
      "torch.compile(dynamic=True) with torch.func", "transforms", "grad(group_norm)", lambda: (g(2, 4, 5, 5),), "2.12 dev",
      "RegisterZeroTensor", unbacked={0: [0]},
      note="the issue's trace names NativeGroupNormBackward0 under torch.func.grad; the rest is restated")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.GroupNorm(2, 4)

    def forward(self, x):
        return torch.func.grad(lambda t: self.m(t).relu().sum())(x)


@case("jacfwd_one_hot", 160752, "torch.func.jacfwd fails with one_hot and torch.compile(.., dynamic=True)", "transforms",
      "jacfwd(x * one_hot(i, 3))", lambda: (r(4, 3), T([0, 2, 1, 1])), "2.8", "Cannot call numel()",
      unbacked={0: [0], 1: [0]}, note="the pattern of the title (2025)")
def _(x, i):
    return torch.func.jacfwd(lambda t: (t * F.one_hot(i, 3)).sum(0))(x)


@case("functional_loss_step", 171537, "torch.compile(dynamic=True) + torch.func triggers internal assertion error",
      "transforms", "grad_and_value(functional_call)", lambda: (r(5, 3), T([0, 1, 1, 0, 2])), "2.8",
      "isIntList() INTERNAL ASSERT FAILED", unbacked={0: [0], 1: [0]},
      note="the issue has no program: its usage example is a loss step by torch.func over parameters and species")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.lin = nn.Embedding(3, 3), nn.Linear(3, 1)

    def forward(self, pos, species):
        params = dict(self.lin.named_parameters())

        def loss(p):
            e = torch.func.functional_call(self.lin, p, (pos * self.emb(species),))
            return torch.zeros(3, 1).index_add(0, species, e).pow(2).sum()

        grads, value = torch.func.grad_and_value(loss)(params)
        return value, grads["weight"]


# ---- modules

@case("native_multi_head_attention", 187144, "fix DDE in native_multi_head_attention_fake", "modules",
      "_native_multi_head_attention", lambda: (r(2, 5, 8),), "2.13 dev", "Eq(query.numel(), 0)", source="maintainer",
      kind="pull", unbacked={0: [0]}, note="the operator of the title with an unbacked batch")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)

    def forward(self, x):
        m = self.m
        return torch._native_multi_head_attention(x, x, x, 8, 2, m.in_proj_weight, m.in_proj_bias, m.out_proj.weight,
                                                  m.out_proj.bias, None, False)[0]


@case("multihead_attention_eval", 156681, "[export] export failed when use dynamic_shape in nn.MultiheadAttention",
      "modules", "MultiheadAttention(x, x, x) in inference", lambda: (r(2, 10, 16),), "2.8",
      "unsupported operator: aten._native_multi_head_attention", dynamic_shapes=lambda D: ({0: D},),
      note="the issue's program (2025), smaller; it is run under inference_mode there, under no_grad here")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True).eval()

    def forward(self, x):
        with torch.no_grad():
            return self.attn(x, x, x)[0]


@case("transformer_encoder_layer_fwd", 187860, "fix DDE in meta__transformer_encoder_layer_fwd", "modules",
      "_transformer_encoder_layer_fwd", lambda: (r(2, 5, 8),), "2.14 dev", "Eq(src.numel(), 0)", kind="pull",
      unbacked={0: [0]}, note="the test that the description describes: unbacked leading dim of src")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().requires_grad_(False)

    def forward(self, x):
        m = self.m
        a = m.self_attn
        return torch._transformer_encoder_layer_fwd(
            x, 8, 2, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, False, False, 1e-5,
            m.norm1.weight, m.norm1.bias, m.norm2.weight, m.norm2.bias, m.linear1.weight, m.linear1.bias,
            m.linear2.weight, m.linear2.bias, None, None)


@case("sdpa_repeated_kv_heads", 184983, "Make SDPA backend checks safe for unbacked head dims", "modules",
      "sdpa(q, repeat_interleave(k, n), ...)", lambda: (r(1, 4, 5, 8), r(1, 2, 5, 8), T([2, 2])), "2.13 dev", "Eq(128, u0)",
      source="maintainer", kind="pull", note="the situation of the description: repeat counts as a tensor, no output_size")
def _(q, k, n):
    k = torch.repeat_interleave(k, n, dim=1)
    return F.scaled_dot_product_attention(q, k, k)


@case("sdpa_repeated_head_dim", 184983, "same PR: head_dim <= max and alignment tests", "modules",
      "sdpa, unbacked last dim", lambda: (r(1, 2, 5, 8), r(1, 2, 5, 8)), "2.13 dev", "query_size_last == key_size_last",
      source="maintainer", kind="pull", unbacked={0: [3], 1: [3]},
      note="the other comparisons that the description names: the last sizes of query and key")
def _(q, k):
    return F.scaled_dot_product_attention(q, k, k)


@case("pool_unpool", 174847, "[dynamic shapes] unbacked pool unpool", "modules", "max_pool2d, max_unpool2d, avg_pool3d",
      lambda: (r(2, 3, 6, 6), r(2, 3, 4, 4, 4)), "2.12 dev", "itime >= kT", source="maintainer", kind="pull",
      unbacked={0: [2, 3], 1: [2, 3]}, note="the modules of the title and of the reviewed line (pool3d_shape_check)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.unpool, self.avg = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2), nn.AvgPool3d(2)

    def forward(self, x, v):
        y, i = self.pool(x)
        return self.unpool(y, i), self.avg(v)


@case("norms", 174846, "[dynamic shapes] unbacked norm", "modules", "linalg.vector_norm, matrix_norm, renorm, normalize",
      lambda: (r(5, 4),), "2.12 dev", source="maintainer", kind="pull", unbacked={0: [0, 1]},
      note="only the title is known: the norms of torch over unbacked dims")
def _(x):
    return (torch.linalg.vector_norm(x, float("inf"), dim=0), torch.linalg.matrix_norm(x, "fro"),
            torch.norm(x, p=1, dim=1), torch.renorm(x, 2, 0, 1.0), F.normalize(x, dim=1))


@case("fnet_fft_unbacked_batch", 172719, "support unbacked-batch-only in torchbench (GoogleFnet fails in training)",
      "modules", "fftn(x, (1, 2)).real", lambda: (g(2, 4, 6),), "2.11 dev", source="maintainer", kind="pull",
      unbacked={0: [0]}, note="GoogleFnet fails in the table of the description: its mixing layer, with unbacked batch")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.lin = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        x = self.norm(x + torch.fft.fftn(x, dim=(1, 2)).real)
        return F.gelu(self.lin(x)).sum()


@case("xlnet_rel_shift_unbacked_batch", 172719, "same PR: XLNetLMHeadModel fails in training", "modules", "rel_shift",
      lambda: (g(2, 3, 4, 8),), "2.11 dev", source="maintainer", kind="pull", unbacked={0: [0]},
      note="XLNetLMHeadModel fails in the table of the description: its relative shift, with unbacked batch")
def _(x):
    b, n, i, j = x.shape
    x = x.reshape(b, n, j, i)[:, :, 1:, :].reshape(b, n, i, j - 1)
    return torch.index_select(x, 3, torch.arange(4)).softmax(-1)


@case("positions_unbacked_batch", 172719, "same PR: M2M100 and XGLM fail in training", "modules",
      "sinusoidal positions of cumsum(mask)", lambda: (T([[5, 3, 1], [7, 1, 1]]),), "2.11 dev", source="maintainer",
      kind="pull", unbacked={0: [0]},
      note="both models make positions from the padding mask and select rows of a table; unbacked batch")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", r(12, 4))

    def forward(self, ids):
        b, n = ids.size()
        mask = ids.ne(1).int()
        pos = (torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1
        return self.table.index_select(0, pos.view(-1)).view(b, n, self.table.shape[-1]).detach()


@case("packed_lstm", 3, "export failed while using torch==2.11.0 (kokoro): Ne(u0, 12), unhinted Ne(u0, s70)", "modules",
      "pad_packed_sequence(LSTM(pack_padded_sequence))", lambda: (r(2, 5, 4), T([5, 3])), "2.11", "Ne(u0, s70)",
      repo="adrianlyjak/kokoro-onnx-export", dynamic_shapes=lambda D: ({1: D}, None),
      note="the failing line is not in the thread; kokoro's text encoder packs by lengths, runs an LSTM, and pads to the mask")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True, bidirectional=True)

    def forward(self, x, lengths):
        p = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(p)[0], batch_first=True)
        pad = torch.zeros(y.shape[0], x.shape[1], y.shape[2])
        pad[:, : y.shape[1]] = y
        return pad


@case("lstm_dynamic_length", 5176, "Torch export can't support dynamics shapes for lstm", "modules", "LSTM(x)",
      lambda: (r(1, 7, 6),), "2.5 dev", repo="pytorch/executorch", dynamic_shapes=lambda D: ({1: D},),
      note="the issue's module (2024, still open), smaller")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


# ---- backward

@case("backward_of_expanded_output", 184088, "torch.compile backward crashes when compiled function output is an expanded "
      "tensor", "backward", "x.sum(0, True).expand_as(x)", lambda: (g(4, 8),), "2.13 dev",
      "more than one element of the written-to tensor", unbacked={0: [0]},
      note="the issue's program, with an unbacked first dim")
def _(x):
    return x.sum(dim=0, keepdim=True).expand_as(x)


@case("backward_scatter_into_wider", 183696, "torch.compile(dynamic=True) backward fails with InductorError: CantSplit on "
      "chained residual blocks scattering into a wider buffer", "backward", "blocks with buf[..., :c] = y",
      lambda: (g(3, 4, 5),), "2.13 dev", "CantSplit", unbacked={0: [0, 1]},
      note="the thread's program is not in the copy: chained residual blocks that write into a wider zero buffer")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 7), nn.Linear(7, 11)

    def forward(self, x):
        for lin in (self.a, self.b):
            buf = x.new_zeros(x.shape[0], x.shape[1], lin.out_features)
            buf[..., : x.shape[2]] = x
            x = buf + F.relu(lin(x))
        return x.sum()


@case("backward_slice_scatter_sum", 180164, "torch.compile silently zeroes x.grad for the pattern slice_scatter(x, y, "
      "dim=K).sum(dim=K)", "backward", "slice_scatter(x, y, 1).sum(1)", lambda: (g(3, 20, 7), g(3, 7, 7)), "2.12 dev",
      "wrong gradient", unbacked={0: [0], 1: [0]}, note="the issue's pattern and one of its shapes, with unbacked first dims")
def _(x, y):
    return torch.slice_scatter(x, y, dim=1, start=5, end=12).sum(dim=1)


@case("backward_glu", 183736, "same PR: glu_backward: convert validation branch to torch._check", "backward", "glu",
      lambda: (g(3, 8),), "2.13 dev", source="maintainer", kind="pull", unbacked={0: [1]},
      note="the part of the pull request about glu_backward: the halved dim is unbacked")
def _(x):
    return F.glu(x, 1)


@case("backward_nested_region", 167012, "same issue: order of the inputs of the backward graph", "backward",
      "nested_compile_region(cat([c, c])), backward", lambda: (g(6, 4),), "2.10 dev", source="maintainer", unbacked={0: [0]},
      note="the comment of 2025-12-02: forward returns (u0, 2*u0, u0 >= 0) in another order than backward takes them")
def _(c):
    return sin_plus_size(torch.cat([c, c], dim=0)).sum()


@case("backward_padding", 183814, "[DDE] Fix data-dependent errors in pixel_shuffle, pdist, and padding ops", "backward",
      "reflection and replication pad, backward", lambda: (g(2, 3, 6), g(2, 3, 5, 5)), "2.13 dev", source="maintainer",
      kind="pull", unbacked={0: [2], 1: [2, 3]}, note="the padding operators of the pull request, with their backward")
def _(x, y):
    return (F.pad(x, (2, 1), mode="reflect").sum() + F.pad(y, (1, 2, 1, 1), mode="replicate").sin().sum()
            + F.pad(y, (1, 1, 1, 1), mode="reflect").sum())


# ---- inductor

@case("eye_mask_indexing", 187415, "[Inductor] torch.compile fails on CUDA with bool mask indexing after torch.eye "
      "constructor movement: AssertionError in _rename_unbacked_to", "inductor", "w[:, ~eye(n)]", lambda: (r(2, 4, 4),),
      "2.12", "AssertionError: u12 -> u0",
      note="the line of the trace (w[:, ~block_mask], the mask is made by torch.eye inside), used twice; CUDA in the issue")
def _(w):
    m = torch.eye(4, dtype=torch.bool)
    sym = (w + w.transpose(1, 2)) / 2
    off = sym[:, ~m]
    return off.mean(1), sym[:, m].sum(1), off.std(1)


@case("select_item_matmul", 159685, "extern kernel's get_free_symbols seems incomplete", "inductor",
      "y = x.select(0, i.item()); y @ y", lambda: (T(1), r(3, 3, 3)), "2.9 dev", "undefined symbol", source="maintainer",
      note="the issue's program (2025, still open)")
def _(i, x):
    y = x.select(0, i.item())
    return y @ y


@case("return_float_item", 158060, "InductorError: CppCompileError on a function with a single item call", "inductor",
      "return x.item()", lambda: (T(42.0),), "2.9 dev", "C++ compile error", source="maintainer",
      note="the issue's program on the CPU (2025, still open)")
def _(x):
    return x.item()


@case("return_sum_item", 131561, "Bug with cpu capture_scalar_outputs", "inductor", "return x.sum().item()",
      lambda: (torch.arange(20) * 0.5,), "2.5 dev", "'zuf0' was not declared in this scope", source="maintainer",
      note="the issue's program (2024, still open)")
def _(x):
    return x.sum().item()


@case("add_sum_item", 158083, "torch.compile on .sum() and .item() calls errors from tensorify_python_scalars", "inductor",
      "x + x.sum().item()", lambda: (torch.ones(3, 3),), "2.9 dev", source="maintainer",
      note="the issue's program (2025, still open)")
def _(x):
    y = x.sum()
    return x + y.item()


@case("float_item_used_and_returned", 151470, "Key error for _tensorify_python_scalars", "inductor",
      "(x + 1 + y.item(), y.item())", lambda: (r(2, 3), T(3.0)), "2.8 dev", "KeyError", source="maintainer",
      note="the issue's program on the CPU (2025, still open)")
def _(x, y):
    s = y.item()
    return x + 1 + s, s


@case("svd_of_min_size", 190671, "[Inductor] Support symbolic Min/Max in FX wrapper codegen", "inductor",
      "linalg.svd(x, full_matrices=False)", lambda: (r(5, 3),), "2.14 dev",
      "expected (integer, floating, int, float), got Proxy", source="maintainer", kind="pull", unbacked={0: [0, 1]},
      note="the example of the description: svd has outputs of size min(m, n); it fails in the FX wrapper there")
def _(x):
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * s) @ v, s * 2


@case("conv_of_broadcast_scalar", 188323, "[Inductor][CPU] dynamic=True convolution lowering crashes with ValueError: "
      "Exponent must be non-negative", "inductor", "conv(x + x[0, 0, 0, 0])", lambda: (r(2, 3, 8, 8),), "2.14 dev",
      "ValueError: Exponent must be non-negative", unbacked={0: [0, 2, 3]},
      note="the described sequence: a scalar of a tensor, added, into 1x1 and 3x3 convolutions; shapes as in the log")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x):
        y = x + x.select(0, 0).select(0, 0).select(0, 0).select(0, 0)
        z = self.a(y)
        return y, z, F.relu(self.b(z)) + z


@case("sum_under_autocast", 194329, "[Inductor][aot_autograd][autocast][dynamic_shape] torch.compile with dynamic=True "
      "produces incorrect values for fallback ops (e.g., sum) under autocast", "inductor", "sum of bfloat16 under autocast",
      lambda: (r(6, 4), r(4, 4)), "2.12", "wrong values", unbacked={0: [0]},
      note="the pattern of the title, with autocast for the CPU inside the function")
def _(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        return y.sum(0), y.cumsum(0), (y * y).sum()


@case("repeat_interleave_gather_sin", 185341, "Inductor standalone_compile misses fallback output unbacked symbol binding",
      "inductor", "x[repeat_interleave(counts)].sin()", lambda: (T([1, 2, 1, 0]), r(4, 8)), "2.13 dev", source="maintainer",
      dynamic_shapes=lambda D: ({0: D}, None),
      note="the issue's function; it is compiled by standalone_compile there")
def _(counts, x):
    idx = torch.repeat_interleave(counts)
    return x.index_select(0, idx).sin()


@case("two_masks_same_then_cat", 156911, "Fix UnbackedSymint rebinding - check unbacked before renaming", "inductor",
      "cat([x[m], y[m], z]) used twice", lambda: (r(5), r(5), MASK(1, 0, 1, 1, 0), r(3)), "2.9 dev", source="maintainer",
      kind="pull", dynamic_shapes=lambda D: (None, None, None, {0: D}),
      note="the example of the description: one mask twice (nonzero is memoized), then equal to a backed size")
def _(x, y, m, z):
    a, b = x[m], y[m]
    return torch.cat([a, b, z]), a + z, b * z


# ---- recompilation

@case("pad_to_max_16", 149635, "avoid guarding on max() unnecessarily", "recompilation", "ones(max(n, 16), ...)",
      lambda: (torch.arange(15.0).reshape(15, 1),), "2.8 dev", source="maintainer", unbacked={0: [0]},
      note="the issue's program (2025), with an unbacked dim; it recompiles when dynamic")
def _(x):
    n = max(x.shape[0], 16)
    return torch.ones(n, *x.shape[1:]) + x.sum()


@case("pad_to_max_16_dynamic", 149635, "same issue: the dim is dynamic", "recompilation", "ones(max(n, 16), ...)",
      lambda: (dyn(torch.arange(17.0).reshape(17, 1), 0),), "2.8 dev", "Max(16, s0) specializes", source="maintainer",
      dynamic_shapes=lambda D: ({0: D},), note="the issue's program (2025) with its dynamic dim")
def _(x):
    n = max(x.shape[0], 16)
    return torch.ones(n, *x.shape[1:]) + x.sum()


@case("checkpoint_unused_kwarg", 182594, "torch.utils.checkpoint causes Dynamo to install value-specialization guards on "
      "unused kwargs, leading to spurious recompiles", "recompilation", "checkpoint(f, x, step=n)", lambda: (g(4, 3),),
      "2.12", unbacked={0: [0]}, note="the pattern of the title: a keyword that the function does not use, here a size")
def _(x):
    from torch.utils.checkpoint import checkpoint
    return checkpoint(lambda x, step=None: torch.sin(x) * 2, x, use_reentrant=False, step=x.shape[0])


@case("mse_observer_group_dim", 2384, "perf: make MSE observer compatible with torch.compile", "recompilation",
      "shrink loop over amin/amax of an unbacked last dim", lambda: (r(3, 4, 8),), "2.10",
      repo="vllm-project/llm-compressor", kind="pull", unbacked={0: [2]},
      note="the quoted diff: observed.clone(), mark_unbacked(observed, ndim - 1), loop over shrunk minima and maxima")
def _(x):
    lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    best = torch.full_like(lo, float("inf"))
    for i in range(2):
        p = 1 - i / 4
        scale = ((hi - lo) * p / 15).clamp(min=1e-6)
        q = torch.clamp(torch.round((x - lo * p) / scale), 0, 15) * scale + lo * p
        err = (q - x).abs().pow(2.4).sum(-1, keepdim=True)
        best = torch.where(err < best, err, best)
    return best


@case("flex_lengths_recompile", 189786, "[FlexAttention] torch._checks for unbacked symint support causing recompile limit "
      "hits", "recompilation", "flex_attention, dynamic length of query and key", lambda: (dyn(r(1, 2, 16, 16), 2), dyn(r(1, 2, 24, 16), 2)),
      "2.14 dev", source="maintainer", dynamic_shapes=lambda D: ({2: D}, {2: D}),
      note="the situation of the issue (vLLM): flex_attention with lengths that change from call to call")
def _(q, k):
    return flex_attention(q, k, k)


# ---- dtensor

MESH = None


def with_mesh(*args):
    """`args`, after making MESH, a mesh of one CPU process."""
    global MESH
    if MESH is None:
        dist = torch.distributed
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        MESH = dist.device_mesh.init_device_mesh("cpu", (1,))
        MESH.get_coordinate()
    return args


@case("dtensor_replicate_local_size", 168051, "[DTensor] unbacked matmuls for no-redistribute case", "dtensor",
      "d.size(0) == d.to_local().size(0)", lambda: with_mesh(r(4, 3)), "2.10 dev", source="maintainer", kind="pull",
      unbacked={0: [0]}, note="the comment of 2025-12-01: global and local sizes of a replicated DTensor should be known equal")
def _(x):
    d = DTensor.from_local(x, MESH, [Replicate()])
    if d.size()[0] == d.to_local().size()[0]:
        return d.to_local() * 10
    return d.to_local() * 20


@case("dtensor_matmul", 168051, "same PR: matmul of unbacked DTensors without redistribution", "dtensor", "d @ w",
      lambda: with_mesh(r(4, 3), r(3, 5)), "2.10 dev", source="maintainer", kind="pull", unbacked={0: [0]},
      note="the title: a matmul whose placements need no redistribution")
def _(x, w):
    return (DTensor.from_local(x, MESH, [Shard(0)]) @ DTensor.from_local(w, MESH, [Replicate()])).to_local()


@case("dtensor_redistribute_uneven", 168052, "[DTensor] assume uneven sharding by default, redistribute cost hints for "
      "unbacked", "dtensor", "Shard(0) -> Replicate, then matmul", lambda: with_mesh(r(4, 3), r(3, 5)), "2.10 dev",
      source="maintainer", kind="pull", unbacked={0: [0]},
      note="the description: matmuls that need redistribution of an unbacked shard; one process here")
def _(x, w):
    d = DTensor.from_local(x, MESH, [Shard(0)]).redistribute(MESH, [Replicate()])
    return (d @ DTensor.from_local(w, MESH, [Shard(0)])).redistribute(MESH, [Replicate()]).to_local()


@case("dtensor_gather_then_view", 175690, "Dtensor Shard->Replicate redistribution corrupts symbolic shapes under "
      "torch.compile", "dtensor", "redistribute, view, transpose", lambda: with_mesh(dyn(r(2, 6, 8), 1)), "2.12 dev",
      "n*ceil(s/n) instead of s", dynamic_shapes=lambda D: ({1: D},),
      note="the chain of the issue (gather along a dynamic dim, view into heads, transpose, to_local); one process here")
def _(x):
    d = DTensor.from_local(x, MESH, [Shard(1)]).redistribute(MESH, [Replicate()])
    return d.view(d.shape[0], d.shape[1], 2, 4).transpose(1, 2).to_local() + 0


@case("dtensor_view_groups", 174629, "[DTensor] unbacked-safe view_groups", "dtensor", "d.view(-1, c), d.flatten(0, 1)",
      lambda: with_mesh(r(2, 6, 8)), "2.12 dev", source="maintainer", kind="pull", unbacked={0: [0, 1]},
      note="view operators of the description, whose strategy compares sizes")
def _(x):
    d = DTensor.from_local(x, MESH, [Replicate()])
    return d.view(-1, 8).to_local() + 1, d.flatten(1, 2).to_local() + 1


@case("dtensor_moe_view", 3409, "torch.compile fails with MoE + EP: PendingUnbackedSymbolNotFound on DTensor .view(-1, dim)",
      "dtensor", "d.view(-1, dim), d of Shard(1)", lambda: with_mesh(r(2, 6, 8)), "2.13 dev", "PendingUnbackedSymbolNotFound",
      repo="pytorch/torchtitan", note="the failing line, x.view(-1, dim) of (bs, slen, dim); _StridedShard and 8 GPUs there")
def _(x):
    d = DTensor.from_local(x, MESH, [Shard(1)])
    return d.view(-1, 8).to_local() * 2


# ---- custom-op

torch.library.define("newer::cache_update", "(Tensor(a!) cache, Tensor x, SymInt pos) -> ()")
torch.library.define("newer::needs_order", "(Tensor x) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,))
torch.library.define("newer::two_sizes", "(Tensor x) -> (Tensor, Tensor)")


@torch.library.impl("newer::cache_update", "CompositeExplicitAutograd")
def _(cache, x, pos):
    cache[pos: pos + x.shape[0]] = x


torch.library.impl("newer::needs_order", "CompositeExplicitAutograd", lambda x: x * x.stride(0))
torch.library.register_fake("newer::needs_order", lambda x: torch.empty_like(x))
torch.library.impl("newer::two_sizes", "CompositeExplicitAutograd", lambda x: (x[x > 0].clone(), x[x <= 0].clone()))


@torch.library.register_fake("newer::two_sizes")
def _(x):
    ctx = torch.library.get_ctx()
    return x.new_empty(ctx.new_dynamic_size()), x.new_empty(ctx.new_dynamic_size())


@case("custom_op_mutates_cache", 190255, "[mtia][inductor][fx_wrapper] Guard unbacked-symbol codegen against empty "
      "bindings", "custom-op", "cache_update(cache, x, pos.item()) -> ()", lambda: (r(16, 4), r(2, 4), T(3)), "2.14 dev",
      "KeyError", source="maintainer", kind="pull",
      note="the situation of the description: an operator that mutates a KV cache and returns nothing")
def _(cache, x, pos):
    p = pos.item()
    torch._check(p >= 0)
    torch._check(p + x.shape[0] <= cache.shape[0])
    c = cache.clone()
    torch.ops.newer.cache_update.default(c, x, p)
    return c * 2


@case("custom_op_stride_order", 183840, "[Inductor] Handle hinted and fallback unbacked symbols", "custom-op",
      "needs_fixed_stride_order op of an (u0, 4) view", lambda: (r(6, 4),), "2.13 dev", "u0*256 >= 256",
      source="maintainer", kind="pull", unbacked={0: [0]},
      note="the first part of the description: a layout constraint whose strides are unbacked, here of a transposed sum")
def _(x):
    y = (x + 1).t()
    return torch.ops.newer.needs_order.default(y.unsqueeze(0).expand(2, -1, -1).contiguous().transpose(1, 2))


@case("custom_op_two_dynamic_outputs", 185880, "Bind fallback output unbacked symbols in standalone compile", "custom-op",
      "two outputs with fresh sizes", lambda: (r(9),), "2.13 dev", source="maintainer", kind="pull",
      note="the description: fallback outputs whose free symbols have to be bound; here an operator with two of them")
def _(x):
    a, b = torch.ops.newer.two_sizes.default(x)
    return a.sin(), torch.cat([a, b]) + 1


# ---- python

@case("bool_or_of_backed_and_unbacked", 185569, "Handle symbolic bool short-circuit with unbacked terms", "python",
      "if (s0 > 3) | (u0 > 200)", lambda: (dyn(r(6), 0), T(7)), "2.13 dev", "(s0 > 3) | (u0 > 200)", source="maintainer",
      kind="pull", dynamic_shapes=lambda D: ({0: D}, None), note="the example of the description")
def _(x, n):
    if (x.shape[0] > 3) | (n.item() > 200):
        return x + 1
    return x - 1


@case("min_is_lower_bound", 137096, "Expressions involving Min/Max don't simplify with value ranges information", "python",
      "if sym_min(u0, 5) == u0", lambda: (T([3, 5]),), "2.6 dev", "Eq(Min(5, u0), u0)", source="maintainer",
      note="the issue's program (2024, still open)")
def _(x):
    a, _ = x.tolist()
    torch._check(a <= 5)
    return torch.ones(2) if torch.sym_min(a, 5) == a else torch.zeros(2)


@case("range_over_size", 187605, "Specialize symbolic range bounds in Dynamo RangeVariable", "python",
      "for i in range(1, n)", lambda: (dyn(r(4, 3), 0),), "2.14 dev", source="maintainer", kind="pull",
      dynamic_shapes=lambda D: ({0: D},), note="the title: range with a symbolic bound, over a dim that is dynamic")
def _(x):
    y = x[0]
    for i in range(1, x.shape[0]):
        y = y * 0.5 + x[i]
    return y


@case("torch_div_of_sizes", 183584, "[Reland] Skip Dynamo graph break for scalar-only bin_ops when tensorify is enabled",
      "python", "torch.div(x.size(0), 2)", lambda: (r(6, 2),), "2.13 dev",
      "Attempted to call torch in-graph function on only torch.SymInt arguments", source="maintainer", kind="pull",
      unbacked={0: [0]}, note="the calls of the description: torch.add, mul and div of sizes only")
def _(x):
    return x * torch.div(x.size(0), 2), torch.add(x.size(0), 2), torch.mul(x.size(0), 3)


# ---- options

@case("dim_example_at_minimum", 176349, "Exporting a module with dynamic shape an example input the shape shape as the min "
      "boundry causes a failure", "options", "Dim(min=1, max=32), example of size 1", lambda: (r(1, 4),), "2.12 dev",
      "ConstraintViolation", dynamic_shapes=lambda D: ({0: Dim("batch", min=1, max=32)},),
      note="the title and the description of the fix (#184837): a matmul, size 1 is the lower bound of the Dim")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(r(4, 3))

    def forward(self, x):
        return torch.matmul(x, self.w).relu()


@case("dim_multiple_excludes_one", 181097, "torch.export generates unexpected guards on dynamic shapes", "options",
      "dims 5 * batch and batch, batch in [1, 8]", lambda: (r(20), r(4)), "2.12 dev", "x.size()[0] // 5 != 1",
      dynamic_shapes=lambda D: ({0: 5 * Dim("batch", min=1, max=8)}, {0: Dim("batch", min=1, max=8)}),
      note="the issue's program")
def _(x, y):
    v = x.view(5, -1)
    return [v[i] - y for i in range(5)]


@case("dim_range_slice_assign", 146046, "Dynamic Dims not getting produced right.", "options",
      "cache[0:n] = x, n in [1, 10], example 10", lambda: (r(10),), "2.7 dev", "silently static",
      dynamic_shapes=lambda D: ({0: Dim("dim", min=1, max=10)},), note="the issue's program with its largest size (2025, still open)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(10))

    def forward(self, x):
        c = self.cache.clone()
        c[0: x.shape[0]] = x
        return c + 1


@case("add_strided_slice", 146315, "torch.export.export + dynamic shapes fails with x + y[::2]", "options", "x + y[::2]",
      lambda: (r(4), r(8)), "2.7 dev", dynamic_shapes=lambda D: ({0: D}, {0: D}),
      note="the title (2025, still open)")
def _(x, y):
    return x + y[::2]


@case("mark_unbacked_shape_id", 172716, "use shape_id to inform inputs that must have matching sizes in support in "
      "mark_unbacked", "options", "x + y of one shape_id",
      lambda: (marked(r(6, 3), 0, shape_id="n"), marked(r(6, 3), 0, shape_id="n")), "2.11 dev", source="maintainer",
      kind="pull", note="the option of the title: inputs of one length, as in vLLM; sizes are compared and subtracted")
def _(x, y):
    if x.shape[0] == y.shape[0]:
        return x + y, torch.zeros(x.shape[0] - y.shape[0] + 1)
    return x, y


@case("mark_unbacked_min_max", 176313, "[dynamo] Add min/max bounds support to mark_unbacked", "options",
      "bounds decide a branch", lambda: (marked(r(6, 3), 0, min=4, max=8),), "2.12 dev", source="maintainer", kind="pull",
      note="the option of the title: bounds of the dim should decide comparisons with them")
def _(x):
    y = x[:4] * 2 if x.shape[0] >= 4 else x
    if x.shape[0] <= 8:
        y = F.pad(x, (0, 0, 0, 8 - x.shape[0])) + 1
    return y


@case("mark_unbacked_hint_override", 183545, "[DTensor] Use explicit hints for unbacked sharding", "options",
      "chunks by a hinted divisible size", lambda: (marked(r(8, 3), 0, hint_override=8),), "2.13 dev", source="maintainer",
      kind="pull", note="the option of the description, without DTensor: a hint, and torch._check that the size is divisible")
def _(x):
    torch._check(x.shape[0] % 2 == 0)
    a, b = x.view(2, x.shape[0] // 2, 3).unbind(0)
    return a + b


@case("mark_unbacked_specialized_by_cat", 145775, "Error instead of silent specializing when an unbacked dimension has a "
      "value range cardinality of one", "options", "cat([x, ones(5, 5)])", lambda: (torch.ones(5, 5),), "2.7 dev",
      "u1 is silently 5", source="maintainer", unbacked={0: [0, 1]}, note="the issue's program (2025)")
def _(x):
    return torch.cat([x, torch.ones(5, 5)])


# ---- layouts

@case("as_strided_of_rolled_channels_last", 174963, "torch.compile yields incorrect results when as_strided is used on "
      "channels_last tensor", "layouts", "as_strided(roll(channels_last))",
      lambda: (torch.arange(100.0).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last),), "2.11 dev", "wrong values",
      unbacked={0: [0]}, note="the issue's program, with an unbacked batch")
def _(x):
    return torch.as_strided(torch.roll(x, shifts=-1, dims=0), (5, 10), (4, 1), 0) + 0


@case("channels_last_strides_checks", 174710, "[dynamic shapes] channels_last_strides unbacked handling", "layouts",
      "is_contiguous(channels_last), clone, max_pool2d",
      lambda: (r(2, 3, 6, 6).to(memory_format=torch.channels_last),), "2.12 dev", "sizes[d] > 1", source="maintainer",
      kind="pull", unbacked={0: [0, 2, 3]}, note="the checks of the diff (MemoryFormat.h): every dim but channels is unbacked")
def _(x):
    y = F.max_pool2d(x * 2, 2) if x.is_contiguous(memory_format=torch.channels_last) else x.clone()
    return y, torch.empty_like(x).zero_(), x.contiguous(memory_format=torch.channels_last) + 1


@case("pixel_shuffle_of_repeated", 163827, "[dde] is_channels_last_strides_2d_s4 to support unbacked shapes", "layouts",
      "pixel_shuffle(x.repeat_interleave)", lambda: (r(1, 4, 3, 3), T(1)), "2.10 dev", "u0 + 1 > 1", source="maintainer",
      kind="pull", note="the trace: pixel_shuffle of a tensor repeated u0 + 1 times")
def _(x, n):
    k = n.item()
    torch._check(k >= 0)
    return F.pixel_shuffle(x.repeat(k + 1, 1, 1, 1), upscale_factor=2)


@case("reshape_of_strided", 152722, "Data dependent free reshape", "layouts", "reshape(as_strided(x), (n, n))",
      lambda: (torch.arange(8.0).as_strided((4,), (2,)), r(2)), "2.8 dev", source="maintainer", kind="pull",
      unbacked={0: [0], 1: [0]}, note="the program of the description (2025)")
def _(x, y):
    n = y.size()[0]
    return torch.reshape(x, (n, n)) + 1


@case("conv_weight_plain_tensor", 184027, "[inductor] torch.compile crashes on convolutions when weight is a plain tensor — "
      "stride prediction mismatch", "layouts", "conv2d(x, w), w an input",
      lambda: (r(2, 3, 8, 8), r(4, 3, 1, 1)), "2.13 dev", "expected stride", unbacked={0: [0, 2, 3]},
      note="the pattern of the title: the weight is an input, not a parameter; unbacked batch and image here")
def _(x, w):
    return F.conv2d(x, w).permute(0, 2, 3, 1).contiguous() * 2


@case("abs_of_transposed_complex", 184101, "torch.compile backward crashes for abs()/angle() on transposed complex tensors",
      "layouts", "x.T.abs().sum()", lambda: (torch.complex(r(4, 8), r(4, 8)).requires_grad_(),), "2.13 dev",
      "expected size 8==8, stride 1==4", unbacked={0: [0]}, note="the issue's program, with an unbacked first dim")
def _(x):
    return x.T.abs().sum()


@case("stride_order_of_unbacked", 171201, "[Inductor] Fix unbacked-symint stride ordering, add regression tests", "layouts",
      "conv2d of rows[nonzero] permuted", lambda: (r(6, 5, 5, 3), MASK(1, 0, 1, 1, 0, 1)), "2.10", kind="pull",
      note="the title: strides that contain unbacked symbols are ordered (here for the input of a convolution)")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x, m):
        return self.conv(x[m].permute(0, 3, 1, 2)).permute(1, 0, 2, 3).contiguous()


# ---- assertions

@case("check_ratio_of_sizes", 153756, "Runtime assertions ignored in many cases", "assertions",
      "_check(x.size(0) == 2 * x.size(1))", lambda: (r(6, 3),), "2.8 dev", "assertion dropped", source="maintainer",
      unbacked={0: [0, 1]}, note="the second example of the issue (2025)")
def _(x):
    torch._check(x.size()[0] == x.size()[1] * 2)
    return x * 2


@case("check_item_is_five", 151127, "Wrong handling of deferred == and != runtime checks in torch.compile!", "assertions",
      "_check(u0 == 5)", lambda: (T([5]), T([1, 2])), "2.8 dev", "assertion dropped", source="maintainer",
      note="the issue's first program (2025, still open)")
def _(a, b):
    n = a.item()
    torch._check(n == 5)
    return n * 10 + b


@case("check_item_not_five", 151127, "same issue: !=", "assertions", "_check(u0 != 5)", lambda: (T([4]), T([1, 2])),
      "2.8 dev", "assertion dropped", source="maintainer", note="the other comparison of the title (2025, still open)")
def _(a, b):
    n = a.item()
    torch._check(n != 5)
    return n * 10 + b


@case("check_on_input_size_pruned", 182703, "insert_deferred_runtime_asserts shall not prune all torch checks on inputs",
      "assertions", "_check(4 <= x.shape[0] <= 8)", lambda: (r(6, 3),), "2.13 dev", "assertion dropped", source="maintainer",
      unbacked={0: [0]}, note="the situation of the issue: checks of input sizes that the graph is to keep")
def _(x):
    torch._check(x.shape[0] >= 4)
    torch._check(x.shape[0] <= 8)
    return x.sin()


@case("check_bound_of_slice", 150539, "AOTI drops runtime asserts", "assertions", "_check(b < y.shape[0]); y[:b]",
      lambda: (T(4), r(10)), "2.8 dev", "assertion dropped", source="maintainer", dynamic_shapes=lambda D: (None, {0: D}),
      note="the issue's program (2025)")
def _(x, y):
    b = x.item()
    torch._check(b >= 0)
    torch._check(b < y.shape[0])
    return y[:b] + 1


@case("check_sum_of_three", 154240, "torch._check on 3 unbacked symints aren't resolving ddes", "assertions",
      "_check(u0 + u1 + u2 > 1); randn(u0 + u1 + u2)", lambda: (r(1), T([3, 0, 2, 7])), "2.8 dev", "Eq(u0 + u1 + u2, 0)",
      source="maintainer", note="the issue's program with ones instead of randn (2025, still open)")
def _(x, splits):
    total = sum(splits.tolist()[:3])
    torch._check(total > 1)
    y = x * torch.ones(total)
    return y if total != 0 else x


@case("check_message_lost", 150063, "torch._check does not preserve original error message in the deferred runtime assert",
      "assertions", "_check(a.size(0) > 0, message)", lambda: (torch.ones(10, 4), torch.ones(10, 4)), "2.8 dev",
      source="maintainer", unbacked={0: [0]}, note="the issue's program (2025, still open), with the reduction that it stands for")
def _(a, b):
    torch._check(a.size()[0] > 0, lambda: "cannot compute the norm of an empty tensor")
    return b * 10, torch.linalg.vector_norm(a, float("inf"))


# ---- ops

@case("linalg_cross_unbacked_three", 195767, "Fix the unbacked guard in linalg_cross's meta length-3 check", "ops",
      "linalg.cross(ones(4, u0), ...)", lambda: (T([1, 0, 1, 1]),), "2.14 dev", "Eq(u0, 3)", kind="pull",
      note="the program of the description")
def _(x):
    a = torch.ones(4, x.nonzero().size(0))
    return torch.linalg.cross(a, a + torch.arange(4.0).unsqueeze(1))


@case("padding_checks", 183814, "[DDE] Fix data-dependent errors in pixel_shuffle, pdist, and padding ops", "ops",
      "reflection/replication pad 1d, 2d, 3d", lambda: (r(2, 3, 6), r(2, 3, 5, 5), r(2, 3, 4, 4, 4)), "2.13 dev",
      source="maintainer", kind="pull", unbacked={0: [0, 1, 2], 1: [0, 1], 2: [2]},
      note="the padding operators of the pull request (pdist is in the other collection)")
def _(x, y, z):
    return (F.pad(x, (2, 1), mode="reflect"), F.pad(x, (2, 1), mode="replicate"), F.pad(y, (1, 1, 1, 1), mode="reflect"),
            F.pad(z, (1, 1, 1, 1, 1, 1), mode="replicate"))


# ---- more

@case("list_pop_of_size", 196285, "torch.compile(dynamic=True) fails to handle shape-derived symbolic indices in list.pop()",
      "python", "values.pop(x.shape[0] - 2)", lambda: (dyn(r(3), 0),), "2.14 dev", "SymNodeVariable() is not a constant",
      dynamic_shapes=lambda D: ({0: D},), note="the issue's program")
def _(x):
    values = [x * 2, x * 3, x * 4]
    selected = values.pop(x.shape[0] - 2)
    return selected + values[0]


@case("list_pop_of_item", 196590, "[dynamo] Specialize symbolic list.pop() indices", "python", "values.pop(n.item())",
      lambda: (r(3), T(1)), "2.14 dev", kind="pull",
      note="the description: an unbacked index is to raise instead of guessing")
def _(x, n):
    values = [x * 2, x * 3, x * 4]
    return values.pop(n.item()) + values[0]


@case("deque_maxlen_of_size", 196590, "same PR: deque(maxlen=x.shape[0])", "python", "deque(maxlen=x.shape[0])",
      lambda: (dyn(r(3), 0),), "2.14 dev", kind="pull", dynamic_shapes=lambda D: ({0: D},), note="the example of the description")
def _(x):
    from collections import deque
    d = deque(maxlen=x.shape[0])
    for i in range(4):
        d.append(x * i)
    return d[0]


@case("list_setitem_of_size", 155174, "Graph break when modifying a list that contains symints.", "python",
      "shape = [1] * ndim; shape[0] = n; view(shape)", lambda: (torch.zeros(3, 4, 5, dtype=torch.int32),), "2.8 dev",
      "does not know how to trace method __setitem__ of class list", source="maintainer", unbacked={0: [0]},
      note="the issue's program (2025), over the unbacked dim")
def _(x):
    n = x.shape[0]
    a = torch.arange(0, n, dtype=torch.int32)
    shape = [1] * x.ndim
    shape[0] = n
    return torch.sum(a.view(shape) * x, dim=[0])


@case("divmod_of_size", 163457, "[Fuzzer] unsupported operand type(s) for divmod(): 'SymInt' and 'int'", "python",
      "divmod(n, 3)", lambda: (dyn(r(7), 0), T(7)), "2.10 dev", "unsupported operand type(s) for divmod()", source="maintainer",
      dynamic_shapes=lambda D: ({0: D}, None), note="the operation of the title, with a size and with an item()")
def _(x, n):
    q, m = divmod(x.shape[0], 3)
    a, b = divmod(n.item(), 3)
    return x * q + m, x * a + b


@case("bool_item_times_tensor", 164684, "[Fuzzer] mul(Eq(u0, 1), FakeTensor): unsupported operand type(s) for *: 'SymBool'",
      "python", "b.item() * tensor", lambda: (T(True), torch.tensor(1.0, requires_grad=True)), "2.10 dev",
      "unsupported operand type(s) for *: 'SymBool' and 'FakeTensor'", source="maintainer",
      note="the failing line of the issue: a bool item times a tensor")
def _(b, sentinel):
    return b.item() * sentinel


@case("chunk_squeeze_stack", 166270, "[Fuzzer] assert len(self.stride) == len(order)", "inductor",
      "reshape(stack([squeeze(chunk(x, 4)[0])]), [1]) * s",
      lambda: (dyn(MASK(1, 0, 1, 1), 0), torch.tensor(1.0, requires_grad=True)), "2.10 dev", "len(self.stride) == len(order)",
      source="maintainer", dynamic_shapes=lambda D: ({0: D}, None), note="the issue's program on the CPU (still open)")
def _(x, sentinel):
    y = torch.stack([torch.squeeze(torch.chunk(x, 4, dim=0)[0])], dim=0)
    return torch.reshape(y, [1]) * sentinel


@case("empty_nonzero_broadcast", 163894, "[Fuzzer] DDE _get_symint_hints(ph_arg.stride()) != real_stride", "backward",
      "(1, 2) + nonzero(...), with a sentinel", lambda: (T([[3, 4]]), torch.tensor(1.0, requires_grad=True)), "2.10 dev",
      "DDE in aot_autograd", source="maintainer", note="the lines of the issue's program that the copy has")
def _(a, sentinel):
    u = torch.full((1, 2), -66, dtype=torch.int32) + torch.full((1, 2), 77, dtype=torch.int64)
    v = u * torch.full((1, 2), -64, dtype=torch.int32)
    w = v + torch.nonzero(torch.full((3, 4), False))
    return torch.div(a, w + 1) * sentinel


@case("scan_cumulative", 153437, "torch._higher_order_ops.scan graph breaks", "higher-order", "scan(h + x, initial, xs)",
      lambda: (r(2, 3), r(4, 2, 3)), "2.8 dev", "aten._local_scalar_dense.default", unbacked={1: [0]},
      note="the issue's program (2025, still open), with an unbacked number of steps")
def _(initial, xs):
    from torch._higher_order_ops import scan

    def step(h, x):
        n = h + x
        return n, n.clone()

    return scan(step, initial, xs)


torch.library.define("newer::custom_bmm", "(Tensor self, Tensor mat2) -> Tensor")
torch.library.define("newer::custom_bmm.out", "(Tensor self, Tensor mat2, *, Tensor(a!) out) -> ()", tags=(torch.Tag.out_variant,))
torch.library.define("newer::take_first", "(Tensor x, SymInt n, SymInt[] sizes) -> Tensor")
torch.library.impl("newer::custom_bmm", "CompositeExplicitAutograd", lambda s, m: torch.bmm(s, m))
torch.library.register_fake("newer::custom_bmm", lambda s, m: s.new_empty(s.shape[0], s.shape[1], m.shape[2]))


@torch.library.impl("newer::custom_bmm.out", "CompositeExplicitAutograd")
def _(s, m, out):
    torch.bmm(s, m, out=out)


torch.library.register_fake("newer::custom_bmm.out", lambda s, m, out: None)
torch.library.impl("newer::take_first", "CompositeExplicitAutograd", lambda x, n, sizes: x[:n].clone())
torch.library.register_fake("newer::take_first", lambda x, n, sizes: x.new_empty(n, *x.shape[1:]))


@case("custom_op_out_variant", 185503, "[Inductor] Assertion error when FallbackKernel.create lowers functional custom op "
      "with dynamic shapes to .out variant", "custom-op", "custom_bmm with an out_variant overload",
      lambda: (dyn(r(2, 3, 4), 1), r(2, 4, 5)), "2.13 dev", "all(isinstance(s, (Expr, int)) for s in size)",
      dynamic_shapes=lambda D: ({1: D}, None), note="the issue's operator; the dynamic dim is the sequence length")
def _(x, w):
    return torch.ops.newer.custom_bmm.default(x, w) * 2


@case("custom_op_symint_list", 188154, "[inductor] Route custom ops with SymInt args off the cpp_wrapper StableIValue path",
      "custom-op", "op(x, SymInt n, SymInt[] sizes)", lambda: (r(6, 3), T([2, 4])), "2.14 dev", "API call failed",
      source="maintainer", kind="pull", note="the schema of the description: SymInt arguments from data; cpp_wrapper there")
def _(x, s):
    a, b = s.tolist()
    torch._check(a >= 0)
    torch._check(a <= x.shape[0])
    return torch.ops.newer.take_first.default(x, a, [a, b]) + 1
