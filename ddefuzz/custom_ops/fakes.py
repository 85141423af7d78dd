"""Checks of the fake kernel: what it says of a result, with unbacked and with ordinary sizes, and what the real kernel
returns at these sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch

from ddefuzz.custom_ops.arguments import (
    Arguments,
    Call,
    Fakes,
    Inputs,
    Sizes,
    argument_text,
    fakes_of,
    is_common_float,
)
from ddefuzz.custom_ops.log import (
    KernelRefusalError,
    Log,
    frames_of,
    is_unsupported,
    is_without_formula,
    leaves_of,
    line_of,
)
from ddefuzz.custom_ops.model import CheckName
from ddefuzz.custom_ops.variants import PLAIN, Variant, variants_of
from ddefuzz.errors import InputError
from ddefuzz.execute.metas import bind, matches, number, tensors, unlike
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.events import Frame
from ddefuzz.instrument.guards import watch
from ddefuzz.instrument.recorder import Recorder

CHECK_OF: Final[Mapping[str, CheckName]] = {
    "dtype": "dtype",
    "structure": "structure",
    "shape": "sizes",
    "number": "sizes",
    "strides": "layout",
    "alias": "aliasing",
}

NOT_USERS: Final = ("torch/", "ddefuzz/", "typing_extensions.py")


def check_fakes(log: Log, inputs: Inputs, seed: int) -> None:
    """Compare the fake kernel with the real one. Raises InputError if the op has no fake kernel."""
    base = inputs.at(inputs.example)
    if base is None:
        raise InputError(f"{inputs.title}: found arguments that are too large, expected fewer elements")
    for variant in (PLAIN, *variants_of(inputs, base, log.op.schema)):
        if variant is not PLAIN and log.is_over:
            return
        call = variant.call(inputs, inputs.example)
        if call is not None and log.takes(call):
            _check_variant(log, inputs, variant, call._replace(sizes=None), seed)


def _check_variant(log: Log, inputs: Inputs, variant: Variant, base: Call, seed: int) -> None:
    plain = variant is PLAIN
    if not variant.is_layout and _refuses(log, base.given):
        log.notes[f"the fake kernel refuses {variant}, the real kernel does not"] = None
        return
    symbolic = _symbolic(log, inputs, variant, base) if inputs.symbols or not plain else None
    if plain and not log.calls:
        log.warm()
    if plain and base.given.tensors:
        _symbolic_backward(log, inputs, base)
    for place, sizes in enumerate(inputs.sizes(seed) if plain else inputs.few(seed)):
        if place and log.is_over:
            return
        call = variant.call(inputs, sizes)
        real = None if call is None else _real(log, call.given)
        if call is None or real is None:
            continue
        _check_static(log, call, *real)
        is_fixed = all(sizes[name] == inputs.example[name] for name in inputs.static)
        if symbolic is not None and is_fixed:
            symbolic.check(log, call, sizes, *real)


def _refuses(log: Log, given: Arguments) -> bool:
    """Whether the fake kernel raises with ordinary sizes, and not because data decides a size."""
    try:
        _static_call(log, given)
    except Exception as error:  # noqa: BLE001 of the fake kernel
        return not _is_data(error) and not is_unsupported(error)
    return False


def _real(log: Log, given: Arguments) -> tuple[Any, Arguments] | None:
    """The real result, and the arguments that it was made of, as they are afterwards. None if the kernel refuses."""
    log.calls += 1
    copy = given.copied()
    try:
        with torch.no_grad():
            return log.op.call(copy), copy
    except KernelRefusalError:
        log.refused += 1
        return None


def _fake_call(log: Log, given: Arguments, mode: Any) -> Any:
    with mode, torch_api.bound(torch_api.PYTHON_DISPATCHER)(), torch.no_grad():
        return log.op.op(*given.args, **given.kwargs)


def _static_call(log: Log, given: Arguments) -> tuple[Any, Arguments]:
    """The fake result with ordinary sizes, and the fake arguments."""
    mode = torch_api.bound(torch_api.FAKE_MODE)()
    fakes = given.copied().with_tensors(mode.from_tensor)
    return _fake_call(log, fakes, mode), fakes


def _check_static(log: Log, call: Call, result: Any, made_of: Arguments) -> None:
    """The fake kernel with ordinary sizes."""
    log.tried["accepts"] += 1
    try:
        claim, fakes = _static_call(log, call.given)
    except Exception as error:  # noqa: BLE001 of the fake kernel
        if is_unsupported(error):
            raise _without_kernel(log) from None
        if _is_data(error):
            return  # an output whose size is data needs symbols
        why = f"the fake kernel raises {line_of(error)}; the real kernel does not"
        log.wrong("accepts", "", why, call, frames=frames_of(error))
        return
    log.is_compared = True
    for place, expected, value in _parts(claim, result, "result"):
        if isinstance(expected, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in expected.shape):
            why = f"the fake kernel gives sizes of an earlier call: {tuple(expected.shape)}"
            log.wrong("sizes", place, why, call, fake=str(tuple(expected.shape)), real=argument_text(value))
            return
    _compare(log, call, (claim, result), (fakes, made_of), {}, ())


def _without_kernel(log: Log) -> InputError:
    return InputError(f"{log.op.name}: found an op without a fake kernel, expected one (torch.library.register_fake)")


def _is_data(error: BaseException) -> bool:
    """Whether a fake kernel cannot run without symbols, because data decides a size."""
    kinds = tuple(one.get() for one in torch_api.OUTPUT_ERRORS[:2])
    return isinstance(error, kinds) or "new_dynamic_size" in str(error) or "data-dependent" in str(error)


class Symbolic(NamedTuple):
    """What the fake kernel says with unbacked sizes."""

    fakes: Fakes
    claim: Any
    recorder: Recorder

    def check(self, log: Log, call: Call, sizes: Sizes, result: Any, made_of: Arguments) -> None:
        """Compare it with the real result at some sizes."""
        known = {symbol: sizes[name] for symbol, name in self.fakes.names.items()}
        leaves = call.given.leaves
        known |= {symbol: leaves[place].shape[dim] for symbol, (place, dim) in self.fakes.dims.items()}
        bind(self.claim, result, known)
        guards = self.recorder.guards()
        frames = tuple(
            Frame(one.place.file, one.place.line, one.method, f"{one.method}({one.expression}) is {one.fallback}")
            for one in guards[:4]
        )
        _compare(log, call, (self.claim, result), (self.fakes.arguments, made_of), known, frames)
        self._check_bounds(log, call, known)

    def _check_bounds(self, log: Log, call: Call, known: Mapping[str, int]) -> None:
        env, names = self.fakes.env, self.fakes.names
        log.tried["accepts"] += 1
        values = {symbol: known[str(symbol)] for symbol in env.var_to_range if str(symbol) in known}
        claims: list[tuple[str, Any]] = []
        for symbol, value in values.items():
            bounds = env.var_to_range[symbol]
            claims += [(f"{symbol} >= {bounds.lower}", bounds.lower <= value)]
            claims += [(f"{symbol} <= {bounds.upper}", value <= bounds.upper)]
        for symbol, target in env.replacements.items():
            if symbol in values and target.free_symbols <= values.keys():
                claims.append((f"{symbol} == {target}", target.xreplace(values) == values[symbol]))
        for listed in env.deferred_runtime_asserts.values():
            claims += [
                (str(one.expr), one.expr.xreplace(values)) for one in listed if one.expr.free_symbols <= values.keys()
            ]
        for text, holds in claims:
            if not bool(holds):
                symbols = [symbol for symbol in values if re.search(rf"\b{symbol}\b", text)]
                where = "" if any(str(symbol) in names for symbol in symbols) else "a dynamic size"
                real = ", ".join(f"{names.get(str(symbol), symbol)} = {values[symbol]}" for symbol in symbols)
                why = f"the fake kernel says {_with_names(text, names)}; in this call of the real kernel, {real}"
                log.wrong("accepts", where, why, call, frames=self._frames(text))

    def _frames(self, text: str) -> tuple[Frame, ...]:
        """The line of the user's code that made a bound or an assertion."""
        made = self.recorder.constraints(lambda _text, _message: True)
        stacks = (one.python for one in made if one.text == text)
        users = ([frame for frame in stack if not frame.file.startswith(NOT_USERS)] for stack in stacks)
        return tuple(stack[-1] for stack in users if stack)[:1]


