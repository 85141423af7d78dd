"""Call what a stage captured, and eager with the same inputs, at stated data sizes, and say in what the results differ.

Every call gets new inputs, the same for both, and the same seeds. What was captured is only called here: hooks are not
installed, and nothing of torch leaves this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from ddefuzz.execute import journal
from ddefuzz.execute.comparison import close, comparable, floats, gradients_of, strides
from ddefuzz.execute.graphs import ASSERTION, GraphRun, input_symbols, run_nodes
from ddefuzz.execute.preparation import PreparedSubject, leaves_of
from ddefuzz.execute.protocol import (
    EXPANDED,
    ONLY_IN_EAGER,
    Call,
    CallEnd,
    Difference,
    Form,
    ProgramSubject,
    Subject,
    What,
    condition_of,
    differs,
    is_accepted,
)
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import error_line, prepare
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.sizes import CallSize, at_data_size, masked_at_size
from ddefuzz.program.text import print_program

MOST_DIFFERENCES = 5  # differences that are kept of a call

_GUARD = re.compile(r"Guard failed: (.+)")
"""What an exported program says of inputs that do not fit (torch/export/_unlift.py)."""

_SIZE = re.compile(r"\b(?:args_(\d+)|\w+)\.size\(\)\[(\d+)\]")  # a size of an argument in such a guard
ROUNDED: frozenset[What] = frozenset({"values", "number", "gradient"})  # differences that may be of rounding alone

SMALL_FLOATS = frozenset({"float16", "bfloat16", "float32"})


class _Result(NamedTuple):
    """What one side of a call did. `value`, `inputs` and `gradients` belong to a call that returned.

    `draws` says whether it drew random numbers.
    """

    ended: CallEnd
    value: Any = None
    inputs: tuple[Any, ...] = ()
    gradients: tuple[Any, ...] = ()
    draws: bool = False


def exercise(
    subject: Subject,
    capture: Capture,
    sizes: tuple[CallSize, ...],
    forms: tuple[Form, ...] = (),
    *,
    constrained: bool = True,
) -> tuple[Call, ...]:
    """Call eager and the captured program at each of the sizes; once where two names lead to the same inputs.

    `forms` have the assertions that a refusal may come from. If the capture is `constrained`, calls that return are
    examined too, for the values of its symbols.
    """
    places: dict[tuple[Subject, tuple[tuple[str, int], ...]], list[_At]] = {}
    for size in sizes:
        at = _at(subject, size, static_dims=capture.static_dims)
        if at is not None:
            places.setdefault((at.subject, tuple(sorted(at.kept.items()))), []).append(at)
    return tuple(
        msgspec.structs.replace(_call(at, capture, forms, constrained), same=tuple(one.size for one in others))
        for at, *others in places.values()
    )


class _At(NamedTuple):
    """A subject at the sizes of this name; `kept` are those of symbols that masks make (see `Prepared.kept`)."""

    size: CallSize
    subject: Subject
    kept: Mapping[str, int]

    def fresh(self) -> PreparedSubject:
        """New arguments."""
        return replace(prepare(self.subject), kept=self.kept)


def _call(at: _At, capture: Capture, forms: tuple[Form, ...], constrained: bool) -> Call:
    expected = _run("eager", at, capture)
    captures = capture.captures()
    captured = _run("captured", at, capture)
    refusal, sizes = _explained(captured.ended, forms, at, capture)
    call = Call(at.size, expected.ended, refusal, recompiled=capture.captures() != captures)
    if not expected.ended.returned and not captured.ended.returned:
        return call
    returned = expected.ended.returned and captured.ended.returned
    compared = _compared(call, at, capture, expected, captured) if returned else call
    if not constrained and not differs(compared):
        return compared
    journal.enter("reading")
    ran = _ran(capture, at.fresh())
    return msgspec.structs.replace(compared, symbols=(*ran.symbols, *sizes), failing=ran.condition)


def _compared(call: Call, at: _At, capture: Capture, expected: _Result, captured: _Result) -> Call:
    """A call of which both sides returned, with what differs. User code may return what cannot be compared."""
    try:
        return _judged(call, at, capture, expected, captured)
    except Exception as error:
        if isinstance(error, MemoryError) or isinstance(at.subject, ProgramSubject):
            raise
        return msgspec.structs.replace(call, agreement="incomparable", why=f"not compared: {error_line(error)}")


def _judged(call: Call, at: _At, capture: Capture, expected: _Result, captured: _Result) -> Call:
    if lacks_values([expected.value, *expected.inputs, captured.value, *captured.inputs]):
        return msgspec.structs.replace(
            call, agreement="incomparable", why="a result is a fake or meta tensor, without values"
        )
    seen = list(_differences(expected, captured))
    if any(one.what in ROUNDED for one in seen) and _float64_decides(at, capture, captured):
        seen = [one for one in seen if one.what not in ROUNDED]
    accepted = [one for one in seen if is_accepted(one, seen)]
    wrong = tuple(one for one in seen if one not in accepted)
    why = _undetermined(at, capture, expected) if wrong else ""
    if why:
        return msgspec.structs.replace(call, agreement="incomparable", why=why)
    return msgspec.structs.replace(
        call,
        agreement="differs" if wrong else "same",
        differences=wrong[:MOST_DIFFERENCES],
        accepted=tuple(accepted[:MOST_DIFFERENCES]),
    )


def _explained(
    ended: CallEnd, forms: tuple[Form, ...], at: _At, capture: Capture
) -> tuple[CallEnd, tuple[tuple[str, int], ...]]:
    """How a captured program ended, with the condition that failed; and the static sizes of arguments that it names.

    Code of inductor gives the condition as the message. A guard on the arguments names their sizes: in
    `args_1.size()[0] == 3` the size becomes its unbacked symbol (`u0 == 3`), else a name (`args_1_size_0 == 3`).
    """
    message = ended.error.partition(": ")[2]
    guard = _GUARD.fullmatch(message)
    if ended.expression or guard is None:
        condition = ended.expression or condition_of(message, forms)
        return msgspec.structs.replace(ended, expression=condition), ()
    args, symbols = at.fresh().args, input_symbols(capture.graph)
    sizes: dict[str, int] = {}

    def named(size: re.Match[str]) -> str:
        arg, dim = size[1], int(size[2])
        if size[0] in symbols or arg is None or int(arg) >= len(args):
            return symbols.get(size[0], size[0])
        name, tensor = f"args_{arg}_size_{dim}", args[int(arg)]
        if isinstance(tensor, torch.Tensor):
            sizes[name] = int(tensor.shape[dim])
        return name

    condition = _SIZE.sub(named, guard[1])
    return msgspec.structs.replace(ended, expression=condition), tuple(sorted(sizes.items()))


def _undetermined(at: _At, capture: Capture, expected: _Result) -> str:
    """Why eager's own result is not determined by its inputs; empty if it is.

    Eager is called again, with other values in memory that a kernel does not initialize.
    """
    if expected.draws:
        return "random numbers"
    with filled_memory():
        again = _run("eager", at, capture)
    return (
        "" if again.ended == expected.ended and not any(_differences(expected, again)) else "eager differs from eager"
    )


@contextmanager
def filled_memory() -> Iterator[None]:
    """What torch allocates is NaN or the greatest integer (`torch.utils.deterministic.fill_uninitialized_memory`)."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def _at(subject: Subject, size: CallSize, *, static_dims: bool) -> _At | None:
    """The subject at data sizes of that name; None if it has no such form. User code is called as it is."""
    if not isinstance(subject, ProgramSubject):
        return _At(size, subject, {}) if size == "example" else None
    program = subject.program()
    resized, kept = masked_at_size(program, size) if static_dims else (at_data_size(program, size), {})
    if any(map(fault_of, resized.inputs)):  # such a size is not possible: `spd(n)` has none of 0
        return None
    return _At(size, ProgramSubject(print_program(resized)), kept)


