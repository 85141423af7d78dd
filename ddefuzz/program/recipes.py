"""Tables of what an input can be: dtypes, layouts and recipes of values, each with the expression that makes it.

`inputs.materialize` evaluates these expressions, and the stand-alone scripts contain the same text. Nothing here
imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, TypeAlias

from ddefuzz.program.expressions import parse_expression
from ddefuzz.program.model import Call, Constant, Expr, Input, Literal, Sequence, substitute

DTYPES: Final[dict[str, str]] = {
    "BFloat16": "bfloat16",
    "Bool": "bool",
    "Complex128": "complex128",
    "Complex64": "complex64",
    "Float16": "float16",
    "Float32": "float32",
    "Float64": "float64",
    "Int16": "int16",
    "Int32": "int32",
    "Int64": "int64",
    "Int8": "int8",
    "UInt8": "uint8",
}
"""Maps the annotation's name of a dtype (jaxtyping's) to torch's name."""

ANNOTATIONS: Final[dict[str, str]] = {dtype: annotation for annotation, dtype in DTYPES.items()}

MAX_ELEMENTS: Final = 2**22
MAX_LISTED: Final = 1_024
"""How many values `values([...])` and `sizes(...)` may have."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A memory layout, valid for `min_rank` to `max_rank` dims of any size.

    `source` is the expression that brings `values` into this layout. It may use the names `dims` (the dims
    reversed) and `shape`. No input is a view (hence `detach` here and `clone` below), because torch makes the
    fake tensor of a view from its base.
    """

    source: str
    min_rank: int = 0
    max_rank: int = 64

    def fits(self, rank: int) -> bool:
        """Whether a tensor of so many dims can have it."""
        return self.min_rank <= rank <= self.max_rank


LAYOUTS: Final[dict[str, Layout]] = {
    "contiguous": Layout("values"),
    "transposed": Layout("values.permute(dims).contiguous().permute(dims).detach()", min_rank=2),
    "expanded": Layout("values[:1].expand(shape).detach()", min_rank=1),
    "sliced": Layout("values.repeat_interleave(2, -1)[..., 1::2].detach()", min_rank=1),
    "channels_last": Layout("values.contiguous(memory_format=torch.channels_last)", min_rank=4, max_rank=4),
    "channels_last_3d": Layout("values.contiguous(memory_format=torch.channels_last_3d)", min_rank=5, max_rank=5),
}
"""transposed: the memory order of the dims is reversed. expanded: dim 0 has stride 0. sliced: every second element
of the last dim, from storage offset 1.
"""


def _placed(mesh: str, *placements: str, min_rank: int = 0) -> Layout:
    made = f'torch.distributed.device_mesh.init_device_mesh("cpu", {mesh})'
    listed = ", ".join(f"torch.distributed.tensor.{one}" for one in placements)
    maker = "DTensor.from_local" if "Partial()" in placements else "distribute_tensor"
    return Layout(f"torch.distributed.tensor.{maker}(values, {made}, [{listed}])", min_rank)


PLACEMENTS: Final[dict[str, Layout]] = {
    "replicate": _placed("(4,)", "Replicate()"),
    "shard0": _placed("(4,)", "Shard(0)", min_rank=1),
    "shard1": _placed("(4,)", "Shard(1)", min_rank=2),
    "shard2": _placed("(4,)", "Shard(2)", min_rank=3),
    "partial": _placed("(4,)", "Partial()"),
    "shard0_replicate": _placed("(2, 2)", "Shard(0)", "Replicate()", min_rank=1),
    "shard0_shard0": _placed("(2, 2)", "Shard(0)", "Shard(0)", min_rank=1),
    "shard0_shard1": _placed("(2, 2)", "Shard(0)", "Shard(1)", min_rank=2),
}
"""How an input is a DTensor, on a mesh of `WORLD` processes: a placement for each dim of the mesh. The sizes are those
of all shards together; of a partial one, those of each shard.
"""

WORLD: Final = 4

ARRANGED: Final = LAYOUTS | PLACEMENTS
"""What an input may be, beside its values."""


def is_placed(item: Input) -> bool:
    """Whether an input is a DTensor."""
    return item.layout in PLACEMENTS


def with_fitting_layout(item: Input) -> Input:
    """The input, contiguous if its shape cannot have its layout."""
    return item if ARRANGED[item.layout].fits(len(item.shape)) else replace(item, layout="contiguous")


Fault: TypeAlias = tuple[str, str]
"""What is wrong with an input: what was found, and what was expected."""


