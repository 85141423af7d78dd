"""PyTorch's own sample calls (OpInfo) as ordinary programs: one call each, of about 700 ops.

The function that an entry calls is found by identity. If the entry wraps it (a lambda, or a seed set first), its
calls are watched. Tensors become inputs by recipe: integers and bools keep their values if they are few; other
values become random if eager accepts that. A sample that a program cannot express, or that fails in eager as a
program, is dropped and counted.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache, partial
from inspect import isfunction
from itertools import islice
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy
import torch
from torch.overrides import TorchFunctionMode

from ddefuzz.errors import InputError
from ddefuzz.generate.lockstep import REFUSALS, tolerant_eager
from ddefuzz.instrument import torch_api
from ddefuzz.program.evaluate import materialize, run_steps
from ddefuzz.program.model import (
    Attribute,
    Binary,
    Call,
    Constant,
    Dim,
    Ellipsis_,
    Expr,
    Index,
    Input,
    Literal,
    Name,
    Program,
    Recipe,
    Sequence,
    Slice,
    Step,
    Unary,
)
from ddefuzz.program.recipes import ANNOTATIONS, FLOATS, INTEGERS, fault_of

MAX_EXACT: Final = 64
"""Values that are spelled out; of more, whole numbers are random in the same range."""


class DroppedError(Exception):
    """Why a sample cannot become a program."""


def inputs_like(tensors: list[torch.Tensor]) -> Iterator[tuple[Input, ...]]:
    """Candidates for inputs `x0`, `x1` … in place of tensors, the plainest first. DroppedError if there is none."""
    seen = set()
    for floats in (_normal, _uniform, _definite, _exact):
        made = tuple(_input(f"x{number}", tensor, floats) for number, tensor in enumerate(tensors))
        if made not in seen:
            seen.add(made)
            yield made


def _input(name: str, tensor: torch.Tensor, floats: Callable[[torch.Tensor], Recipe]) -> Input:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ANNOTATIONS:
        raise DroppedError(f"an input of {dtype}")
    shape = tuple(Dim(size) for size in tensor.shape)
    recipe = floats(tensor) if dtype in FLOATS else _whole(tensor, dtype)
    item = Input(name, dtype, shape, recipe, _layout(tensor))
    if (fault := fault_of(item)) is not None:
        raise DroppedError(fault[0])
    return item


def _whole(tensor: torch.Tensor, dtype: str) -> Recipe:
    if dtype not in INTEGERS and dtype != "bool":
        return Recipe("normal")
    if tensor.numel() <= MAX_EXACT:
        return Recipe("values", tuple(tensor.flatten().tolist()))
    if dtype == "bool":
        return Recipe("trues", (int(tensor.sum()),))
    low, high = int(tensor.min()), int(tensor.max())
    return Recipe("index", (high + 1,)) if low >= 0 else Recipe("normal")


def _normal(tensor: torch.Tensor) -> Recipe:
    return Recipe("normal") if tensor.dim() else _exact(tensor)


def _uniform(tensor: torch.Tensor) -> Recipe:
    return Recipe("uniform") if tensor.dim() else _exact(tensor)


def _definite(tensor: torch.Tensor) -> Recipe:
    is_square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] > 0
    return Recipe("spd", (int(tensor.shape[-1]),)) if is_square else _uniform(tensor)


def _exact(tensor: torch.Tensor) -> Recipe:
    values = [round(float(value), 4) for value in tensor.flatten().tolist()] if tensor.numel() <= MAX_EXACT else []
    finite = len(values) == tensor.numel() and all(map(math.isfinite, values))
    return Recipe("values", tuple(values)) if finite else Recipe("uniform")


def _layout(tensor: torch.Tensor) -> str:
    """The layout of `recipes.LAYOUTS` that the tensor has, or contiguous."""
    strides = tensor.stride()
    if tensor.is_contiguous() or not tensor.numel():
        return "contiguous"
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return "channels_last"
    if tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d):
        return "channels_last_3d"
    if tensor.dim() >= 2 and tensor.permute(*reversed(range(tensor.dim()))).is_contiguous():
        return "transposed"
    if strides[0] == 0:
        return "expanded"
    return "sliced" if strides[-1] == 2 else "contiguous"


MAX_STEPS: Final = 4

FOLDERS: Final = ("", "nn.functional", "linalg", "fft", "special", "masked", "sparse", "signal.windows")
"""Where torch keeps its functions: the first that has one names it."""

REVERSED: Final = {
    "__radd__": "+",
    "__rsub__": "-",
    "__rmul__": "*",
    "__rdiv__": "/",
    "__rmod__": "%",
    "__rpow__": "**",
    "__rmatmul__": "@",
    "__rand__": "&",
    "__ror__": "|",
    "__rxor__": "^",
}
"""Methods that are an operator with its operands swapped."""


DTYPES: Final = ("float32", "int64", "bool", "complex64")
"""The first that an op takes is its main one; it may take only wider ones."""


class OpCall(NamedTuple):
    """One call that an entry made: the function's name (or `.T` for an attribute), its arguments and its result."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


