"""Catalogue: torch's reference implementations by name, which are decompositions that no stage uses by itself.

They are Python code with the guards that capture evaluates on other devices or under other backends. The last rows
call C++ functions that torch's own Python does not call with unbacked sizes, although they decide these without an
error. Their results are no tensors, and are not returned by programs.
"""

from __future__ import annotations

from ddefuzz.ops.spec import At, Data, OpSpec, Tensor, op

X = Tensor(1, 3)
X2 = Tensor(2, 3)
SAME = Tensor(like="x")

BACKEND = "(x, torch._C._select_conv_backend(x, w, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1, None))[0]"
"""What C++ evaluates for a convolution of fake tensors if all sizes have hints."""

REFERENCES: tuple[OpSpec, ...] = (
    op("torch._refs.flatten(x, 0, 1)", x=X2),
    op("torch._refs.flatten(x.transpose(0, 1), 0, 1)", x=Tensor(shape=(3, 1, 4))),
    op("torch._refs.flatten(torch.cat((x, x)), 0, 1)", x=X2),
    op("torch._refs.flatten(x.narrow(1, 0, 4), 0, 1)", x=Tensor(shape=(3, 6))),
    op("torch._refs.reshape(x, (-1,))", x=X2, stops=True),
    op("torch._refs.reshape(x, (x.shape[0] * x.shape[1], -1))", x=X2, stops=True),
    op("torch._refs.ravel(x.mT)", x=X2, stops=True),
    op("torch._prims.collapse(x, 0, 1)", x=X2),
    op("torch._refs.diagonal_scatter(x, y)", x=Tensor(shape=(4, 4)), y=Tensor(shape=(4,))),
    op("torch._refs.expand(x, (3, 4))", x=Tensor(shape=(1, 4))),
    op("torch._refs.cat((x, y))", x=X, y=SAME),
    op("torch._refs.stack((x, y))", x=X, y=SAME),
    op("torch._refs.add(x, y)", x=X, y=SAME),
    op("torch._refs.add(x, y)", x=X, y=Tensor(broadcast="x")),
    op("torch._refs.sin(x)", x=X),
    op("torch._refs.softmax(x, 0)", x=X, stops=True),
    op("torch._refs.logsumexp(x, 0)", x=X, stops=True),
    op("torch._refs.sum(x, 0)", x=X),
    op("torch._refs.narrow(x, 0, 0, 1)", x=X),
    op("torch._refs.chunk(x, 2)", x=X, stops=True),
    op("torch._refs.tensor_split(x, 2)", x=X),
    op("torch._refs.roll(x, 1, 0)", x=X, stops=True),
    op("torch._refs.unfold(x, 0, 2, 1)", x=X),
    op("torch._refs.index_select(x, 0, torch.zeros(1, dtype=torch.int64))", x=X),
    op("torch._refs.squeeze(x)", x=X, stops=True),
    op("torch._refs.unflatten(x, 0, (1, -1))", x=X),
    op("torch._refs.constant_pad_nd(x, (1, 1))", x=X),
    op("torch._refs.block_diag(x, y)", x=Tensor(2, 2), y=Tensor(2, 2)),
    op("torch._refs.native_layer_norm(x, (4,), None, None, 1e-5)", x=Tensor(shape=(3, 4))),
    op("torch._refs.native_group_norm(x, None, None, x.shape[0], 4, x.shape[2], 2, 1e-5)", x=Tensor(shape=(2, 4, 3))),
    op("torch._refs.movedim(x, 0, 1)", x=X2),
    op("torch._refs.repeat(x, 2)", x=Tensor(1, 1), stops=True),
    op("torch._refs.as_strided_scatter(x, y, (2,), (1,))", x=Tensor(shape=(6,)), y=Tensor(shape=(2,))),
    op("torch._refs.nn.functional.pixel_shuffle(x, 2)", x=Tensor(shape=(1, 4, 2, 3))),
    op(
        "torch._decomp.decompositions._fused_rms_norm_backward(y, x, [4], scale, weight, [True, True])",
        x=Tensor(shape=(3, 4)),
        y=SAME,
        scale=Tensor(shape=(At("x", 0), 1)),
        weight=Tensor(shape=(4,)),
    ),
    op("torch._decomp.decompositions.isin(x, y)", x=Tensor(1, 1), y=Tensor(1, 1)),
    op("torch._prims_common.check_significant_strides(x, y, only_cuda=False)", x=X, y=SAME),
    op("(x, torch._debug_has_internal_overlap(x[:, ::2]))[0]", x=Tensor(shape=(3, 4))),
    op(
        "list(map(lambda n: (torch._dynamo.override_optimization_hint(n, 64), torch.ones(n))[1], [s[0].item()]))[0]",
        s=Data("sizes", (2,)),
    ),
    op(BACKEND, w=Tensor(shape=(3, 2, 2, 2)), x=Tensor(shape=(3, 2, 4, 4)), stops=True),
    op(BACKEND, w=Tensor(shape=(3, 2, 5, 5)), x=Tensor(shape=(1, 2, 8, 8)), stops=True),
)
