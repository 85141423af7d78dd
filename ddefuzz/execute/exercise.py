"""Call what a stage captured, and eager with the same inputs, at stated data sizes, and say in what the results differ.

Every call gets new inputs, the same for both, and the same seeds. What was captured is only called here: hooks are not
installed, and nothing of torch leaves this module.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from ddefuzz.errors import is_of
from ddefuzz.execute import comparison, journal
from ddefuzz.execute.comparison import (
    ROUNDED,
    by_place,
    compared,
    gradients_of,
    is_inexact,
    is_rounding,
    lacks_values,
    parts_of,
    spans_processes,
)
from ddefuzz.execute.graphs import ASSERTION, GraphRun, input_symbols, marked_sizes, result_nodes, run_nodes
from ddefuzz.execute.isolation import TransformsLeft
from ddefuzz.execute.parallel import unequal_gradients
from ddefuzz.execute.preparation import PreparedSubject, leaves_of
from ddefuzz.execute.processes import all_processes, by_process, exchanged, has_uneven, own_tensors
from ddefuzz.execute.protocol import (
    NO_VALUES,
    ONLY_IN_EAGER,
    Call,
    CallEnd,
    Difference,
    Form,
    ProgramSubject,
    Subject,
    condition_of,
    is_accepted,
)
from ddefuzz.execute.stages import Capture
from ddefuzz.execute.subject import error_line, prepare
from ddefuzz.instrument import torch_api
from ddefuzz.instrument.frames import graph_frames, traceback_frames
from ddefuzz.instrument.recorder import modules_in
from ddefuzz.internal import message_of, traceback_of
from ddefuzz.program.plain import ControlFlowInPython, address_of
from ddefuzz.program.recipes import fault_of
from ddefuzz.program.sizes import CallSize, at_data_size, masked_at_size, order_of, with_drawn
from ddefuzz.program.text import print_program

MOST_DIFFERENCES = 5  # differences that are kept of a call

_GUARD = re.compile(r"Guard failed: (.+)")
"""What an exported program says of inputs that do not fit (torch/export/_unlift.py)."""

_SIZE = re.compile(r"\b(?:args_(\d+)|\w+)\.size\(\)\[(\d+)\]")  # a size of an argument in such a guard
SMALL_FLOATS = frozenset({"float16", "bfloat16", "float32"})


NUDGES = 4
"""How often eager is called with its float inputs changed by about one unit in the last place, to learn whether an
integer or a bool of its result hangs on rounding."""


def exercise(
    subject: Subject,
    capture: Capture,
    sizes: tuple[CallSize, ...],
    forms: tuple[Form, ...] = (),
    *,
    seed: int = 0,
) -> tuple[Call, ...]:
    """Call eager and the captured program at each of the sizes; once where two names lead to the same inputs.

    `seed` is that of the drawn sizes. `forms` have the assertions that a refusal may come from.
    """
    places: dict[tuple[Subject, tuple[tuple[str, int], ...]], list[_At]] = {}
    if isinstance(subject, ProgramSubject):
        sizes = with_drawn(subject.program(), sizes, seed)
    for size in sizes:
        at = _at(subject, size, static_dims=capture.static_dims)
        if at is not None:
            places.setdefault((at.subject, tuple(sorted(at.kept.items()))), []).append(at)
    return tuple(
        msgspec.structs.replace(_call(at, capture, forms), same=tuple(one.size for one in others))
        for at, *others in places.values()
    )


NO_MEMORY = "can't allocate memory"
"""What torch's allocator says (c10/core/impl/alloc_cpu.cpp). A worker may have less memory than the machine."""


class _At(NamedTuple):
    """A subject at the sizes of this name; `kept` are those of symbols that masks make (see `PreparedSubject.kept`).
    `everywhere` says that calls compute what all processes of a mesh do.
    """

    size: CallSize
    subject: Subject
    kept: Mapping[str, int]
    everywhere: bool = False

    def fresh(self) -> PreparedSubject:
        """New arguments."""
        return replace(prepare(self.subject), kept=self.kept)

    def mode(self) -> AbstractContextManager[object]:
        """Where arguments and gradients are made."""
        return all_processes() if self.everywhere else nullcontext()