def resized(subject: ProgramSubject, size: CallSize) -> ProgramSubject | None:
    """A program at data sizes of that name; None if an input cannot have them."""
    at = _at(subject, size, static_dims=False)
    return at.subject if at is not None and isinstance(at.subject, ProgramSubject) else None


def _run(side: Literal["eager", "captured"], at: _At, capture: Capture) -> _Result:
    journal.enter(side, at.size)
    fresh = at.fresh()
    compute = capture.compute if side == "captured" else capture.reference
    before = torch.default_generator.get_state()
    try:
        with _state_kept(capture.module):
            value = compute(fresh)
            if capture.backward:
                journal.enter(side, at.size, gradient=True)
            leaves = tuple(leaf for leaf in leaves_of(fresh) if isinstance(leaf, torch.Tensor))
            gradients = gradients_of(value, leaves) if capture.backward else ()
    except MemoryError:  # not the subject's (see `observe`)
        raise
    except Exception as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        return _Result(_ended(error))
    draws = not torch.equal(before, torch.default_generator.get_state())
    return _Result(CallEnd(), value, tuple(leaves_of(fresh)), gradients, draws)


@contextmanager
def _state_kept(module: torch.nn.Module | None) -> Iterator[None]:
    """Undo what a call changes in a module's buffers (running statistics): the other side starts from the same."""
    kept = {} if module is None else {name: value.clone() for name, value in module.state_dict().items()}
    try:
        yield
    finally:
        if module is not None:
            module.load_state_dict(kept)


