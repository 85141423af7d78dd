"""17 failures that were reported publicly about unbacked sizes and that show on torch 2.13.0, in the format of newer.py.
Someone who had not read the generators, the findings or the other lists chose and restated them (2026-11-30)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.export import Dim
from torch.nn.utils.rnn import pad_sequence

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


@case("conv1d_of_permuted", 155162, "conv1d of a permuted tensor with an unbacked length", "inductor", "conv1d",
      lambda: (T([5, 6]),), note="fails in inductor alone")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 7, padding=3, groups=16)

    def forward(self, xs):
        a, b = xs.tolist()
        return self.conv(torch.ones(1, a + b, 16).permute(0, 2, 1))


@case("check_of_unused_float", 151500, "torch._check of a float that nothing else reads", "assertions", "torch._check",
      lambda: (T([100]), T([5.5])), note="strict export drops the assertion")
def _(a, b):
    torch._check(b.item() == 5.5)
    return a * 10


@case("pad_sequence_of_split", 127153, "pad_sequence of what tensor_split returns", "ops", "pad_sequence",
      lambda: (torch.arange(12.0), T([3, 7])))
def _(text, cuts):
    return pad_sequence(list(torch.tensor_split(text, cuts)), batch_first=True)


@case("cond_branch_with_check", 147991, "a guard of a branch of cond leaks", "higher-order", "cond",
      lambda: (torch.rand(2, 20, 3),), dynamic_shapes=lambda _: ({0: Dim("b"), 1: Dim("s")},), note="backed sizes")
class _(nn.Module):
    def forward(self, x):
        def true(x):
            torch._check(x.shape[1] > 5)
            return x + 1

        return torch.cond(x.shape[1] > 5, true, lambda x: x + 2, (x,))


@case("layer_norm_of_jagged", 182217, "layer_norm of a jagged nested tensor", "layouts", "layer_norm",
      lambda: (torch.randn(20, 12, requires_grad=True), T([0, 6, 11, 14, 20])))
def _(values, offsets):
    return F.layer_norm(torch.nested.nested_tensor_from_jagged(values, offsets), [12]).values().sum()


@case("as_nested_tensor_of_expanded", 168307, "as_nested_tensor of an expanded parameter", "layouts",
      "as_nested_tensor", lambda: (r(5, 2),), unbacked={0: [0]})
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, 3, 4))

    def forward(self, x):
        rows = self.weight.expand(x.shape[0], -1, -1)
        return (torch.nested.as_nested_tensor(rows, layout=torch.jagged) * 2).values()


@case("select_of_jagged", 148497, "select of a jagged nested tensor", "layouts", "select",
      lambda: (r(20, 12), T([0, 6, 11, 14, 20])))
def _(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets).select(0, 2)


@case("attention_of_masked_rows", 147672, "MultiheadAttention over rows of a mask", "inductor", "MultiheadAttention",
      lambda: (r(4, 3, 8), r(4, 5, 8), torch.zeros(4, 5, dtype=torch.bool), T([True, False, True, True])),
      note="inductor computes wrong values: transpose and reshape, _dynamic_reshape_indexer")
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def forward(self, q, kv, mask, keep):
        q, kv, mask = q[keep], kv[keep], mask[keep]
        most = (~mask)[:, None, :].expand(-1, q.shape[1], -1).repeat_interleave(2, dim=0)
        return self.m(q, kv, kv, attn_mask=~most, need_weights=True)


@case("index_by_0d_tensor", 182345, "x[:, i] with a 0-d tensor", "Python", "Tensor.__getitem__",
      lambda: (r(3, 4), T(1)))
class _(nn.Module):
    def forward(self, x, i):
        return x[torch.tensor(1)], x[i], x[:, i]


@case("index_by_symint", 9486, "l[0, n] with n from the data", "Python", "Tensor.__getitem__",
      lambda: (T([3, 1, 2, 0, 0, 0]), torch.eye(8)[T([3, 1, 0, 0, 0, 0, 0])][None]), repo="pytorch/executorch")
def _(candidates, logits):
    same = (candidates == torch.argmax(logits[0, :-1], -1)).int()
    n = torch.cumprod(same, 0).sum().item()
    torch._check(n >= 0)
    torch._check(n < logits.shape[1])
    return logits[0, n] * 2


@case("searchsorted_of_symint", 150613, "searchsorted of a number from the data", "ops", "searchsorted",
      lambda: (T([0, 1, 3, 7]),), note="fails in inductor alone")
def _(s):
    return torch.searchsorted(s, s[-1].item() // 3)


@case("addmm_beta_0d_tensor", 182408, "0-d tensors as beta, alpha and value", "ops", "addmm",
      lambda: (r(3, 3), r(3, 2), r(2, 3), T(0.5), T(2.0)))
def _(x, a, b, beta, alpha):
    return torch.addmm(x, a, b, beta=beta, alpha=alpha), torch.addcmul(x, a @ b, x, value=alpha)


@case("jacrev_of_masked", 154036, "jacrev over rows of a mask", "transforms", "torch.func.jacrev",
      lambda: (T([True, False, True]), r(3)), note="restated loosely")
def _(mask, x):
    return torch.func.jacrev(lambda v: v * v)(x[mask])


@case("jacfwd_of_masked", 160508, "jacfwd over rows of a mask", "transforms", "torch.func.jacfwd",
      lambda: (T([True, False, True]), r(3)), note="restated loosely")
def _(mask, x):
    return torch.func.jacfwd(lambda v: v * v)(x[mask])


@case("reshape_of_split", 178676, "reshape(n, -1) of a split", "ops", "reshape", lambda: (r(3, 6),), unbacked={0: [0]},
      note="restated loosely")
def _(x):
    a, b = torch.split(x, [2, 4], dim=1)
    return torch.cat([a.reshape(x.shape[0], -1), b.reshape(x.shape[0], -1), (x * 2).reshape(-1, 6)], 1) + 1


@case("crop_by_0d_tensors", 185185, "slices of two dims with bounds from 0-d tensors", "Python", "Tensor.__getitem__",
      lambda: (r(1, 3, 8, 8),))
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.tensor(4.0))

    def forward(self, x):
        top = ((torch.tensor(float(x.shape[2])) - self.size) / 2).long()
        left = ((torch.tensor(float(x.shape[3])) - self.size) / 2).long()
        return x[:, :, top:top + self.size.long(), left:left + self.size.long()]


@case("cond_over_slices_with_check", 165912, "cond over slices whose other branch checks for size 0", "higher-order",
      "cond", lambda: (r(4, 16),), unbacked={0: [0]})
class _(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(16, 16)

    def forward(self, x):
        def empty(x, w):
            torch._check(x.shape[0] == 0)
            return x.new_empty(x.shape[0], w.shape[0])

        w, n = self.lin.weight, x.shape[0]
        torch._check(n <= 4)
        a = torch.cond(n > 0, F.linear, empty, (x[0:2], w))
        return torch.cat([a, torch.cond(n > 2, F.linear, empty, (x[2:4], w))])
