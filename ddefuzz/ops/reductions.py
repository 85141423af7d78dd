"""Catalogue: reductions, sorting, cumulative ops and statistics over dims."""

from __future__ import annotations

from ddefuzz.ops.spec import FLAG, DimOf, DimsOf, OpSpec, Tensor, choice, op

X = Tensor(1)
X2 = Tensor(2)
MATRIX = Tensor(2, 2)
ANY = Tensor(1, kind="number")
D = DimOf("x")
DIMS = DimsOf("x")
ORDER = choice(1, 2, 0.5, 3)

REDUCTIONS: tuple[OpSpec, ...] = (
    op("torch.sum(x)", x=ANY),
    op("torch.sum(x, d)", x=ANY, d=D),
    op("x.sum(d, keepdim=True)", x=ANY, d=DIMS),
    op("torch.nansum(x, d)", x=X, d=D),
    op("torch.mean(x, d)", x=X, d=D),
    op("x.mean(d, keepdim=k)", x=X, d=DIMS, k=FLAG),
    op("torch.nanmean(x, d)", x=X, d=D),
    op("torch.prod(x, d)", x=ANY, d=D),
    op("torch.amax(x, d)", x=X, d=DIMS),
    op("torch.amin(x, d)", x=X, d=DIMS),
    op("torch.aminmax(x, dim=d)", x=X, d=D),
    op("torch.max(x)", x=X),
    op("torch.max(x, d)", x=X, d=D),
    op("torch.min(x, d, keepdim=True)", x=X, d=D),
    op("torch.max(x, d, keepdim=True)", x=X, d=D),
    op("torch.amax(x, d, keepdim=True)", x=X, d=DIMS),
    op("torch.argmax(x, d, keepdim=True)", x=X, d=D),
    op("torch.nansum(x, d, keepdim=True)", x=X, d=D),
    op("torch.argmax(x)", x=X),
    op("torch.argmax(x, d)", x=X, d=D),
    op("torch.argmin(x, d, keepdim=True)", x=X, d=D),
    op("torch.all(x > 0)", x=X),
    op("torch.all(x > 0, d)", x=X, d=D),
    op("torch.all(x > 0, d, keepdim=True)", x=X, d=D),
    op("torch.any(x > 0, d)", x=X, d=D),
    op("torch.softmax(x, d)", x=X, d=D),
    op("torch.log_softmax(x, d)", x=X, d=D),
    op("torch.nn.functional.softmin(x, d)", x=X, d=D),
    op("torch.logsumexp(x, d)", x=X, d=D, stops=True),
    op("torch.logsumexp(x, d, keepdim=True)", x=X, d=DIMS, stops=True),
    op("torch.var(x, d)", x=X, d=D),
    op("torch.var(x, d, correction=0)", x=X, d=DIMS),
    op("torch.var_mean(x, d)", x=X, d=D),
    op("torch.std(x, d)", x=X, d=D),
    op("torch.std_mean(x, d)", x=X, d=D),
    op("torch.std_mean(x, d, correction=2, keepdim=k)", x=X, d=D, k=FLAG),
    op("torch.cumsum(x, d)", x=ANY, d=D),
    op("x.clone().cumsum_(d)", x=ANY, d=D),
    op("torch.cumprod(x, d)", x=X, d=D),
    op("torch.cummax(x, d)", x=X, d=D, stops=True),
    op("torch.cummin(x, d)", x=X, d=D, stops=True),
    op("torch.logcumsumexp(x, d)", x=X, d=D),
    op("torch.cumulative_trapezoid(x, dim=d)", x=X, d=D),
    op("torch.trapezoid(x, dim=d)", x=X, d=D),
    op("torch.trapz(x, dx=0.5, dim=d)", x=X, d=D),
    op("torch.sort(x, d)", x=ANY, d=D),
    op("x.sort(dim=d, descending=True, stable=True)", x=ANY, d=D),
    op("torch.msort(x)", x=X),
    op("torch.median(x, d)", x=X, d=D),
    op("torch.nanmedian(x, d)", x=X, d=D),
    op("torch.median(x)", x=X),
    op("torch.mode(x, d)", x=X, d=D),
    op("torch.mode(x, d, keepdim=True)", x=X, d=D),
    op("torch.median(x, d, keepdim=True)", x=X, d=D),
    op("torch.quantile(x, 0.5, d)", x=X, d=D),
    op(
        "torch.quantile(x, 0.5, d, keepdim=True, interpolation=m)",
        x=X,
        d=D,
        m=choice("higher", "midpoint", "nearest"),
    ),
    op("torch.nanquantile(x, 0.25, d)", x=X, d=D),
    op("torch.norm(x)", x=X),
    op("torch.norm(x, p, d)", x=X, p=ORDER, d=D),
    op("torch.linalg.vector_norm(x, p, d)", x=X, p=ORDER, d=DIMS),
    op("torch.linalg.vector_norm(x, p, d, keepdim=True)", x=X, p=ORDER, d=DIMS),
    op("torch.linalg.norm(x, dim=d)", x=X, d=D),
    op("torch.linalg.matrix_norm(x)", x=X2),
    op("torch.linalg.matrix_norm(x, 1)", x=X2),
    op("torch.renorm(x, 2, d, 1.0)", x=X2, d=D),
    op("torch.cov(x)", x=MATRIX, stops=True),
    op("torch.corrcoef(x)", x=MATRIX, stops=True),
    op("torch.nn.functional.normalize(x, dim=d)", x=X, d=D),
)
