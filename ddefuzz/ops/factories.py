"""Catalogue: functions that make tensors from sizes."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, Indices, Number, OpSpec, Shape, Size, Tensor, choice, op
from ddefuzz.program.model import Constant

N = Size(0)
S = Shape()
X = Tensor(kind="any")
DTYPE = choice(Constant("torch.float32"), Constant("torch.float64"), Constant("torch.int64"), Constant("torch.bool"))

FACTORIES: tuple[OpSpec, ...] = (
    op("torch.zeros(s)", s=S),
    op("torch.zeros(n, dtype=t)", n=N, t=DTYPE),
    op("torch.ones(s)", s=S),
    op("torch.ones(n, m)", n=N, m=N),
    op("torch.full(s, 0.5)", s=S),
    op("torch.full(s, n)", s=S, n=N),
    op("torch.empty(s).fill_(1.0)", s=S),
    op("torch.empty_strided((n, m), (m, 1)).zero_()", n=N, m=Size(1)),
    op("torch.empty_strided((n, m), (1, n)).zero_()", n=Size(1), m=N),
    op("torch.empty_permuted((n, 3, m), (1, 0, 2)).fill_(0.5)", n=N, m=N),
    op("torch.arange(n)", n=N),
    op("torch.arange(n, dtype=torch.float32)", n=N),
    op("torch.arange(a, a + n)", a=N, n=N),
    op("torch.arange(0, n, k)", n=N, k=Number(1, 3)),
    op("torch.arange(n, 0, -1)", n=N),
    op("torch.eye(n)", n=N),
    op("torch.eye(n, m)", n=N, m=N),
    op("torch.linspace(0.0, 1.0, n)", n=N, stops=True),
    op("torch.logspace(0.0, 1.0, n)", n=N, stops=True),
    op("torch.tril_indices(n, m)", n=N, m=N, stops=True),
    op("torch.triu_indices(n, m, k)", n=N, m=N, k=Number(-1, 1), stops=True),
    op("torch.hann_window(n)", n=N, stops=True),
    op("torch.hamming_window(n, periodic=p)", n=N, p=FLAG, stops=True),
    op("torch.bartlett_window(n)", n=N, stops=True),
    op("torch.blackman_window(n)", n=N, stops=True),
    op("torch.kaiser_window(n)", n=N, stops=True),
    op("torch.zeros_like(x)", x=X),
    op("torch.ones_like(x)", x=X),
    op("torch.full_like(x, 2)", x=X),
    op("torch.empty_like(x).fill_(1)", x=X),
    op("x.new_zeros(s)", x=X, s=S),
    op("x.new_ones(n)", x=X, n=N),
    op("x.new_full((n, m), 1)", x=X, n=N, m=N),
    op("x.new_empty(n, k).fill_(1)", x=X, n=N, k=Number(1, 3)),
    op("x.new_empty_strided((n, m), (1, n)).fill_(1)", x=X, n=Size(1), m=N),
    op("torch.vander(x, n)", x=Tensor(1, 1, max_numel=32), n=Size(1, 8), stops=True),
    op("torch.vander(x, n, increasing=True)", x=Tensor(1, 1, max_numel=32), n=Size(1, 8), stops=True),
    op("torch.complex(x, y)", x=Tensor(1), y=Tensor(like="x")),
    op("torch.polar(x, y)", x=Tensor(1), y=Tensor(like="x")),
    op("torch.meshgrid(x, y, indexing=w)", x=Tensor(1, 1), y=Tensor(1, 1, max_numel=32), w=choice("ij", "xy")),
    op("torch.cartesian_prod(x, y)", x=Tensor(1, 1, max_numel=32), y=Tensor(1, 1, max_numel=16)),
    op("torch.combinations(x, with_replacement=r)", x=Tensor(1, 1, max_numel=16), r=FLAG),
    op("torch.block_diag(x, y)", x=Tensor(2, 2, max_numel=64), y=Tensor(2, 2, max_numel=64)),
    op(
        "torch.sparse_coo_tensor(i, i[0], (4, 4), check_invariants=False).to_dense()", n=N, i=Indices(4, shape=(2, "n"))
    ),
    op("torch.nn.functional.one_hot(i % 5, 5)", i=Tensor(1, 2, kind="int", max_numel=64)),
)