@TransformsLeft()
def _call(at: _At, capture: Capture, forms: tuple[Form, ...]) -> Call:
    began = time.process_time()
    expected = _run("eager", at, capture)
    captures, eager = capture.captures(), time.process_time() - began
    captured = _run("captured", at, capture, eager=eager)
    journal.enter("reading")
    if any(NO_MEMORY in one.ended.error for one in (expected, captured)):
        call = Call(at.size, expected.ended, captured.ended)
        return msgspec.structs.replace(call, agreement="incomparable", why="not compared: no memory is left")
    refusal, sizes = _explained(captured.ended, forms, at, capture)
    call = Call(at.size, expected.ended, refusal, recompiled=capture.captures() != captures)
    if call.recompiled:
        call = msgspec.structs.replace(call, symbols=_marked(capture, at.fresh()))
    if not expected.ended.returned and not captured.ended.returned:
        return call
    returned = expected.ended.returned and captured.ended.returned
    compared = _compared(call, at, capture, expected, captured) if returned else call
    if call.recompiled:
        return compared
    if any(map(spans_processes, (*expected.left.inputs, *_state(capture.module)))):
        compared = _everywhere(compared, at, capture)
    journal.enter("reading")
    ran = _ran(capture, at.fresh())
    # The graph of a program that returns a tensor of its trace lacks what computes it.
    is_whole = returned and not any(one.how == NO_VALUES for one in compared.differences)
    return msgspec.structs.replace(
        compared, symbols=(*ran.symbols, *sizes), failing=ran.condition, node=ran.node if is_whole else None
    )


def _marked(capture: Capture, fresh: PreparedSubject) -> tuple[tuple[str, int], ...]:
    """The sizes of the marked dims in a call."""
    leaves, sizes = leaves_of(fresh), marked_sizes(capture, fresh).items()
    return tuple(sorted((name, int(leaves[place.leaf].shape[place.dim])) for name, (place, _) in sizes))


def _compared(call: Call, at: _At, capture: Capture, expected: _Result, captured: _Result) -> Call:
    """A call of which both sides returned, with what differs. User code may return what cannot be compared."""
    try:
        judged = _judged(call, at, capture, expected, captured)
        return judged if isinstance(at.subject, ProgramSubject) else _with_lines(judged, capture, captured)
    except Exception as error:
        if is_of(error, MemoryError) or isinstance(at.subject, ProgramSubject):
            raise
        return msgspec.structs.replace(call, agreement="incomparable", why=f"not compared: {error_line(error)}")


def _with_lines(call: Call, capture: Capture, captured: _Result) -> Call:
    """A call of the user's code with the lines that made each wrong result, where the exported program knows them."""
    if capture.program is None or not call.differences:
        return call
    nodes = result_nodes(capture.program)
    places = list(parts_of(captured.left.result))
    made = dict(zip(places, nodes, strict=True)) if len(places) == len(nodes) else {}
    return msgspec.structs.replace(
        call,
        differences=tuple(
            one if (node := made.get(one.where)) is None else msgspec.structs.replace(one, frames=graph_frames(node))
            for one in call.differences
        ),
    )


def _everywhere(call: Call, at: _At, capture: Capture) -> Call:
    """A call with DTensors, compared once more, with the values of all processes."""
    try:
        why, judged = _in_all_processes(call, at, capture)
    except Exception as error:
        if is_of(error, MemoryError):
            raise
        why, judged = error_line(error), call
    return msgspec.structs.replace(judged, everywhere=f"not compared: {why}" if why else "compared")


def _in_all_processes(call: Call, at: _At, capture: Capture) -> tuple[str, Call]:
    """Why the values of all processes cannot be compared, and the call; or an empty text, and the call with them."""
    if not capture.exchanges or not isinstance(at.subject, ProgramSubject):
        return "the stage captures for one process", call
    if call.agreement != "same" or call.accepted:
        return "the call differs in one process", call
    everywhere = at._replace(everywhere=True)
    with everywhere.mode():
        fresh = everywhere.fresh()
    if has_uneven(_tensors(fresh), {(place.leaf, place.dim) for place in fresh.unbacked}):
        return "a static dim is sharded unevenly", call

    def compute(fresh: PreparedSubject) -> Any:
        state = torch.default_generator.get_state()
        of_one = at.fresh()
        torch.default_generator.set_state(state)
        with exchanged((*leaves_of(of_one), *_state(capture.module)), _tensors(fresh)) as exchange:
            value = capture.compute(of_one)
        if not exchange.is_done:
            raise RuntimeError("the captured graph was not called")
        return exchange.of(value)

    def reference(fresh: PreparedSubject) -> Any:
        with all_processes():
            return fresh.call(*fresh.args, **fresh.kwargs)

    changed = capture._replace(compute=compute, reference=reference)
    expected, captured = _run("eager", everywhere, changed), _run("captured", everywhere, changed)
    if refusal := expected.ended.error or captured.ended.error:
        return refusal, call
    judged = _judged(call, everywhere, changed, expected, captured)
    if judged.agreement == "incomparable":
        return judged.why, call
    unequal = unequal_gradients(at.subject.program(), everywhere.fresh) if judged.agreement == "same" else []
    differences = tuple(Difference(*one) for one in unequal[:MOST_DIFFERENCES])
    agreement = "differs" if differences else judged.agreement
    return "", msgspec.structs.replace(judged, agreement=agreement, differences=(*judged.differences, *differences))


