"""Checks of the real kernel against its schema, its autograd formula and its vmap rule."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from ddefuzz.custom_ops.arguments import Arguments, Call, Inputs, argument_text
from ddefuzz.custom_ops.gradient import check_gradient
from ddefuzz.custom_ops.log import KernelRefusalError, Log, frames_of, is_equal, leaves_of, line_of
from ddefuzz.custom_ops.out_overloads import check_out
from ddefuzz.custom_ops.variants import LAYOUTS, PLAIN, Variant, variants_of
from ddefuzz.execute.metas import shares_memory
from ddefuzz.instrument import torch_api

BATCH: Final = 3  # calls that a vmap rule is compared with


def check_real(log: Log, inputs: Inputs, seed: int) -> None:
    """All checks of the real kernel at some sizes."""
    is_random = _is_random(log, inputs)
    if is_random:
        log.notes["two calls with the same arguments differ: no values are compared"] = None
    base = inputs.at(inputs.example)
    variants = () if base is None else variants_of(inputs, base, log.op.schema)
    cases = [(PLAIN, sizes) for sizes in inputs.few(seed)] + [(variant, inputs.example) for variant in variants]
    for variant, sizes in cases:
        call = variant.call(inputs, sizes)
        if call is None or not log.takes(call):
            continue
        if log.is_over and (variant, sizes) != cases[0]:
            break
        try:
            _check_case(log, inputs, variant, call, is_random=is_random)
        except KernelRefusalError as error:
            log.notes[f"a call that the real kernel took raises the next time: {error}"] = None


def _check_case(log: Log, inputs: Inputs, variant: Variant, call: Call, *, is_random: bool) -> None:
    """The checks of one call. Raises KernelRefusalError if the real kernel raises although it has taken the call."""
    if log.only_out:
        check_out(log, call)
        return
    _check_memory(log, call)
    if is_random:
        for name in ("values", "gradient", "vmap", "out"):
            log.skipped[name] = "the op is random"
    elif variant.layout != LAYOUTS[0]:
        _check_values(log, inputs, call)
    elif variant is PLAIN or variant.option is not None:
        check_gradient(log, call)
        _check_vmap(log, call)
        check_out(log, call)


def _is_random(log: Log, inputs: Inputs) -> bool:
    given = inputs.at(inputs.example)
    if given is None:
        return False
    try:
        with torch.no_grad():
            first, second = (leaves_of(log.op.call(given.copied())) for _ in range(2))
    except KernelRefusalError:
        return True
    return any(not is_equal(*pair) for pair in zip(first, second, strict=False))


class _State(NamedTuple):
    """A tensor before a call."""

    memory: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def _state(tensor: torch.Tensor) -> _State:
    memory = torch.empty(tensor.untyped_storage().nbytes(), dtype=torch.uint8)
    memory.untyped_storage().copy_(tensor.untyped_storage())
    return _State(memory, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


def _is_same(before: _State, after: _State) -> bool:
    return torch.equal(before.memory, after.memory) and before[1:] == after[1:]


def _check_values(log: Log, inputs: Inputs, call: Call) -> None:
    """Whether arguments in another layout give the same values."""
    plain = inputs.at(inputs.example)
    if plain is None:
        return
    log.tried["values"] += 1
    with torch.no_grad():
        expected, results = (leaves_of(log.op.call(one.copied())) for one in (plain, call.given))
    for place, (value, wanted) in enumerate(zip(results, expected, strict=False)):
        if not is_equal(value, wanted, _tolerance(wanted)):
            name = f"result[{place}]" if len(expected) > 1 else "result"
            log.wrong("values", name, f"{name} differs from that of arguments as given", call)


def _tolerance(value: Any) -> float:
    is_short = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype.itemsize < 4
    return 2e-2 if is_short else 1e-4


def _check_memory(log: Log, call: Call) -> None:
    """What the kernel writes to, and what its results share memory with."""
    if log.op.is_composite:
        for name in ("mutation", "aliasing"):
            log.skipped[name] = "the op consists of other ops (CompositeImplicitAutograd), whose schemas count"
        return
    copy = call.given.copied()
    leaves, names, parameters = copy.leaves, copy.named(log.op.parameters), log.op.parameter_of(copy)
    places = [
        place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided
    ]
    before = {place: _state(leaves[place]) for place in places}
    with torch.no_grad():
        result = log.op.call(copy)
    log.tried["mutation"] += 1
    for place in places:
        alias = getattr(parameters[place], "alias_info", None)
        if not _is_same(before[place], _state(leaves[place])) and not (alias is not None and alias.is_write):
            same = before[place][1:] == _state(leaves[place])[1:]
            what = "values" if same else "sizes or strides"
            why = f"the real kernel changes the {what} of {names[place]}, and the schema does not declare it"
            log.wrong("mutation", names[place], why, call)
    log.tried["aliasing"] += 1
    _check_aliases(log, call, result, [(leaves[at], names[at], parameters[at]) for at in places])


def _check_aliases(log: Log, call: Call, result: Any, arguments: list[tuple[torch.Tensor, str, Any]]) -> None:
    returned = result if isinstance(result, tuple) and len(log.op.schema.returns) > 1 else (result,)
    parts: list[tuple[str, torch.Tensor, frozenset[str]]] = []
    for at, (value, declared_as) in enumerate(zip(returned, log.op.schema.returns, strict=False)):
        sets = frozenset() if declared_as.alias_info is None else frozenset(declared_as.alias_info.before_set)
        name = "result" if len(returned) == 1 else f"result[{at}]"
        inner = value if isinstance(value, (list, tuple)) else (value,)
        parts += [
            (name if len(inner) == 1 else f"{name}[{place}]", one, sets)
            for place, one in enumerate(inner)
            if isinstance(one, torch.Tensor) and one.numel()
        ]
    for name, tensor, sets in parts:
        for argument, called, parameter in arguments:
            alias = getattr(parameter, "alias_info", None)
            declared = alias is not None and (sets & frozenset(alias.before_set) or "*" in alias.after_set)
            if not declared and argument.numel() and shares_memory(tensor, [argument]):
                why = f"{name} shares memory with {called}, and the schema does not declare it"
                log.wrong("aliasing", name, why, call)
    for at, (name, tensor, sets) in enumerate(parts):
        for other, another, others in parts[:at]:
            if not sets & others and shares_memory(tensor, [another]):
                log.wrong("aliasing", name, f"{name} shares memory with {other}", call)


def _check_vmap(log: Log, call: Call) -> None:
    """A registered rule, for each tensor alone and all together, batched at the first and at the last dim."""
    key = torch_api.DISPATCH_KEY.get().FuncTorchBatched
    if not log.op.op.has_kernel_for_dispatch_key(key):
        log.skipped["vmap"] = "the op has no vmap rule"
        return
    direct = [place for place, one in enumerate(call.given.args) if isinstance(one, torch.Tensor)]
    if log.op.schema.is_mutable or len(direct) != len(call.given.tensors):
        log.skipped["vmap"] = "tensors in lists, or written to, are not batched here"
        return
    for places in [direct, *([place] for place in direct if len(direct) > 1)]:
        for dim in (0, -1):
            log.tried["vmap"] += 1
            _compare_vmap(log, call, tuple(places), dim)


def _compare_vmap(log: Log, call: Call, places: tuple[int, ...], dim: int) -> None:
    rows = [
        [one.roll(at) if place in places and one.dim() else one for place, one in enumerate(call.given.args)]
        for at in range(BATCH)
    ]
    try:
        with torch.no_grad():
            expected = [leaves_of(log.op.call(Arguments(tuple(row), call.given.kwargs).copied())) for row in rows]
    except Exception:  # noqa: BLE001 the real kernel refuses other values
        return
    if not all(isinstance(one, torch.Tensor) for row in expected for one in row):
        log.skipped["vmap"] = "the op returns what is no tensor"
        log.tried["vmap"] = 0
        return
    stacked = tuple(
        torch.stack([row[place] for row in rows], dim) if place in places else one
        for place, one in enumerate(call.given.args)
    )
    in_dims = tuple(dim if place in places else None for place in range(len(call.given.args)))
    names = ", ".join(log.op.parameters[place] for place in places)
    where = f"{names} at dim {dim}"
    try:
        with torch.no_grad():
            batched = leaves_of(torch.vmap(lambda *args: log.op.op(*args, **call.given.kwargs), in_dims)(*stacked))
    except Exception as error:  # noqa: BLE001 of the rule
        if "output dim" not in str(error) and "data-dependent" in str(error):
            return
        why = f"vmap raises {line_of(error)} with {where}"
        log.wrong("vmap", names, why, call, frames=frames_of(error))
        return
    for at, value in enumerate(batched):
        wanted = [row[at] for row in expected]
        if not all(isinstance(one, torch.Tensor) and one.shape == wanted[0].shape for one in wanted):
            return
        whole = torch.stack(wanted)
        if not isinstance(value, torch.Tensor) or not is_equal(value, whole, 1e-4):
            why = f"vmap with {where} differs from {BATCH} calls one after the other"
            log.wrong("vmap", names, why, call, fake=argument_text(value), real=argument_text(whole))
            return