@cache
def entries() -> dict[str, Any]:
    """The entries of OpInfo by their full name (`div.floor_rounding`), sorted; needs the package `expecttest`."""
    return {info.full_name: info for info in sorted(torch_api.OP_DB.get(), key=lambda info: str(info.full_name))}


def entry(op: str) -> Any:
    """The entry of this full name; InputError where there is none."""
    if op not in entries():
        raise InputError(f"found the op {op!r}, expected an entry of torch's OpInfo, such as 'chunk'")
    return entries()[op]


def takes(op: str, dtype: str) -> bool:
    """Whether an entry has samples of a dtype on CPU."""
    return bool(entry(op).supports_dtype(getattr(torch, dtype), "cpu"))


def dtypes(op: str) -> tuple[str, ...]:
    """The dtypes of an entry's samples that are tried, the main one first. Empty if it has none on CPU."""
    return tuple(dtype for dtype in (*DTYPES, "float64", "complex128") if takes(op, dtype))


def samples(
    op: str, dtype: str = "float32", dropped: Counter[str] | None = None, most: int | None = None
) -> Iterator[Program]:
    """The samples of an entry that can be programs, in its order, the same at every call. Empty if it lacks the
    dtype.

    `dropped` counts the others by reason. At most the first `most` samples are made: making all of them takes
    longer than anything that is done with one.
    """
    info = entry(op)
    if not takes(op, dtype):
        return
    with torch.random.fork_rng(devices=[]), tolerant_eager():
        _seed()
        listed = _listed(info, dtype, dropped, most)
    for sample in listed:
        try:
            yield _program(info, sample)
        except DroppedError as reason:
            if dropped is not None:
                dropped[str(reason)] += 1


def _seed() -> None:
    torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def _listed(info: Any, dtype: str, dropped: Counter[str] | None, most: int | None) -> list[Any]:
    try:
        # Not `info.sample_inputs`, which looks for a test on the stack (0.04 s) and has it decide the seed.
        return list(islice(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), False), most))
    except Exception as error:  # noqa: BLE001 an entry is upstream's code: that it cannot be listed is counted
        if dropped is not None:
            dropped[f"its samples cannot be made: {type(error).__name__}"] += 1
        return []


def _program(info: Any, sample: Any) -> Program:
    with torch.random.fork_rng(devices=[]), tolerant_eager():
        calls = _calls(info, (sample.input, *sample.args), dict(sample.kwargs))
    tensors: dict[int, torch.Tensor] = {}
    names: dict[int, Expr] = {}

    def written(value: Any) -> Expr:
        if isinstance(value, torch.Tensor) and id(value) not in names:
            if value.layout != torch.strided:
                raise DroppedError("a sparse input")
            names[id(value)] = Name(f"x{len(tensors)}")
            tensors[id(value)] = value
        return _written(value, names, written)

    steps = []
    for number, made in enumerate(calls):
        steps.append(Step((f"t{number}",), _call(made, written)))
        _name_results(made.result, Name(f"t{number}"), names)
    returns = Name(f"t{len(steps) - 1}")
    for inputs in inputs_like(list(tensors.values())):
        program = Program(inputs, tuple(steps), returns)
        if accepts(program):
            return program
    raise DroppedError("eager fails with other values")


def accepts(program: Program) -> bool:
    """Whether the program runs in eager."""
    try:
        with torch.random.fork_rng(devices=[]), tolerant_eager():
            run_steps(program, materialize(program))
    except (*REFUSALS, NotImplementedError, MemoryError):
        return False
    return True


# What an entry calls