def _with_names(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\bu\d+\b", lambda match: names.get(match[0], match[0]), text)


def _symbolic(log: Log, inputs: Inputs, variant: Variant, base: Call) -> Symbolic | None:
    """Run the fake kernel with unbacked sizes. None if it does not run; that is noted as a problem."""
    log.tried["runs"] += 1
    fakes = _fakes(log, inputs, variant, base.given)
    if fakes is None:
        return None
    try:
        with watch() as recorder:
            claim = _fake_call(log, fakes.arguments, fakes.mode)
    except Exception as error:  # noqa: BLE001 of the fake kernel
        if is_unsupported(error):
            raise _without_kernel(log) from None
        why = f"the fake kernel raises {_with_names(line_of(error), fakes.names)}"
        log.wrong("runs", "", why, base, frames=frames_of(error))
        return None
    return Symbolic(fakes, claim, recorder)


def _fakes(log: Log, inputs: Inputs, variant: Variant, base: Arguments) -> Fakes | None:
    """The fake arguments of a variant. The layout is that of `base`."""
    parameters = log.op.parameter_of(base)

    def takes_symint(place: int) -> bool:
        parameter = parameters[place]
        if parameter is None or _is_symint(parameter.real_type):
            return True
        log.notes[f"{parameter.name} is {parameter.real_type} in the schema: no size can be passed there"] = None
        return False

    plain = inputs.at(inputs.example)
    if plain is None:
        return None
    fakes = fakes_of(inputs, plain, takes_symint)
    with fakes.mode:
        changed = fakes.arguments if variant.values else variant.of(fakes.arguments)
    return None if changed is None else fakes._replace(arguments=changed)


def _is_symint(kind: Any) -> bool:
    """Whether a type of a schema is SymInt, or a list of it. Both print as `int`."""
    if kind.kind() in ("ListType", "OptionalType"):
        return _is_symint(kind.getElementType())
    return bool(kind.kind() == "SymIntType")


def _symbolic_backward(log: Log, inputs: Inputs, base: Call) -> None:
    """Run the backward on fake tensors with unbacked sizes."""
    floats = [tensor for tensor in base.given.tensors if is_common_float(tensor)]
    if not log.wants("gradient") or not floats or not inputs.symbols or log.op.schema.is_mutable:
        return
    if not log.op.has_autograd:
        return
    fakes = _fakes(log, inputs, PLAIN, base.given)
    if fakes is None:
        return
    given = fakes.arguments.with_tensors(lambda one: one.requires_grad_() if is_common_float(one) else one)
    try:
        with fakes.mode, torch_api.bound(torch_api.PYTHON_DISPATCHER)():
            result = log.op.op(*given.args, **given.kwargs)
    except Exception:  # noqa: BLE001 the forward is another check
        return
    parts = [one for one in leaves_of(result) if isinstance(one, torch.Tensor) and one.requires_grad]
    parts = [one for one in parts if one.is_floating_point()]
    if not parts:
        return
    try:
        with fakes.mode, torch_api.bound(torch_api.PYTHON_DISPATCHER)():
            total: Any = sum(one.sum() for one in parts)
            wanted = [one for one in given.tensors if one.requires_grad]
            torch.autograd.grad(total, wanted, allow_unused=True)
    except Exception as error:  # noqa: BLE001 of the formula
        if not is_without_formula(error):
            why = f"the backward raises with unbacked sizes: {_with_names(line_of(error), fakes.names)}"
            log.wrong("runs", "backward", why, base, frames=frames_of(error))


def _compare(
    log: Log,
    call: Call,
    results: tuple[Any, Any],
    arguments: tuple[Arguments, Arguments],
    known: Mapping[str, int],
    frames: tuple[Frame, ...],
) -> None:
    """Note what the fake kernel says wrongly of a result. Results and arguments are fake and real, after the call."""
    fakes, made_of = arguments
    for check in ("structure", "sizes", "layout", "dtype"):
        log.tried[check] += 1
    pairs = list(tensors((fakes.args, fakes.kwargs), (made_of.args, made_of.kwargs)))
    one_op = not log.op.is_composite
    _compare_arguments(log, call, fakes, made_of, known)
    for place, expected, value in _parts(*results, "result"):
        found_in: list[tuple[CheckName, str]] = []
        if _kind(expected) != _kind(value):
            found_in.append(("structure", f"the fake kernel gives {_kind(expected)}, the real one {_kind(value)}"))
        else:
            listed = unlike(expected, value, pairs, known, one_op)
            found_in += [(CHECK_OF[one.what], _words(one.what, one.how)) for one in listed]
        for check, why in found_in:
            if not known:
                log.ordinary.add((check, place))
            elif (check, place) in log.ordinary:
                continue
            only = "with unbacked sizes, " if known and log.is_compared else ""
            shown = _fake_text(expected, known)
            of_guards = frames if only and check in ("structure", "sizes", "layout") else ()
            log.wrong(check, place, only + why, call, fake=shown, real=argument_text(value), frames=of_guards)


def _compare_arguments(log: Log, call: Call, fakes: Arguments, made_of: Arguments, known: Mapping[str, int]) -> None:
    """Note arguments to which the real kernel gives other sizes, and the fake kernel does not."""
    if not log.op.schema.is_mutable:
        return
    for name, claim, value in zip(made_of.named(log.op.parameters), fakes.leaves, made_of.leaves, strict=True):
        if isinstance(claim, torch.Tensor) and isinstance(value, torch.Tensor):
            shape = [number(size, known) for size in claim.shape]
            if len(shape) != value.dim() or not matches(shape, value.shape):
                why = f"after the call {name} has the sizes {tuple(value.shape)}, {tuple(shape)} after the fake kernel"
                log.wrong("mutation", name, why, call)


def _words(what: str, how: str) -> str:
    if what == "alias":
        return f"the fake result {how.replace(', the value', ', the real one')} of an argument"
    return f"the fake kernel says {how.replace(', the value', ', the real result')}"


def _parts(claim: Any, value: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(claim, (list, tuple)) and isinstance(value, (list, tuple)) and len(claim) == len(value):
        for at, pair in enumerate(zip(claim, value, strict=True)):
            yield from _parts(*pair, f"{place}[{at}]")
    else:
        yield place, claim, value


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dim()} dims"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)} items"
    if isinstance(value, (bool, torch.SymBool)):
        return "a bool"
    if isinstance(value, (int, torch.SymInt)):
        return "an int"
    if isinstance(value, (float, torch.SymFloat)):
        return "a float"
    return "None" if value is None else type(value).__name__


def _fake_text(value: Any, known: Mapping[str, int]) -> str:
    """A fake result with its symbols, and with numbers."""
    if not isinstance(value, torch.Tensor) or not known:
        return argument_text(value)
    numbers = ", ".join(str(number(size, known)) for size in value.shape)
    symbols = ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}[{symbols}]" + (f" = [{numbers}]" if numbers != symbols else "")
