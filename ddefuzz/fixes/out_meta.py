"""The change for an `out=` overload that has no meta function in Python, although its op has one.

A structured kernel's meta function in C++ gives its sizes as int64_t (ATen/TensorMeta.h), so it asks an unbacked size
for its value. torch registers functions of Python in its place (torch/_meta_registrations.py). With `out_wrapper` a
function serves `out=`, too, as that of `aten.mode` does:

    @register_meta([aten.mode.default, aten.mode.values])
    @out_wrapper("values", "indices")

A structured kernel refuses an `out` of another dtype, so `exact_dtype=True` is added.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from ddefuzz.answers.patch import Patch, Source, source_of
from ddefuzz.fixes.native import STRUCTURED
from ddefuzz.instrument.events import RaisedError

FORM: Final = "a meta function for out="
FILE: Final = "torch/_meta_registrations.py"


def with_out(raised: RaisedError) -> Iterator[Patch]:
    """The change, if the error was raised in the meta function of such a kernel."""
    frames = (STRUCTURED.search(frame.function) for frame in raised.native)
    names = {found[1] for found in frames if found is not None}
    source = source_of(FILE) if names else None
    if source is not None:
        for name in sorted(names):
            yield from in_source(source, name)


def in_source(source: Source, name: str) -> Iterator[Patch]:
    """The text of the file in which the meta function of an op serves its `out=` overloads, too."""
    for function in ast.walk(source.tree):
        if isinstance(function, ast.FunctionDef) and len(function.decorator_list) == 1:
            match decorator := function.decorator_list[0]:
                case ast.Call(ast.Name("register_meta"), [ast.List(overloads)]):
                    yield from _registered(source, decorator, overloads, name)
                case ast.Call(ast.Name("register_meta"), [ast.Attribute() as overload]):
                    yield from _registered(source, decorator, [overload], name)


def _registered(source: Source, decorator: ast.expr, overloads: list[ast.expr], name: str) -> Iterator[Patch]:
    written = [source.of(overload) for overload in overloads]
    if name not in {kernel for text in written for kernel in _kernels(text)}:
        return
    served = [(out, arguments) for text in written for out, arguments in _out_overloads(text)]
    names = {arguments for _, arguments in served}
    if len(names) == 1 and not {out for out, _ in served} & {*written}:
        every = [*written, *(out for out, _ in served)]
        one_line = f"register_meta([{', '.join(every)}])"
        lines = "".join(f"        {one},\n" for one in every)
        register = one_line if len(one_line) < 88 else f"register_meta(\n    [\n{lines}    ]\n)"
        (arguments,) = names
        names_of = () if arguments == ("out",) else tuple(f'"{one}"' for one in arguments)
        wrapper = f"out_wrapper({', '.join([*names_of, 'exact_dtype=True'])})"  # a structured kernel casts nothing
        code = f"{register}\n@{wrapper}"
        text = source.of(decorator)
        yield Patch(FORM, FILE, f"@{register} @{wrapper}", source.text, source.text.replace(text, code, 1))


def _kernels(text: str) -> tuple[str, ...]:
    """The names that the structured kernel of an overload may have."""
    _, op, overload, *_ = [*text.split("."), "", ""]
    return (op, f"{op}_{overload}")


def _out_overloads(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The `out=` overloads with the other parameters of `text` (`aten.topk.default`), and what they write."""
    import torch  # noqa: PLC0415 a list of fixes must not import it

    parts = text.split(".")
    packet = getattr(torch.ops.aten, parts[1], None) if parts[0] == "aten" and len(parts) == 3 else None
    given = getattr(packet, parts[2], None)
    if packet is None or given is None:
        return
    for name in packet.overloads():
        other = getattr(packet, name)
        outs = tuple(one.name for one in other._schema.arguments if one.is_out)
        if outs and _parameters(other, outs) == _parameters(given, ()):
            yield f"aten.{parts[1]}.{name}", outs


def _parameters(overload: Any, outs: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one.name, str(one.real_type)) for one in overload._schema.arguments if one.name not in outs]