@dataclass(frozen=True, slots=True)
class RecipeKind:
    """One kind of recipe. Its expressions use `parameters`, `args`, `n` (how many), `shape`, `batch`, `dtype`
    and `generator`.

    `source` makes the values. `integral`, if given, makes those of integer and bool dtypes (from `low` to below
    `high`). The values come in the input's dtype if `dtype` is None, and flat rather than in `shape` if `flat`.
    `fault` says what is wrong with the recipe of an input, other than the number of its arguments.
    """

    source: str
    integral: str | None = None
    parameters: tuple[str, ...] = ()
    variadic: bool = False
    dtype: str | None = None
    flat: bool = False
    fault: Callable[[Input], Fault | None] = lambda _: None


def _count_fault(item: Input) -> Fault | None:
    k, n = item.recipe.args[0], elements(item)
    if isinstance(k, int) and 0 <= k <= n:
        return None
    return f"{item.recipe.kind}({k!r}) of {n} elements", f"a number from 0 to {n}"


def _distinct_fault(item: Input) -> Fault | None:
    k, n = item.recipe.args[0], elements(item)
    least, most = min(n, 1), min(n, 2 if item.dtype == "bool" else 100)
    if isinstance(k, int) and least <= k <= most:
        return None
    return f"distinct({k!r}) of {n} elements of {item.dtype}", f"a number from {least} to {most}"


def _index_fault(item: Input) -> Fault | None:
    n = item.recipe.args[0]
    if isinstance(n, int) and 1 <= n < 2**31 and item.dtype in INTEGERS:
        return _range_fault(item)
    return f"index({n!r}) of {item.dtype}", "a number from 1, and an integer dtype"


def _listed_fault(item: Input) -> Fault | None:
    given, n = len(item.recipe.args), elements(item)
    if given == n and n <= MAX_LISTED:
        return None
    return f"{given} values in {item.recipe.kind}", f"{n}, one for each element, and at most {MAX_LISTED}"


def _range_fault(item: Input) -> Fault | None:
    low, high = RANGES.get(item.dtype, (-math.inf, math.inf))
    misfit = next((value for value in item.recipe.args if not low <= value <= high), None)
    return None if misfit is None else (f"the value {misfit!r} of {item.dtype}", f"values from {low} to {high}")


def _values_fault(item: Input) -> Fault | None:
    return _range_fault(item) or _listed_fault(item)


def _sizes_fault(item: Input) -> Fault | None:
    if item.dtype not in INTEGERS:
        return f"sizes of {item.dtype}", "an integer dtype"
    if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in item.recipe.args):
        return f"sizes{item.recipe.args!r}", "sizes from 0"
    return _range_fault(item) or _listed_fault(item)


def _spd_fault(item: Input) -> Fault | None:
    sizes = [dim.size for dim in item.shape[-2:]]
    if item.dtype in FLOATS and len(sizes) == 2 and sizes[0] == sizes[1] == item.recipe.args[0]:
        return None
    n = item.recipe.args[0]
    return f"spd({n!r}) of {item.dtype} with last dims {sizes}", f"a float dtype with last dims [{n!r}, {n!r}]"


def _special_fault(item: Input) -> Fault | None:
    return None if item.dtype in FLOATS else (f"special of {item.dtype}", "a float dtype")


FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8"})
RANGES: Final = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
}
"""The values that an integer dtype can hold."""
DIFFERENTIABLE: Final = FLOATS | {"complex64", "complex128"}

RECIPES: Final[dict[str, RecipeKind]] = {
    "normal": RecipeKind(
        "torch.randn(shape, dtype=dtype, generator=generator)",
        integral="torch.randint(low, high, shape, dtype=dtype, generator=generator)",
    ),
    "uniform": RecipeKind(
        "torch.rand(shape, dtype=dtype, generator=generator)",
        integral="torch.randint(0, high, shape, dtype=dtype, generator=generator)",
    ),
    "ones": RecipeKind("torch.ones(shape, dtype=dtype)"),
    "zeros": RecipeKind("torch.zeros(shape, dtype=dtype)"),
    "ties": RecipeKind("torch.arange(n) % 2", dtype="int64", flat=True),
    "special": RecipeKind(
        "(torch.arange(n) % 3 - 1) / (torch.arange(n) % 4 % 3)", dtype="float32", flat=True, fault=_special_fault
    ),
    "arange": RecipeKind("torch.arange(n)", dtype="int64", flat=True),
    # i * k % n is below k exactly k times for i < n, at even distances.
    "trues": RecipeKind("torch.arange(n) * k % n < k", parameters=("k",), dtype="bool", flat=True, fault=_count_fault),
    "distinct": RecipeKind(
        "torch.arange(n) * k // n", parameters=("k",), dtype="int64", flat=True, fault=_distinct_fault
    ),
    "sizes": RecipeKind("torch.tensor(args)", variadic=True, dtype="int64", flat=True, fault=_sizes_fault),
    "index": RecipeKind(
        "torch.randint(below, shape, dtype=dtype, generator=generator)", parameters=("below",), fault=_index_fault
    ),
    # Positive definite: the covariance of an autoregressive series (a Kac-Murdock-Szegő matrix), condition below 9.
    "spd": RecipeKind(
        "(0.5 ** (torch.arange(size)[:, None] - torch.arange(size)).abs()).repeat(batch)",
        parameters=("size",),
        dtype="float32",
        fault=_spd_fault,
    ),
    "values": RecipeKind("torch.tensor(args, dtype=dtype)", variadic=True, flat=True, fault=_values_fault),
}
"""normal and uniform: random, seeded by the input's position; small whole numbers if the dtype has no others.
ties: 0 and 1 in turn. special: -inf, 0, 0.5, -inf, NaN, 1, -0.5, NaN, inf … arange: 0, 1, 2 … trues(k): k nonzero
elements, spread evenly. distinct(k): k different values, in order. sizes(a, b, …): whole numbers that are used as
sizes. index(n): whole numbers from 0 to below n. spd(n): symmetric positive definite matrices of n by n.
values([…]): literal values in row-major order.
"""


