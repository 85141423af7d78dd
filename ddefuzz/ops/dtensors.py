"""Catalogue: DTensors, on a mesh of one process and on one of four. The calls end with a plain tensor.

`flatten` is missing: in eager, torch 2.13 does not end for a DTensor without elements. FSDP2 is, too: dynamo does not
trace its hooks with fullgraph=True, whatever the sizes are (`torch._dynamo.disable`).
"""

from __future__ import annotations

from functools import partial

from ddefuzz.ops.spec import Data, Leaf, OpSpec, Size, Tensor, choice, op

MESH = 'torch.distributed.device_mesh.init_device_mesh("cpu", (1,))'
SHARDED = f"torch.distributed.tensor.DTensor.from_local(x, {MESH}, [torch.distributed.tensor.Shard(0)])"
REPLICATED = f"torch.distributed.tensor.DTensor.from_local(x, {MESH}, [torch.distributed.tensor.Replicate()])"
WEIGHT = f"torch.distributed.tensor.DTensor.from_local(w, {MESH}, [torch.distributed.tensor.Replicate()])"
GATHERED = f"redistribute({MESH}, [torch.distributed.tensor.Replicate()])"
U = Size(1, 8)
ROWS = Tensor(shape=("u", 4))
SQUARE = Tensor(shape=(4, 4))

FOUR = 'torch.distributed.device_mesh.init_device_mesh("cpu", (4,))'
REPLICATE = f"redistribute({FOUR}, [torch.distributed.tensor.Replicate()])"
PLACED = partial(Leaf, gradient=False)
BY_ROW = PLACED((8, 4), (0,), "shard0")
BY_COLUMN = PLACED((8, 4), (0,), "shard1")
BY_BOTH = PLACED((8, 4), (0, 1), "shard0_shard1")
WHOLE = PLACED((8, 4), (0,), "replicate")
SUMMANDS = PLACED((8, 4), (0,), "partial")
WEIGHT_BY_ROW = PLACED((4, 4), (), "shard0")
WEIGHT_BY_COLUMN = PLACED((4, 4), (), "shard1")

FUNCTIONAL = "torch.distributed._functional_collectives"
WAIT = f"{FUNCTIONAL}.wait_tensor"
TOKENS = PLACED((24, 4), (), "replicate")
COUNT = Data("sizes", (1,))
SPLIT = "[n.item(), n.item(), n.item(), n.item()]"

PARALLEL = "torch.distributed.tensor.parallel"
COLUMNS = f"{PARALLEL}.parallelize_module(torch.nn.Linear(4, 8), {FOUR}, {PARALLEL}.ColwiseParallel())"
AFTER_THEM = f"{PARALLEL}.parallelize_module(torch.nn.Linear(8, 4), {FOUR}, {PARALLEL}.RowwiseParallel())"
NORM = f"{PARALLEL}.parallelize_module(torch.nn.LayerNorm(4), {FOUR}, {PARALLEL}.SequenceParallel())"
TWO_LAYERS = f"torch.nn.Sequential({COLUMNS}, torch.nn.ReLU(), {AFTER_THEM})"

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

    op("torch.sum(x, 0).full_tensor()", x=BY_ROW),
    op("torch.sum(x, 1).full_tensor()", x=BY_COLUMN),
    op("torch.var(x, 1).full_tensor()", x=BY_ROW),
    op("torch.softmax(x, 1).full_tensor()", x=BY_COLUMN),
    op("torch.cumsum(x, 0).full_tensor()", x=BY_ROW),
    op("(x @ w).full_tensor()", x=BY_ROW, w=WEIGHT_BY_COLUMN),
    op("torch.nn.functional.linear(x, w).full_tensor()", x=WHOLE, w=WEIGHT_BY_ROW),
    op("torch.nn.functional.linear(x, w).full_tensor()", x=BY_COLUMN, w=WEIGHT_BY_COLUMN),
    op("torch.nn.functional.layer_norm(x, (4,)).full_tensor()", x=BY_ROW),
    op("torch.cat([x, y]).full_tensor()", x=BY_ROW, y=BY_ROW),
    op("torch.stack([x, x]).full_tensor()", x=BY_BOTH),
    op("x.view(-1, 2).full_tensor()", x=BY_COLUMN),
    op("x.transpose(0, 1).full_tensor()", x=BY_BOTH),
    op("x.unsqueeze(0).expand(3, -1, -1).full_tensor()", x=BY_ROW),
    op("x[1:].full_tensor()", x=BY_COLUMN),
    op("x[:n.item()].full_tensor()", x=WHOLE, n=COUNT),
    op("x[:, n.item():].full_tensor()", x=WHOLE, n=COUNT),
    op("x.narrow(1, 0, n.item()).full_tensor()", x=WHOLE, n=COUNT),
    op("x.repeat(n.item(), 1).full_tensor()", x=WHOLE, n=COUNT),
    op("x.expand(n.item(), -1, -1).full_tensor()", x=WHOLE, n=COUNT),
    op("torch.split(x, 2, 1)[0].full_tensor()", x=BY_ROW),
    op("torch.where(x > 0, x, y).full_tensor()", x=BY_ROW, y=BY_ROW),
    op("torch.sort(x, 1)[0].full_tensor()", x=BY_ROW),
    op("torch.nn.functional.pad(x, (1, 0)).full_tensor()", x=BY_ROW),
    op(f"x.{REPLICATE}.to_local()", x=BY_ROW),
    op(f"x.{REPLICATE}.to_local()", x=SUMMANDS),
    op(f"x.redistribute({FOUR}, [torch.distributed.tensor.Shard(1)]).to_local()", x=BY_ROW),
    op(f"x.redistribute({FOUR}, [torch.distributed.tensor.Shard(0)]).to_local()", x=SUMMANDS),
    op("x.full_tensor()", x=BY_BOTH),
    op(f"{WAIT}({FUNCTIONAL}.all_gather_single(x.to_local(), 0, {FOUR}))", x=WHOLE),
    op(f"{WAIT}({FUNCTIONAL}.all_reduce(x.to_local(), s, {FOUR}))", x=WHOLE, s=choice("sum", "max")),
    op(f"{WAIT}({FUNCTIONAL}.reduce_scatter_single(x.to_local(), 'sum', 1, {FOUR}))", x=WHOLE),
    op(f"{WAIT}({FUNCTIONAL}.all_to_all_single(x.to_local()[: 4 * n.item()], {SPLIT}, {SPLIT}, {FOUR}))",
       x=TOKENS, n=COUNT),
    op(f"{COLUMNS}(x)", u=U, x=ROWS),
    op(f"{WAIT}({TWO_LAYERS}(x))", u=U, x=ROWS),
    op(f"{NORM}(x).to_local()", u=U, x=Tensor(shape=(2, "u", 4))),
)  # fmt: skip