def _ended(error: Exception) -> CallEnd:
    message = str(error).encode(errors="backslashreplace").decode().strip()
    asserted = ASSERTION.search(message)
    first = message.partition("\n")[0][:300]
    return CallEnd(f"{type(error).__name__}: {first}", asserted[1].strip() if asserted else "")


def _differences(expected: _Result, captured: _Result) -> Iterator[Difference]:
    yield from differences(expected.value, captured.value)
    for place, (wanted, got) in enumerate(zip(expected.inputs, captured.inputs, strict=True)):
        for difference in differences(wanted, got, f"input {place}"):
            yield Difference("mutation", difference.where, difference.how)
    for place, (wanted, got) in enumerate(zip(expected.gradients, captured.gradients, strict=False)):
        for difference in differences(wanted, got, f"gradient {place}"):
            if difference.what != "strides":
                yield Difference("gradient", difference.where, difference.how)
    named = [{str(place): value for place, value in enumerate(side.inputs)} for side in (expected, captured)]
    before, after = aliases(expected.value, named[0]), aliases(captured.value, named[1])
    for pair in sorted(before ^ after):
        only = ONLY_IN_EAGER if pair in before else "only when captured"
        yield Difference("alias", pair[1], f"shares memory with {pair[0]} {only}")


def _float64_decides(at: _At, capture: Capture, captured: _Result) -> bool:
    """Whether a run in float64 shows that both results are equally right and differ only by rounding.

    The subject runs in eager once more with its float inputs in float64.
    """
    if not isinstance(at.subject, ProgramSubject):
        return False
    program = at.subject.program()
    if not any(one.dtype in SMALL_FLOATS for one in program.inputs):
        return False
    wide = replace(
        program,
        inputs=tuple(replace(one, dtype="float64") if one.dtype in SMALL_FLOATS else one for one in program.inputs),
    )
    exact = _run("eager", at._replace(subject=ProgramSubject(print_program(wide))), capture)
    if not exact.ended.returned:
        return False
    sides = [[*floats(side.value), *floats(side.gradients)] for side in (exact, captured)]
    return len(sides[0]) == len(sides[1]) and all(
        one.shape == other.shape and close(one.to(other.dtype), other) for one, other in zip(*sides, strict=True)
    )


def _ran(capture: Capture, fresh: PreparedSubject) -> GraphRun:
    try:
        args = capture.graph_inputs(fresh)
    except Exception:  # noqa: BLE001 the arguments do not fit the graph
        args = None
    return GraphRun(()) if args is None else run_nodes(capture.graph, args)