def _tensors(fresh: PreparedSubject) -> tuple[Any, ...]:
    """The leaves of the arguments, and the state of the module that was prepared with them."""
    return *leaves_of(fresh), *_state(fresh.call if isinstance(fresh.call, torch.nn.Module) else None)


def _state(module: torch.nn.Module | None) -> tuple[torch.Tensor, ...]:
    return () if module is None else (*module.parameters(), *module.buffers())


def _judged(call: Call, at: _At, capture: Capture, expected: _Result, captured: _Result) -> Call:
    values = tensors_in([expected.left.result, *expected.left.inputs], "")
    if any(lacks_values(tensor) for _, tensor in values):
        return msgspec.structs.replace(
            call, agreement="incomparable", why="a result is a fake or meta tensor, without values"
        )
    without = [where for where, tensor in tensors_in(captured.left.result, "result") if lacks_values(tensor)]
    if without:
        differences = tuple(Difference("values", where, NO_VALUES) for where in without)
        return msgspec.structs.replace(call, agreement="differs", differences=differences[:MOST_DIFFERENCES])
    unequal = _without_rounding(list(_differences(expected, captured)), at, capture, expected, captured)
    accepted = [one for one in unequal if is_accepted(one, unequal)]
    wrong = [one for one in unequal if one not in accepted]
    left = _determined(wrong, at, capture, expected) if wrong else []
    if wrong and not left:
        return msgspec.structs.replace(call, agreement="incomparable", why="eager differs from eager")
    return msgspec.structs.replace(
        call,
        agreement="differs" if left else "same",
        differences=tuple(left[:MOST_DIFFERENCES]),
        accepted=tuple(accepted[:MOST_DIFFERENCES]),
    )


def _without_rounding(
    unequal: list[Difference], at: _At, capture: Capture, expected: _Result, captured: _Result
) -> list[Difference]:
    """The differences that rounding does not explain.

    A part of the result is rounded if eager computes the same in float64. An integer or a bool hangs on rounding, too,
    if eager itself gives another one for float inputs that differ in their last bit.
    """
    left = [one for one in unequal if one.what in ROUNDED]
    wide = _in_float64(at) if left else None
    if wide is not None:
        exact = _run("eager", wide, capture).left
        left = [one for one in left if not is_rounding(comparison.Unequal(one.what, one.where), exact, captured.left)]
    parts = by_place(expected.left)
    exactly = [one for one in left if not is_inexact(parts.get(one.where))]
    for seed in range(NUDGES if exactly else 0):
        nudged = _run("eager", at, capture, nudge=seed)
        moved = {one.where for one in _differences(expected, nudged)}
        left = [one for one in left if one not in exactly or one.where not in moved]
    return [one for one in unequal if one.what not in ROUNDED or one in left]


def _in_float64(at: _At) -> _At | None:
    """The program with its float inputs in float64; None for user code, and if it has none that are smaller."""
    if not isinstance(at.subject, ProgramSubject):
        return None
    program = at.subject.program()
    if not any(one.dtype in SMALL_FLOATS for one in program.inputs):
        return None
    wide = tuple(replace(one, dtype="float64") if one.dtype in SMALL_FLOATS else one for one in program.inputs)
    return at._replace(subject=ProgramSubject(print_program(replace(program, inputs=wide))))


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


def _determined(wrong: list[Difference], at: _At, capture: Capture, expected: _Result) -> list[Difference]:
    """The differences in what the inputs determine.

    Eager is called again, with other random numbers and other values in memory that a kernel does not initialize. What
    differs then is not determined, nor is a part of it.
    """
    with filled_memory():
        again = _run("eager", at, capture, seed=1)
    if again.ended != expected.ended:
        return []
    moved = {one.where for one in _differences(expected, again)}
    return [one for one in wrong if not any(one.where == place or one.where.startswith(f"{place}[") for place in moved)]


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


class _Result(NamedTuple):
    """What one side of a call did. What it left belongs to a call that returned."""

    ended: CallEnd
    left: comparison.CallResult = comparison.CallResult()


