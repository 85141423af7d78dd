"""Catalogue: ops that read or change strides: contiguity checks, and copies into other memory formats."""

from __future__ import annotations

from ddefuzz.ops.spec import At, DimOf, DimsOf, OpSpec, Size, Tensor, choice, op
from ddefuzz.program.model import Constant

X = Tensor(kind="any")
X1 = Tensor(1, kind="any")
X2 = Tensor(2, kind="any")
IMAGE = Tensor(4, 4)
VOLUME = Tensor(5, 5)
ROW = Tensor(1)
FORMAT = choice(Constant("torch.contiguous_format"), Constant("torch.preserve_format"))
CHANNELS_LAST = choice(Constant("torch.channels_last"))
CHANNELS_LAST_3D = choice(Constant("torch.channels_last_3d"))

CONTIGUITY: tuple[OpSpec, ...] = (
    op("x.contiguous()", x=X1),
    op("x.contiguous(memory_format=f)", x=IMAGE, f=CHANNELS_LAST),
    op("x.contiguous(memory_format=f)", x=VOLUME, f=CHANNELS_LAST_3D),
    op("x.is_contiguous()", x=X1, stops=True),
    op("x.is_contiguous(memory_format=f)", x=IMAGE, f=CHANNELS_LAST, stops=True),
    op("x.is_contiguous(memory_format=f)", x=VOLUME, f=CHANNELS_LAST_3D, stops=True),
    op("x.stride()", x=X1),
    op("x.stride(d)", x=X1, d=DimOf("x")),
    op("x.storage_offset()", x=X1),
    op("torch.clone(x)", x=X),
    op("x.clone(memory_format=f)", x=X, f=FORMAT),
    op("x.clone(memory_format=f)", x=IMAGE, f=CHANNELS_LAST),
    op("x.clone(memory_format=f)", x=VOLUME, f=CHANNELS_LAST_3D),
    op("x.to(memory_format=f)", x=IMAGE, f=CHANNELS_LAST),
    op("x.to(memory_format=f)", x=VOLUME, f=CHANNELS_LAST_3D),
    op("x.to(torch.float64, memory_format=f)", x=X1, f=FORMAT),
    op("torch.empty_like(x, memory_format=f).fill_(1)", x=IMAGE, f=CHANNELS_LAST),
    op("torch.zeros_like(x, memory_format=f)", x=X1, f=FORMAT),
    op("torch.empty((n, 2, 3, m), memory_format=f).zero_()", n=Size(1), m=Size(1), f=CHANNELS_LAST),
    op("x.t().contiguous()", x=Tensor(2, 2)),
    op("x.t().reshape(-1)", x=Tensor(2, 2)),
    op("x.transpose(0, 1).flatten()", x=X2),
    op("x.transpose(0, 1).contiguous().view(-1)", x=X2),
    op("x.transpose(0, -1).clone()", x=X2),
    op("x.permute(d).contiguous()", x=X2, d=DimsOf("x", permute=True)),
    op("x.mT.view(x.shape[0], -1)", x=Tensor(2, 2)),
    op("x.as_strided((n,), (1,))", x=X1, n=Size(0, At("x", 0))),
    op("x.contiguous().as_strided((n, 2), (1, 0))", x=X1, n=Size(0, At("x", 0))),
    op("torch.as_strided(x, (n, 1), (1, 1), 0)", x=X1, n=Size(0, At("x", 0))),
    op("torch.as_strided(x, (3,), (n,)).to(torch.float64)", x=Tensor(shape=(24,)), n=Size(1, 6)),
    op("torch.as_strided_copy(x, (n,), (1,))", x=X1, n=Size(0, At("x", 0))),
    op("x.new_empty_strided(x.shape, x.stride()).fill_(0)", x=X1),
    op("torch.empty_strided(x.shape, x.stride()).fill_(0)", x=ROW),
    op("x.expand(2, -1).reshape(-1)", x=Tensor(1, 1)),
    op("x.detach()", x=X),
    op("x.to(t)", x=X, t=choice(Constant("torch.float64"), Constant("torch.float16"), Constant("torch.int64"))),
    op("x.type(torch.float64)", x=X),
    op("x.is_same_size(y)", x=X1, y=Tensor(like="x", kind="any")),
)
