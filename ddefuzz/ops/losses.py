"""Catalogue: losses over a batch whose size is unbacked."""

from __future__ import annotations

from ddefuzz.ops.spec import Indices, OpSpec, Size, Tensor, choice, op

X = Tensor(1)
LIKE = Tensor(like="x")
BATCH = Size(1, 8)
SCORES = Tensor(shape=("u", 4))
CLASSES = Indices(4, shape=("u",))
REDUCTION = choice("mean", "sum", "none")

LOSSES: tuple[OpSpec, ...] = (
    op("torch.nn.functional.mse_loss(x, y, reduction=r)", x=X, y=LIKE, r=REDUCTION),
    op("torch.nn.functional.l1_loss(x, y, reduction=r)", x=X, y=LIKE, r=REDUCTION),
    op("torch.nn.functional.smooth_l1_loss(x, y)", x=X, y=LIKE),
    op("torch.nn.functional.huber_loss(x, y, reduction=r)", x=X, y=LIKE, r=REDUCTION),
    op("torch.nn.functional.mse_loss(x, y, reduction=r, weight=w.exp())", x=X, y=LIKE, w=LIKE, r=REDUCTION),
    op("torch.nn.functional.l1_loss(x, y, weight=w.exp())", x=X, y=LIKE, w=LIKE),
    op("torch.nn.functional.huber_loss(x, y, weight=w.exp())", x=X, y=LIKE, w=LIKE),
    op("torch.nn.functional.cross_entropy(x, i, reduction=r)", u=BATCH, x=SCORES, i=CLASSES, r=REDUCTION),
    op("torch.nn.functional.cross_entropy(x, x.softmax(1), label_smoothing=0.1)", u=BATCH, x=SCORES),
    op("torch.nn.functional.cross_entropy(x, i)", u=BATCH, x=Tensor(shape=(2, 4, "u")),
       i=Indices(4, shape=(2, "u"))),
    op("torch.nn.functional.nll_loss(x, i, reduction=r)", u=BATCH, x=SCORES, i=CLASSES, r=REDUCTION),
    op("torch.nn.functional.nll_loss(x, i, w)", u=BATCH, x=SCORES, i=CLASSES, w=Tensor(shape=(4,))),
    op("torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid())", x=X, y=LIKE),
    op("torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction=r)", x=X, y=LIKE, r=REDUCTION),
    op("torch.nn.functional.kl_div(x, y.exp(), reduction=r)", x=X, y=LIKE,
       r=choice("batchmean", "sum", "none")),
    op("torch.nn.functional.poisson_nll_loss(x, y)", x=X, y=LIKE),
    op("torch.nn.functional.gaussian_nll_loss(x, y, v.exp())", x=X, y=LIKE, v=LIKE, stops=True),
    op("torch.nn.functional.soft_margin_loss(x, y)", x=X, y=LIKE),
    op("torch.nn.functional.hinge_embedding_loss(x, y)", x=X, y=LIKE),
    op("torch.nn.functional.margin_ranking_loss(x, y, x.sign())", x=X, y=LIKE),
    op("torch.nn.functional.cosine_embedding_loss(x, y, z.sign())", u=BATCH, x=SCORES, y=LIKE,
       z=Tensor(shape=("u",)), stops=True),
    op("torch.nn.functional.triplet_margin_loss(x, y, z)", u=BATCH, x=SCORES, y=LIKE, z=LIKE),
    op("torch.nn.functional.multi_margin_loss(x, i)", u=BATCH, x=SCORES, i=CLASSES),
    op("torch.nn.functional.multilabel_margin_loss(x, i)", u=BATCH, x=SCORES, i=Indices(4, like="x")),
    op("torch.nn.functional.multilabel_soft_margin_loss(x, y)", u=BATCH, x=SCORES, y=LIKE),
    op("torch.nn.functional.multilabel_soft_margin_loss(x, y, reduction=r)", u=BATCH, x=SCORES, y=LIKE, r=REDUCTION),
    op("torch.nn.functional.ctc_loss(x.log_softmax(2), i, (3, 3), (2, 2))",
       x=Tensor(shape=(3, 2, 4)), i=Indices(4, shape=(2, 2)), stops=True),
    op("torch.nn.functional.ctc_loss(x.log_softmax(2), i, n, m)",
       u=BATCH, x=Tensor(shape=(4, "u", 4)), i=Indices(4, shape=("u", 2)),
       n=Tensor(kind="int", shape=("u",)), m=Tensor(kind="int", shape=("u",)), stops=True),
)  # fmt: skip