def elements(item: Input) -> int:
    """The number of elements of an input."""
    return math.prod(dim.size for dim in item.shape)


def fault_of(item: Input) -> Fault | None:
    """What is wrong with an input, as what was found and what was expected; None if it is well formed."""
    if item.dtype not in ANNOTATIONS:
        return f"the dtype {item.dtype!r}", f"one of {', '.join(ANNOTATIONS)}"
    if any(dim.size < 0 for dim in item.shape):
        return f"a dim of size {min(dim.size for dim in item.shape)}", "sizes from 0"
    # Leave out dims of size 0: strides are computed from the others in any case, and may overflow.
    if (spanned := math.prod(max(dim.size, 1) for dim in item.shape)) > MAX_ELEMENTS:
        return f"an input of {spanned} elements", f"at most {MAX_ELEMENTS}"
    layout = ARRANGED.get(item.layout)
    if layout is None:
        return f"the layout {item.layout!r}", f"one of {', '.join(ARRANGED)}"
    if not layout.fits(len(item.shape)):
        return f"the layout {item.layout!r} of {len(item.shape)} dims", f"{layout.min_rank} to {layout.max_rank} dims"
    if item.requires_grad and item.dtype not in DIFFERENTIABLE:
        return f"grad of {item.dtype}", "a float or complex dtype"
    kind = RECIPES.get(item.recipe.kind)
    if kind is None:
        return f"the recipe {item.recipe.kind!r}", f"one of {', '.join(RECIPES)}"
    if not kind.variadic and len(item.recipe.args) != len(kind.parameters):
        return f"{len(item.recipe.args)} arguments of {item.recipe.kind}", f"{len(kind.parameters)}"
    return kind.fault(item)


@lru_cache(maxsize=4_096)
def input_expression(item: Input, generator: Expr) -> Expr:
    """The expression that makes an input's tensor. `generator` is the expression for its `torch.Generator`."""
    kind = RECIPES[item.recipe.kind]
    is_integral = item.dtype in INTEGERS or item.dtype == "bool"
    shape = Sequence(tuple(Literal(dim.size) for dim in item.shape))
    values: dict[str, Expr] = {
        "shape": shape,
        "batch": Sequence((*shape.items[:-2], Literal(1), Literal(1))),
        "n": Literal(elements(item)),
        "dtype": Constant(f"torch.{item.dtype}"),
        "generator": generator,
        "args": Sequence(tuple(Literal(arg) for arg in item.recipe.args), is_list=True),
        "low": Literal(0 if item.dtype in {"bool", "uint8"} else -4),
        "high": Literal(2 if item.dtype == "bool" else 5),
        **{name: Literal(arg) for name, arg in zip(kind.parameters, item.recipe.args, strict=False)},
    }
    source = kind.integral if kind.integral is not None and is_integral else kind.source
    expr = substitute(_template(source), values)
    if kind.flat and len(item.shape) != 1:
        expr = Call("Tensor.reshape", (expr, shape))
    if kind.dtype not in {None, item.dtype}:
        expr = Call("Tensor.to", (expr, values["dtype"]))
    elif isinstance(expr, Call) and expr.function == "Tensor.reshape":
        expr = Call("Tensor.clone", (expr,))
    reversed_dims = Sequence(tuple(Literal(dim) for dim in reversed(range(len(item.shape)))))
    expr = substitute(_template(ARRANGED[item.layout].source), {"values": expr, "shape": shape, "dims": reversed_dims})
    return Call("Tensor.requires_grad_", (expr,)) if item.requires_grad else expr


@cache
def _template(source: str) -> Expr:
    return parse_expression(source)