@TransformsLeft()
def _run(
    side: Literal["eager", "captured"],
    at: _At,
    capture: Capture,
    *,
    seed: int = 0,
    nudge: int | None = None,
    eager: float = 0.0,
) -> _Result:
    journal.enter(side, at.size, eager=eager)
    with at.mode():
        fresh = at.fresh()
    if seed or at.everywhere:
        torch.default_generator.manual_seed(seed)
    if nudge is not None:
        _nudge(leaves_of(fresh), nudge)
    compute = capture.compute if side == "captured" else capture.reference
    try:
        with _state_kept(capture.module), nullcontext() if side == "captured" else ControlFlowInPython():
            value = compute(fresh)
            order = 1 if at.everywhere else order_of(at.size, backward=capture.backward)
            if order:
                journal.enter(side, at.size, gradient=True, eager=eager)
            leaves = tuple(leaves_of(fresh))
            with at.mode():
                wanted = _tensors(fresh) if at.everywhere else leaves
                gradients = gradients_of(value, wanted, order) if order else ()
    except MemoryError:  # not the subject's (see `observe`)
        raise
    except BaseException as error:  # noqa: BLE001 the subject is under test: that it raises is the observation
        return _Result(_ended(error))
    left = comparison.CallResult(None, value, leaves, gradients)
    return _Result(CallEnd(), by_process(left) if at.everywhere else left)


def _nudge(leaves: list[Any], seed: int) -> None:
    """Change each element of the float tensors by about one unit in the last place, up or down."""
    generator = torch.Generator().manual_seed(seed)
    for leaf in leaves:
        for tensor in own_tensors(leaf):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.layout == torch.strided:
                signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
                with suppress(RuntimeError), torch.no_grad():  # two elements of it may share memory
                    tensor.mul_((1 + signs * torch.finfo(tensor.dtype).eps).to(tensor.dtype))


@contextmanager
def _state_kept(module: torch.nn.Module | None) -> Iterator[None]:
    """Undo what a call changes in a module's buffers (running statistics): the other side starts from the same."""
    kept = [
        (tensors, name, tensor, tensor.detach().clone())
        for _, one in (modules_in(module) if module is not None else ())
        for tensors in (vars(one)["_parameters"], vars(one)["_buffers"])
        for name, tensor in tensors.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        for tensors, name, tensor, values in kept:
            tensors[name] = tensor
            with torch.no_grad(), suppress(RuntimeError):  # it cannot be written, or has another size now
                tensor.copy_(values)


def _ended(error: BaseException) -> CallEnd:
    message = message_of(error).strip()
    asserted = ASSERTION.search(message)
    first = message.partition("\n")[0][:300]
    is_guard = type(error).__name__ == torch_api.GUARD_ERROR.name
    shown = traceback_frames(traceback_of(error)) if is_guard else ()
    return CallEnd(f"{type(error).__name__}: {first}", asserted[1].strip() if asserted else "", frames=shown)


def _differences(expected: _Result, captured: _Result) -> Iterator[Difference]:
    yield from (Difference(*one) for one in compared(expected.left, captured.left))
    named = [{str(place): value for place, value in enumerate(side.left.inputs)} for side in (expected, captured)]
    before, after = aliases(expected.left.result, named[0]), aliases(captured.left.result, named[1])
    for pair in sorted(before ^ after):
        only = ONLY_IN_EAGER if pair in before else "only when captured"
        yield Difference("alias", pair[1], f"shares memory with {pair[0]} {only}")


def _ran(capture: Capture, fresh: PreparedSubject) -> GraphRun:
    try:
        args = capture.graph_inputs(fresh)
    except Exception:  # noqa: BLE001 the arguments do not fit the graph
        args = None
    if args is None:
        return GraphRun(())
    ran = run_nodes(capture.graph, args)
    gradients = capture.gradients()
    for graph, given in (*capture.lowered().items(), *gradients.items()):
        if ran.node is None and given is not None:
            node = run_nodes(graph, given).node
            ran = ran._replace(node=node and msgspec.structs.replace(node, lowered=True))
    gradients.update(dict.fromkeys(gradients))  # the next call may compute none
    return ran


def aliases(result: Any, inputs: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Which tensors of a result share memory with each other or with inputs, by name."""
    named = [(f"input {name}", value) for name, value in inputs.items()] + list(tensors_in(result, "result"))
    memory = [
        (name, where)
        for name, value in named
        if isinstance(value, torch.Tensor) and value.numel() and (where := address_of(value))
    ]
    return frozenset(
        (one, other)
        for place, (one, address) in enumerate(memory)
        for other, same in memory[place + 1 :]
        if address == same and other.startswith("result")
    )


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
