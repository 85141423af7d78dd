"""The torch calls of a user's model, up to the one that fails, as a program of the text form.

The model runs once on fake tensors with its unbacked sizes, while each call of a torch function is recorded. Values
that no recorded call made (arguments, parameters, constants) become inputs. Only the calls that the failing one needs
are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ddefuzz.execute.observe import observe_in
from ddefuzz.execute.preparation import PreparedSubject
from ddefuzz.execute.protocol import CallableSubject, Run
from ddefuzz.execute.stages import STAGE_FUNCTIONS, Capture
from ddefuzz.execute.subject import prepare

READ_ONLY = frozenset({"__get__", "size", "dim", "stride", "numel", "is_floating_point", "__len__", "requires_grad_"})
"""Functions that make no tensor. Their results are ints and symbols, which are written as what they are."""


class _Call(NamedTuple):
    """A recorded call: the variable of its result, its text, and the variables that it reads."""

    target: str
    text: str
    reads: frozenset[str]


class _UnwritableError(Exception):
    """A value that the text form cannot have."""


class CallRecorder(TorchFunctionMode):
    """Records the calls of torch functions as lines of a program."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.names: dict[int, str] = {}
        self.kept: list[Any] = []
        self.inputs: dict[str, torch.Tensor] = {}
        self.failing: _Call | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call it, and write it down."""
        del types
        kwargs = kwargs or {}
        name = _name_of(func)
        if name is None:
            return func(*args, **kwargs)
        call: _Call | None = None
        with suppress(_UnwritableError):
            call = self._written(name, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception:
            if self.failing is None and call is not None:
                self.failing = call
            raise
        if call is not None:
            self._bind(call, result)
        return result

    def _bind(self, call: _Call, result: Any) -> None:
        values = result if isinstance(result, tuple | list) else (result,)
        self.calls.append(call)
        for at, value in enumerate(values):
            if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat):
                self.kept.append(value)
                text = call.target if values is not result else f"{call.target}[{at}]"
                self.names[id(value)] = text
                if isinstance(value, torch.SymInt):
                    self.names.setdefault(hash(str(value.node.expr)), text)

    def _written(self, name: str, args: Any, kwargs: Any) -> _Call:
        reads: set[str] = set()
        texts = [self._value(one, reads) for one in args]
        named = [f"{key}={self._value(one, reads)}" for key, one in kwargs.items() if one is not None]
        if name.startswith("Tensor."):
            method = name.removeprefix("Tensor.")
            text = _operator(method, texts) or f"{texts[0]}.{method}({', '.join([*texts[1:], *named])})"
        else:
            text = f"{name}({', '.join([*texts, *named])})"
        return _Call(f"v{len(self.calls)}", text, frozenset(reads))

    def _value(self, value: Any, reads: set[str]) -> str:
        match value:
            case torch.Tensor():
                name = self.names.get(id(value))
                if name is None:
                    name = f"x{len(self.inputs)}"
                    self.inputs[name] = value
                    self.names[id(value)] = name
                    self.kept.append(value)
                reads.add(name.partition("[")[0])
                return name
            case torch.SymInt():
                return self._size(value.node.expr, reads)
            case bool() | int() | float() | str() | None:
                return repr(value)
            case torch.dtype():
                return str(value)
            case tuple() | list():
                items = ", ".join(self._value(one, reads) for one in value)
                return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
            case slice(start=None, stop=None, step=None):
                return "slice(None)"
            case _ if value is Ellipsis:
                return "..."
        raise _UnwritableError

    def _size(self, expr: Any, reads: set[str]) -> str:
        """A size as an expression over sizes of values that are known, and numbers that were made."""
        if expr.is_Integer:
            return str(int(expr))
        made = self.names.get(hash(str(expr)))
        if made is not None:
            reads.add(made.partition("[")[0])
            return made
        for value in self.kept:
            if isinstance(value, torch.Tensor):
                sizes: tuple[Any, ...] = tuple(value.shape)
                for dim, size in enumerate(sizes):
                    if isinstance(size, torch.SymInt) and size.node.expr == expr:
                        name = self.names[id(value)]
                        reads.add(name.partition("[")[0])
                        return f"{name}.shape[{dim}]"
        operators = {sympy.Add: " + ", sympy.Mul: " * "}
        if type(expr) in operators:
            return f"({operators[type(expr)].join(self._size(one, reads) for one in expr.args)})"
        raise _UnwritableError


def recorded(subject: CallableSubject) -> str:
    """A program, as text, that may show the failure of a model: what the failing call needs. Empty if no call fails."""
    mode = CallRecorder()

    def stage(prepared: PreparedSubject) -> Capture | None:
        def watched(*args: Any, **kwargs: Any) -> Any:
            with mode:
                return prepared.call(*args, **kwargs)

        function: Callable[[PreparedSubject], Capture | None] = STAGE_FUNCTIONS["fake"]
        return function(PreparedSubject(watched, prepared.args, prepared.unbacked, kwargs=prepared.kwargs))

    observe_in(stage, lambda: prepare(subject), Run(subject, "fake"))
    return "" if mode.failing is None else _program(mode, mode.failing)


def _program(mode: CallRecorder, failing: _Call) -> str:
    needed = set(failing.reads)
    lines: list[str] = []
    for call in reversed(mode.calls):
        if call.target in needed:
            lines.insert(0, f"    {call.target} = {call.text}")
            needed |= call.reads
    inputs = {name: value for name, value in mode.inputs.items() if name in needed}
    return "\n".join([*_header(inputs), *lines, f"    return {failing.text}"]) + "\n"


def _header(inputs: dict[str, torch.Tensor]) -> Iterable[str]:
    recipes, parameters = [], []
    for name, value in inputs.items():
        dtype = str(value.dtype).removeprefix("torch.")
        dims = " ".join(str(size) for size in value.shape)
        elements = 1
        for size in value.shape:
            elements *= size if isinstance(size, int) else 4
        recipe = "normal"
        if dtype == "bool" and value.dim() == 1:
            recipe = f"trues({max(1, elements // 2)})"
        elif dtype == "int64":
            recipe = "index(2)"  # these may be indices, which 0 and 1 are in most cases
        recipes.append(f"{name} = {recipe}")
        parameters.append(f'{name}: {dtype.capitalize()}[Tensor, "{dims}"]')
    yield "# ddefuzz program v1"
    yield f"# inputs: {'; '.join(recipes)}"
    yield f"def program({', '.join(parameters)}):"


def _name_of(func: Any) -> str | None:
    """The name of a function in the text form; None for what reads no more than a size or an attribute."""
    name = resolve_name(func)
    if name is None or name.rpartition(".")[2] in READ_ONLY:
        return None
    return str(name).replace("torch.Tensor.", "Tensor.")


def _operator(method: str, texts: list[str]) -> str | None:
    """A method of an operator as the operator."""
    signs = {"add": "+", "sub": "-", "mul": "*", "__getitem__": "[]", "gt": ">", "lt": "<"}
    sign = signs.get(method)
    if sign == "[]":
        return f"{texts[0]}[{texts[1].strip('()').rstrip(',') if texts[1].startswith('(') else texts[1]}]"
    return f"{texts[0]} {sign} {texts[1]}" if sign and len(texts) == 2 else None
