"""Catalogue: public functions of torch that neither the other tables nor the samples of OpInfo call."""

from __future__ import annotations

from ddefuzz.ops.spec import Data, DimOf, Indices, Number, OpSpec, Size, SplitOf, Tensor, op

X = Tensor(1, 3)
X2 = Tensor(2, 2)
N = Size(1, 8)
SQUARE = Tensor(shape=("n", 3, 3))
LINE = Tensor(shape=("n", 2, 8))
STATE = Tensor(shape=("n", 3))
MASK = Tensor(kind="bool", shape=("n", 3))
NUMBER = Tensor(shape=())
COUNT = Data("sizes", ())

OTHERS: tuple[OpSpec, ...] = (
    op("x.clone().fill_diagonal_(0.5)", x=Tensor(2, 3)),
    op("x.clone().fill_diagonal_(0.5, wrap=True)", x=X2),
    op("x.type_as(y)", x=Tensor(1, kind="any"), y=Tensor(1)),
    op("x.new_tensor([n, 1])", x=X, n=N, stops=True),
    op("x.new_tensor([s, s])", x=X, s=NUMBER),
    op("torch.as_tensor([n, 2])", n=N, stops=True),
    op("torch.as_tensor([s, s])", s=NUMBER),
    op("torch.stack([s, s]).max()", s=NUMBER),
    op("x.reshape(torch.Size((n, 2)))", n=N, x=Tensor(shape=("n", 2)), stops=True),
    op("torch.reshape(x, torch.Size((-1, n)))", n=N, x=Tensor(shape=("n", 2)), stops=True),
    op("torch.zeros(torch.Size((n, 2)))", n=N, stops=True),
    op("torch.masked.median(x, 0, mask=m)", n=N, x=Tensor(kind="int", shape=("n", 3)), m=MASK),
    op("torch.masked.amax(x, 1, mask=m)", n=N, x=Tensor(kind="int", shape=("n", 3)), m=MASK),
    op("torch.masked.argmin(x, 0, mask=m)", n=N, x=Tensor(kind="int", shape=("n", 3)), m=MASK),
    op("torch.masked.std(x, 0, mask=m)", n=N, x=Tensor(kind="int", shape=("n", 3)), m=MASK),
    op("torch.masked.logsumexp(x, 1, mask=m)", n=N, x=STATE, m=MASK),
    op("torch.masked.softmax(x, 0, mask=m)", n=N, x=STATE, m=MASK),
    op("torch.squeeze(torch.masked_select(x, x > 0)[:1]).item()", x=X),
    op("torch.nn.functional.pad(x, (0, k, 0, k)).unsqueeze_(0)", x=Tensor(2, 2), k=COUNT),
    op("torch.asarray(x)", x=X),
    op("torch.nn.functional.one_hot(i, n + 5)", n=N, i=Indices(5), stops=True),
    op("torch.randperm(n).sort()[0]", n=N),
    op("torch.rand_like(x).shape[0]", x=X),
    op("torch.matrix_power(x, k)", n=N, x=SQUARE, k=Number(0, 3)),
    op("torch.slogdet(x)", n=N, x=SQUARE),
    op("torch.det(x + torch.eye(3))", n=N, x=SQUARE),
    op("torch.inverse(x + 3 * torch.eye(3))", n=N, x=SQUARE),
    op("torch.norm_except_dim(x, 2, 0)", x=Tensor(2, 3)),
    op('torch.segment_reduce(torch.repeat_interleave(x, s), "sum", lengths=s)',
       s=Data("sizes", (3,)), x=Tensor(shape=(3,))),
    op("torch.detach_copy(x)", x=X),
    op("torch.split_copy(x, k)", x=X, k=Number(1, 4), stops=True),
    op("torch.unsafe_split_with_sizes(x, s, d)", x=X, d=DimOf("x"), s=SplitOf("x", "d")),
    op("torch.grid_sampler(x, y, 0, 0, False)", n=N, x=Tensor(shape=("n", 1, 4, 4)), y=Tensor(shape=("n", 2, 2, 2))),
    op("torch.lstm_cell(x, (h, c), w, torch.ones(12, 3))",
       n=N, x=STATE, h=STATE, c=STATE, w=Tensor(shape=(12, 3))),
    op("torch.gru_cell(x, h, torch.ones(9, 3), torch.ones(9, 3))", n=N, x=STATE, h=STATE),
    op("torch.rnn_tanh_cell(x, h, torch.ones(3, 3), torch.ones(3, 3))", n=N, x=STATE, h=STATE),
    op("torch.nn.functional.dropout1d(x, 0.5, False)", n=N, x=LINE),
    op("torch.nn.functional.lp_pool3d(x, 2.0, 2)", n=N, x=Tensor(shape=("n", 1, 4, 4, 4))),
    op("torch.nn.functional.max_pool1d_with_indices(x, 2)", n=N, x=LINE),
    op("torch.nn.functional.max_pool3d_with_indices(x, 2)", n=N, x=Tensor(shape=("n", 1, 4, 4, 4))),
    op("torch.nn.functional.adaptive_max_pool2d_with_indices(x, (2, 2))", n=N, x=Tensor(shape=("n", 1, 4, 4))),
    op("torch.nn.functional.triplet_margin_with_distance_loss(x, x + 1, x - 1)", n=N, x=STATE),
    op("torch.native_channel_shuffle(x, 2)", n=N, x=Tensor(shape=("n", 4, 2, 2))),
    op("torch.special.multigammaln(x.abs() + 5, k)", x=X, k=Number(1, 3)),
    op("torch.sym_int(n / 2)", n=N),
    op("torch.sym_float(n)", n=N),
    op("torch.sym_sqrt(n)", n=N),
    op("torch.sym_not(n > 2)", n=N),
    op("x.nelement()", x=X),
    op("x.requires_grad_().sum()", x=X),
    op("torch.clip(x, 0.0, n)", x=X, n=N),
)  # fmt: skip