class _Watch(TorchFunctionMode):
    """Records the outermost calls of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[OpCall] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.note(func, args, kwargs or {})

    def call(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function as torch would call it through this mode."""
        with torch_api.bound(torch_api.NO_TORCH_FUNCTION)():
            return self.note(func, args, kwargs)

    def note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call, and keep what was called and its result."""
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor | list | tuple):  # not queries such as that of the device
            self.calls.append(OpCall(name_of(func) or f"?{func}", args, kwargs, result))
        return result


def _calls(info: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[OpCall]:
    """What the entry calls with these arguments. The results are kept alive, so that no two have the same id."""
    name = name_of(info.op)
    if name is not None:
        return [OpCall(name, args, kwargs, None)]
    watch = _Watch()
    # Of a Python function that tensors cannot override only inner calls are seen. So `watch.call` replaces it.
    own = getattr(torch, info.name, None)
    stand_in = patch.object(torch, info.name, partial(watch.call, own)) if isfunction(own) else nullcontext()
    try:
        with watch, stand_in:
            info.op(*args, **kwargs)
    except Exception as error:
        raise DroppedError(f"eager fails: {type(error).__name__}") from error
    unknown = [made.function for made in watch.calls if made.function.startswith("?")]
    if unknown or not 1 <= len(watch.calls) <= MAX_STEPS:
        raise DroppedError(f"calls what has no name: {unknown[0][1:60]}" if unknown else f"{len(watch.calls)} calls")
    return watch.calls


@cache
def _names() -> dict[Any, str]:
    """Every function of torch and method of its tensors, by itself."""
    named: dict[Any, str] = {}
    for folder in FOLDERS:
        owner = torch
        for part in filter(None, folder.split(".")):
            owner = getattr(owner, part)
        prefix = f"torch.{folder}." if folder else "torch."
        public = [name for name in dir(owner) if not name.startswith("__") and (not folder or name[0] != "_")]
        _add(named, owner, public, prefix)
    _add(named, torch.Tensor, dir(torch.Tensor), "Tensor.")
    return named


def _add(named: dict[Any, str], owner: Any, names: list[str], prefix: str) -> None:
    for name in names:
        value = getattr(owner, name, None)
        if callable(value) and not isinstance(value, type) and value.__hash__ is not None:
            named.setdefault(value, prefix + name)


def name_of(function: Any) -> str | None:
    """The catalogue's name of a torch function, `.T` for the getter of an attribute, None if it has no name."""
    if isinstance(function, (torch_api.OVERLOAD_PACKET.get(), torch_api.OVERLOAD.get())):
        return f"torch.ops.{function}"
    if getattr(function, "__name__", "") == "__get__":
        return f".{function.__self__.__name__}"
    try:
        return _names().get(function)
    except TypeError:
        return None


# Writing it down


def _call(made: OpCall, written: Callable[[Any], Expr]) -> Expr:
    method = made.function.removeprefix("Tensor.")
    args = made.args
    if made.function.startswith("."):
        return Attribute(written(args[0]), made.function[1:])
    if method in REVERSED:
        return Binary(REVERSED[method], written(args[1]), written(args[0]))
    if method == "__getitem__":
        return Index(written(args[0]), _index(args[1], written))
    if method.startswith("__"):
        raise DroppedError(f"calls {method}")
    kwargs = tuple((name, written(value)) for name, value in made.kwargs.items())
    return Call(made.function, tuple(map(written, args)), kwargs)


def _index(index: Any, written: Callable[[Any], Expr]) -> Expr:
    match index:
        case slice():
            bounds = (index.start, index.stop, index.step)
            return Slice(*(None if bound is None else written(bound) for bound in bounds))
        case tuple():
            return Sequence(tuple(_index(item, written) for item in index))
        case _ if index is ...:
            return Ellipsis_()
        case _:
            return written(index)


def _written(value: Any, names: dict[int, Expr], inner: Callable[[Any], Expr]) -> Expr:
    match value:
        case torch.Tensor():
            return names[id(value)]
        case bool() | None | str():
            return Literal(value)
        case int() | float() | complex():
            return _number(value)
        case numpy.generic():
            return inner(value.item())
        case torch.device():
            return Literal(str(value))
        case torch.dtype() | torch.memory_format() | torch.layout():
            return Constant(str(value))
        case list() | tuple():
            return Sequence(tuple(map(inner, value)), isinstance(value, list))
        case _:
            raise DroppedError(f"an argument of {type(value).__name__}")


def _number(value: Any) -> Expr:
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise DroppedError("an int beyond 64 bits")
        return Literal(value)
    if isinstance(value, complex):
        if not (math.isfinite(value.real) and math.isfinite(value.imag)):
            raise DroppedError("a complex number that is not finite")
        return Literal(complex(value))
    if math.isnan(value):
        return Constant("torch.nan")
    if math.isinf(value):
        return Constant("torch.inf") if value > 0 else Unary("-", Constant("torch.inf"))
    return Literal(float(value))


def _name_results(result: Any, expr: Expr, names: dict[int, Expr]) -> None:
    if isinstance(result, torch.Tensor):
        names[id(result)] = expr
    elif isinstance(result, list | tuple):
        for number, part in enumerate(result):
            _name_results(part, Index(expr, Literal(number)), names)