def differences(expected: Any, actual: Any, where: str = "result") -> Iterator[Difference]:
    """Everything in which `actual` differs from `expected`, values of one container in their order."""
    match expected, actual:
        case torch.Tensor(), torch.Tensor():
            yield from _of_tensors(expected, actual, where)
        case (list() | tuple(), list() | tuple()):
            if len(expected) != len(actual):
                yield Difference("structure", where, f"{len(actual)} items, eager has {len(expected)}")
                return
            for place, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(wanted, got, f"{where}[{place}]")
        case dict(), dict():
            if len(expected) != len(actual) or not all(map(_same_key, expected, actual)):
                yield Difference("structure", where, f"keys {list(actual)}, eager has {list(expected)}")
                return
            for key, wanted, got in zip(expected, expected.values(), actual.values(), strict=True):
                yield from differences(wanted, got, f"{where}[{key!r}]")
        case (bool() | int() | float() | complex(), bool() | int() | float() | complex()):
            if isinstance(expected, float | complex) or isinstance(actual, float | complex):
                is_equal = close(*(torch.tensor(value, dtype=torch.complex128) for value in (expected, actual)))
            else:
                is_equal = bool(expected == actual)
            if type(expected) is not type(actual) or not is_equal:
                yield Difference("number", where, f"{actual!r}, eager has {expected!r}")
        case _ if type(expected) is not type(actual):
            yield Difference("structure", where, f"{type(actual).__name__}, eager has {type(expected).__name__}")
        case _ if isinstance(expected, str | torch.dtype | torch.device | torch.memory_format | torch.layout):
            if expected != actual:
                yield Difference("structure", where, f"{actual!r}, eager has {expected!r}")
        case _:
            return


def _same_key(expected: Any, actual: Any) -> bool:
    if isinstance(expected, torch.Tensor):  # two of them are equal only if they are one
        return not any(differences(expected, actual))
    return bool(expected == actual)


def _of_tensors(expected: torch.Tensor, actual: torch.Tensor, where: str) -> Iterator[Difference]:
    if expected.dtype != actual.dtype:
        yield Difference("dtype", where, f"{actual.dtype}, eager has {expected.dtype}")
        return
    if expected.shape != actual.shape:
        yield Difference("shape", where, f"{tuple(actual.shape)}, eager has {tuple(expected.shape)}")
        return
    if expected.layout != actual.layout:
        yield Difference("structure", where, f"{actual.layout}, eager has {expected.layout}")
        return
    if not lacks_values([expected, actual]) and not close(expected, actual):
        yield Difference("values", where, _how_much(expected, actual))
    if expected.layout == torch.strided and strides(expected) != strides(actual):
        copied = EXPANDED if 0 in strides(expected) and 0 not in strides(actual) else ""
        yield Difference("strides", where, f"{actual.stride()}, eager has {expected.stride()}{copied}")


def _how_much(expected: torch.Tensor, actual: torch.Tensor) -> str:
    expected, actual = comparable(expected, actual)
    unequal = ~torch.isclose(expected, actual, rtol=0, atol=0, equal_nan=True)
    first = tuple(int(place) for place in unequal.nonzero()[0]) if unequal.any() else ()
    at = f" at {first}" if first else ""
    return (
        f"{int(unequal.sum())} of {unequal.numel()} elements; first{at}: {actual[first].item()!r}, "
        f"eager has {expected[first].item()!r}"
    )


def aliases(result: Any, inputs: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Which tensors of a result share memory with each other or with inputs, by name."""
    named = [(f"input {name}", value) for name, value in inputs.items()] + list(tensors_in(result, "result"))
    memory = [
        (name, where)
        for name, value in named
        if isinstance(value, torch.Tensor) and value.numel() and (where := _address(value))
    ]
    return frozenset(
        (one, other)
        for place, (one, address) in enumerate(memory)
        for other, same in memory[place + 1 :]
        if address == same and other.startswith("result")
    )


def _address(tensor: torch.Tensor) -> int:
    """Where the tensor's memory is. 0 for one without memory of its own: sparse, of a subclass, of torch.func, fake."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0
    except RuntimeError:
        return 0


def lacks_values(value: Any) -> bool:
    """Whether a tensor has no values: a constant may be a fake one of tracing, an argument on the device `meta`."""
    return any(hasattr(tensor, "fake_mode") or tensor.is_meta for _, tensor in tensors_in(value, ""))


def tensors_in(value: Any, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested containers, each with its name."""
    match value:
        case torch.Tensor():
            yield where, value
        case list() | tuple():
            for place, item in enumerate(value):
                yield from tensors_in(item, f"{where}[{place}]")
        case dict():
            for key, item in value.items():
                yield from tensors_in(item, f"{where}[{key!r}]")
        case _:
            return
