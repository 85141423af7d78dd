"""Catalogue: DTensors on a mesh of one process. The calls end with a plain tensor.

`flatten` is missing: in eager, torch 2.13 does not end for a DTensor without elements.
"""

from __future__ import annotations

from ddefuzz.ops.spec import OpSpec, Size, Tensor, op

MESH = 'torch.distributed.device_mesh.init_device_mesh("cpu", (1,))'
SHARDED = f"torch.distributed.tensor.DTensor.from_local(x, {MESH}, [torch.distributed.tensor.Shard(0)])"
REPLICATED = f"torch.distributed.tensor.DTensor.from_local(x, {MESH}, [torch.distributed.tensor.Replicate()])"
WEIGHT = f"torch.distributed.tensor.DTensor.from_local(w, {MESH}, [torch.distributed.tensor.Replicate()])"
GATHERED = f"redistribute({MESH}, [torch.distributed.tensor.Replicate()])"
U = Size(1, 8)
ROWS = Tensor(shape=("u", 4))
SQUARE = Tensor(shape=(4, 4))

DISTRIBUTED: tuple[OpSpec, ...] = (
    op(f"{SHARDED}.to_local()", u=U, x=ROWS),
    op(f"{SHARDED}.{GATHERED}.to_local()", u=U, x=ROWS),
    op(f"{REPLICATED}.redistribute({MESH}, [torch.distributed.tensor.Shard(0)]).to_local()", u=U, x=ROWS),
    op(f"({SHARDED} @ {WEIGHT}).to_local()", u=U, x=ROWS, w=SQUARE),
    op(f"({REPLICATED} @ {WEIGHT}).to_local()", u=U, x=ROWS, w=SQUARE),
    op(f"torch.softmax({SHARDED}, 1).to_local()", u=U, x=ROWS),
    op(f"torch.softmax({SHARDED}, 0).to_local()", u=U, x=ROWS),
    op(f"{SHARDED}.sum().{GATHERED}.to_local()", u=U, x=ROWS),
    op(f"{SHARDED}.view(-1, 2).to_local()", u=U, x=ROWS),
    op(f"{REPLICATED}.unsqueeze(1).to_local()", u=U, x=ROWS),
    op(f"{SHARDED}.transpose(0, 1).to_local()", u=U, x=ROWS),
    op(f"torch.cat([{REPLICATED}, {WEIGHT}]).to_local()", u=U, x=ROWS, w=SQUARE),
    op(f"{REPLICATED}[1:].to_local()", u=U, x=ROWS),
    op(f"({REPLICATED} * 2 + 1).full_tensor()", u=U, x=ROWS),
    op(f"{REPLICATED}.shape[0]", u=U, x=ROWS),
)  # fmt: skip
