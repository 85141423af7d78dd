"""Catalogue: products, decompositions, distances and transforms of matrices and signals."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, At, DimOf, Number, OpSpec, Size, Tensor, choice, op

X = Tensor(1)
MATRIX = Tensor(2, 2, max_numel=256)
BATCH = Tensor(3, 3, max_numel=256)
VECTOR = Tensor(1, 1, max_numel=64)
TO_COLUMNS = Tensor(shape=(At("x", -1), 3))
BATCHED = Size(0, 8)
SQUARE = Tensor(shape=("n", 3, 3))
D = DimOf("x")
NORM = choice("backward", "ortho")

PRODUCTS: tuple[OpSpec, ...] = (
    op("torch.matmul(x, y)", x=X, y=TO_COLUMNS),
    op("x @ y", x=X, y=TO_COLUMNS),
    op("torch.matmul(x, x.mT)", x=Tensor(2, max_numel=128)),
    op("torch.mm(x, y)", x=MATRIX, y=TO_COLUMNS),
    op("torch.mm(x.t(), x)", x=MATRIX),
    op("torch.bmm(x, y)", x=BATCH, y=Tensor(shape=(At("x", 0), At("x", 2), 2))),
    op("torch.bmm(x, x.transpose(1, 2))", x=BATCH),
    op("torch.mv(x, y)", x=MATRIX, y=Tensor(shape=(At("x", 1),))),
    op("torch.dot(x, y)", x=VECTOR, y=Tensor(shape=(At("x", 0),))),
    op("torch.vdot(x, y)", x=VECTOR, y=Tensor(shape=(At("x", 0),))),
    op("torch.inner(x, y)", x=X, y=Tensor(shape=(2, At("x", -1))), stops=True),
    op("torch.linalg.vecdot(x, y)", x=X, y=Tensor(like="x")),
    op("torch.addmm(b, x, y)", x=MATRIX, y=TO_COLUMNS, b=Tensor(shape=(3,))),
    op("torch.addmv(b, x, y)", x=MATRIX, y=Tensor(shape=(At("x", 1),)), b=Tensor(shape=(At("x", 0),)), stops=True),
    op("torch.addbmm(b, x, y)", x=BATCH, y=Tensor(shape=(At("x", 0), At("x", 2), 2)),
       b=Tensor(shape=(At("x", 1), 2))),
    op("torch.baddbmm(b, x, y)", x=BATCH, y=Tensor(shape=(At("x", 0), At("x", 2), 2)),
       b=Tensor(shape=(At("x", 0), At("x", 1), 2))),
    op("torch.addbmm(b, x, y)", n=BATCHED, x=Tensor(shape=(2, 3, 5)), y=Tensor(shape=(2, 5, "n")),
       b=Tensor(shape=(3, "n"))),
    op("torch.baddbmm(b, x, y)", n=BATCHED, x=Tensor(shape=(2, 3, 5)), y=Tensor(shape=(2, 5, "n")),
       b=Tensor(shape=(2, 3, "n"))),
    op("torch.addr(b, x, y)", x=VECTOR, y=Tensor(shape=(3,)), b=Tensor(shape=(At("x", 0), 3))),
    op("torch.linalg.multi_dot((x, y, z))", x=MATRIX, y=TO_COLUMNS, z=Tensor(shape=(3, 2)), stops=True),
    op("torch.einsum('ij,jk->ik', x, y)", x=MATRIX, y=TO_COLUMNS),
    op("torch.einsum('ij,kj->ik', x, x)", x=MATRIX),
    op("torch.einsum('bij,bik->bjk', x, x)", x=BATCH),
    op("torch.einsum('i,j->ij', x, y)", x=VECTOR, y=VECTOR),
    op("torch.linalg.matrix_power(x, 2)", n=BATCHED, x=SQUARE),
    op("torch.nn.functional.linear(x, w)", x=X, w=Tensor(shape=(3, At("x", -1)))),
    op("torch.nn.functional.linear(x, w, b)", x=X, w=Tensor(shape=(3, At("x", -1))), b=Tensor(shape=(3,))),
    op("torch.nn.functional.bilinear(x, y, w)", x=MATRIX, y=Tensor(shape=(At("x", 0), 2)),
       w=Tensor(shape=(3, At("x", 1), 2)), stops=True),
)  # fmt: skip

DECOMPOSITIONS: tuple[OpSpec, ...] = (
    op("torch.linalg.det(x)", n=BATCHED, x=SQUARE),
    op("torch.linalg.det(x)", n=Size(1, 6), x=Tensor(shape=("n", "n"))),
    op("torch.linalg.slogdet(x)", n=BATCHED, x=SQUARE),
    op("torch.linalg.inv(x + torch.eye(3) * 2)", n=BATCHED, x=SQUARE),
    op("torch.linalg.pinv(x + torch.eye(3) * 2)", x=MATRIX),
    op("torch.linalg.qr(x)", x=MATRIX),
    op("torch.linalg.qr(x, m)", x=MATRIX, m=choice("complete", "r")),
    op("torch.linalg.pinv(x, atol=0.1)", x=MATRIX),
    op("torch.linalg.svdvals(x)", x=MATRIX),
    op("torch.linalg.matrix_rank(x)", x=MATRIX, stops=True),
    op("torch.linalg.lu_factor(x + torch.eye(3) * 2)", n=BATCHED, x=SQUARE),
    op("torch.linalg.solve(x + torch.eye(3) * 2, z)", n=BATCHED, x=SQUARE, z=Tensor(shape=("n", 3, 2))),
    op("torch.linalg.solve_triangular(x.triu() + torch.eye(3) * 4, z, upper=True)",
       n=BATCHED, x=SQUARE, z=Tensor(shape=("n", 3, 2))),
    op("torch.linalg.solve(torch.eye(n) * 2, z)", n=BATCHED, z=Tensor(shape=("n", 3))),
    op("torch.linalg.solve(x + torch.eye(3) * 2, z, left=False)", n=BATCHED, x=SQUARE, z=Tensor(shape=("n", 2, 3))),
    op("torch.linalg.solve_triangular(torch.eye(n), z, upper=True)", n=BATCHED, z=Tensor(shape=("n", 3))),
    op("torch.linalg.svd(x, full_matrices=False)", x=MATRIX),
    op("torch.linalg.lstsq(x, z)", n=BATCHED, x=SQUARE, z=Tensor(shape=("n", 3, 2)), stops=True),
    op("torch.linalg.lstsq(x, z, rcond=0.1, driver=m)", n=BATCHED, x=SQUARE, z=Tensor(shape=("n", 3, 2)),
       m=choice("gels", "gelsd", "gelsy"), stops=True),
    op("torch.linalg.cholesky(x @ x.mT + torch.eye(3))", n=BATCHED, x=SQUARE),
    op("torch.linalg.eigvalsh(x @ x.mT)", n=BATCHED, x=SQUARE),
    op("torch.linalg.matrix_exp(x)", n=BATCHED, x=SQUARE),
    op("torch.cholesky_inverse(torch.eye(n) * 2)", n=Size(1, 8)),
    op("torch.linalg.vander(x)", x=Tensor(1, 1, max_numel=16)),
    op("torch.linalg.diagonal(x)", x=Tensor(2)),
    op("torch.cdist(x, y)", x=Tensor(2, 3, max_numel=128), y=Tensor(like="x"), stops=True),
    op("torch.cdist(x, y)", x=MATRIX, y=Tensor(shape=(2, At("x", 1))), stops=True),
    op("torch.pdist(x)", x=MATRIX),
    op("torch.nn.functional.pairwise_distance(x, y)", x=X, y=Tensor(like="x")),
    op("torch.nn.functional.pairwise_distance(x, y, keepdim=True)", x=X, y=Tensor(like="x")),
    op("torch.nn.functional.cosine_similarity(x, y, dim=d)", x=X, d=D, y=Tensor(like="x"), stops=True),
)  # fmt: skip

TRANSFORMS: tuple[OpSpec, ...] = (
    op("torch.fft.fft(x)", x=X, stops=True),
    op("torch.fft.fft(x, dim=d, norm=m)", x=X, d=D, m=NORM, stops=True),
    op("torch.fft.ifft(x, n)", x=X, n=Size(1, 12), stops=True),
    op("torch.fft.rfft(x)", x=X, stops=True),
    op("torch.fft.rfft(x, n, d)", x=X, d=D, n=Size(1, 12), stops=True),
    op("torch.fft.irfft(x)", x=X, stops=True),
    op("torch.fft.hfft(x)", x=X, stops=True),
    op("torch.fft.ihfft(x)", x=X, stops=True),
    op("torch.fft.fft2(x)", x=Tensor(2), stops=True),
    op("torch.fft.rfft2(x)", x=Tensor(2), stops=True),
    op("torch.fft.fftn(x)", x=X, stops=True),
    op("torch.fft.fftshift(x)", x=X, stops=True),
    op("torch.fft.ifftshift(x, d)", x=X, d=D, stops=True),
    op("torch.fft.fftfreq(n)", n=Size(1), stops=True),
    op("torch.fft.rfftfreq(n)", n=Size(1), stops=True),
    op("torch.stft(x, 4, hop_length=k, window=torch.ones(4), return_complex=True)",
       n=Size(8, 16), x=Tensor(shape=("n",)), k=Number(1, 3)),
    op("torch.stft(x, 4, window=torch.ones(4), return_complex=True)", n=BATCHED, x=Tensor(shape=("n", 12))),
    op("torch.stft(x, 4, 2, 3, torch.ones(3), c, m, True, return_complex=True)", n=Size(8, 16),
       x=Tensor(shape=("n",)), c=FLAG, m=choice("constant", "replicate")),
)  # fmt: skip
